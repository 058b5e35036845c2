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

void RowErrors(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(1, 4);
  c.inputs = {m.Floats(shape, m.Chance(0.2), c.dtype), m.Floats(shape, false, c.dtype)};
  for (double& value : c.inputs[0].reals) value *= m.Chance(0.1) ? 30 : 2;
  if (m.Chance(0.2)) m.MakeTies(&c.inputs[0]), m.MakeTies(&c.inputs[1]);
  c.inner = 30;
  if (c.op == OpCode::kHuberError || c.op == OpCode::kHuberErrorGrad)
    c.attributes = HuberAttributes{m.Real(0.1, 2)};
  if (c.op == OpCode::kAbsoluteError || c.op == OpCode::kHuberError) {
    c.outputs = {m.Result(c.dtype, {shape[0]})};
  } else {
    c.inputs.push_back(m.Floats({shape[0]}, false, c.dtype));
    c.outputs = {m.Result(c.dtype, shape)};
  }
}

// Labels that fit; where they need not, some that the input is too short for.
void Alignments(CaseValues& m, OpCase& c) {
  const int64_t batch = m.Size(9), frames = m.Chance(0.02) ? m.Int(40, 90) : m.Int(0, 12),
                classes = m.Int(2, 6);
  const int64_t most = std::min<int64_t>(frames, m.Int(0, 5));
  CtcAttributes a;
  a.blank = m.Chance(0.5) ? 0 : m.Int(0, classes - 1);
  a.zero_infinity = m.Chance(0.4);
  OperandValues x = m.Floats({batch, frames, classes}, false, c.dtype),
                labels = m.Ints({batch, most}, 0, classes - 2);
  for (double& value : x.reals) value = 2 * value - 2;
  if (m.Chance(0.05) && !x.reals.empty()) x.reals[m.Int(0, x.shape.NumElements() - 1)] = NAN;
  for (int64_t& label : labels.ints) label += label >= a.blank ? 1 : 0;
  OperandValues input_lengths = m.Ints({batch}, 0, frames),
                label_lengths = m.Ints({batch}, 0, most);
  for (int64_t b = 0; b < batch && !a.zero_infinity; ++b) {
    int64_t needed = 0;
    for (int64_t i = 0; i < label_lengths.ints[b]; ++i) {
      needed += 1 + (i > 0 && labels.ints[b * most + i] == labels.ints[b * most + i - 1]);
    }
    if (needed > frames) label_lengths.ints[b] = needed = 0;
    input_lengths.ints[b] = std::max(input_lengths.ints[b], needed);
  }
  for (int64_t i = 0; i < batch * most && m.Chance(0.9);
       ++i) {  // behind the last label anything may stand
    if (i % most >= label_lengths.ints[i / most]) labels.ints[i] = -7;
  }
  c.inputs = {x, labels, input_lengths, label_lengths};
  c.attributes = a;
  c.outputs = {m.Result(c.dtype, {batch})};
  // A path is a sum of as many logarithms; those of f32 are added up in double and rounded once.
  if (c.dtype == DType::kFloat64) c.inner = static_cast<double>(std::max<int64_t>(1, frames));
  if (c.op == OpCode::kCtcLossGrad) {
    c.inputs.push_back(m.Floats({batch}, false, c.dtype));
    c.outputs = {m.Result(c.dtype, x.shape)};
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
    case OpCode::kAbsoluteError:
    case OpCode::kAbsoluteErrorGrad:
    case OpCode::kHuberError:
    case OpCode::kHuberErrorGrad:
      return &RowErrors;
    case OpCode::kCtcLoss:
    case OpCode::kCtcLossGrad:
      return &Alignments;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
