#include "tidepool/nn/inference/check_graph.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/convolution.h"
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
  const bool wants_image = op.kind == Kind::kConv2d || op.kind == Kind::kMaxPool2d ||
                           op.kind == Kind::kAveragePool2d || op.kind == Kind::kGlobalAverage;
  if (wants_image && in.rank() != 3)
    Refuse(op, absl::StrCat("takes ", in.ToString(), ", expected [height, width, channels]"));
  const auto image = [&] { return Shape{1, in[0], in[1], in[2]}; };
  switch (op.kind) {
    case Kind::kDense:
      if (op.weight_shape.rank() != 2 || op.weight_shape[1] != in.NumElements()) {
        Refuse(op, absl::StrCat("has weights ", op.weight_shape.ToString(), ", expected [units, ",
                                in.NumElements(), "]"));
      }
      return {op.weight_shape[0]};
    case Kind::kConv2d:
      if (op.weight_shape.rank() != 4) {
        Refuse(op,
               absl::StrCat("has weights ", op.weight_shape.ToString(), ", expected four axes"));
      }
      return WithoutBatch(Conv2dOutputShape(image(), op.weight_shape, op.convolution));
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

void CheckConstants(const FrozenOp& op, bool is_half) {
  if (op.kind == Kind::kPRelu) {
    const int64_t channels = op.input_shape[op.input_shape.rank() - 1];
    if (static_cast<int64_t>(op.weight.size()) == channels) return;
    Refuse(op, absl::StrCat("has ", op.weight.size(), " slopes, expected ", channels));
  }
  if (!op.has_products()) return;
  const size_t weights = op.is_quantised() ? op.quantised_weight.size()
                         : is_half         ? op.half_weight.size()
                                           : op.weight.size();
  const size_t biases = op.is_quantised() ? op.quantised_bias.size() : op.bias.size();
  if (static_cast<int64_t>(weights) != op.weight_shape.NumElements() ||
      static_cast<int64_t>(biases) != op.weight_shape[0]) {
    Refuse(op, absl::StrCat("has ", weights, " weights and ", biases, " biases, expected those of ",
                            op.weight_shape.ToString()));
  }
  const size_t scales = op.weight_scales.size();
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
  for (int i = 0; i < static_cast<int>(graph.ops.size()); ++i) {
    const FrozenOp& op = graph.ops[static_cast<size_t>(i)];
    CheckInputs(graph, i);
    if (const std::string why = engine.WhyNot(op, graph.is_half); !why.empty()) {
      ThrowUnimplemented(absl::StrCat("frozen network: ", op.name, ": engine [", engine.name(),
                                      "] cannot run it: ", why));
    }
    if (const Shape shape = OutputShapeOf(op); !(shape == op.output_shape)) {
      Refuse(op,
             absl::StrCat("gives ", op.output_shape.ToString(), ", expected ", shape.ToString()));
    }
    if (op.output_shape.NumElements() == 0) Refuse(op, "gives nothing");
    CheckConstants(op, graph.is_half);
  }
}

}  // namespace tidepool::nn
