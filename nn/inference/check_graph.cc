#include "tidepool/nn/inference/check_graph.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/pooling.h"

namespace tidepool::nn {
namespace {

using Kind = FrozenOp::Kind;

[[noreturn]] void Refuse(const FrozenOp& op, const std::string& what) {
  ThrowInvalidArgument(absl::StrCat("frozen network: ", op.name, " ", what));
}

void CheckInputs(const FrozenGraph& graph, int i) {
  const FrozenOp& op = graph.ops[static_cast<size_t>(i)];
  const std::vector<int> inputs = graph.InputsOf(i);
  const bool has_several = op.kind == Kind::kAdd || op.kind == Kind::kMultiply;
  if (has_several ? inputs.size() < 2 : inputs.size() != 1) {
    Refuse(op, absl::StrCat("takes ", inputs.size(), " inputs, expected ",
                            has_several ? "two or more" : "one"));
  }
  for (const int input : inputs) {
    if (input < FrozenOp::kGraphInput || input >= i) {
      Refuse(op, absl::StrCat("takes operator ", input, ", expected -1 to ", i - 1));
    }
    if (!(op.input_shape == graph.ShapeOf(input))) {
      Refuse(op, absl::StrCat("takes ", op.input_shape.ToString(), ", expected ",
                              graph.ShapeOf(input).ToString()));
    }
  }
}

// Of a batch of one, whose axis is taken away.
Shape WithoutBatch(const Shape& shape) { return {shape[1], shape[2], shape[3]}; }

Shape OutputShapeOf(const FrozenOp& op) {
  const Shape& in = op.input_shape;
  const bool is_convolution = op.kind == Kind::kConv2d || op.kind == Kind::kConv2dTranspose;
  const bool wants_image = is_convolution || op.kind == Kind::kResize2d ||
                           op.kind == Kind::kMaxPool2d || op.kind == Kind::kAveragePool2d ||
                           op.kind == Kind::kGlobalAverage;
  if (wants_image && in.rank() != 3)
    Refuse(op, absl::StrCat("takes ", in.ToString(), ", expected [height, width, channels]"));
  const auto image = [&] { return Shape{1, in[0], in[1], in[2]}; };
  if (is_convolution && op.weight_shape.rank() != 4) {
    Refuse(op, absl::StrCat("has weights ", op.weight_shape.ToString(), ", expected four axes"));
  }
  switch (op.kind) {
    case Kind::kDense:
      if (op.weight_shape.rank() != 2 || op.weight_shape[1] != in.NumElements()) {
        Refuse(op, absl::StrCat("has weights ", op.weight_shape.ToString(), ", expected [units, ",
                                in.NumElements(), "]"));
      }
      return {op.weight_shape[0]};
    case Kind::kConv2d:
      return WithoutBatch(Conv2dOutputShape(image(), op.weight_shape, op.convolution));
    case Kind::kConv2dTranspose: {
      const Shape& w = op.weight_shape;
      const int64_t groups = std::max<int64_t>(1, op.convolution.groups);
      if (w[0] % groups != 0)
        Refuse(op,
               absl::StrCat("has ", w[0], " filters, expected a multiple of ", groups, " groups"));
      return WithoutBatch(
          Conv2dTransposeOutputShape(image(), {w[3] * groups, w[1], w[2], w[0] / groups},
                                     op.convolution, {op.output_padding[0], op.output_padding[1]}));
    }
    case Kind::kResize2d:
      if (op.output_shape.rank() != 3 || op.output_shape[2] != in[2])
        Refuse(op, absl::StrCat("gives ", op.output_shape.ToString(), ", expected [height, width, ",
                                in[2], "]"));
      return op.output_shape;
    case Kind::kMaxPool2d:
      return WithoutBatch(MaxPool2dOutputShape(image(), op.pooling));
    case Kind::kAveragePool2d:
      return WithoutBatch(AveragePool2dOutputShape(image(), op.pooling));
    case Kind::kGlobalAverage:
      return {in[2]};
    case Kind::kReshape:
      return op.output_shape.NumElements() == in.NumElements() ? op.output_shape : in;
    case Kind::kPRelu:
    case Kind::kSoftmax:
      if (in.rank() < 1) Refuse(op, "takes a number, expected an axis");
      return in;
    default:
      return in;
  }
}

void CheckFinite(const FrozenOp& op, const char* what, absl::Span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      Refuse(op,
             absl::StrCat("has ", what, " ", values[i], " at ", i, ", expected finite numbers"));
    }
  }
}

void CheckScale(const FrozenOp& op, const char* what, float scale) {
  if (std::isnormal(scale) && scale > 0) return;
  Refuse(op, absl::StrCat("has ", what, " of scale ", scale,
                          ", expected a number above 0 that is not denormal"));
}

// Of an operator in 8 bits.
void CheckQuantisation(const FrozenGraph& graph, int i) {
  const FrozenOp& op = graph.ops[static_cast<size_t>(i)];
  const auto check = [&](const char* what, const Quantisation& q) {
    CheckScale(op, what, q.scale);
    if (q.zero_point < -128 || q.zero_point > 127) {
      Refuse(op,
             absl::StrCat("has ", what, " of zero point ", q.zero_point, ", expected -128 to 127"));
    }
  };
  check("an output", op.output);
  for (const int input : graph.InputsOf(i)) {
    check("an input", input == FrozenOp::kGraphInput ? graph.input_range
                                                     : graph.ops[static_cast<size_t>(input)].range);
  }
  if (!op.has_products()) return;
  check("an input", op.input);
  for (const float scale : op.weight_scales) {
    CheckScale(op, "weights", scale);
    // What sums are multiplied by. Engines take numbers of 32 bits below 256.
    const double factor = double{op.input.scale} * scale / op.output.scale;
    if (factor >= 0x1p-32 && factor < 256) continue;
    Refuse(op, absl::StrCat("has scales of the input, weights and output of ", op.input.scale, ", ",
                            scale, " and ", op.output.scale,
                            ", expected the first two by the last from 2^-32 to below 256"));
  }
}

void CheckConstants(const FrozenOp& op, bool is_half) {
  CheckFinite(op, "a weight", op.weight);
  CheckFinite(op, "a bias", op.bias);
  for (const Float16 weight : op.half_weight)
    CheckFinite(op, "a weight", {static_cast<float>(weight)});
  if (op.kind == Kind::kPRelu) {
    const int64_t channels = op.input_shape[op.input_shape.rank() - 1];
    if (static_cast<int64_t>(op.weight.size()) == channels) return;
    Refuse(op, absl::StrCat("has ", op.weight.size(), " slopes, expected ", channels));
  }
  if (!op.has_products()) return;
  const bool has_bytes = op.is_quantised() || op.has_dynamic_range;
  const size_t weights = has_bytes ? op.quantised_weight.size()
                         : is_half ? op.half_weight.size()
                                   : op.weight.size();
  const size_t biases = op.is_quantised() ? op.quantised_bias.size() : op.bias.size();
  if (static_cast<int64_t>(weights) != op.weight_shape.NumElements() ||
      static_cast<int64_t>(biases) != op.weight_shape[0]) {
    Refuse(op, absl::StrCat("has ", weights, " weights and ", biases, " biases, expected those of ",
                            op.weight_shape.ToString()));
  }
  const size_t scales = op.weight_scales.size();
  if (op.has_dynamic_range) {
    if (static_cast<int64_t>(scales) != op.weight_shape[0])
      Refuse(op, absl::StrCat("has ", scales, " scales of weights, expected ", op.weight_shape[0]));
    for (const float scale : op.weight_scales) CheckScale(op, "weights", scale);
  }
  const bool may_have_each = op.kind == Kind::kConv2d;
  if (op.is_quantised() && scales != 1 &&
      !(may_have_each && static_cast<int64_t>(scales) == op.weight_shape[0])) {
    Refuse(op, absl::StrCat("has ", scales, " scales of weights, expected 1",
                            may_have_each ? absl::StrCat(" or ", op.weight_shape[0]) : ""));
  }
}

}  // namespace

void CheckGraph(const FrozenGraph& graph, const FrozenEngine& engine) {
  if (graph.ops.empty()) ThrowInvalidArgument("frozen network: the graph has no operators");
  std::vector<bool> is_taken(graph.ops.size());
  is_taken.back() = true;
  for (int i = 0; i < static_cast<int>(graph.ops.size()); ++i) {
    const FrozenOp& op = graph.ops[static_cast<size_t>(i)];
    CheckInputs(graph, i);
    if (op.has_dynamic_range && op.is_quantised())
      Refuse(op, "has a dynamic range and a static one, expected one of them");
    for (const int input : graph.InputsOf(i)) {
      if (input != FrozenOp::kGraphInput) is_taken[static_cast<size_t>(input)] = true;
    }
    if (const std::string why = engine.WhyNot(op, graph.is_half); !why.empty()) {
      ThrowUnimplemented(absl::StrCat("frozen network: ", op.name, ": engine [", engine.name(),
                                      "] cannot run it: ", why));
    }
    if (const Shape shape = OutputShapeOf(op); !(shape == op.output_shape)) {
      Refuse(op,
             absl::StrCat("gives ", op.output_shape.ToString(), ", expected ", shape.ToString()));
    }
    if (op.output_shape.NumElements() == 0) Refuse(op, "gives nothing");
    if (op.input_shape.NumElements() == 0) Refuse(op, "takes nothing");
    CheckConstants(op, graph.is_half);
    if (op.is_quantised()) CheckQuantisation(graph, i);
  }
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (!is_taken[i])
      Refuse(graph.ops[i], "is taken by no other operator, expected that of the last one alone");
  }
}

}  // namespace tidepool::nn
