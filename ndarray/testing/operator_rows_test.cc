// What rows say of shapes, gradients and costs, against random cases and numbers worked out by hand.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/gradient_rules.h"
#include "tidepool/ndarray/kernel/operator_cost.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/shape_rules.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {
namespace {

TEST(OperatorRows, ShapesOfCasesAreThoseOfTheRule) {
  std::mt19937_64 random(20261124);
  int ruled = 0;
  for (int code = 0; code < kOpCodes; ++code) {
    const auto op = static_cast<OpCode>(code);
    if (Info(op).shape == ShapeRule::kOwnShape) continue;
    ++ruled;
    int type = 0;
    while (!Contains(Info(op).types, static_cast<DType>(type))) ++type;
    for (int i = 0; i < 20; ++i) {
      const OpCase c = MakeOpCase(op, static_cast<DType>(type), random);
      std::vector<const Shape*> inputs;
      for (const OperandValues& input : c.inputs)
        inputs.push_back(input.present ? &input.shape : nullptr);
      const std::optional<Shape> shape = ShapeByRule(op, inputs, c.attributes.get());
      for (const OperandValues& output : c.outputs) EXPECT_EQ(output.shape, *shape) << c.ToString();
    }
  }
  EXPECT_GT(ruled, 100);
}

TEST(OperatorRows, GradientsAreOfOperandsThereAre) {
  int rules = 0;
  for (int code = 0; code < kOpCodes; ++code) {
    for (const GradientRule& rule : GradientRulesOf(static_cast<OpCode>(code))) {
      EXPECT_FALSE(rule.with_respect_to.empty());
      ++rules;
    }
  }
  EXPECT_GE(rules, 22);
  const OpCode odd = AddOperator({.name = "odd",
                                  .inputs = "X",
                                  .outputs = "Z",
                                  .types = SetOf(DType::kFloat32),
                                  .gradient = "odd_grad"});
  AddOperator(
      {.name = "odd_grad", .inputs = "dY", .outputs = "dX", .types = SetOf(DType::kFloat32)});
  EXPECT_EQ(CatchStatus([&] { GradientRulesOf(odd); }).message(),
            "operator \"odd_grad\", gradient of \"odd\": found operand dY, expected one of (X) and "
            "(Z) or, as dX or "
            "X_gradient, the gradient of one");
}

// A call of dense f32 operands.
struct Call {
  explicit Call(OpCode op, const std::vector<Shape>& inputs, const std::vector<Shape>& outputs)
      : shapes(inputs) {
    shapes.insert(shapes.end(), outputs.begin(), outputs.end());
    for (const Shape& shape : shapes) {
      TensorRef ref;
      ref.present = true;
      ref.rank = shape.rank();
      ref.dims = shape.dims();
      ref.strides = kOnes;
      refs.push_back(ref);
    }
    call.op = op;
    call.inputs = absl::MakeConstSpan(refs).subspan(0, inputs.size());
    call.outputs = absl::MakeConstSpan(refs).subspan(inputs.size());
  }
  static constexpr int64_t kOnes[] = {1, 1, 1, 1, 1, 1, 1, 1};
  std::vector<Shape> shapes;
  std::vector<TensorRef> refs;
  KernelCall call;
};

TEST(OperatorRows, CostsAreThoseWorkedOutByHand) {
  const auto expect = [](const Call& call, double operations, double bytes) {
    const OperatorCost cost = CostOf(call.call);
    EXPECT_EQ(cost.operations, operations) << Info(call.call.op).name;
    EXPECT_EQ(cost.bytes, bytes) << Info(call.call.op).name;
  };
  expect(Call(OpCode::kAdd, {{2, 3}, {3}}, {{2, 3}}), 6, 4 * (6 + 3 + 6));
  expect(Call(OpCode::kExp, {{10}}, {{10}}), 50, 80);
  expect(Call(OpCode::kSum, {{4, 5}}, {{4}}), 20, 4 * 24);
  expect(Call(OpCode::kCopy, {{4}}, {{4}}), 0, 32);

  Call product(OpCode::kMatMul, {{2, 3}, {3, 5}}, {{2, 5}});
  MatMulAttributes a;
  product.call.attributes = &a;
  expect(product, 2 * 2 * 3 * 5, 4 * (6 + 15 + 10));
  a.accumulate = true;
  expect(product, 60, 4 * (6 + 15 + 20));

  // 3x3 filters, 2 channels to 4, on an image of 6x6: the same for all three.
  const Shape image{1, 8, 8, 2}, filter{4, 3, 3, 2}, output{1, 6, 6, 4};
  const double convolution = 2.0 * 6 * 6 * 4 * 3 * 3 * 2;
  const double bytes = 4.0 * (8 * 8 * 2 + 4 * 3 * 3 * 2 + 6 * 6 * 4);
  const Conv2dAttributes conv;
  Call forward(OpCode::kConv2d, {image, filter}, {output}),
      of_input(OpCode::kConv2dGradInput, {output, filter}, {image}),
      of_filter(OpCode::kConv2dGradFilter, {image, output}, {filter});
  for (Call* const call : {&forward, &of_input, &of_filter}) {
    call->call.attributes = &conv;
    expect(*call, convolution, bytes);
  }
  // What is updated is read too.
  expect(Call(OpCode::kSgdUpdate, {{10}}, {{10}}), 40, 4 * 30);
}

TEST(OperatorRows, OfOnesOwnAreChecked) {
  const auto message = [](OperatorInfo info) {
    info.name = "own", info.outputs = "Z", info.types = SetOf(DType::kFloat32);
    return std::string(CatchStatus([&] { AddOperator(info); }).message());
  };
  EXPECT_EQ(
      message({.inputs = "X", .gradient = nullptr}),
      "operator \"own\": found null as its gradient, expected operators' names, or kUnwritten");
  EXPECT_EQ(message({.inputs = "X", .gradient = "a,B"}),
            "operator \"own\": found gradient \"a,B\", expected names of operators, "
            "comma-separated, or kNoGradient, "
            "kComposed or kUnwritten");
  EXPECT_EQ(message({.shape = ShapeRule::kLikeFirst}),
            "operator \"own\": its shape or cost is of the first input, and there is none");
  EXPECT_EQ(message({.inputs = "X", .cost = operator_list::Each(-1)}),
            "operator \"own\": found a cost of -1 for each element, expected 0 or more operations, "
            "and a finite number");
  EXPECT_EQ(message({.inputs = "X", .shape = static_cast<ShapeRule>(9)}),
            "operator \"own\": found shape rule 9, expected one of ShapeRule");
  const OpCode op = AddOperator({.name = "own_costly",
                                 .inputs = "X",
                                 .outputs = "Z",
                                 .types = SetOf(DType::kFloat32),
                                 .cost = operator_list::Each(7)});
  const Call call(op, {{3}}, {{3}});
  EXPECT_EQ(CostOf(call.call).operations, 21);
}

}  // namespace
}  // namespace tidepool
