// Operators that read what their result held: the gradient of that flows on, goes through what they made of it, or is refused;
// and rows without gradients are refused, whatever is watched.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/gradient_plan.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/testing/guarded_array.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {
namespace {

constexpr double kStep = 1e-5;
constexpr int kCases = 24;
constexpr DType kF64 = DType::kFloat64;

bool HasResult(const OpCase& c) {
  return c.outputs[0].shape.NumElements() > 0 && c.outputs[0].dtype == kF64;
}

// With values that differences can be made of.
bool IsPlain(const OpCase& c) {
  for (const std::vector<OperandValues>& operands : {c.inputs, c.outputs}) {
    for (const OperandValues& operand : operands) {
      if (operand.shape.NumElements() > 500) return false;
      for (const double value : operand.reals) {
        if (!(std::abs(value) < 1e3)) return false;
      }
    }
  }
  return HasResult(c);
}

// A call of a case into arrays that hold what the case says they do.
struct Call {
  explicit Call(const OpCase& c) : of(c) {
    for (const OperandValues& input : c.inputs) x.push_back(ArrayOf(input, Place::Heap()));
    for (const OperandValues& output : c.outputs) z.push_back(ArrayOf(output, Place::Heap()));
  }
  // Into `first` instead of the first result.
  void Run(const NDArray& first) {
    std::vector<const NDArray*> inputs;
    std::vector<NDArray> outputs = {first};
    std::vector<NDArray*> results;
    for (size_t i = 0; i < x.size(); ++i) inputs.push_back(of.inputs[i].present ? &x[i] : nullptr);
    for (size_t o = 1; o < z.size(); ++o) outputs.push_back(z[o].Dup());
    for (NDArray& output : outputs) results.push_back(&output);
    Dispatch(of.op, inputs, absl::MakeConstSpan(results), of.attributes.get());
  }
  // The first result where element i of what it held is `by` more, times dz.
  NDArray Moved(int64_t i, double by, const NDArray& dz) {
    const NDArray moved = z[0].Dup();
    NDArray writable = moved;
    writable.mutable_data<double>()[i] += by;
    Run(moved);
    return moved * dz;
  }

  const OpCase& of;
  std::vector<NDArray> x, z;
};

// The program's constants are written into what something watched flows to.
TEST(TapeUpdates, WhatAResultHeldFlowsOnOrIsRefused) {
  const ScopedProvider reference("reference");
  int operators = 0;
  for (int code = 0; code < kOpCodes; ++code) {
    const auto op = static_cast<OpCode>(code);
    const bool is_update = Info(op).updates(),
               is_none = PlanOf(op).kind == GradientPlan::Kind::kNone;
    std::mt19937_64 random(20261128);
    int compared = 0, refused = 0, cases = 0;
    // One that never reads what its results hold has none among the first.
    for (int drawn = 0; cases < kCases && drawn < (cases > 0 ? 1000 : 200); ++drawn) {
      const OpCase c = MakeOpCase(op, kF64, random);
      if (!IsPlain(c) || (!is_update && !AddsToResult(op, c.attributes.get().data()))) continue;
      ++cases;
      Call call(c);
      const NDArray x = call.z[0].Dup(), dz = RandomUniform(x.shape(), 0.25, 1, kF64, random());
      GradientTape tape;
      tape.Watch(x);
      const NDArray h = x * 1.0;
      call.Run(h);
      const auto status = CatchStatus([&] { tape.Backward({&h, 1}, {&dz, 1}); });
      if (status.code() == absl::StatusCode::kUnimplemented) {
        EXPECT_NE(status.message().find(Info(op).name), std::string::npos) << status.message();
        ++refused;
        continue;
      }
      ASSERT_TRUE(status.ok()) << status.message();
      const NDArray gradient = tape.Gradient(x);
      for (int sample = 0; sample < 6; ++sample) {
        const auto i = static_cast<int64_t>(random() % static_cast<uint64_t>(x.NumElements()));
        const double found = gradient.data<double>()[i];
        if (is_none) {  // as a write in a NoGradientScope
          EXPECT_EQ(found, dz.data<double>()[i]) << c.ToString();
          ++compared;
          continue;
        }
        const NDArray here = call.Moved(i, 0, dz);
        const double right = Sum(call.Moved(i, kStep, dz) - here).Item<double>() / kStep,
                     left = Sum(here - call.Moved(i, -kStep, dz)).Item<double>() / kStep;
        if (std::abs(right - left) > 1e-4) continue;  // a corner
        EXPECT_NEAR(found, right, 1e-5) << c.ToString() << ", element " << i;
        ++compared;
      }
    }
    if (cases == 0) continue;
    ++operators;
    EXPECT_EQ(cases, kCases) << Info(op).name;
    // Scatter alone has some of both.
    EXPECT_GT(compared, kCases) << Info(op).name;
    EXPECT_EQ(refused > 0, op == OpCode::kScatter) << Info(op).name;
  }
  EXPECT_EQ(operators, 11);
}

// Any one input watched alone, the others constants.
TEST(TapeUpdates, RowsWithoutGradientsAreRefusedWhateverIsWatched) {
  const ScopedProvider reference("reference");
  int operators = 0;
  for (int code = 0; code < kOpCodes; ++code) {
    const auto op = static_cast<OpCode>(code);
    if (PlanOf(op).kind != GradientPlan::Kind::kUnwritten) continue;
    std::mt19937_64 random(20261129);
    int refused = 0;
    for (int drawn = 0; refused < 5 && drawn < 600; ++drawn) {
      const OpCase c = MakeOpCase(op, kF64, random);
      if (!HasResult(c)) continue;
      Call call(c);
      std::vector<size_t> inputs;
      for (size_t i = 0; i < call.x.size(); ++i) {
        if (c.inputs[i].present && IsFloating(call.x[i].dtype()) && call.x[i].NumElements() > 0)
          inputs.push_back(i);
      }
      if (inputs.empty()) continue;
      GradientTape tape;
      tape.Watch(call.x[inputs[random() % inputs.size()]]);
      const NDArray z = call.z[0].Dup(), dz = Ones(z.shape(), kF64);
      call.Run(z);
      EXPECT_EQ(CatchStatus([&] {
                  tape.Backward({&z, 1}, {&dz, 1});
                }).code(),
                absl::StatusCode::kUnimplemented)
          << c.ToString();
      ++refused;
    }
    EXPECT_EQ(refused, 5) << Info(op).name;
    ++operators;
  }
  EXPECT_GT(operators, 10);
}

NDArray Indices(std::vector<int64_t> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}

TEST(TapeUpdates, ScatterOfConstants) {
  const NDArray x = FromValues({1.0, 2.0, 3.0}, {3}), updates = FromValues({5.0, 6.0, 7.0}, {3});
  const NDArray places = Indices({2, 0, 2});
  const auto gradient = [&](ScatterReduction reduction) {
    GradientTape tape;
    tape.Watch(x);
    tape.Backward(Sum(Square(Scatter(x * 2.0, 0, places, updates, reduction))));
    return tape.Gradient(x).ToVector<double>();
  };
  EXPECT_EQ(gradient(ScatterReduction::kNone), (std::vector<double>{0, 16, 0}));
  EXPECT_EQ(gradient(ScatterReduction::kAdd), (std::vector<double>{32, 16, 72}));
  for (const ScatterReduction reduction :
       {ScatterReduction::kMultiply, ScatterReduction::kMin, ScatterReduction::kMax}) {
    const auto status = CatchStatus([&] { gradient(reduction); });
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(status.message(),
              "gradient tape: Op [scatter]: there is no gradient with respect to what its Z held, "
              "and one flows to it");
  }
}

// In place: through a view with gaps, whose neighbours keep their gradients; nothing is refused where nothing flows.
TEST(TapeUpdates, ScatterIntoOfConstants) {
  const NDArray x = RandomUniform({3, 4}, 1, 2, kF64, 1), w = RandomUniform({3, 4}, 1, 2, kF64, 2);
  const NDArray rows = Indices({0, 2}).Reshape({2, 1}), updates = Ones({2, 1}, kF64);
  GradientTape tape;
  tape.Watch(x);
  const NDArray h = x * 2.0;
  NDArray columns = h.Slice(1, 1, 4, 2);
  ScatterInto(0, rows, updates, ScatterReduction::kNone, columns);
  tape.Backward(Sum(h * w));
  std::vector<double> expected = (w * 2.0).ToVector<double>();
  for (const size_t place : {1, 3, 9, 11}) expected[place] = 0;
  EXPECT_EQ(tape.Gradient(x).ToVector<double>(), expected);

  GradientTape other;
  other.Watch(x);
  NDArray gone = x * 2.0;
  ScatterInto(0, rows, updates, ScatterReduction::kMax, gone);
  FillInto(3, gone);
  other.Backward(Sum(gone + x));
  EXPECT_EQ(other.Gradient(x).ToVector<double>(), Ones({3, 4}, kF64).ToVector<double>());
}

TEST(TapeUpdates, SecondGradientsGoThroughScatter) {
  const NDArray x = FromValues({1.0, 2.0, 3.0}, {3}), y = FromValues({4.0}, {1});
  GradientTape outer;
  outer.Watch(x);
  NDArray first;
  {
    GradientTape inner;
    inner.Watch(x);
    inner.Backward(
        Sum(Square(Scatter(Square(x), 0, Indices({1}), y, ScatterReduction::kNone))));  // x^4
    first = inner.Gradient(x);
  }
  EXPECT_EQ(first.ToVector<double>(), (std::vector<double>{4, 0, 108}));
  outer.Backward(Sum(first));
  EXPECT_EQ(outer.Gradient(x).ToVector<double>(), (std::vector<double>{12, 0, 108}));
}

// What was there goes through the ReLU with what is added to it, whatever else is watched.
TEST(TapeUpdates, AccumulationThroughARelu) {
  const NDArray a = FromValues({1.0, -1.0}, {2, 1}), b = FromValues({3.0, 1.0}, {1, 2});
  for (const bool watches_a : {false, true}) {
    const NDArray x = FromValues({-1.0, -2.0, 2.0, 5.0}, {2, 2});
    GradientTape tape;
    tape.Watch(x);
    if (watches_a) tape.Watch(a);
    NDArray z = x * 2.0;
    MatMulInto(a, b, z, {.relu = true, .accumulate = true});
    EXPECT_EQ(z.ToVector<double>(), (std::vector<double>{1, 0, 1, 9}));
    tape.Backward(Sum(z * FromValues({1.0, 10.0, 100.0, 1000.0}, {2, 2})));
    EXPECT_EQ(tape.Gradient(x).ToVector<double>(), (std::vector<double>{2, 0, 200, 2000}));
    if (watches_a) {
      EXPECT_EQ(tape.Gradient(a).ToVector<double>(), (std::vector<double>{3, 1300}));
    }
  }
}

// A pooling takes a ReLU along that the value before it ends with; what something was added to behind the ReLU does not end
// with it, and the ReLU's own gradient needs what was there.
TEST(TapeUpdates, PoolingBehindWhatAConstantWasAddedTo) {
  const NDArray x = FromValues({-1.0, 1.0, 2.0, 3.0}, {1, 2, 2, 1}), one = Ones({1, 1, 1, 1}, kF64);
  GradientTape tape;
  tape.Watch(x);
  const NDArray z = Conv2d(x, one, nullptr, {.relu = true});
  NDArray flat = z.Reshape({4});
  ScatterAddInto(FromValues({9.0}, {1}), Indices({0}), 0, flat);
  Pool2dAttributes two;
  two.kernel_height = two.kernel_width = two.stride_height = two.stride_width = 2;
  const NDArray largest = MaxPool2d(z, two);
  EXPECT_EQ(largest.Item<double>(), 9);
  EXPECT_EQ(CatchStatus([&] { tape.Backward(largest); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tidepool
