// Softmax over any axis, its gradients, and losses.
#include <algorithm>
#include <cmath>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/testing/case_values.h"
#include "tidepool/ndarray/testing/op_case_groups.h"

namespace tidepool {
namespace {

// Any axis of a shape with elements along it; often the last.
int AxisOf(CaseValues& m, const Shape& shape) {
  return m.Chance(0.4) ? shape.rank() - 1 : static_cast<int>(m.Int(0, shape.rank() - 1));
}

void SoftmaxLines(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(1, 4);
  c.inputs = {m.Numbers(c.dtype, shape, m.Chance(0.3))};
  c.outputs = {m.Result(c.dtype, shape)};
  c.attributes = SoftmaxAttributes{AxisOf(m, shape)};
  const double range = m.Chance(0.2) ? 60 : 4;
  for (double& value : c.inputs[0].reals) value *= range;
}

void SoftmaxGradLines(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(1, 4);
  const int axis = AxisOf(m, shape);
  c.inputs = {m.Floats(shape, false, c.dtype), m.Floats(shape, false, c.dtype)};
  if (m.Chance(0.2) && !c.inputs[1].reals.empty()) {
    c.inputs[1].reals[m.Int(0, shape.NumElements() - 1)] = NAN;
  }
  c.outputs = {m.Result(c.dtype, shape)};
  c.attributes = SoftmaxAttributes{axis};
  c.inner = static_cast<double>(std::max<int64_t>(1, shape[axis]));
}

void LabelledCrossEntropy(CaseValues& m, OpCase& c) {
  const int64_t batch = m.Size(128), classes = m.NonZero(128);
  const OperandValues labels = m.Ints({batch}, 0, classes - 1);
  c.inputs = {m.Floats({batch, classes}, m.Chance(0.2), c.dtype), labels};
  if (c.op == OpCode::kSoftmaxCrossEntropy) {
    for (double& value : c.inputs[0].reals) value *= m.Chance(0.1) ? 50 : 3;
    c.outputs = {m.Result(c.dtype, {batch}), m.Result(c.dtype, {batch, classes})};
    c.inner = static_cast<double>(classes);
  } else {
    c.attributes = CrossEntropyGradAttributes{m.Real(0, 1)};
    c.outputs = {m.Result(c.dtype, {batch, classes})};
  }
}

void TargetCrossEntropy(CaseValues& m, OpCase& c) {
  const Shape shape{m.Size(65), m.NonZero(128)};
  OperandValues targets = m.Floats(shape, false, c.dtype);
  for (double& value : targets.reals) value = m.Chance(0.3) ? 0 : std::abs(value);
  c.inputs = {m.Floats(shape, false, c.dtype), targets};
  c.inner = static_cast<double>(shape[1]);
  if (c.op == OpCode::kDenseCrossEntropy) {
    for (double& value : c.inputs[0].reals) {
      value *= m.Chance(0.1) ? 20 : 3;
      if (m.Chance(0.001)) value = NAN;
    }
    c.outputs = {m.Result(c.dtype, {shape[0]}), m.Result(c.dtype, shape)};
  } else {
    c.attributes = LossGradAttributes{m.Real(0, 1)};
    c.outputs = {m.Result(c.dtype, shape)};
  }
}

void MeanLosses(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(1, 4);
  c.inputs = {m.Floats(shape, m.Chance(0.2), c.dtype), m.Floats(shape, false, c.dtype)};
  for (double& value : c.inputs[0].reals) value *= m.Chance(0.1) ? 30 : 3;
  c.inner = 30;
  if (c.op == OpCode::kSquaredError || c.op == OpCode::kBinaryCrossEntropy) {
    c.outputs = {m.Result(c.dtype, {shape[0]})};
  } else {
    c.attributes = LossGradAttributes{m.Real(0, 1)};
    c.outputs = {m.Result(c.dtype, shape)};
  }
}

}  // namespace

CaseMaker FindLossCases(OpCode op) {
  switch (op) {
    case OpCode::kSoftmax:
    case OpCode::kLogSoftmax:
      return &SoftmaxLines;
    case OpCode::kSoftmaxGrad:
    case OpCode::kLogSoftmaxGrad:
      return &SoftmaxGradLines;
    case OpCode::kSoftmaxCrossEntropy:
    case OpCode::kSoftmaxCrossEntropyGrad:
      return &LabelledCrossEntropy;
    case OpCode::kDenseCrossEntropy:
    case OpCode::kDenseCrossEntropyGrad:
      return &TargetCrossEntropy;
    case OpCode::kSquaredError:
    case OpCode::kSquaredErrorGrad:
    case OpCode::kBinaryCrossEntropy:
    case OpCode::kBinaryCrossEntropyGrad:
      return &MeanLosses;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
