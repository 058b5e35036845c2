#include "tidepool/ndarray/testing/op_case_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/testing/case_values.h"

namespace tidepool {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The shape with the axes of a matrix added.
Shape WithMatrix(const Shape& lead, int64_t rows, int64_t columns) {
  int64_t dims[kMaxRank];
  std::copy_n(lead.dims(), lead.rank(), dims);
  dims[lead.rank()] = rows;
  dims[lead.rank() + 1] = columns;
  return Shape(absl::Span<const int64_t>(dims, lead.rank() + 2));
}

void Products(CaseValues& m, OpCase& c) {
  MatMulAttributes a;
  a.transpose_x = m.Chance(0.5);
  a.transpose_y = m.Chance(0.5);
  a.relu = m.Chance(0.3);
  a.accumulate = m.Chance(0.3);
  a.y_is_constant = m.Chance(0.5);
  const bool large = m.Chance(0.04), batched = !large && m.Chance(0.4);
  const int64_t rows = large ? m.Int(60, 200) : m.Size(batched ? 17 : 65);
  const int64_t inner = large ? m.Int(60, 300) : m.Size(batched ? 33 : 128);
  const int64_t columns = large ? m.Int(60, 200) : m.Size(batched ? 17 : 65);
  // Leading axes: of either operand some are left out or 1.
  int64_t dims[4];
  const int lead = batched ? static_cast<int>(m.Int(1, 4)) : 0;
  for (int i = 0; i < lead; ++i) dims[i] = m.Chance(0.03) ? 0 : m.Int(1, 4);
  const Shape items(absl::Span<const int64_t>(dims, lead));
  const Shape x_items = m.Chance(0.5) ? items : m.Narrowed(items);
  const Shape y_items = x_items == items ? m.Narrowed(items) : items;
  // cuBLASLt's ReLU may make 0 of NaN.
  const bool special = IsFloating(c.dtype) && !a.relu && m.Chance(0.15);
  c.attributes = a;
  c.inner = static_cast<double>(inner) + 2;
  const Shape result = WithMatrix(items, rows, columns);
  c.inputs = {
      m.Numbers(c.dtype,
                WithMatrix(x_items, a.transpose_x ? inner : rows, a.transpose_x ? rows : inner),
                special),
      m.Numbers(
          c.dtype,
          WithMatrix(y_items, a.transpose_y ? columns : inner, a.transpose_y ? inner : columns),
          special),
      m.Numbers(c.dtype, {columns}, false)};
  c.inputs[2].present = m.Chance(0.5);
  c.outputs = {a.accumulate ? m.Numbers(c.dtype, result, false) : m.Result(c.dtype, result)};
}

int64_t OutputSize(int64_t in, int64_t covered, int64_t stride, int64_t pads) {
  return in + pads < covered ? 0 : (in + pads - covered) / stride + 1;
}

void Convolution(CaseValues& m, OpCase& c) {
  Conv2dAttributes a;
  int64_t batch, height, width, channels, filters, rows, columns, out_height, out_width;
  do {
    const bool large = m.Chance(0.03);
    batch = m.Chance(0.05) ? 0 : m.Int(1, 3);
    height = large ? m.Int(12, 24) : m.Int(1, 10);
    width = large ? m.Int(12, 24) : m.Int(1, 10);
    channels = m.NonZero(large ? 16 : 9);
    filters = m.NonZero(17);
    rows = m.Int(1, 5);
    columns = m.Int(1, 5);
    // Depthwise with one or more filters a channel, or groups of several channels.
    a.groups = 1;
    if (m.Chance(0.4)) {
      a.groups = m.Chance(0.6) ? channels : m.Int(1, 4);
      if (a.groups != channels) channels = a.groups * m.Int(1, 5);
      filters = a.groups * m.Int(1, 3);
    }
    a.stride_height = m.Chance(0.6) ? 1 : m.Int(1, 3);
    a.stride_width = m.Chance(0.6) ? 1 : m.Int(1, 3);
    a.dilation_height = m.Chance(0.7) ? 1 : m.Int(1, 3);
    a.dilation_width = m.Chance(0.7) ? 1 : m.Int(1, 3);
    if (m.Chance(0.5)) {
      a.pad_top = m.Int(0, 2), a.pad_bottom = m.Int(0, 2);
      a.pad_left = m.Int(0, 2), a.pad_right = m.Int(0, 2);
    }
    out_height = OutputSize(height, a.dilation_height * (rows - 1) + 1, a.stride_height,
                            a.pad_top + a.pad_bottom);
    out_width = OutputSize(width, a.dilation_width * (columns - 1) + 1, a.stride_width,
                           a.pad_left + a.pad_right);
  } while (out_height == 0 || out_width == 0);
  const Shape input{batch, height, width, channels};
  const Shape filter{filters, rows, columns, channels / a.groups};
  const Shape output{batch, out_height, out_width, filters};
  // Where zeros may be multiplied instead of left out (padding, strides), the other operand stays
  // finite: 0 * infinity would tell the two apart.
  const bool special = m.Chance(0.15);
  if (c.op == OpCode::kConv2d) {
    a.relu = m.Chance(0.3);
    a.filter_is_constant = m.Chance(0.3);
    c.inputs = {m.Floats(input, special, c.dtype), m.Floats(filter, false, c.dtype),
                m.Floats({filters}, false, c.dtype)};
    c.inputs[2].present = m.Chance(0.5);
    c.outputs = {m.Result(c.dtype, output)};
    c.inner = static_cast<double>(rows * columns * channels) + 1;
  } else if (c.op == OpCode::kConv2dGradInput) {
    c.inputs = {m.Floats(output, special, c.dtype), m.Floats(filter, false, c.dtype)};
    c.outputs = {m.Result(c.dtype, input)};
    c.inner = static_cast<double>(rows * columns * filters);
  } else {
    a.accumulate = m.Chance(0.3);
    c.inputs = {m.Floats(input, special, c.dtype), m.Floats(output, false, c.dtype)};
    c.outputs = {a.accumulate ? m.Floats(filter, false, c.dtype) : m.Result(c.dtype, filter)};
    c.inner = static_cast<double>(batch * out_height * out_width) + 1;
  }
  c.attributes = a;
}

void Pooling(CaseValues& m, OpCase& c) {
  Pool2dAttributes a;
  a.kernel_height = m.Chance(0.5) ? 2 : m.Int(1, 4);
  a.kernel_width = m.Chance(0.5) ? 2 : m.Int(1, 4);
  a.stride_height = m.Chance(0.7) ? a.kernel_height : m.Int(1, 5);
  a.stride_width = m.Chance(0.7) ? a.kernel_width : m.Int(1, 5);
  if (m.Chance(0.4)) {
    a.pad_top = m.Int(0, a.kernel_height - 1), a.pad_bottom = m.Int(0, a.kernel_height - 1);
    a.pad_left = m.Int(0, a.kernel_width - 1), a.pad_right = m.Int(0, a.kernel_width - 1);
  }
  a.count_include_pad = m.Chance(0.5);
  const Shape input{m.Chance(0.05) ? 0 : m.Int(1, 3), a.kernel_height + m.Int(0, 9),
                    a.kernel_width + m.Int(0, 9), m.NonZero(m.Chance(0.05) ? 128 : 17)};
  const Shape output{
      input[0], OutputSize(input[1], a.kernel_height, a.stride_height, a.pad_top + a.pad_bottom),
      OutputSize(input[2], a.kernel_width, a.stride_width, a.pad_left + a.pad_right), input[3]};
  OperandValues values = m.Floats(input, m.Chance(0.3), c.dtype);
  if (m.Chance(0.3)) m.MakeTies(&values);
  if (c.op == OpCode::kAveragePool2dGrad) {
    c.inputs = {m.Floats(output, m.Chance(0.3), c.dtype)};
    c.outputs = {m.Result(c.dtype, input)};
  } else if (c.op != OpCode::kMaxPool2dGrad) {
    c.inputs = {values};
    c.outputs = {m.Result(c.dtype, output)};
  } else {
    a.relu_grad = m.Chance(0.5);
    if (a.relu_grad) {  // the input is the output of a ReLU
      for (double& value : values.reals) value = value <= 0 ? 0.0f : value;
    }
    OperandValues largest{output, c.dtype, true, {}, {}};
    for (int64_t o = 0; o < output.NumElements(); ++o) {
      const int64_t k = o % output[3], j = o / output[3] % output[2];
      const int64_t i = o / (output[3] * output[2]) % output[1];
      const int64_t n = o / (output[3] * output[2] * output[1]);
      double best = -kInfinity;
      for (int64_t tap = 0; tap < a.kernel_height * a.kernel_width; ++tap) {
        const int64_t row = i * a.stride_height + tap / a.kernel_width - a.pad_top;
        const int64_t column = j * a.stride_width + tap % a.kernel_width - a.pad_left;
        if (row < 0 || row >= input[1] || column < 0 || column >= input[2]) continue;
        const double value =
            values.reals[((n * input[1] + row) * input[2] + column) * input[3] + k];
        if (!(value <= best) && !std::isnan(best)) best = value;
      }
      largest.reals.push_back(best);
    }
    c.inputs = {values, largest, m.Floats(output, false, c.dtype)};
    c.outputs = {m.Result(c.dtype, input)};
  }
  c.inner = static_cast<double>(a.kernel_height * a.kernel_width);
  c.attributes = a;
}

void Update(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 3);
  // The rate, epsilon, what is kept, of the gradient, and whether it is left out.
  OperandValues numbers = m.Floats({5}, false, c.dtype);
  numbers.reals = {m.Real(0, 0.2), m.Real(1e-8, 1e-3), m.Real(0.9, 1), m.Real(0.1, 2), 0};
  if (m.Chance(0.2)) numbers.reals[4] = 1;
  numbers.present = m.Chance(0.4);
  const auto floats = [&] { return m.Floats(shape, false, c.dtype); };
  c.inputs = {m.Floats(shape, m.Chance(0.2), c.dtype), numbers};
  c.outputs = {floats()};
  const double l2 = m.Chance(0.5) ? 0 : m.Real(0, 0.1);
  const double l1 = m.Chance(0.5) ? 0 : m.Real(0, 0.1), clip = m.Chance(0.5) ? 0 : m.Real(0.1, 1);
  if (m.Chance(0.2)) {
    for (double& value : c.outputs[0].reals)
      value = m.Chance(0.3) ? 0 : value;  // of which there is no sign
  }
  if (c.op == OpCode::kSgdUpdate) {
    c.attributes = SgdAttributes{m.Real(0, 0.5), l2, l1, clip};
  } else if (c.op == OpCode::kNesterovsUpdate) {
    c.attributes = NesterovsAttributes{m.Real(0, 0.5), m.Real(0, 1), l2, l1, clip};
    c.outputs.push_back(floats());
  } else if (c.op != OpCode::kAdamUpdate) {
    if (c.op == OpCode::kAdaGradUpdate)
      c.attributes = AdaGradAttributes{m.Real(0, 0.1), m.Real(1e-10, 1e-3), l2, l1, clip};
    if (c.op == OpCode::kRmsPropUpdate) {
      c.attributes =
          RmsPropAttributes{m.Real(0, 0.1), m.Real(0.5, 0.999), m.Real(1e-8, 1e-3), l2, l1, clip};
    }
    c.outputs.push_back(floats());
    const bool first = m.Chance(0.3);
    for (double& value : c.outputs[1].reals) value = first ? 0 : std::abs(value);
  } else {
    AdamAttributes a;
    a.learning_rate = m.Real(0, 0.1);
    a.l2 = l2;
    a.step = m.Int(1, 1000);
    if (m.Chance(0.5)) a.weight_decay = m.Real(0, 1);
    a.l1 = l1, a.clip = clip;
    c.attributes = a;
    c.outputs.push_back(floats());
    c.outputs.push_back(floats());
    for (double& value : c.outputs[2].reals) value = std::abs(value);
    if (m.Chance(0.3)) {  // the first step
      std::fill(c.outputs[1].reals.begin(), c.outputs[1].reals.end(), 0.0f);
      std::fill(c.outputs[2].reals.begin(), c.outputs[2].reals.end(), 0.0f);
    }
  }
}

}  // namespace

CaseMaker FindNnCases(OpCode op) {
  switch (op) {
    case OpCode::kMatMul:
      return &Products;
    case OpCode::kConv2d:
    case OpCode::kConv2dGradInput:
    case OpCode::kConv2dGradFilter:
      return &Convolution;
    case OpCode::kMaxPool2d:
    case OpCode::kMaxPool2dGrad:
    case OpCode::kAveragePool2d:
    case OpCode::kAveragePool2dGrad:
      return &Pooling;
    case OpCode::kSgdUpdate:
    case OpCode::kNesterovsUpdate:
    case OpCode::kAdaGradUpdate:
    case OpCode::kRmsPropUpdate:
    case OpCode::kAdamUpdate:
      return &Update;
    default:
      break;
  }
  for (const auto find : {&FindLossCases, &FindNormalizationCases, &FindRecurrentCases,
                          &FindAttentionCases, &FindImageCases}) {
    if (const CaseMaker make = find(op)) return make;
  }
  return nullptr;
}

}  // namespace tidepool
