// Subscripts: what they share, what they write and what they refuse. That shapes and values are NumPy's is for
// numpy_judge_test.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::function<void()>& call,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}

NDArray Numbers(const Shape& shape) { return Arange(0, shape.NumElements()).Reshape(shape); }
std::vector<float> Floats(const NDArray& x) { return x.ToVector<float>(); }
NDArray Indices(const std::vector<int64_t>& values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}

TEST(Subscripts, ViewsShareBytes) {
  NDArray x = Numbers({3, 4});
  NDArray column = x(All(), -1);
  EXPECT_THAT(Floats(column), ElementsAre(3, 7, 11));
  column += 100;
  EXPECT_EQ(x.At<float>({2, 3}), 111);
  EXPECT_THAT(Floats(x(1, Range({}, {}, -2))), ElementsAre(107, 5));
  EXPECT_EQ(x(Ellipsis(), NewAxis()).shape(), (Shape{3, 4, 1}));
  EXPECT_EQ(x(2, 3).rank(), 0);
  // As many axes as there may be, once numbers have taken theirs away.
  const NDArray many = Numbers({1, 1, 2, 1, 1});
  const NDArray most =
      many(All(), NewAxis(), All(), NewAxis(), NewAxis(), NewAxis(), 1, All(), All());
  EXPECT_EQ(most.shape(), (Shape{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_THAT(Floats(most), ElementsAre(1));
  EXPECT_THAT(Floats(x(Range(-1, 100), Range(1, 3))), ElementsAre(9, 10));
  EXPECT_EQ(x(Range(5, 2)).shape(), (Shape{0, 4}));
}

TEST(Subscripts, WhatACallReturnsIsWrittenTo) {
  NDArray x = Zeros({2, 3});
  const NDArray before = x;
  x(0, All()) = Numbers({3});
  x(1, Range(1, {})) = 7;
  x(All(), 0) += 1;
  EXPECT_THAT(Floats(before), ElementsAre(1, 1, 2, 1, 7, 7));
  x(All(), Range(0, 2)) =
      Full({1, 1, 2}, 5, DType::kInt32);  // converted; leading axes of one element go
  EXPECT_THAT(Floats(before), ElementsAre(5, 5, 2, 5, 5, 7));
  x.Transpose() = Numbers({3, 2});
  EXPECT_THAT(Floats(before), ElementsAre(0, 2, 4, 1, 3, 5));
  // A variable becomes another array.
  NDArray row = x(0);
  row = Ones({3});
  EXPECT_THAT(Floats(before(0)), ElementsAre(0, 2, 4));
}

TEST(Subscripts, WritesMayOverlapWhatIsRead) {
  NDArray x = Numbers({6});
  x(Range(1, {})) = x(Range(0, -1));
  EXPECT_THAT(Floats(x), ElementsAre(0, 0, 1, 2, 3, 4));
  x(Range({}, {}, -1)) = NDArray(x);
  EXPECT_THAT(Floats(x), ElementsAre(4, 3, 2, 1, 0, 0));
  NDArray square = Numbers({2, 2});
  square += square.Transpose();
  EXPECT_THAT(Floats(square), ElementsAre(0, 3, 3, 6));
  square(Indices({1, 0})) = square;
  EXPECT_THAT(Floats(square), ElementsAre(3, 6, 0, 3));
}

TEST(Selections, ReadAndWrite) {
  NDArray x = Numbers({2, 3});
  EXPECT_THAT(Floats(x(x > 2)), ElementsAre(3, 4, 5));
  x(x > 3) = 0;
  EXPECT_THAT(Floats(x), ElementsAre(0, 1, 2, 3, 0, 0));
  x(All(), Indices({2, 0})) += 10;
  EXPECT_THAT(Floats(x), ElementsAre(10, 1, 12, 13, 0, 10));
  // Of an index that comes twice the last value stays.
  x(1, Indices({1, 1})) = Numbers({2});
  EXPECT_EQ(x.At<float>({1, 1}), 1);
  // They convert to arrays where these are expected.
  EXPECT_EQ(Sum(x(Indices({-1}))).Item<float>(), 24);
  const NDArray none = x(x > 1000);
  EXPECT_EQ(none.shape(), (Shape{0}));
  x(x > 1000) = 5;
  EXPECT_EQ(Max(x).Item<float>(), 13);
  x(Indices({0, 1})) = x(Indices({1, 0}));
  EXPECT_THAT(Floats(x(0)), ElementsAre(13, 1, 10));
}

// It stands for a new axis, of one element or none.
TEST(Selections, AMaskOfRankZeroSelectsAllOrNothing) {
  const NDArray yes = Full({}, true, DType::kBool), no = Full({}, false, DType::kBool);
  NDArray x = Numbers({2, 3});
  EXPECT_EQ(NDArray(x(yes)).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(NDArray(x(no)).shape(), (Shape{0, 2, 3}));
  EXPECT_EQ(NDArray(x(no, 0)).shape(), (Shape{0, 3}));
  EXPECT_EQ(NDArray(x(1, yes)).shape(), (Shape{1, 3}));
  x(no) = 9;
  x(no) += 9;
  EXPECT_THAT(Floats(x), ElementsAre(0, 1, 2, 3, 4, 5));
  x(yes) += 1;
  EXPECT_THAT(Floats(x), ElementsAre(1, 2, 3, 4, 5, 6));
  NDArray loss = Full({}, 15);
  loss(loss > 1e6) = 0;
  EXPECT_EQ(loss.Item<float>(), 15);
  loss(loss > 1) = 0;
  EXPECT_EQ(loss.Item<float>(), 0);
}

// Nothing stays there.
TEST(Selections, AreWrittenToInACappedManager) {
  NDManager root = NDManager::NewRoot("root"), manager = root.NewSubManager("m");
  NDArray x = Zeros({3}, DType::kFloat32, manager);
  manager.Cap();
  x(Indices({0, 2})) += 1;
  x(Indices({0})) -= Ones({1});
  x(Indices({2})) *= 4;
  x(Indices({1})) = 7;
  EXPECT_THAT(Floats(x), ElementsAre(0, 7, 4));
}

TEST(Selections, WriteToViewsOfWhatTheySelectFrom) {
  NDArray x = Numbers({2, 2, 2});
  x.Transpose()(Indices({0}), 1) = -1;
  EXPECT_THAT(Floats(x), ElementsAre(0, 1, -1, 3, 4, 5, -1, 7));
}

TEST(Subscripts, ErrorsSayWhatIsExpected) {
  NDArray x = Numbers({2, 3});
  EXPECT_EQ(Refusal([&] { x(0, 3); }), "Op [index]: 3 in axis 1 of shape [2, 3], expected -3 to 2");
  EXPECT_EQ(Refusal([&] { x(0, -4); }),
            "Op [index]: -4 in axis 1 of shape [2, 3], expected -3 to 2");
  EXPECT_EQ(Refusal([&] { x(0, 0, 0); }),
            "Op [index]: subscripts stand for 3 axes, expected at most 2, those of shape [2, 3]");
  EXPECT_THAT(Refusal([&] { x(size_t{0} - 1); }),
              HasSubstr("18446744073709551615, expected at most"));
  EXPECT_THAT(Refusal([&] { x(Ellipsis(), Ellipsis()); }),
              HasSubstr("found 2 ellipses, expected at most 1"));
  EXPECT_THAT(Refusal([&] { x(Range(0, 2, 0)); }),
              HasSubstr("a range of axis 0 of shape [2, 3] has step 0"));
  EXPECT_EQ(Refusal([&] {
              (void)x(Indices({0, 2}));
            }),
            "Op [index]: index 2 at position 1 of an index array, expected -2 to 1");
  EXPECT_THAT(Refusal([&] { (void)x(Ones({3}, DType::kBool)); }),
              HasSubstr("a mask of shape [3] stands for axis 0"));
  EXPECT_THAT(Refusal([&] { (void)x(Ones({2})); }),
              HasSubstr("indices are f32, expected integers, or bool"));
  EXPECT_THAT(Refusal([&] {
                (void)x(Indices({0, 1}), Indices({0, 1, 2}));
              }),
              HasSubstr("do not broadcast"));
  EXPECT_THAT(Refusal([&] { x(0) = Ones({2}); }), HasSubstr("Op [assign]"));
  EXPECT_THAT(Refusal([&] { x(x > 2) = Ones({2}); }), HasSubstr("Op [index]"));
  EXPECT_THAT(Refusal([&] {
                x(0) = Ones({2, 3});
              }),
              HasSubstr("values have shape [2, 3], expected one that broadcasts to [3]"));
  EXPECT_THAT(Refusal([&] { Cast(x, DType::kInt8)(x > 2) = 2.5; }),
              HasSubstr("expected a whole number that i8 holds"));
  const std::vector<Subscript> list = {Subscript(x)};
  EXPECT_THAT(Refusal([&] { x.Subscripted(list); }), HasSubstr("expected numbers and ranges"));
  EXPECT_THAT(Floats(x), ElementsAre(0, 1, 2, 3, 4, 5));
  NDArray closed = Ones({2});
  closed.Close();
  EXPECT_THAT(Refusal([&] { closed(0); }, absl::StatusCode::kFailedPrecondition),
              HasSubstr("Op [index]"));
  EXPECT_THAT(Refusal([&] { x(0) = closed; }, absl::StatusCode::kFailedPrecondition),
              HasSubstr("Op [assign]"));
  EXPECT_THAT(Refusal([&] { NDArray()(0); }), HasSubstr("undefined array"));
}

TEST(Subscripts, OfRankZeroAndWithoutElements) {
  EXPECT_EQ(Ones({})(Ellipsis()).rank(), 0);
  EXPECT_EQ(Ones({})(NewAxis(), NewAxis()).shape(), (Shape{1, 1}));
  NDArray empty = Zeros({0, 3});
  EXPECT_EQ(empty(All(), 1).shape(), (Shape{0}));
  empty(All(), 1) = 5;
  EXPECT_EQ(NDArray(empty(Indices({}))).shape(), (Shape{0, 3}));
  EXPECT_THAT(Refusal([&] { empty(0); }), HasSubstr("Op [index]: 0 in axis 0 of shape [0, 3]"));
}

// Also of index arrays that select nothing, because another one is empty or other axes have no elements.
TEST(Selections, IndicesAreLookedAtWhereNothingIsSelected) {
  NDArray x = Numbers({3, 4}), flat = Zeros({3, 0});
  const NDArray empty = Indices({});
  EXPECT_EQ(NDArray(x(Indices({2}), empty)).shape(), (Shape{0}));
  EXPECT_THAT(Refusal([&] { x(Indices({3}), empty); }),
              HasSubstr("index 3 at position 0 of an index array, expected -3 to 2"));
  EXPECT_THAT(Refusal([&] { x(empty, Indices({-5})); }), HasSubstr("index -5 at position 0"));
  EXPECT_THAT(Refusal([&] { x(Indices({3}), empty) = 1; }), HasSubstr("index 3"));
  EXPECT_EQ(NDArray(flat(Indices({2}))).shape(), (Shape{1, 0}));
  EXPECT_THAT(Refusal([&] { flat(Indices({0, 3})); }), HasSubstr("index 3 at position 1"));
  EXPECT_THAT(Refusal([&] { flat(Indices({3})) = 1; }), HasSubstr("index 3"));
  EXPECT_THAT(Refusal([&] { flat(All(), Indices({0})); }), HasSubstr("index 0"));
}

TEST(Selections, AreServedByALearnedCycle) {
  Workspace workspace("w", WorkspaceConfig::Training());
  NDArray x = Numbers({64});
  for (int i = 0; i < 5; ++i) {
    WorkspaceScope scope(workspace);
    x(x > 30) = x(Range(0, 33)) * 0.5;
    x(Range(1, {})) = x(Range(0, -1));
    x(All()) = Arange(0, 64);
  }
  EXPECT_EQ(workspace.stats().misses, 0);
  EXPECT_EQ(workspace.stats().leaked_arrays, 0);
}

}  // namespace
}  // namespace tidepool
