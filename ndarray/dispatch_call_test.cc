// What Dispatch hands to a kernel, and calls that name what the operator does not take.
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
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
  EXPECT_EQ(CostOf(OpCode::kMatMul, {&x, &x, nullptr}, {&wide}, &attributes).operations,
            2 * 2 * 2 * 3);
  EXPECT_EQ(CatchStatus([&] { CostOf(OpCode::kAdd, {&x}, {&z}); }).code(),
            absl::StatusCode::kInvalidArgument);
}

// ---- what a kernel throws --------------------------------------------------------------------

struct Nothing {};
std::function<void()> thrower;
void RunThrowing(const KernelCall&) { thrower(); }
size_t ScratchThrowing(const KernelCall&) { return thrower(), 0; }
bool SupportsThrowing(const KernelCall&) { return thrower(), true; }
void RunNothing(const KernelCall&) {}
const KernelRegistrar throwing({
    {OpCode::kAcosh, DeviceType::kHost, DType::kFloat32, "throwing", -8, &RunThrowing},
    {OpCode::kAsinh, DeviceType::kHost, DType::kFloat32, "throwing", -8, &RunThrowing,
     [](const KernelCall&) -> size_t { return 8; }},
    {OpCode::kAtanh, DeviceType::kHost, DType::kFloat32, "throwing", -8, &RunNothing,
     &ScratchThrowing},
    {OpCode::kCosh, DeviceType::kHost, DType::kFloat32, "throwing", -8, &RunNothing, nullptr,
     &SupportsThrowing},
});

TEST(Dispatch, WhatAKernelThrowsNamesTheOperator) {
  const NDArray x = Zeros({4});
  NDArray z = Zeros({4});
  const ScopedProvider forced("throwing");
  for (const OpCode op : {OpCode::kAcosh, OpCode::kAsinh, OpCode::kAtanh, OpCode::kCosh}) {
    const auto found = [&](std::function<void()> what) {
      thrower = std::move(what);
      return CatchStatus([&] { Dispatch(op, {&x}, {&z}); });
    };
    const std::string name = std::string("Op [") + Info(op).name + "]: ",
                      who = name + "the kernel of throwing threw ";
    EXPECT_EQ(found([] { throw 42; }), absl::InternalError(who + "an exception of type int"));
    EXPECT_EQ(found([] { throw std::runtime_error("no card"); }),
              absl::InternalError(who + "std::runtime_error: no card"));
    EXPECT_THAT(std::string(found([] { throw Nothing(); }).message()), HasSubstr("Nothing"));
    // An Error stays of its code and type, and is told where it came from once.
    EXPECT_EQ(found([] { ThrowDataLoss("the table is torn"); }),
              absl::DataLossError(name + "the table is torn"));
    EXPECT_EQ(found([] { ThrowDataLoss("Op [tan]: torn"); }),
              absl::DataLossError("Op [tan]: torn"));
    thrower = [] { throw OutOfMemoryError("cache: full", "report"); };
    EXPECT_THROW(Dispatch(op, {&x}, {&z}), OutOfMemoryError);
    thrower = [] { throw std::bad_alloc(); };
    EXPECT_THROW(Dispatch(op, {&x}, {&z}), std::bad_alloc);
  }
}

// ---- shapes of operators that programs add ---------------------------------------------------

TEST(Dispatch, OutputsOfOnesOwnHaveTheShapeThatTheirRowSays) {
  static int runs = 0;
  const auto add = [](const char* name, ShapeRule shape, AttributesType attributes = {}) {
    const OpCode op = AddOperator({.name = name,
                                   .inputs = "X,Y?",
                                   .outputs = "Z",
                                   .attributes = attributes,
                                   .types = SetOf(DType::kFloat32),
                                   .shape = shape});
    KernelRegistry::Global().Add(
        {op, DeviceType::kHost, DType::kFloat32, "watching", 1, [](const KernelCall&) { ++runs; }});
    return op;
  };
  const NDArray x = Zeros({3, 1}), y = Zeros({4});
  const auto refused = [&](OpCode op, const NDArray* second, Shape shape,
                           AttributesRef attributes = {}) {
    NDArray z = Zeros(shape);
    const int before = runs;
    const absl::Status status = CatchStatus([&] { Dispatch(op, {&x, second}, {&z}, attributes); });
    EXPECT_EQ(runs - before, status.ok() && z.NumElements() > 0);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const OpCode like = add("own_like_first", ShapeRule::kLikeFirst);
  EXPECT_EQ(refused(like, &y, {3, 1}), "");
  for (const Shape& wrong : {Shape({400000}), Shape({1, 3}), Shape({3}), Shape({0}), Shape({})}) {
    EXPECT_EQ(refused(like, &y, wrong), "Op [own_like_first]: output Z is of shape " +
                                            wrong.ToString() +
                                            ", expected [3, 1], by the rule of its row");
  }
  const OpCode both = add("own_broadcast", ShapeRule::kBroadcast);
  EXPECT_EQ(refused(both, &y, {3, 4}), "");
  EXPECT_EQ(refused(both, nullptr, {3, 1}), "");
  EXPECT_THAT(refused(both, &y, {3, 1}), HasSubstr("expected [3, 4]"));
  const NDArray five = Zeros({2, 5});
  EXPECT_THAT(refused(both, &five, {3, 1}), HasSubstr("own_broadcast"));
  const OpCode reduced =
      add("own_reduced", ShapeRule::kReduced, AttributesType::Of<ReduceAttributes>());
  const ReduceAttributes rows{.axes = 1};
  EXPECT_EQ(refused(reduced, nullptr, {1}, &rows), "");
  EXPECT_THAT(refused(reduced, nullptr, {3}, &rows), HasSubstr("expected [1]"));
  const OpCode free = add("own_own_shape", ShapeRule::kOwnShape);
  EXPECT_EQ(refused(free, &y, {7}), "");
}

}  // namespace
}  // namespace tidepool
