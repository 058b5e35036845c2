#include "tidepool/backends/cpu/xnnpack/subgraph_builder.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"

namespace tidepool::cpu {
namespace {

using Kind = FrozenOp::Kind;
using Function = FrozenOp::Function;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr const char* kName = "frozen network";
// Sizes of which XNNPACK computes products without looking.
constexpr int64_t kLargestSize = int64_t{1} << 30;
constexpr int kMostAxes = XNN_MAX_TENSOR_DIMS - 1;
constexpr float kLeakySlope = 0.01f;

float LowestOf(const FrozenOp& op) { return op.relu ? 0.0f : -kInfinity; }
uint32_t U32(int64_t value) { return static_cast<uint32_t>(value); }

}  // namespace

std::string WhyNoSubgraphHas(const FrozenOp& op, bool is_half) {
  const Conv2dAttributes& c = op.convolution;
  const Pool2dAttributes& p = op.pooling;
  const bool is_pooling = op.kind == Kind::kMaxPool2d || op.kind == Kind::kAveragePool2d;
  if (is_pooling && p.kernel_height * p.kernel_width == 1) return "XNNPACK has no pooling of 1x1";
  if (op.kind == Kind::kAveragePool2d && p.count_include_pad &&
      p.pad_top + p.pad_bottom + p.pad_left + p.pad_right > 0) {
    return "XNNPACK's averages do not count padding";
  }
  if (op.kind == Kind::kNormalisation) return "XNNPACK has no normalisation";
  // It divides such outputs by strides with numbers that wrap, and reads beside its memory.
  if (op.kind == Kind::kConv2dTranspose && op.output_shape.rank() == 3 &&
      (op.output_shape[0] < c.stride_height || op.output_shape[1] < c.stride_width)) {
    return "XNNPACK has no transposed convolutions to fewer elements than the stride";
  }
  if (op.kind == Kind::kResize2d && op.resize.mode != ResizeMode::kLinear)
    return "XNNPACK resizes linearly alone";
  if (is_half && op.kind == Kind::kAveragePool2d)
    return "XNNPACK of 2022 has no averages of windows in 16-bit floats";
  if (is_half && op.kind == Kind::kSoftmax)
    return "XNNPACK of 2022 has no softmax in 16-bit floats";
  if (is_half && op.kind == Kind::kFunction && op.function != Function::kRelu &&
      op.function != Function::kLeakyRelu) {
    return "of functions XNNPACK of 2022 has ReLU and leaky ReLU alone in 16-bit floats";
  }
  for (const Shape& shape : {op.input_shape, op.output_shape}) {
    if (shape.rank() > kMostAxes)
      return absl::StrCat("XNNPACK has arrays of ", kMostAxes + 1,
                          " axes at most, with that of the batch");
  }
  for (const int64_t size : {c.stride_height,
                             c.stride_width,
                             c.pad_top,
                             c.pad_bottom,
                             c.pad_left,
                             c.pad_right,
                             c.dilation_height,
                             c.dilation_width,
                             c.groups,
                             op.output_padding[0],
                             op.output_padding[1],
                             p.kernel_height,
                             p.kernel_width,
                             p.stride_height,
                             p.stride_width,
                             p.pad_top,
                             p.pad_bottom,
                             p.pad_left,
                             p.pad_right,
                             op.input_shape.NumElements(),
                             op.output_shape.NumElements(),
                             op.weight_shape.NumElements()}) {
    if (size > kLargestSize)
      return absl::StrCat("a size of ", size, ", expected at most ", kLargestSize);
  }
  return "";
}

GraphPart PartOf(const FrozenGraph& graph, int begin, int end) {
  GraphPart part{begin, end, {}, {}};
  const auto add = [](std::vector<int>& values, int value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  };
  const int count = static_cast<int>(graph.ops.size());
  for (int i = begin; i < count; ++i) {
    for (const int value : graph.InputsOf(i)) {
      if (i < end && value < begin) add(part.inputs, value);
      if (i >= end && value >= begin && value < end) add(part.outputs, value);
    }
  }
  if (end == count) add(part.outputs, count - 1);
  return part;
}

SubgraphBuilder::SubgraphBuilder(const FrozenGraph& graph, const GraphPart& part, int64_t batch)
    : graph_(graph), part_(part), batch_(static_cast<size_t>(batch)) {
  const size_t externals = part.inputs.size() + part.outputs.size();
  xnn_subgraph_t subgraph = nullptr;
  CheckXnnpack(xnn_create_subgraph(U32(static_cast<int64_t>(externals)), /*flags=*/0, &subgraph),
               kName);
  subgraph_.reset(subgraph);
  for (size_t i = 0; i < part.inputs.size(); ++i) {
    Value& input = values_[part.inputs[i]];
    input.id = input.as_float = Define(DimsOf(graph.ShapeOf(part.inputs[i])), {},
                                       U32(static_cast<int64_t>(i)), XNN_VALUE_FLAG_EXTERNAL_INPUT);
  }
  for (int i = part.begin; i < part.end; ++i) DefineOp(i);
}

uint32_t SubgraphBuilder::OutputIdOf(int value) const {
  const auto at = std::find(part_.outputs.begin(), part_.outputs.end(), value);
  if (at == part_.outputs.end()) return XNN_INVALID_VALUE_ID;
  return U32(static_cast<int64_t>(part_.inputs.size()) + (at - part_.outputs.begin()));
}

SubgraphBuilder::Dims SubgraphBuilder::DimsOf(const Shape& shape) const {
  Dims dims = {batch_};
  dims.insert(dims.end(), shape.span().begin(), shape.span().end());
  return dims;
}

uint32_t SubgraphBuilder::Define(const Dims& dims, const Quantisation& q, uint32_t external,
                                 uint32_t flags) {
  has_internal_values_ = has_internal_values_ || external == XNN_INVALID_VALUE_ID;
  uint32_t id = XNN_INVALID_VALUE_ID;
  CheckXnnpack(q.scale > 0
                   ? xnn_define_quantized_tensor_value(subgraph_.get(), xnn_datatype_qint8,
                                                       q.zero_point, q.scale, dims.size(),
                                                       dims.data(), nullptr, external, flags, &id)
                   : xnn_define_tensor_value(subgraph_.get(), xnn_datatype_fp32, dims.size(),
                                             dims.data(), nullptr, external, flags, &id),
               kName);
  return id;
}

uint32_t SubgraphBuilder::Take(int value, const Quantisation& q) {
  Value& of = values_[value];
  uint32_t& known = q.scale > 0 ? of.as_quantised : of.as_float;
  if (known != XNN_INVALID_VALUE_ID && (q.scale == 0 || of.quantised == q)) return known;
  const uint32_t id = Define(DimsOf(graph_.ShapeOf(value)), q);
  CheckXnnpack(xnn_define_convert(subgraph_.get(), of.id, id, /*flags=*/0), kName);
  if (q.scale > 0) of.quantised = q;
  return known = id;
}

void SubgraphBuilder::DefineOp(int number) {
  const FrozenOp& op = graph_.ops[static_cast<size_t>(number)];
  std::vector<uint32_t> inputs;
  for (const int value : graph_.InputsOf(number)) {
    Quantisation q;
    if (op.is_quantised()) {
      q = value == FrozenOp::kGraphInput ? graph_.input_range
                                         : graph_.ops[static_cast<size_t>(value)].range;
    }
    inputs.push_back(Take(value, q));
  }
  const uint32_t external = OutputIdOf(number);
  const auto define_output = [&] {
    return Define(DimsOf(op.output_shape), {}, external, XNN_VALUE_FLAG_EXTERNAL_OUTPUT);
  };
  const bool is_output = external != XNN_INVALID_VALUE_ID;
  const uint32_t output = is_output && !op.is_quantised()
                              ? define_output()
                              : Define(DimsOf(op.output_shape), op.output);
  CheckXnnpack(DefineNode(op, inputs, output), op.name.c_str());
  Value& made = values_[number];
  made.id = output;
  (op.is_quantised() ? made.as_quantised : made.as_float) = output;
  made.quantised = op.output;
  if (!is_output || !op.is_quantised()) return;
  made.as_float = define_output();
  CheckXnnpack(xnn_define_convert(subgraph_.get(), output, made.as_float, /*flags=*/0),
               op.name.c_str());
}

// Weights and bias.
std::pair<uint32_t, uint32_t> SubgraphBuilder::DefineConstants(const FrozenOp& op,
                                                               const Dims& weight) {
  const size_t filters = weight[0];
  uint32_t weight_id = XNN_INVALID_VALUE_ID, bias_id = XNN_INVALID_VALUE_ID;
  const auto define = [&](bool is_bias, uint32_t* id) {
    const size_t rank = is_bias ? 1 : weight.size();
    const size_t* const dims = is_bias ? &filters : weight.data();
    constexpr uint32_t kInternal = XNN_INVALID_VALUE_ID;
    if (!op.is_quantised()) {
      const float* data = is_bias ? op.bias.data() : op.weight.data();
      if (graph_.is_half && !is_bias) {
        weights_.emplace_back(op.half_weight.begin(), op.half_weight.end());
        data = weights_.back().data();
      }
      return xnn_define_tensor_value(subgraph_.get(), xnn_datatype_fp32, rank, dims, data,
                                     kInternal, 0, id);
    }
    const void* const data =
        is_bias ? static_cast<const void*>(op.quantised_bias.data()) : op.quantised_weight.data();
    if (op.weight_scales.size() == 1) {
      return xnn_define_quantized_tensor_value(
          subgraph_.get(), is_bias ? xnn_datatype_qint32 : xnn_datatype_qint8, 0,
          op.weight_scales[0] * (is_bias ? op.input.scale : 1), rank, dims, data, kInternal, 0, id);
    }
    const float* scales = op.weight_scales.data();
    if (is_bias) {
      bias_scales_.emplace_back(filters + XNN_EXTRA_BYTES, 1.0f);
      for (size_t i = 0; i < filters; ++i)
        bias_scales_.back()[i] = op.weight_scales[i] * op.input.scale;
      scales = bias_scales_.back().data();
    }
    return xnn_define_channelwise_quantized_tensor_value(
        subgraph_.get(), is_bias ? xnn_datatype_qcint32 : xnn_datatype_qcint8, scales, rank,
        /*channel_dim=*/0, dims, data, kInternal, 0, id);
  };
  CheckXnnpack(define(false, &weight_id), op.name.c_str());
  CheckXnnpack(define(true, &bias_id), op.name.c_str());
  return {weight_id, bias_id};
}

xnn_status SubgraphBuilder::DefineReshape(const Dims& dims, uint32_t input, uint32_t output) {
  return xnn_define_static_reshape(subgraph_.get(), dims.size(), dims.data(), input, output,
                                   /*flags=*/0);
}

xnn_status SubgraphBuilder::DefineDense(const FrozenOp& op, uint32_t input, uint32_t output) {
  const auto units = static_cast<size_t>(op.weight_shape[0]),
             width = static_cast<size_t>(op.weight_shape[1]);
  if (!graph_.is_half) {
    const auto [weight, bias] = DefineConstants(op, {units, width});
    return xnn_define_fully_connected(subgraph_.get(), LowestOf(op), kInfinity, input, weight, bias,
                                      output, XNN_FLAG_TENSORFLOW_RESHAPE_2D);
  }
  const auto [weight, bias] = DefineConstants(op, {units, 1, 1, width});
  const Dims flat = {batch_, 1, 1, width}, products = {batch_, 1, 1, units};
  const uint32_t from = Define(flat, {}), to = Define(products, {});
  xnn_status status = DefineReshape(flat, input, from);
  if (status != xnn_status_success) return status;
  status = xnn_define_convolution_2d(subgraph_.get(), 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, width, units,
                                     LowestOf(op), kInfinity, from, weight, bias, to, /*flags=*/0);
  return status == xnn_status_success ? DefineReshape({batch_, units}, to, output) : status;
}

xnn_status SubgraphBuilder::DefineConvolution(const FrozenOp& op, uint32_t input, uint32_t output) {
  const Conv2dAttributes& a = op.convolution;
  const auto groups = static_cast<size_t>(a.groups);
  const auto [weight, bias] =
      DefineConstants(op, Dims(op.weight_shape.span().begin(), op.weight_shape.span().end()));
  return xnn_define_convolution_2d(
      subgraph_.get(), U32(a.pad_top), U32(a.pad_right), U32(a.pad_bottom), U32(a.pad_left),
      U32(op.weight_shape[1]), U32(op.weight_shape[2]), U32(a.stride_height), U32(a.stride_width),
      U32(a.dilation_height), U32(a.dilation_width), U32(a.groups),
      static_cast<size_t>(op.weight_shape[3]), static_cast<size_t>(op.weight_shape[0]) / groups,
      LowestOf(op), kInfinity, input, weight, bias, output, /*flags=*/0);
}

xnn_status SubgraphBuilder::DefineTransposed(const FrozenOp& op, uint32_t input, uint32_t output) {
  const Conv2dAttributes& a = op.convolution;
  const auto groups = static_cast<size_t>(a.groups);
  const auto [weight, bias] =
      DefineConstants(op, Dims(op.weight_shape.span().begin(), op.weight_shape.span().end()));
  return xnn_define_deconvolution_2d(
      subgraph_.get(), U32(a.pad_top), U32(a.pad_right), U32(a.pad_bottom), U32(a.pad_left),
      U32(op.output_padding[0]), U32(op.output_padding[1]), U32(op.weight_shape[1]),
      U32(op.weight_shape[2]), U32(a.stride_height), U32(a.stride_width), U32(a.dilation_height),
      U32(a.dilation_width), U32(a.groups), static_cast<size_t>(op.weight_shape[3]),
      static_cast<size_t>(op.weight_shape[0]) / groups, LowestOf(op), kInfinity, input, weight,
      bias, output, /*flags=*/0);
}

// Of more than two inputs each is added, or multiplied, to what those before it give.
xnn_status SubgraphBuilder::DefinePairs(const FrozenOp& op, const std::vector<uint32_t>& inputs,
                                        uint32_t output) {
  const auto define = op.kind == Kind::kAdd ? &xnn_define_add2 : &xnn_define_multiply2;
  uint32_t at = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    const bool is_last = i + 1 == inputs.size();
    const uint32_t to = is_last ? output : Define(DimsOf(op.output_shape), {});
    const xnn_status status = define(subgraph_.get(), is_last ? LowestOf(op) : -kInfinity,
                                     kInfinity, at, inputs[i], to, /*flags=*/0);
    if (status != xnn_status_success) return status;
    at = to;
  }
  return xnn_status_success;
}

xnn_status SubgraphBuilder::DefineFunction(const FrozenOp& op, uint32_t input, uint32_t output) {
  xnn_subgraph_t const to = subgraph_.get();
  switch (op.function) {
    case Function::kNone:
      break;
    case Function::kRelu:
      return xnn_define_clamp(to, 0.0f, kInfinity, input, output, /*flags=*/0);
    case Function::kLeakyRelu:
      return xnn_define_leaky_relu(to, kLeakySlope, input, output, /*flags=*/0);
    case Function::kElu:
      return xnn_define_elu(to, /*alpha=*/1.0f, input, output, /*flags=*/0);
    case Function::kSigmoid:
      return xnn_define_sigmoid(to, input, output, /*flags=*/0);
    case Function::kSwish: {
      const uint32_t sigmoid = Define(DimsOf(op.output_shape), {});
      const xnn_status status = xnn_define_sigmoid(to, input, sigmoid, /*flags=*/0);
      if (status != xnn_status_success) return status;
      return xnn_define_multiply2(to, -kInfinity, kInfinity, input, sigmoid, output, /*flags=*/0);
    }
  }
  return xnn_status_unsupported_parameter;
}

xnn_status SubgraphBuilder::DefineNode(const FrozenOp& op, const std::vector<uint32_t>& inputs,
                                       uint32_t output) {
  xnn_subgraph_t const to = subgraph_.get();
  const Pool2dAttributes& p = op.pooling;
  switch (op.kind) {
    case Kind::kDense:
      return DefineDense(op, inputs[0], output);
    case Kind::kConv2d:
      return DefineConvolution(op, inputs[0], output);
    case Kind::kConv2dTranspose:
      return DefineTransposed(op, inputs[0], output);
    case Kind::kResize2d:
      return xnn_define_static_resize_bilinear_2d(
          to, static_cast<size_t>(op.output_shape[0]), static_cast<size_t>(op.output_shape[1]),
          inputs[0], output, op.resize.align_corners ? XNN_FLAG_ALIGN_CORNERS : 0);
    case Kind::kMaxPool2d:
      return xnn_define_max_pooling_2d(
          to, U32(p.pad_top), U32(p.pad_right), U32(p.pad_bottom), U32(p.pad_left),
          U32(p.kernel_height), U32(p.kernel_width), U32(p.stride_height), U32(p.stride_width),
          /*dilation_height=*/1, /*dilation_width=*/1, -kInfinity, kInfinity, inputs[0], output,
          /*flags=*/0);
    case Kind::kAveragePool2d:
      return xnn_define_average_pooling_2d(
          to, U32(p.pad_top), U32(p.pad_right), U32(p.pad_bottom), U32(p.pad_left),
          U32(p.kernel_height), U32(p.kernel_width), U32(p.stride_height), U32(p.stride_width),
          -kInfinity, kInfinity, inputs[0], output, /*flags=*/0);
    case Kind::kGlobalAverage:
      return xnn_define_global_average_pooling_2d(to, -kInfinity, kInfinity, inputs[0], output,
                                                  /*flags=*/0);
    case Kind::kAdd:
    case Kind::kMultiply:
      return DefinePairs(op, inputs, output);
    case Kind::kFunction:
      return DefineFunction(op, inputs[0], output);
    case Kind::kPRelu: {
      const size_t channels = op.weight.size();
      uint32_t slope = XNN_INVALID_VALUE_ID;
      const xnn_status status = xnn_define_tensor_value(
          to, xnn_datatype_fp32, 1, &channels, op.weight.data(), XNN_INVALID_VALUE_ID, 0, &slope);
      return status == xnn_status_success
                 ? xnn_define_prelu(to, inputs[0], slope, output, /*flags=*/0)
                 : status;
    }
    case Kind::kReshape:
      return DefineReshape(DimsOf(op.output_shape), inputs[0], output);
    case Kind::kSoftmax:
      return xnn_define_softmax(to, inputs[0], output, /*flags=*/0);
    case Kind::kNormalisation:
      break;
  }
  return xnn_status_unsupported_parameter;
}

}  // namespace tidepool::cpu
