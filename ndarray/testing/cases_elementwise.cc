#include "tidepool/ndarray/testing/op_case_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/testing/case_values.h"

namespace tidepool {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The list's absolute tolerance of most functions is a denormal of f32 or two. Those of f16 are
// farther apart than its scaled tolerance.
void AllowDenormals(OpCase& c) {
  if (c.dtype == DType::kFloat16) c.inner = 1e33;
}

// What an integer becomes in the case's type.
int64_t InType(DType dtype, int64_t value) {
  return VisitDType(
      dtype, [&](auto t) { return ConvertElement<int64_t>(ConvertElement<decltype(t)>(value)); });
}

// Some results near zero, one, overflow and underflow, whatever the function.
void SpreadOut(CaseValues& m, OperandValues* values) {
  const double scale = m.Chance(0.3) ? 1 : std::exp2(m.Real(-4, 7));
  for (double& value : values->reals) value *= scale;
}

void Arithmetic(CaseValues& m, OpCase& c) {
  const bool special = m.Chance(0.3);
  const Shape shape = m.AnyShape(0, 4);
  const Shape x = m.Chance(0.5) ? shape : m.Narrowed(shape);
  const Shape y = m.Chance(0.5) ? shape : m.Narrowed(shape);
  c.inputs = {m.Numbers(c.dtype, x, special), m.Numbers(c.dtype, y, special)};
  c.outputs = {m.Result(c.dtype, BroadcastShapes("case", x, y))};
  switch (c.op) {
    case OpCode::kPower:
      if (m.Chance(0.7)) {
        for (double& value : c.inputs[0].reals) value = std::abs(value) * 4;
      }
      for (double& value : c.inputs[1].reals)
        value = m.Chance(0.3) ? std::round(value * 5) : value * 9;
      for (int64_t& value : c.inputs[1].ints) value = m.Int(0, 12);
      break;
    case OpCode::kRemainder:
    case OpCode::kFMod:
    case OpCode::kFloorDivide:
      SpreadOut(m, &c.inputs[0]);
      break;
    case OpCode::kShiftLeft:
    case OpCode::kShiftRight:
      for (int64_t& value : c.inputs[1].ints) value = m.Int(-2, 70);
      break;
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kFMax:
    case OpCode::kFMin:
      for (OperandValues& input : c.inputs) m.MakeTies(&input);
      break;
    default:
      break;
  }
  if (c.op == OpCode::kDivide || c.op == OpCode::kRemainder || c.op == OpCode::kFMod ||
      c.op == OpCode::kFloorDivide) {
    for (int64_t& value : c.inputs[1].ints) {
      if (InType(c.dtype, value) == 0) value = -1;  // refused by ops/
    }
  }
  AllowDenormals(c);  // where the tolerance has an absolute part
}

void ScaleShift(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 4);
  c.inputs = {m.Numbers(c.dtype, shape, m.Chance(0.3))};
  c.outputs = {m.Result(c.dtype, shape)};
  ScaleShiftAttributes a{m.Real(-2, 2), m.Real(-2, 2)};
  if (!IsFloating(c.dtype)) a = {m.Int(-6, 6) * 0.5, m.Int(-6, 6) * 0.5};
  c.attributes = a;
}

void Comparing(CaseValues& m, OpCase& c) {
  const bool special = m.Chance(0.3);
  const Shape shape = m.AnyShape(0, 4);
  const Shape x = m.Chance(0.5) ? shape : m.Narrowed(shape);
  const Shape y = m.Chance(0.5) ? shape : m.Narrowed(shape);
  c.inputs = {m.Numbers(c.dtype, x, special), m.Numbers(c.dtype, y, special)};
  for (OperandValues& input : c.inputs) {
    if (m.Chance(0.8)) m.MakeTies(&input);
  }
  c.outputs = {m.Result(DType::kBool, BroadcastShapes("case", x, y))};
}

void Classify(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 4);
  c.inputs = {m.Numbers(c.dtype, shape, m.Chance(0.8))};
  c.outputs = {m.Result(DType::kBool, shape)};
}

void Where(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 4);
  const Shape x = m.Chance(0.5) ? shape : m.Narrowed(shape);
  const Shape y = m.Chance(0.5) ? shape : m.Narrowed(shape);
  const Shape condition = m.Chance(0.5) ? shape : m.Narrowed(shape);
  c.inputs = {m.Ints(condition, 0, 1, DType::kBool), m.Numbers(c.dtype, x, m.Chance(0.3)),
              m.Numbers(c.dtype, y, m.Chance(0.3))};
  c.outputs = {
      m.Result(c.dtype, BroadcastShapes("case", condition, BroadcastShapes("case", x, y)))};
}

// One input and an output like it.
void Function(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 4);
  c.inputs = {m.Numbers(c.dtype, shape, m.Chance(0.3))};
  c.outputs = {m.Result(c.dtype, shape)};
  SpreadOut(m, &c.inputs[0]);
  AllowDenormals(c);
  switch (c.op) {
    case OpCode::kSqrt:
    case OpCode::kRsqrt:
    case OpCode::kLog:
    case OpCode::kLog1p:
    case OpCode::kLog2:
    case OpCode::kLog10:
    case OpCode::kAcosh:
      if (m.Chance(0.1)) break;  // NaN
      for (double& value : c.inputs[0].reals)
        value = std::abs(value) + (c.op == OpCode::kAcosh ? 1 : 0);
      break;
    case OpCode::kAsin:
    case OpCode::kAcos:
    case OpCode::kAtanh:
      if (m.Chance(0.1)) break;  // NaN
      for (double& value : c.inputs[0].reals) value = std::remainder(value, 2);
      break;
    case OpCode::kTrunc:
    case OpCode::kRound:
      for (double& value : c.inputs[0].reals) {
        if (std::isfinite(value) && m.Chance(0.5)) value = std::round(value * 2) / 2;
      }
      break;
    case OpCode::kClip: {
      double low = m.Int(-100, 100), high = low + m.Int(0, 100);
      if (IsFloating(c.dtype)) low /= 128, high /= 128;
      if (m.Chance(0.2)) low = -kInfinity;
      if (m.Chance(0.2)) high = m.Chance(0.5) ? kInfinity : 1e20;
      c.attributes = ClipAttributes{low, high};
      break;
    }
    case OpCode::kLeakyRelu:
    case OpCode::kElu:
      c.attributes = AlphaAttributes{m.Int(0, 8) / 8.0};
      break;
    case OpCode::kGelu:
      c.attributes = GeluAttributes{m.Chance(0.5)};
      c.inner = 1;
      break;
    default:
      break;
  }
}

void GradientOf(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 4);
  const bool special = m.Chance(0.3);
  // An infinite gradient times what underflows in f32 is NaN there and infinite in double.
  const bool of_output = c.op == OpCode::kReluGrad || c.op == OpCode::kSigmoidGrad ||
                         c.op == OpCode::kTanhGrad || c.op == OpCode::kLeakyReluGrad;
  c.inputs = {m.Numbers(c.dtype, shape, special), m.Numbers(c.dtype, shape, special && of_output)};
  c.outputs = {m.Result(c.dtype, shape)};
  AllowDenormals(c);
  switch (c.op) {
    case OpCode::kSigmoidGrad:
      for (double& value : c.inputs[0].reals) value = std::abs(value);
      break;
    case OpCode::kTanhGrad:
    case OpCode::kReluGrad:
      break;
    case OpCode::kLeakyReluGrad:
    case OpCode::kEluGrad:
      SpreadOut(m, &c.inputs[0]);
      c.attributes = AlphaAttributes{m.Int(0, 8) / 8.0};
      break;
    case OpCode::kGeluGrad:
      SpreadOut(m, &c.inputs[0]);
      c.attributes = GeluAttributes{m.Chance(0.5)};
      c.inner = 1;
      break;
    case OpCode::kSwishGrad:
      SpreadOut(m, &c.inputs[0]);
      c.inner = 1;
      break;
    default:
      SpreadOut(m, &c.inputs[0]);
      break;
  }
}

void CopyOrFill(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 4);
  if (c.op == OpCode::kFill) {
    static constexpr double kValues[] = {0, -0.0, 1, -3.5, 1e30, 1e-40, kNaN, -kInfinity};
    c.attributes = FillAttributes{kValues[m.Int(0, std::size(kValues) - 1)]};
    c.outputs = {m.Result(c.dtype, shape)};
    return;
  }
  c.inputs = {m.Numbers(c.dtype, shape, m.Chance(0.5))};
  for (double& value : c.inputs[0].reals) value *= m.Chance(0.1) ? 1e20f : 100.0f;
  c.outputs = {
      m.Result(m.Chance(0.5) ? c.dtype : static_cast<DType>(m.Int(0, kDTypes - 1)), shape)};
}

// Steps that do not blow rounding up, which is followed: `size` bounds the values, `error` what they may
// be off by, in roundings of numbers about 1.
void Chain(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 4);
  const bool special = m.Chance(0.2);
  ElementwiseChainAttributes a;
  const int operands = static_cast<int>(m.Int(0, 2)), steps = static_cast<int>(m.Int(operands, 8));
  double size = 1, error = 1;
  bool used[3] = {};
  auto take = [&](OpCode op, int operand = 0, double first = 0, double second = 0) {
    used[operand] = true;
    a.steps[a.count++] = {op, static_cast<uint8_t>(operand), operand > 0 && m.Chance(0.3), first,
                          second};
  };
  while (a.count < std::max(1, steps)) {
    // Each operand at least once.
    int operand = a.count < operands ? a.count + 1 : static_cast<int>(m.Int(0, operands));
    if (operand > 0) {
      static constexpr OpCode kBinary[] = {
#define TIDEPOOL_CHAIN_FUNCTION_OF_TWO(Name) OpCode::k##Name,
#define TIDEPOOL_CHAIN_FUNCTION(Name)
#include "tidepool/ndarray/kernel/operators/chain_steps.inc"
#undef TIDEPOOL_CHAIN_FUNCTION_OF_TWO
#undef TIDEPOOL_CHAIN_FUNCTION
      };
      const OpCode op = kBinary[m.Int(0, std::size(kBinary) - 1)];
      if (op == OpCode::kDivide) continue;  // by what may be next to 0
      if (op == OpCode::kAdd || op == OpCode::kSubtract) size += 1;
      error += size;
      take(op, operand);
      continue;
    }
    static constexpr OpCode kUnary[] = {
#define TIDEPOOL_CHAIN_FUNCTION_OF_TWO(Name)
#define TIDEPOOL_CHAIN_FUNCTION(Name) OpCode::k##Name,
#include "tidepool/ndarray/kernel/operators/chain_steps.inc"
#undef TIDEPOOL_CHAIN_FUNCTION_OF_TWO
#undef TIDEPOOL_CHAIN_FUNCTION
        OpCode::kScaleShift, OpCode::kClip, OpCode::kLeakyRelu, OpCode::kElu, OpCode::kGelu};
    const OpCode op = size > 16 ? OpCode::kTanh : kUnary[m.Int(0, std::size(kUnary) - 1)];
    switch (op) {
      case OpCode::kTanh:
      case OpCode::kSigmoid:
        size = 1, error += 4;
        take(op);
        break;
      case OpCode::kClip:
        take(op, 0, m.Real(-2, 0), m.Real(0, 2));
        break;
      case OpCode::kScaleShift:
        error = 2 * error + size, size = 2 * size + 1;
        take(op, 0, m.Real(-2, 2), m.Real(-1, 1));
        break;
      case OpCode::kSquare:
        error = 2 * size * error + size * size, size *= size;
        take(op);
        break;
      case OpCode::kSqrt:  // steep at 0
        continue;
      case OpCode::kExp:
        if (size > 2) continue;
        size = std::exp(size), error = size * (error + 4);
        take(op);
        break;
      case OpCode::kLeakyRelu:
      case OpCode::kElu:
        error += size + 4;
        take(op, 0, m.Int(0, 8) / 8.0);
        break;
      case OpCode::kGelu:
        error = 1.2 * error + 4 * size;
        take(op, 0, m.Chance(0.5) ? 1 : 0);
        break;
      default:
        error = 1.2 * error + 4 * size;
        take(op);
    }
  }
  const Shape y = m.Chance(0.5) ? shape : m.Narrowed(shape);
  const Shape w = m.Chance(0.5) ? shape : m.Narrowed(shape);
  c.inputs = {m.Numbers(c.dtype, shape, special), m.Numbers(c.dtype, y, special),
              m.Numbers(c.dtype, w, special)};
  c.inputs[1].present = used[1], c.inputs[2].present = used[2];
  c.outputs = {m.Result(c.dtype, shape)};
  c.attributes = a;
  c.inner = error;
}

void Logical(CaseValues& m, OpCase& c) {
  c.op == OpCode::kLogicalNot ? Function(m, c) : Arithmetic(m, c);
}

}  // namespace

// Families of the list, by the files of their rows.
CaseMaker FindElementwiseCases(OpCode op) {
  switch (op) {
#define TIDEPOOL_OPERATOR(Name, ...) case OpCode::k##Name:
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#include "tidepool/ndarray/kernel/operators/bits.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
    return &Arithmetic;
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
    return &Comparing;
#include "tidepool/ndarray/kernel/operators/logic.inc"
    case OpCode::kLogicalNot:
      return &Logical;
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
      return &Classify;
#include "tidepool/ndarray/kernel/operators/functions.inc"
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
    case OpCode::kClip:
    case OpCode::kLeakyRelu:
    case OpCode::kElu:
    case OpCode::kGelu:
      return &Function;
#include "tidepool/ndarray/kernel/operators/function_gradients.inc"
    case OpCode::kLeakyReluGrad:
    case OpCode::kEluGrad:
    case OpCode::kGeluGrad:
      return &GradientOf;
#undef TIDEPOOL_OPERATOR
    case OpCode::kFill:
    case OpCode::kCopy:
      return &CopyOrFill;
    case OpCode::kScaleShift:
      return &ScaleShift;
    case OpCode::kWhere:
      return &Where;
    case OpCode::kElementwiseChain:
      return &Chain;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
