#include "tidepool/ndarray/ndarray.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }
NDArray Matrix() { return Arange(0, 6).Reshape({2, 3}); }

TEST(Architecture, TheExampleOfTheDesign) {
  WorkspaceConfig config;
  config.initial_size = 1 << 30;
  config.policy_mirroring = MirroringPolicy::kHostOnly;
  Workspace workspace("example", config);
  {
    WorkspaceScope scope(workspace);
    NDArray input = Ones({32, 32});
    input *= 2;

    EXPECT_TRUE(input.IsAttached());
    EXPECT_EQ(input.At<float>({31, 31}), 2);
    EXPECT_EQ(workspace.bytes_this_cycle(), 4096);
    EXPECT_EQ(workspace.spilled_count(), 0);
  }
  EXPECT_EQ(workspace.cycles(), 1);
  EXPECT_EQ(workspace.stats().leaked_arrays, 0);
}

TEST(NDArray, Creation) {
  EXPECT_THAT(Values(Zeros({2})), ElementsAre(0, 0));
  EXPECT_THAT(Values(Ones({2})), ElementsAre(1, 1));
  EXPECT_THAT(Values(Full({2}, -1.5)), ElementsAre(-1.5, -1.5));
  EXPECT_TRUE(std::signbit(Full({1}, -0.0).Item<float>()));
  EXPECT_THAT(Full({2}, 2.9, DType::kInt64).ToVector<int64_t>(), ElementsAre(2, 2));
  EXPECT_EQ(Full({}, NAN, DType::kInt64).Item<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_THAT(Values(Arange(1, 2.1, 0.5)), ElementsAre(1, 1.5, 2));
  EXPECT_THAT(Values(Arange(3, 0, -1)), ElementsAre(3, 2, 1));
  EXPECT_THAT(Values(Arange(3, 0)), IsEmpty());
  EXPECT_THAT(Arange(0, 3, 1, DType::kInt64).ToVector<int64_t>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(MessageOf([] { Arange(0, 1, 0); }), StartsWith("arange: from 0 to 1 by 0"));
  const std::vector<float> three = {1, 2, 3};
  EXPECT_EQ(MessageOf([&] {
              FromValues(three, {2, 2});
            }),
            "from_values: 3 values for shape [2, 2], expected 4");
  EXPECT_THAT(MessageOf([] { RandomUniform({2}, 1, 0, 7); }),
              StartsWith("Op [random_uniform]: range [1, 0)"));
  EXPECT_THAT(MessageOf([] { RandomNormal({2}, 0, -1, 7); }), HasSubstr("deviation -1"));
}

TEST(NDArray, OverExistingMemory) {
  alignas(64) float memory[32] = {1, 2, 3};
  int released = 0;
  {
    BufferHandle handle(NewImportedBuffer(
        memory, sizeof(memory), [](void* count) { ++*static_cast<int*>(count); }, &released));
    EXPECT_EQ(MessageOf([&] { NDArray(handle, {33}, DType::kFloat32); }),
              "array of shape [33] f32 needs 132 bytes, the buffer has 128");
    NDArray x(std::move(handle), {3}, DType::kFloat32);
    x.mutable_data<float>()[0] = 9;
    EXPECT_THAT(Values(x), ElementsAre(9, 2, 3));
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(memory[0], 9);
  EXPECT_EQ(MessageOf([] { NDArray(BufferHandle(), {1}, DType::kInt64); }),
            "array of shape [1] i64 needs 8 bytes, the buffer has 0");
}

TEST(NDArray, ViewsShareBytes) {
  NDArray x = Matrix();
  const NDArray transposed = x.Transpose(), column = x.Index(1, 2), block = x.Slice(1, 1, 3);
  EXPECT_EQ(transposed.shape(), (Shape{3, 2}));
  EXPECT_THAT(Values(transposed), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(column.shape(), (Shape{2}));
  EXPECT_THAT(Values(column), ElementsAre(2, 5));
  EXPECT_THAT(Values(block), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Values(x.Index(0, 1)), ElementsAre(3, 4, 5));
  EXPECT_THAT(Values(x.Slice(-1, 0, 1).Transpose()), ElementsAre(0, 3));
  EXPECT_THAT(Values(x.Reshape({3, 2}).Index(0, 1)), ElementsAre(2, 3));
  x.mutable_data<float>()[5] = 50;
  EXPECT_EQ(column.At<float>({1}), 50);
  EXPECT_EQ(transposed.At<float>({2, 1}), 50);
}

TEST(NDArray, Density) {
  const NDArray x = Matrix();
  EXPECT_TRUE(x.is_dense());
  EXPECT_TRUE(x.Slice(0, 1, 2).is_dense());
  EXPECT_FALSE(x.Slice(1, 0, 2).is_dense());
  EXPECT_FALSE(x.Transpose().is_dense());
  EXPECT_TRUE(x.Transpose().Slice(0, 0, 1).Slice(1, 0, 1).is_dense());  // one element
  EXPECT_TRUE(x.Slice(1, 0, 2).Slice(0, 0, 0).is_dense());              // no element
  EXPECT_TRUE(Ones({4, 1}).Transpose().is_dense());
}

TEST(NDArray, ViewErrorsNameOperatorAndShape) {
  const NDArray x = Matrix();
  EXPECT_EQ(MessageOf([&] { x.Reshape({4}); }), "Op [reshape]: cannot view shape [2, 3] as [4]");
  EXPECT_EQ(MessageOf([&] { x.Transpose().Reshape({6}); }),
            "Op [reshape]: cannot view shape [3, 2] (with gaps) as [6]");
  EXPECT_EQ(MessageOf([&] { x.Slice(1, 2, 4); }), "Op [slice]: [2, 4) of axis 1 of shape [2, 3]");
  EXPECT_EQ(MessageOf([&] { x.Slice(1, 2, 1); }), "Op [slice]: [2, 1) of axis 1 of shape [2, 3]");
  EXPECT_EQ(MessageOf([&] { x.Slice(2, 0, 1); }),
            "Op [slice]: axis 2 of an array of rank 2, expected -2 to 1");
  EXPECT_EQ(MessageOf([&] { x.Index(0, 2); }), "Op [index]: 2 in axis 0 of shape [2, 3]");
  EXPECT_EQ(MessageOf([&] { x.Index(0, -1); }), "Op [index]: -1 in axis 0 of shape [2, 3]");
}

TEST(NDArray, ElementAccessAndItsErrors) {
  NDArray x = Matrix();
  EXPECT_EQ(x.At<float>({1, 0}), 3);
  EXPECT_EQ(x.Transpose().At<float>({0, 1}), 3);
  EXPECT_EQ(x.Index(0, 1).Index(0, 2).Item<float>(), 5);
  EXPECT_EQ(MessageOf([&] {
              x.At<float>({2, 0});
            }),
            "Op [at]: index [2, 0] of an array of shape [2, 3]");
  EXPECT_EQ(MessageOf([&] {
              x.At<float>({-1, 0});
            }),
            "Op [at]: index [-1, 0] of an array of shape [2, 3]");
  EXPECT_EQ(MessageOf([&] { x.At<float>({0}); }), "Op [at]: index [0] of an array of shape [2, 3]");
  EXPECT_EQ(MessageOf([&] {
              x.At<int64_t>({0, 0});
            }),
            "Op [at]: the array is f32, asked for as i64");
  EXPECT_EQ(MessageOf([&] { x.data<int64_t>(); }), "Op [data]: the array is f32, asked for as i64");
  EXPECT_EQ(MessageOf([&] { x.Transpose().data<float>(); }),
            "Op [data]: the array of shape [3, 2] is a view with gaps; Dup() makes it dense");
  EXPECT_EQ(MessageOf([&] { x.Item<float>(); }),
            "Op [item]: expected one f32 element, found f32 of shape [2, 3]");
  EXPECT_EQ(MessageOf([&] { Ones({1}).Item<int64_t>(); }),
            "Op [item]: expected one i64 element, found f32 of shape [1]");
  EXPECT_EQ(MessageOf([&] { x.ToVector<int64_t>(); }),
            "Op [data]: the array is f32, asked for as i64");
}

// Any byte may have been written by others: it is read as whether it is not 0.
TEST(NDArray, ABoolThatIsReadIsTrueOrFalse) {
  const NDArray array({2}, DType::kBool, Place::Heap());
  array.raw_data()[0] = std::byte{2};
  array.raw_data()[1] = std::byte{0};
  EXPECT_EQ(array.ToVector<bool>(), (std::vector<bool>{true, false}));
  const auto byte_of = [](bool value) {
    return static_cast<int>(*reinterpret_cast<unsigned char*>(&value));
  };
  EXPECT_EQ(byte_of(array.At<bool>({0})), 1);
  EXPECT_EQ(byte_of(array.Slice(0, 0, 1).Item<bool>()), 1);
}

TEST(NDArray, UndefinedArraysAreRefusedEverywhere) {
  const NDArray none;
  EXPECT_FALSE(none.is_defined());
  EXPECT_EQ(MessageOf([&] { none.Dup(); }), "Op [dup] X argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { none.ToString(); }), "Op [print] X argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { none.Transpose(); }),
            "Op [transpose] X argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { none.Item<float>(); }), "Op [item] X argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { Ones({1}) + none; }), "Op [add] Y argument is an undefined array");
}

TEST(NDArray, RankZero) {
  NDArray x = Full({}, 3);
  EXPECT_EQ(x.rank(), 0);
  EXPECT_EQ(x.NumElements(), 1);
  EXPECT_TRUE(x.is_dense());
  EXPECT_EQ(x.At<float>({}), 3);
  EXPECT_EQ(x.Item<float>(), 3);
  EXPECT_EQ(x.ToString(), "3.");
  EXPECT_EQ(x.Transpose().Item<float>(), 3);
  EXPECT_EQ(x.Reshape({1, 1}).shape(), (Shape{1, 1}));
  EXPECT_EQ(x.Dup().Item<float>(), 3);
  EXPECT_EQ(x.Detach().Item<float>(), 3);
  x += Full({}, 4);
  x *= 2;
  EXPECT_EQ(x.Item<float>(), 14);
  EXPECT_THAT(Values(Ones({2}) + x), ElementsAre(15, 15));
}

TEST(NDArray, Empty) {
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 4}}) {
    NDArray x = Zeros(shape);
    EXPECT_TRUE(x.is_defined());
    EXPECT_TRUE(x.IsInScope());
    EXPECT_FALSE(x.IsAttached());
    EXPECT_EQ(x.NumElements(), 0);
    EXPECT_TRUE(x.is_dense());
    EXPECT_THAT(Values(x), IsEmpty());
    EXPECT_THAT(Values(x.Transpose()), IsEmpty());
    EXPECT_EQ(x.Reshape({0, 7}).shape(), (Shape{0, 7}));
    EXPECT_EQ(x.Dup().shape(), shape);
    EXPECT_EQ((x + x).shape(), shape);
    x *= 2;
    x += x;
    EXPECT_THAT(MessageOf([&] { x.At<float>(std::vector<int64_t>(shape.rank(), 0)); }),
                HasSubstr("Op [at]: index"));
    x.Close();  // has nothing to close
    EXPECT_FALSE(x.is_closed());
  }
  EXPECT_EQ(Zeros({0}).ToString(), "[]");
  EXPECT_EQ(Zeros({2, 0}).ToString(), "[]");
  EXPECT_THAT(Values(Ones({2, 3}).Slice(1, 3, 3)), IsEmpty());
}

TEST(NDArray, Close) {
  MemoryTracker& tracker = MemoryTracker::Global();
  const auto before = tracker.Snapshot().ToString();
  NDArray x = Ones({1000});
  const NDArray copy = x, view = x.Slice(0, 0, 10);
  EXPECT_NE(tracker.Snapshot().ToString(), before);
  x.Close();
  EXPECT_TRUE(x.is_closed());
  EXPECT_TRUE(copy.is_closed());
  EXPECT_FALSE(view.IsInScope());
  x.Close();  // again
  EXPECT_EQ(MessageOf([&] { view.ToVector<float>(); }),
            "Op [data] X argument was closed before the call (shape [10])");
  EXPECT_EQ(MessageOf([&] { copy + copy; }),
            "Op [add] X argument was closed before the call (shape [1000])");
  x = NDArray();
  EXPECT_EQ(MessageOf([&] { copy.Item<float>(); }),
            "Op [item] X argument was closed before the call (shape [1000])");
}

TEST(NDArray, CloseInAWorkspaceGivesTheBytesBack) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  Workspace workspace("w", config);
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    NDArray x = Ones({1000});
    x.Close();
    NDArray y = Ones({1000});
    EXPECT_EQ(y.At<float>({999}), 1);
    EXPECT_FALSE(x.IsInScope());
  }
  // Never both at once.
  EXPECT_EQ(workspace.stats().planned_peak_bytes, 4032);
  EXPECT_EQ(workspace.stats().leaked_arrays, 0);
}

TEST(NDArray, HandlesShareAndReleaseBytes) {
  NDArray x = Ones({2});
  NDArray y = x;
  y += 1;
  EXPECT_THAT(Values(x), ElementsAre(2, 2));
  y = y.Dup();
  y += 1;
  EXPECT_THAT(Values(x), ElementsAre(2, 2));
}

TEST(NDArray, StaleAccessIsRefusedEverywhere) {
  Workspace workspace("W");
  NDArray x;
  {
    WorkspaceScope scope(workspace);
    x = Ones({2, 2});
  }
  EXPECT_FALSE(x.IsInScope());
  const std::string leaked =
      " X argument uses leaked workspace pointer from workspace [W] (made in generation 1; the "
      "workspace is closed after generation 1)";
  EXPECT_EQ(MessageOf([&] { x.At<float>({0, 0}); }), "Op [at]" + leaked);
  EXPECT_EQ(MessageOf([&] { x.Item<float>(); }), "Op [item]" + leaked);
  EXPECT_EQ(MessageOf([&] { x.data<float>(); }), "Op [data]" + leaked);
  EXPECT_EQ(MessageOf([&] { x.mutable_data<float>(); }), "Op [mutable_data]" + leaked);
  EXPECT_EQ(MessageOf([&] { x.ToVector<float>(); }), "Op [data]" + leaked);
  EXPECT_EQ(MessageOf([&] { x.ToString(); }), "Op [print]" + leaked);
  EXPECT_EQ(MessageOf([&] { x.Reshape({4}); }), "Op [reshape]" + leaked);
  EXPECT_EQ(MessageOf([&] { x.Transpose(); }), "Op [transpose]" + leaked);
  EXPECT_EQ(MessageOf([&] { x.Slice(0, 0, 1); }), "Op [slice]" + leaked);
  EXPECT_EQ(MessageOf([&] { x.Index(0, 0); }), "Op [index]" + leaked);
  WorkspaceScope scope(workspace);
  EXPECT_THAT(MessageOf([&] { x.Item<float>(); }),
              StartsWith("Op [item] X argument uses outdated workspace pointer from workspace "
                         "[W]"));
}

TEST(NDArray, Places) {
  Workspace outer("outer"), inner("inner");
  EXPECT_EQ(MessageOf([&] { Ones({2}, DType::kFloat32, Place::In(outer)); }),
            "place: workspace [outer] is not open on this thread; enter it first");
  WorkspaceScope outer_scope(outer), inner_scope(inner);
  EXPECT_EQ(Ones({2}).buffer()->owner->WorkspaceId(), "inner");
  EXPECT_EQ(Ones({2}, DType::kFloat32, Place::In(outer)).buffer()->owner->WorkspaceId(), "outer");
  EXPECT_FALSE(Ones({2}, DType::kFloat32, Place::Heap()).IsAttached());
  const ScopeOutOfWorkspaces out;
  EXPECT_FALSE(Ones({2}).IsAttached());
  WorkspaceConfig config;
  config.workspace_mode = WorkspaceMode::kNone;
  Workspace off("off", config);
  WorkspaceScope off_scope(off);
  EXPECT_FALSE(Ones({2}).IsAttached());
  EXPECT_FALSE(Ones({2}, DType::kFloat32, Place::In(off)).IsAttached());
}

TEST(NDArray, ToString) {
  EXPECT_EQ(Matrix().ToString(), "[[0., 1., 2.],\n [3., 4., 5.]]");
  EXPECT_EQ(Matrix().Transpose().ToString(), "[[0., 3.],\n [1., 4.],\n [2., 5.]]");
  EXPECT_EQ(Arange(0, 3, 1, DType::kInt64).ToString(), "[0, 1, 2]");
  EXPECT_EQ(Arange(0, 8).Reshape({2, 2, 2}).ToString(),
            "[[[0., 1.],\n  [2., 3.]],\n\n [[4., 5.],\n  [6., 7.]]]");
  EXPECT_EQ(Arange(0, 10).ToString(5), "[0., 1., 2., ..., 7., 8., 9.]");
  EXPECT_EQ(Arange(0, 7).ToString(5), "[0., 1., 2., ..., 4., 5., 6.]");
  EXPECT_EQ(Arange(0, 6).ToString(5), "[0., 1., 2., 3., 4., 5.]");
  EXPECT_EQ(Full({1}, 0.1).ToString(), "[0.1]");
  EXPECT_EQ(Full({2}, NAN).ToString(), "[nan, nan]");
}

}  // namespace
}  // namespace tidepool
