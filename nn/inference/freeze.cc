#include "tidepool/nn/inference/freeze.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

std::vector<float> FiniteCopyOf(const NamedParameter& parameter) {
  std::vector<float> values = parameter.value.ToVector<float>();
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad != values.end()) {
    ThrowInvalidArgument(absl::StrCat("frozen network: parameter [", parameter.name, "] has ", *bad, " at ",
                                      bad - values.begin(), ", expected finite numbers"));
  }
  return values;
}

}  // namespace

FrozenEngine& EngineForFreezing() {
  FrozenEngine* const engine = LinkedFrozenEngine();
  if (engine == nullptr) {
    ThrowUnimplemented("frozen network: no engine for frozen networks is linked; add //backends/cpu to deps");
  }
  if (const std::string why = engine->WhyNotHere(); !why.empty()) {
    ThrowUnimplemented(absl::StrCat("frozen network: engine [", engine->name(), "] does not run here: ", why));
  }
  return *engine;
}

FrozenGraph GraphOf(const Network& network, const FrozenOptions& options, const FrozenEngine& engine) {
  FrozenGraph graph;
  graph.input_shape = network.input_shape();
  const std::vector<NamedParameter>& parameters = network.named_parameters();
  size_t parameter = 0;
  const auto add = [&](FrozenOp op) {
    const std::string why = engine.WhyNot(op);
    if (!why.empty()) {
      ThrowUnimplemented(absl::StrCat("frozen network: ", op.name, ": engine [", engine.name(), "] cannot run it: ", why));
    }
    graph.ops.push_back(std::move(op));
  };
  Shape shape = graph.input_shape;
  const std::vector<AnyLayer> layers = network.layers();
  if (layers.empty()) {
    ThrowUnimplemented("frozen network: the network is no chain of layers, of one input and one output");
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = *layers[i];
    FrozenOp op;
    op.name = absl::StrCat("layer ", i, " [", layer.Describe(), "]");
    if (!layer.ToFrozen(op)) {
      ThrowUnimplemented(absl::StrCat("frozen network: ", op.name, ": a layer of kind [", layer.Kind(),
                                      "] is nothing that engines know"));
    }
    op.input_shape = shape;
    shape = op.output_shape = layer.OutputShape(shape);
    const size_t count = layer.Parameters(op.input_shape).size();
    if (count == 2) {
      op.weight_shape = parameters[parameter].value.shape();
      op.weight = FiniteCopyOf(parameters[parameter]);
      op.bias = FiniteCopyOf(parameters[parameter + 1]);
    }
    parameter += count;
    add(std::move(op));
  }
  if (options.softmax) {
    FrozenOp op;
    op.name = "softmax";
    op.kind = FrozenOp::Kind::kSoftmax;
    op.input_shape = op.output_shape = shape;
    if (shape.rank() != 1) {
      ThrowInvalidArgument(absl::StrCat("frozen network: softmax of an output of shape ", shape.ToString(),
                                        ", expected one axis of classes"));
    }
    add(std::move(op));
  }
  return graph;
}

}  // namespace tidepool::nn
