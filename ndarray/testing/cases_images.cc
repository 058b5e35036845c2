// Resizing and convolutions of three dimensions.
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/testing/case_values.h"
#include "tidepool/ndarray/testing/op_case_groups.h"

namespace tidepool {
namespace {

void Resizing(CaseValues& m, OpCase& c) {
  ResizeAttributes a;
  a.mode = static_cast<ResizeMode>(m.Int(0, 2));
  a.align_corners = a.mode != ResizeMode::kNearest && m.Chance(0.4);
  const int64_t most = m.Chance(0.05) ? 64 : 13;
  const int64_t batch = m.Chance(0.05) ? 0 : m.Int(1, 3), channels = m.Size(17);
  const Shape input{batch, m.Int(1, most), m.Int(1, most), channels};
  const Shape output{batch, m.Chance(0.1) ? input[1] : m.Int(1, most), m.Int(1, most), channels};
  const bool forward = c.op == OpCode::kResize2d;
  c.inputs = {m.Floats(forward ? input : output, false, c.dtype)};
  c.outputs = {m.Result(c.dtype, forward ? output : input)};
  c.attributes = a;
  // Taps whose weights are up to 1.1; all of the output may go to one element.
  c.inner = forward ? 8 : 8 + static_cast<double>(output[1] * output[2]);
}

void Convolution(CaseValues& m, OpCase& c) {
  Conv3dAttributes a;
  int64_t in[3], kernel[3], out[3];
  const int64_t most = m.Chance(0.04) ? 9 : 5;
  for (int i = 0; i < 3; ++i) {
    do {
      in[i] = m.Int(1, most), kernel[i] = m.Int(1, 3);
      a.stride[i] = m.Chance(0.6) ? 1 : m.Int(1, 3);
      a.dilation[i] = m.Chance(0.7) ? 1 : m.Int(1, 2);
      if (m.Chance(0.5)) a.pad_before[i] = m.Int(0, 2), a.pad_behind[i] = m.Int(0, 2);
      const int64_t room =
          in[i] + a.pad_before[i] + a.pad_behind[i] - a.dilation[i] * (kernel[i] - 1) - 1;
      out[i] = room < 0 ? 0 : room / a.stride[i] + 1;
    } while (out[i] == 0);
  }
  a.groups = m.Chance(0.6) ? 1 : m.Int(1, 4);
  const int64_t batch = m.Chance(0.05) ? 0 : m.Int(1, 2), channels = m.Int(1, 5),
                filters = a.groups * m.Int(1, 5);
  const Shape input{batch, in[0], in[1], in[2], a.groups * channels};
  const Shape filter{filters, kernel[0], kernel[1], kernel[2], channels};
  const Shape output{batch, out[0], out[1], out[2], filters};
  const auto floats = [&](const Shape& shape) { return m.Floats(shape, false, c.dtype); };
  if (c.op == OpCode::kConv3d) {
    a.relu = m.Chance(0.3);
    c.inputs = {floats(input), floats(filter), floats({filters})};
    c.inputs[2].present = m.Chance(0.5);
    c.outputs = {m.Result(c.dtype, output)};
    c.inner = static_cast<double>(kernel[0] * kernel[1] * kernel[2] * channels) + 1;
  } else if (c.op == OpCode::kConv3dGradInput) {
    c.inputs = {floats(output), floats(filter)};
    c.outputs = {m.Result(c.dtype, input)};
    c.inner = static_cast<double>(kernel[0] * kernel[1] * kernel[2] * filters);
  } else {
    a.accumulate = m.Chance(0.3);
    c.inputs = {floats(input), floats(output)};
    c.outputs = {a.accumulate ? floats(filter) : m.Result(c.dtype, filter)};
    c.inner = static_cast<double>(batch * out[0] * out[1] * out[2]) + 1;
  }
  c.attributes = a;
}

}  // namespace

CaseMaker FindImageCases(OpCode op) {
  switch (op) {
    case OpCode::kResize2d:
    case OpCode::kResize2dGrad:
      return &Resizing;
    case OpCode::kConv3d:
    case OpCode::kConv3dGradInput:
    case OpCode::kConv3dGradFilter:
      return &Convolution;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
