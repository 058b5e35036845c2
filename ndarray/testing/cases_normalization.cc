// Batch and layer normalisation. Without infinities: sums of them are infinite or NaN by their order.
#include <algorithm>
#include <cmath>

#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/testing/case_values.h"
#include "tidepool/ndarray/testing/op_case_groups.h"

namespace tidepool {
namespace {

DType StatisticsTypeOf(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// Now and then a mean that is large beside the deviation.
OperandValues Input(CaseValues& m, DType dtype, const Shape& shape) {
  OperandValues x = m.Floats(shape, false, dtype);
  const double mean = m.Chance(0.2) ? 64 : 0;
  for (double& value : x.reals) value += mean;
  if (m.Chance(0.1) && !x.reals.empty()) x.reals[m.Int(0, shape.NumElements() - 1)] = NAN;
  return x;
}

OperandValues Positive(CaseValues& m, DType dtype, const Shape& shape) {
  OperandValues values = m.Floats(shape, false, dtype);
  for (double& value : values.reals) value = 0.5 + std::abs(value);
  return values;
}

bool IsBatch(OpCode op) {
  return op == OpCode::kBatchNorm || op == OpCode::kBatchNormInference ||
         op == OpCode::kBatchNormGrad;
}

// The gradient takes an inverse deviation of any size.
void OfRows(CaseValues& m, OpCase& c) {
  const bool groups = c.op == OpCode::kGroupNorm || c.op == OpCode::kGroupNormGrad;
  const bool forward = c.op == OpCode::kGroupNorm || c.op == OpCode::kRmsNorm;
  Shape shape = m.AnyShape(groups ? 2 : 1, 4);
  const int last = shape.rank() - 1;
  GroupNormAttributes a{m.Real(1e-3, 0.1), 1};
  if (groups) {
    int64_t dims[kMaxRank];
    std::copy_n(shape.dims(), shape.rank(), dims);
    if (m.Chance(0.5) && dims[last] > 1) dims[last] -= dims[last] % 2;
    shape = Shape(absl::Span<const int64_t>(dims, shape.rank()));
    const int64_t choices[] = {1, 2, std::max<int64_t>(1, dims[last])};
    do a.groups = choices[m.Int(0, 2)];
    while (dims[last] % a.groups != 0);
  }
  const Shape channels{shape[last]};
  const Shape statistics =
      groups ? Shape{shape[0], a.groups} : Shape(absl::Span<const int64_t>(shape.dims(), last));
  const DType type = StatisticsTypeOf(c.dtype);
  const OperandValues scale = m.Floats(channels, false, c.dtype);
  if (forward) {
    c.inputs = {Input(m, c.dtype, shape), scale};
    c.outputs = {m.Result(c.dtype, shape)};
    if (groups) c.inputs.push_back(m.Floats(channels, false, c.dtype));
    for (int i = 0; i < (groups ? 2 : 1); ++i) c.outputs.push_back(m.Result(type, statistics));
    c.inner = 10;
    if (groups)
      c.attributes = a;
    else
      c.attributes = NormalizationAttributes{a.epsilon};
    return;
  }
  c.inputs = {m.Floats(shape, false, c.dtype), scale};
  if (groups) c.inputs.push_back(m.Floats(statistics, false, type));
  c.inputs.push_back(Positive(m, type, statistics));
  c.inputs.push_back(m.Floats(shape, false, c.dtype));
  c.outputs = {m.Result(c.dtype, shape)};
  for (int i = 0; i < (groups ? 2 : 1); ++i) c.outputs.push_back(m.Result(c.dtype, channels));
  c.inner = static_cast<double>(
      std::max<int64_t>(8, shape.NumElements() / std::max<int64_t>(1, channels[0])));
}

void Normalization(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(1, 4);
  const Shape last{shape[shape.rank() - 1]};
  const Shape rest(absl::Span<const int64_t>(shape.dims(), shape.rank() - 1));
  const Shape statistics = IsBatch(c.op) ? last : rest;
  const DType type = StatisticsTypeOf(c.dtype);
  const NormalizationAttributes attributes{m.Real(1e-3, 0.1)};
  if (Info(c.op).attributes.bytes() > 0) c.attributes = attributes;
  const OperandValues scale = m.Floats(last, false, c.dtype);
  const OperandValues shift = m.Floats(last, false, c.dtype);
  switch (c.op) {
    case OpCode::kBatchNorm:
    case OpCode::kLayerNorm:
      c.inputs = {Input(m, c.dtype, shape), scale, shift};
      c.outputs = {m.Result(c.dtype, shape), m.Result(type, statistics),
                   m.Result(type, statistics)};
      c.inner = 10;
      return;
    case OpCode::kBatchNormInference:
      c.inputs = {m.Floats(shape, m.Chance(0.2), c.dtype), scale, shift,
                  m.Floats(last, false, type), Positive(m, type, last)};
      c.outputs = {m.Result(c.dtype, shape)};
      return;
    default:
      c.inputs = {m.Floats(shape, false, c.dtype), scale, m.Floats(statistics, false, type),
                  Positive(m, type, statistics), m.Floats(shape, false, c.dtype)};
      if (m.Chance(0.1) && shape.NumElements() > 0) {
        c.inputs[4].reals[m.Int(0, shape.NumElements() - 1)] = NAN;
      }
      c.outputs = {m.Result(c.dtype, shape), m.Result(c.dtype, last), m.Result(c.dtype, last)};
      c.inner = static_cast<double>(
          std::max<int64_t>(8, shape.NumElements() / std::max<int64_t>(1, last[0])));
  }
}

void RunningAverages(CaseValues& m, OpCase& c) {
  const Shape shape{m.Size(65)};
  c.inputs = {m.Floats(shape, false, c.dtype), Positive(m, c.dtype, shape)};
  c.outputs = {m.Floats(shape, false, c.dtype), Positive(m, c.dtype, shape)};
  c.attributes = RunningAverageAttributes{m.Real(0, 1), m.Real(0, 0.1), m.Int(1, 5)};
}

}  // namespace

CaseMaker FindNormalizationCases(OpCode op) {
  switch (op) {
    case OpCode::kBatchNorm:
    case OpCode::kBatchNormInference:
    case OpCode::kBatchNormGrad:
    case OpCode::kLayerNorm:
    case OpCode::kLayerNormGrad:
      return &Normalization;
    case OpCode::kRmsNorm:
    case OpCode::kRmsNormGrad:
    case OpCode::kGroupNorm:
    case OpCode::kGroupNormGrad:
      return &OfRows;
    case OpCode::kBatchNormRunning:
      return &RunningAverages;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
