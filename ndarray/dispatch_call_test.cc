// What Dispatch hands to a kernel, and calls that name what the operator does not take.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

Threads given(0);
void NoteThreads(const KernelCall& call) { given = call.threads; }
const KernelRegistrar registrar({
    {OpCode::kAcosh, DeviceType::kHost, DType::kFloat32, "watching", -7, &NoteThreads},
});

TEST(Dispatch, AKernelIsGivenTheThreadsOfItsCaller) {
  const ScopedProvider provider("watching");
  const NDArray x = Zeros({4});
  NDArray z = Zeros({4});
  const int before = ThreadCount();
  SetThreadCount(3);
  const auto expect = [&](ThreadPool* pool, int count) {
    Dispatch(OpCode::kAcosh, {&x}, {&z});
    EXPECT_EQ(given.pool, pool);
    EXPECT_EQ(given.count, count);
  };
  expect(nullptr, 3);  // of those that all share
  WorkerPool pool(2), inner(1);
  {
    const ThreadPoolScope scope(pool);
    expect(&pool, 2);
    {
      const ThreadPoolScope nested(inner);
      expect(&inner, 1);
    }
    expect(&pool, 2);
  }
  SetThreadCount(before);
  expect(nullptr, before);
}

TEST(Dispatch, AttributesAndOperandsAreThoseOfTheOperator) {
  const NDArray x = Zeros(Shape({4})), y = Zeros(Shape({4}));
  NDArray z = Zeros(Shape({4}));
  const auto message = [](const std::function<void()>& call) {
    const absl::Status status = CatchStatus(call);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const ScaleShiftAttributes scale;
  const MatMulAttributes product;
  EXPECT_THAT(message([&] { Dispatch(OpCode::kScaleShift, {&x}, {&z}, &product); }),
              HasSubstr("Op [scale_shift]: found attributes tidepool::MatMulAttributes, expected "
                        "tidepool::ScaleShiftAttributes"));
  EXPECT_THAT(message([&] { Dispatch(OpCode::kScaleShift, {&x}, {&z}); }),
              HasSubstr("found attributes tidepool::NoAttributes, expected"));
  EXPECT_THAT(message([&] { Dispatch(OpCode::kRelu, {&x}, {&z}, &scale); }),
              HasSubstr("found attributes tidepool::ScaleShiftAttributes, expected tidepool::No"));
  EXPECT_THAT(message([&] { Dispatch(OpCode::kAdd, {&x}, {&z}); }),
              HasSubstr("Op [add]: found 1 inputs and 1 outputs, expected 2 (X,Y) and 1 (Z)"));
  const std::vector<const NDArray*> many(12, &x);
  EXPECT_THAT(message([&] { Dispatch(OpCode::kAdd, many, {&z}); }), HasSubstr("found 12 inputs"));
  EXPECT_THAT(message([&] { Dispatch(OpCode::kAdd, {&x, &y}, {}); }), HasSubstr("and 0 outputs"));
}

TEST(Dispatch, CostsAreThoseOfTheRow) {
  const NDArray x = Zeros({2, 3}), row = Zeros({3});
  NDArray z = Zeros({2, 3}), wide = Zeros({2, 2});
  EXPECT_EQ(CostOf(OpCode::kAdd, {&x, &row}, {&z}).operations, 6);
  EXPECT_EQ(CostOf(OpCode::kAdd, {&x, &row}, {&z}).bytes, 4 * (6 + 3 + 6));
  // What repeats elements reads them once.
  const NDArray repeated = row.BroadcastTo({2, 3});
  EXPECT_EQ(CostOf(OpCode::kAdd, {&x, &repeated}, {&z}).bytes, 4 * (6 + 3 + 6));
  const MatMulAttributes attributes{.transpose_y = true};
  EXPECT_EQ(CostOf(OpCode::kMatMul, {&x, &x, nullptr}, {&wide}, &attributes).operations, 2 * 2 * 2 * 3);
  EXPECT_EQ(CatchStatus([&] { CostOf(OpCode::kAdd, {&x}, {&z}); }).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidepool
