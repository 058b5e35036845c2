// What NumPy's and PyTorch's users look for (gather and scatter of elements, searching, statistics, rearranging,
// bits): what is refused, what is shared, gradients, memory. That values are NumPy's is for numpy_judge_test.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/bitwise.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/einsum.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/rearranging.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/searching.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/statistics.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/testing/gradient_check.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr DType kI32 = DType::kInt32, kI64 = DType::kInt64;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return std::string(error.message());
  }
  return "nothing was thrown";
}
NDArray I(std::vector<int64_t> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
NDArray F(std::vector<float> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
NDArray Numbers(const Shape& shape) { return Arange(0, shape.NumElements()).Reshape(shape); }
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }
std::vector<int64_t> Wholes(const NDArray& x) { return Cast(x, kI64).ToVector<int64_t>(); }
constexpr ScatterReduction kNone = ScatterReduction::kNone, kAdd = ScatterReduction::kAdd;

// What `call` asks of a workspace.
size_t RequestedBytes(const std::function<void()>& call) {
  Workspace workspace("REQUESTED");
  for (int cycle = 0; cycle < 4; ++cycle) {
    WorkspaceScope scope(workspace);
    call();
  }
  EXPECT_GT(workspace.stats().requested_bytes, 0u);
  return workspace.stats().requested_bytes;
}

// ---- gather and scatter of elements -----------------------------------------------------------------

TEST(GatherElements, Refusals) {
  const NDArray x = Ones({3, 4});
  EXPECT_EQ(Refusal([&] { Gather(x, 1, I({0})); }),
            "Op [gather]: indices has shape [1], X has shape [3, 4]; expected the same rank of at "
            "least 1");
  EXPECT_EQ(Refusal([&] {
              Gather(x, 1, I({0, 0}).Reshape({2, 1}));
            }),
            "Op [gather]: indices has shape [2, 1], X has shape [3, 4]; sizes 2 and 3 of axis 0 do "
            "not broadcast");
  EXPECT_EQ(Refusal([&] {
              Gather(x, -1, I({0, 4}).Reshape({1, 2}));
            }),
            "Op [gather]: index 4 at position 1, expected 0 to 3");
  EXPECT_EQ(Refusal([&] {
              Gather(x, 1, I({-1}).Reshape({1, 1}));
            }),
            "Op [gather]: index -1 at position 0, expected 0 to 3");
  EXPECT_EQ(Refusal([&] {
              Gather(x, 2, I({0}).Reshape({1, 1}));
            }),
            "Op [gather]: axis 2 of an array of rank 2, expected -2 to 1");
  EXPECT_EQ(Refusal([&] { Gather(x, 0, x); }), "Op [gather]: indices is f32, expected i64 or i32");
  EXPECT_EQ(
      Refusal([&] { Gather(Full({}, 1), 0, Full({}, 0, kI64)); }),
      "Op [gather]: indices has shape [], X has shape []; expected the same rank of at least 1");
  NDArray z = Empty({3, 2});
  const NDArray indices = Zeros({3, 1}, kI64);
  EXPECT_EQ(Refusal([&] { GatherInto(x, 1, indices, z); }),
            "Op [gather]: Z has shape [3, 2], expected [3, 1]");
  NDArray column = x.Slice(1, 1, 2);
  EXPECT_EQ(Refusal([&] { GatherInto(x, 1, indices, column); }), "Op [gather]: Z overlaps X");
}

TEST(ScatterElements, RefusalsLeaveTheTarget) {
  NDArray z = Zeros({3, 2});
  const NDArray rows = I({0, 2}).Reshape({1, 2});
  EXPECT_EQ(Refusal([&] {
              ScatterInto(0, I({0, 3}).Reshape({1, 2}), Ones({1, 2}), kNone, z);
            }),
            "Op [scatter]: index 3 at position 1, expected 0 to 2");
  EXPECT_EQ(Refusal([&] {
              ScatterInto(0, rows, Ones({3, 2}), kNone, z);
            }),
            "Op [scatter]: updates has shape [3, 2], expected one that broadcasts to [1, 2]");
  EXPECT_EQ(Refusal([&] {
              ScatterInto(0, rows, Ones({1, 2}, kI32), kNone, z);
            }),
            "Op [scatter]: updates is i32, expected f32");
  EXPECT_EQ(Refusal([&] { ScatterInto(0, I({0}), Ones({1}), kNone, z); }),
            "Op [scatter]: indices has shape [1], target has shape [3, 2]; expected the same rank "
            "of at least 1");
  NDArray same = Zeros({1, 2}).BroadcastTo({3, 2});
  EXPECT_EQ(
      Refusal([&] {
        ScatterInto(0, rows, Ones({1, 2}), kNone, same);
      }),
      "Op [scatter]: target of shape [3, 2] repeats its elements; Dup() makes an array of its own");
  NDArray truths = Zeros({3}, DType::kBool);
  EXPECT_THAT(Refusal([&] { ScatterInto(0, I({0}), Ones({1}, DType::kBool), kAdd, truths); }),
              HasSubstr("target is bool, expected a number type to add or multiply"));
  NDArray places = Zeros({2}, kI64);
  EXPECT_EQ(Refusal([&] { ScatterInto(0, places, places, kNone, places); }),
            "Op [scatter]: indices overlaps target");
  EXPECT_THAT(Values(z), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(ScatterElements, TheLastOfEqualsStays) {
  constexpr int64_t kCount = 100000, kSize = 37;
  std::vector<int64_t> indices(kCount), updates(kCount), expected(kSize, -1);
  uint64_t state = 5;
  for (int64_t i = 0; i < kCount; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    indices[i] = static_cast<int64_t>(state >> 33) % kSize;
    updates[i] = i;
    expected[indices[i]] = i;
  }
  const NDArray z = Scatter(Full({kSize}, -1, kI64), 0, I(indices), I(updates));
  EXPECT_EQ(z.ToVector<int64_t>(), expected);
}

TEST(ScatterElements, UpdatesMayLieInTheTarget) {
  NDArray z = Numbers({3, 2});
  NDArray left = z.Slice(1, 0, 1);
  // Each row's left element becomes the right one of the row before: read before written.
  ScatterInto(0, I({1, 2, 0}).Reshape({3, 1}), z.Slice(1, 1, 2), kNone, left);
  EXPECT_THAT(Values(z), ElementsAre(5, 1, 1, 3, 3, 5));
  NDArray turned = z.Transpose();
  ScatterInto(1, I({0, 0, 0}).Reshape({1, 3}), turned.Slice(0, 0, 1), kAdd, turned);
  EXPECT_THAT(Values(z), ElementsAre(14, 10, 1, 3, 3, 5))
      << "both rows of the view, as they broadcast";
}

TEST(GatherElements, ReadsViewsWhereTheyAre) {
  const NDArray one = Full({1, 1}, 3);
  const NDArray large = one.BroadcastTo({1 << 12, 1 << 12});
  const NDArray indices = Zeros({1 << 12, 1}, kI64);
  EXPECT_EQ(Sum(Gather(large, 1, indices)).Item<float>(), 3 << 12);
  EXPECT_LT(RequestedBytes([&] { Gather(large, 1, indices); }), size_t{1} << 17);
}

TEST(GatherElements, Gradients) {
  NDArray x = RandomUniform({3, 4}, -1, 1, 1), updates = RandomUniform({3, 5}, -1, 1, 2);
  const NDArray indices = I({0, 1, 1, 3, 0, 2, 2, 2, 2, 1, 3, 0, 3, 0, 1}).Reshape({3, 5});
  const NDArray dz = RandomUniform({3, 5}, -1, 1, 3), dx = RandomUniform({3, 4}, -1, 1, 4);
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(Gather(x, 1, indices), dz); }, x,
                            Scatter(Zeros({3, 4}), 1, indices, dz, kAdd)),
            "");
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(Scatter(x, 1, indices, updates, kAdd), dx); },
                            updates, Gather(dx, 1, indices)),
            "");
}

TEST(GatherElements, ResultsAreTheManagersAndScratchIsNobodys) {
  NDManager root = NDManager::NewRoot("root"), manager = root.NewSubManager("m");
  const NDArray x = Numbers({2, 3}).Transpose(), indices = Zeros({3, 1}, kI64);
  const ManagerScope scope(manager);
  const int64_t before = manager.arrays();
  const NDArray z = Gather(x, 1, indices), w = Scatter(x, 1, indices, z, kAdd),
                e = Einsum("ij,ik->jk", {x, x});
  const NDArray u = Unique(x), q = Quantile(x, 0.3, 0), n = NanMean(x, 1),
                h = Histogram(x, 3, 0, 1).counts;
  EXPECT_EQ(manager.arrays() - before, 7);
}

// ---- searching ---------------------------------------------------------------------------------------

TEST(Searching, Refusals) {
  EXPECT_EQ(Refusal([] { NonZero(Full({}, 1)); }),
            "Op [nonzero]: X has shape [], expected at least rank 1");
  EXPECT_EQ(Refusal([] {
              SearchSorted(Ones({2, 2}), Ones({2}));
            }),
            "Op [search_sorted]: sorted has shape [2, 2], expected rank 1");
  EXPECT_EQ(Refusal([] {
              BinCount(I({3, -2, 1}));
            }),
            "Op [bincount]: X has the element -2, expected at least 0");
  EXPECT_EQ(Refusal([] { BinCount(I({INT64_MAX})); }),
            "Op [bincount]: X has the element 9223372036854775807, which has no place");
  EXPECT_EQ(Refusal([] { BinCount(Ones({2})); }),
            "Op [bincount]: X is f32, expected an integer type");
  EXPECT_EQ(Refusal([] { BinCount(I({1}), -1); }),
            "Op [bincount]: min_length is -1, expected at least 0");
  EXPECT_EQ(Refusal([] { BinCount(I({1}), Ones({2})); }),
            "Op [bincount]: weights has shape [2], expected [1]");
  EXPECT_EQ(Refusal([] { Histogram(Ones({2}), 0); }),
            "Op [histogram]: bins is 0, expected at least 1");
  EXPECT_EQ(Refusal([] {
              Histogram(F({1, NAN}), 3);
            }),
            "Op [histogram]: low is nan, high is nan, expected finite numbers and low <= high");
  EXPECT_EQ(Refusal([] { Histogram(Ones({2}), 3, 2, 1); }),
            "Op [histogram]: low is 2, high is 1, expected finite numbers and low <= high");
  EXPECT_EQ(Refusal([] {
              Histogram(Ones({2}), F({1, 3, 2}));
            }),
            "Op [histogram]: edge 2 is not at or above edge 1, expected edges that ascend");
  EXPECT_EQ(Refusal([] { Histogram(Ones({2}), F({1})); }),
            "Op [histogram]: edges has 1 elements, expected at least 2");
  EXPECT_THAT(Refusal([] { Histogram(Ones({2}, DType::kBool)); }), HasSubstr("X is bool"));
}

TEST(Searching, IndicesSelect) {
  const NDArray x = F({0, 2, NAN, 0, -1}).Reshape({5, 1}).BroadcastTo({5, 2});
  const std::vector<NDArray> places = NonZero(x);
  EXPECT_THAT(Wholes(places[0]), ElementsAre(1, 1, 2, 2, 4, 4));
  EXPECT_THAT(Wholes(places[1]), ElementsAre(0, 1, 0, 1, 0, 1));
  const NDArray selected = x(places[0], places[1]);
  EXPECT_EQ(selected.NumElements(), 6);
  const UniqueResult unique = UniqueAll(x);
  EXPECT_THAT(Wholes(unique.counts), ElementsAre(2, 4, 2, 2));
  EXPECT_EQ(unique.inverse.shape(), x.shape());
  EXPECT_TRUE(std::isnan(unique.values.At<float>({3})));
  EXPECT_THAT(Values(Unique(Zeros({0, 3}))), IsEmpty());
  EXPECT_EQ(UniqueAll(Zeros({0, 3})).inverse.shape(), (Shape{0, 3}));
}

// ---- statistics ---------------------------------------------------------------------------------------

TEST(Statistics, Refusals) {
  EXPECT_EQ(Refusal([] { Quantile(Ones({2}), 1.5); }), "Op [quantile]: q is 1.5, expected 0 to 1");
  EXPECT_EQ(Refusal([] { Quantile(Ones({2}), std::numeric_limits<double>::quiet_NaN()); }),
            "Op [quantile]: q is nan, expected 0 to 1");
  EXPECT_EQ(Refusal([] {
              Median(Ones({2, 0}), 1);
            }),
            "Op [quantile]: X has shape [2, 0], nothing to choose from");
  EXPECT_EQ(Refusal([] { Median(Ones({2}), 1); }),
            "Op [quantile]: axis 1 of an array of rank 1, expected -1 to 0");
  EXPECT_EQ(Refusal([] { NanMax(Ones({0})); }),
            "Op [nan_max]: X has shape [0], nothing to choose from");
  EXPECT_EQ(Refusal([] { Std(Ones({2}), {}, -1); }),
            "Op [variance]: ddof is -1, expected at least 0");
}

TEST(Statistics, InfinitiesAndHalves) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Median(F({inf, inf, 1, inf})).Item<float>(), inf);
  EXPECT_EQ(Quantile(F({-inf, 1, inf}), 0).Item<float>(), -inf);
  EXPECT_EQ(Median(F({1, inf})).Item<float>(), inf);
  EXPECT_EQ(Quantile(F({1, inf}), 0.75).Item<float>(), inf);
  EXPECT_TRUE(std::isnan(Median(F({-inf, inf})).Item<float>()));
  const NDArray huge = FromValues({0x1.8p1023, -0x1.8p1023}, {2});
  EXPECT_EQ(Median(huge).Item<double>(), 0);
  EXPECT_EQ(Quantile(huge, 0.25).Item<double>(), -0x1.8p1022);
  EXPECT_TRUE(std::isnan(NanMin(F({NAN, NAN})).Item<float>()));
  EXPECT_EQ(NanMax(F({NAN, -inf})).Item<float>(), -inf);
  EXPECT_EQ(NanSum(F({NAN})).Item<float>(), 0);
  // Their sum is no f16.
  const NDArray half = Full({4}, 60000, DType::kFloat16);
  EXPECT_EQ(Cast(NanMean(half), DType::kFloat32).Item<float>(), 60000);
  // Their variance is none, and neither is that of small ones.
  const auto deviation = [](const NDArray& x) {
    return Cast(Std(Cast(x, DType::kFloat16)), DType::kFloat32).Item<float>();
  };
  EXPECT_EQ(deviation(F({300, -300})), 300);
  EXPECT_EQ(deviation(F({0x1p-13f, -0x1p-13f})), 0x1p-13f);
}

// ---- rearranging ----------------------------------------------------------------------------------------

TEST(Rearranging, Refusals) {
  const NDArray x = Ones({2, 3});
  EXPECT_EQ(Refusal([&] { Roll(x, 1, 2); }),
            "Op [roll]: axis 2 of an array of rank 2, expected -2 to 1");
  EXPECT_EQ(Refusal([&] {
              Roll(x, {1, 2}, {0});
            }),
            "Op [roll]: 2 shifts and 1 axes, expected as many");
  EXPECT_EQ(Refusal([&] { Diff(x, -1); }), "Op [diff]: times is -1, expected at least 0");
  EXPECT_EQ(Refusal([&] { Trace(Ones({3})); }),
            "Op [diagonal]: X has shape [3], expected at least rank 2");
  EXPECT_EQ(Refusal([&] { x.Diagonal(0, 1, -1); }), "Op [diagonal]: both axes are 1, expected two");
  EXPECT_EQ(Refusal([&] { DiagonalMatrix(x); }),
            "Op [diagonal_matrix]: v has shape [2, 3], expected rank 1");
  EXPECT_EQ(Refusal([&] { RepeatEach(x, {1}, 0); }),
            "Op [repeat]: 1 counts, expected 2, the size of axis 0");
  EXPECT_EQ(Refusal([&] {
              RepeatEach(x, {1, -1}, 0);
            }),
            "Op [repeat]: count 1 is -1, expected at least 0");
  EXPECT_EQ(Refusal([&] {
              RepeatEach(x, {INT64_MAX, 1}, 0);
            }),
            "Op [repeat]: counts are too many together");
  EXPECT_EQ(Refusal([&] { Meshgrid({x}); }),
            "Op [meshgrid]: coordinates 0 has shape [2, 3], expected rank 1 or 0");
}

TEST(Rearranging, ViewsAndFarOffsets) {
  NDArray x = Numbers({2, 3});
  NDArray diagonal = x.Diagonal(1);
  diagonal *= 0;
  EXPECT_THAT(Values(x), ElementsAre(0, 0, 2, 3, 4, 0));
  for (const int64_t far : {INT64_MIN, int64_t{-2}, int64_t{3}, INT64_MAX}) {
    EXPECT_EQ(x.Diagonal(far).shape(), (Shape{0})) << far;
    EXPECT_EQ(Trace(x, far).Item<float>(), 0);
  }
  EXPECT_EQ(Values(Roll(x, INT64_MIN, 1)), Values(Roll(x, -2, 1))) << "-2^63 is -2 modulo 3";
  const std::vector<NDArray> grids = Meshgrid({F({1, 2}), F({3})});
  EXPECT_EQ(grids[0].shape(), (Shape{1, 2}));
  NDArray wide = Meshgrid({F({1, 2}), F({3, 4})})[0];
  EXPECT_THAT(Refusal([&] { wide *= 2; }), HasSubstr("repeats its elements"));
  NDArray z = Diff(x, 0);
  z *= 2;
  EXPECT_THAT(Values(x), ElementsAre(0, 0, 2, 3, 4, 0)) << "a copy, also of no differences";
}

TEST(CumProd, FormsAndRefusals) {
  const NDArray x = F({2, 3, 4});
  EXPECT_THAT(Values(CumProd(x, 0, true)), ElementsAre(24, 12, 4));
  EXPECT_THAT(Values(CumProd(x, 0, false, true)), ElementsAre(1, 2, 6));
  EXPECT_THAT(Values(CumProd(x, 0, true, true)), ElementsAre(12, 4, 1));
  NDArray z = x.Dup();
  CumProdInto(z, 0, false, false, z);
  EXPECT_THAT(Values(z), ElementsAre(2, 6, 24));
  EXPECT_EQ(Refusal([&] { CumProdInto(Ones({3}, kI32), 0, false, false, z); }),
            "Op [cumprod]: Z is f32, expected i64");
}

// ---- elementwise ----------------------------------------------------------------------------------------

TEST(Bitwise, OperatorsNumbersAndRefusals) {
  const NDArray x = Cast(I({1, 2, 3, -4}), kI32), wide = I({1, 2, 3, -4});
  EXPECT_THAT(Wholes(x & 3), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(Wholes((x | 4) ^ wide), ElementsAre(4, 4, 4, 0));
  EXPECT_THAT(Wholes(~x), ElementsAre(-2, -3, -4, 3));
  EXPECT_THAT(Wholes((x > 1) & (x < 3)), ElementsAre(0, 1, 0, 0));
  EXPECT_EQ((~(x > 1)).dtype(), DType::kBool);
  EXPECT_THAT(Wholes(ShiftLeft(wide, 63)), ElementsAre(INT64_MIN, 0, INT64_MIN, 0));
  EXPECT_THAT(Wholes(ShiftRight(x, 99)), ElementsAre(0, 0, 0, -1));
  NDArray z = x.Dup();
  BitwiseNotInto(z, z);
  EXPECT_THAT(Wholes(z), ElementsAre(-2, -3, -4, 3));
  EXPECT_EQ(Refusal([&] { F({1}) & 1; }),
            "Op [bitwise_and]: X is f32, expected an integer type or bool");
  EXPECT_EQ(Refusal([&] { BitwiseOr(x, F({1})); }),
            "Op [bitwise_or]: Y is f32, expected an integer type or bool");
  EXPECT_EQ(Refusal([&] { ~F({1}); }),
            "Op [bitwise_not]: X is f32, expected an integer type or bool");
  EXPECT_THAT(Refusal([&] { ShiftLeft(x > 1, x > 1); }),
              HasSubstr("Op [shift_left]: operands are bool"));
  EXPECT_THAT(Refusal([&] { Cast(x, DType::kInt8) & 300; }),
              HasSubstr("Op [bitwise_and]: Y is 300"));
  EXPECT_EQ(
      Refusal([&] { Cast(x, DType::kUInt64) & Cast(x, DType::kInt8); }),
      "Op [bitwise_and]: X is u64, Y is i8, expected types that an integer type holds; Cast one");
}

TEST(Quotients, NumbersAndRefusals) {
  const NDArray x = I({7, -7});
  EXPECT_THAT(Wholes(FloorDivide(x, 2)), ElementsAre(3, -4));
  EXPECT_THAT(Wholes(FloorDivide(20, x)), ElementsAre(2, -3));
  EXPECT_THAT(Wholes(FMod(x, 4)), ElementsAre(3, -3));
  EXPECT_THAT(Wholes(FMod(20, x)), ElementsAre(6, 6));
  EXPECT_EQ(Refusal([&] { FloorDivide(x, 0); }),
            "Op [floor_divide]: Y of shape [] has a zero; integer division by zero is not defined");
  EXPECT_THAT(Refusal([&] { FMod(x, Zeros({2}, kI64)); }),
              HasSubstr("Op [fmod]: Y of shape [2] has a zero"));
  EXPECT_THAT(Refusal([&] { FMod(x > 0, x > 0); }), HasSubstr("Op [fmod]: operands are bool"));
  EXPECT_EQ(Atan2(x, x).dtype(), DType::kFloat64);
  EXPECT_EQ(Hypot(x > 0, x > 0).dtype(), DType::kFloat32);
  NDArray z = Empty({2});
  Atan2Into(x, F({1, -1}), z);
  EXPECT_NEAR(z.At<float>({1}), std::atan2(-7.0, -1.0), 1e-6);
}

}  // namespace
}  // namespace tidepool
