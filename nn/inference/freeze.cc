#include "tidepool/nn/inference/freeze.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

[[noreturn]] void Refuse(const std::string& why) { ThrowUnimplemented("frozen network: " + why); }

int64_t LastOf(const Shape& shape) { return shape[shape.rank() - 1]; }

// Filters of a transposed convolution from [channels, height, width, filters / groups] to [filters, height, width,
// channels / groups].
void TurnFilters(FrozenOp& op) {
  const Shape from = op.weight_shape;
  const int64_t groups = op.convolution.groups, window = from[1] * from[2];
  const int64_t channels = from[0] / groups, filters = from[3];  // of a group
  FrozenValues<float> turned(op.weight.size());
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t w = 0; w < window; ++w) {
        for (int64_t f = 0; f < filters; ++f) {
          turned[static_cast<size_t>(((g * filters + f) * window + w) * channels + c)] =
              op.weight[static_cast<size_t>(((g * channels + c) * window + w) * filters + f)];
        }
      }
    }
  }
  op.weight = std::move(turned);
  op.weight_shape = {groups * filters, from[1], from[2], channels};
}

// From a configuration to a graph: normalisation goes into the products before it, ReLUs into what
// they are of.
class GraphMaker {
  using Parameters = std::vector<FrozenValues<float>>;  // of a layer

 public:
  GraphMaker(const Network& network, const FrozenOptions& options, const FrozenEngine& engine)
      : engine_(engine), config_(*network.config()) {
    graph_.is_half = options.type == FrozenType::kFloat16;
    for (const NamedParameter& parameter : network.named_parameters())
      parameters_[parameter.name] = &parameter;
    for (const NodeConfig& node : config_.nodes) {
      for (const std::string& input : node.inputs) ++uses_[input];
    }
    ++uses_[config_.outputs[0]];
    graph_.input_shape = config_.inputs[0].shape;
    values_[config_.inputs[0].name] = FrozenOp::kGraphInput;
    AddNodes();
    if (graph_.ops.empty()) Refuse("the network computes nothing");
    if (options.softmax) AddSoftmax();
    if (graph_.is_half) TakeHalves();
  }

  FrozenGraph TakeGraph() { return std::move(graph_); }

 private:
  using Kind = FrozenOp::Kind;

  // Each behind its inputs, whatever their order in the configuration.
  void AddNodes() {
    std::vector<bool> is_added(config_.nodes.size());
    for (size_t left = config_.nodes.size(); left > 0;) {
      for (size_t i = 0; i < config_.nodes.size(); ++i) {
        const std::vector<std::string>& inputs = config_.nodes[i].inputs;
        if (is_added[i] || !std::all_of(inputs.begin(), inputs.end(),
                                        [&](const auto& name) { return values_.contains(name); })) {
          continue;
        }
        AddNode(static_cast<int>(i));
        is_added[i] = true;
        --left;
      }
    }
  }

  void AddNode(int number) {
    const NodeConfig& node = config_.nodes[static_cast<size_t>(number)];
    const Layer& layer = *node.layer;
    FrozenOp op;
    op.name = absl::StrCat("layer ", number, " [", layer.Describe(), "]");
    op.layers = {number};
    std::vector<Shape> shapes;
    for (const std::string& input : node.inputs) {
      op.inputs.push_back(values_[input]);
      shapes.push_back(graph_.ShapeOf(op.inputs.back()));
    }
    op.input_shape = shapes[0];
    op.output_shape = layer.OutputShapeOf(shapes);
    if (!layer.ToFrozen(op)) {
      Refuse(absl::StrCat(
          op.name, ": ",
          op.why_not.empty() ? absl::StrCat("a layer of kind [", layer.Kind(), "]") : op.why_not,
          " is nothing that engines know"));
    }
    Parameters parameters;
    for (const ParameterSpec& spec : layer.ParametersOf(shapes)) {
      const auto tied = node.tied.find(spec.name);
      parameters.push_back(
          CopyOf(tied != node.tied.end() ? tied->second : absl::StrCat(node.name, ".", spec.name)));
      if (parameters.size() == 1) op.weight_shape = spec.shape;
    }
    CheckParameters(op, parameters, layer);
    values_[node.name] = AddAs(std::move(op), std::move(parameters), node.inputs[0]);
  }

  // Layers of one's own may say what they are not.
  static void CheckParameters(const FrozenOp& op, const Parameters& parameters,
                              const Layer& layer) {
    const size_t most = op.has_products()                 ? 2
                        : op.kind == Kind::kPRelu         ? 1
                        : op.kind == Kind::kNormalisation ? 4
                                                          : 0;
    const size_t fewest = op.has_products() ? 1 : most;
    bool fits = parameters.size() >= fewest && parameters.size() <= most;
    if (op.kind == Kind::kNormalisation || op.kind == Kind::kPRelu) {
      fits = fits && op.input_shape.rank() > 0;
      for (size_t i = 0; fits && op.kind == Kind::kNormalisation && i < parameters.size(); ++i) {
        fits = static_cast<int64_t>(parameters[i].size()) == LastOf(op.input_shape);
      }
    }
    if (op.has_products()) fits = fits && op.weight_shape.rank() > 0;
    if (op.kind == Kind::kConv2dTranspose) {
      fits = fits && op.input_shape.rank() == 3 && op.weight_shape.rank() == 4 &&
             op.convolution.groups > 0 && op.weight_shape[0] == op.input_shape[2] &&
             op.weight_shape[0] % op.convolution.groups == 0;
    }
    if (fits) return;
    ThrowInvalidArgument(absl::StrCat("frozen network: ", op.name, ": a layer of kind [",
                                      layer.Kind(), "] has ", parameters.size(),
                                      " parameters, which are not those of what it says it is"));
  }

  // The value that is the operator's output. `input`: the name of its first input.
  int AddAs(FrozenOp op, Parameters parameters, const std::string& input) {
    const int of = op.inputs[0];
    switch (op.kind) {
      case Kind::kNormalisation:
        return AddNormalisation(std::move(op), parameters, input);
      case Kind::kReshape:
        if (op.input_shape == op.output_shape) return Known(of, op.layers, input);
        break;
      case Kind::kAdd:
      case Kind::kMultiply:
        if (op.inputs.size() == 1) return Known(of, op.layers, input);
        break;
      case Kind::kFunction:
        if (op.function == FrozenOp::Function::kNone) return Known(of, op.layers, input);
        if (op.function == FrozenOp::Function::kRelu && MayBeChanged(of, input) &&
            ComputesRelu(graph_.ops[static_cast<size_t>(of)])) {
          graph_.ops[static_cast<size_t>(of)].relu = true;
          return Known(of, op.layers, input);
        }
        break;
      case Kind::kPRelu:
        op.weight = std::move(parameters[0]);
        if (op.weight.size() == 1) {  // for all
          op.weight.assign(static_cast<size_t>(LastOf(op.input_shape)), op.weight[0]);
        }
        op.weight_shape = {static_cast<int64_t>(op.weight.size())};
        break;
      case Kind::kDense:
      case Kind::kConv2d:
      case Kind::kConv2dTranspose:
        op.weight = std::move(parameters[0]);
        if (op.kind == Kind::kConv2dTranspose) TurnFilters(op);
        op.bias = parameters.size() > 1
                      ? std::move(parameters[1])
                      : FrozenValues<float>(static_cast<size_t>(op.weight_shape[0]), 0.0f);
        break;
      default:
        break;
    }
    if (op.kind == Kind::kFunction || op.function == FrozenOp::Function::kNone)
      return Add(std::move(op));
    if (op.function == FrozenOp::Function::kRelu && op.has_products()) {
      op.relu = true;
      op.function = FrozenOp::Function::kNone;
      return Add(std::move(op));
    }
    // What the layer does is two operators, of which the second makes its output.
    FrozenOp function;
    function.kind = Kind::kFunction;
    function.name = op.name;
    function.function = op.function;
    function.input_shape = function.output_shape = op.output_shape;
    op.begun_layer = op.layers.back();
    function.layers = std::exchange(op.layers, {});
    op.function = FrozenOp::Function::kNone;
    function.inputs = {Add(std::move(op))};
    return Add(std::move(function));
  }

  int AddNormalisation(FrozenOp op, const Parameters& parameters, const std::string& input) {
    const size_t channels = parameters[0].size();
    std::vector<double> scale(channels), shift(channels);
    for (size_t c = 0; c < channels; ++c) {
      scale[c] = parameters[0][c] / std::sqrt(parameters[3][c] + op.epsilon);
      shift[c] = parameters[1][c] - parameters[2][c] * scale[c];
    }
    const int of = op.inputs[0];
    if (MayBeChanged(of, input) && graph_.ops[static_cast<size_t>(of)].has_products() &&
        !graph_.ops[static_cast<size_t>(of)].relu) {
      FrozenOp& before = graph_.ops[static_cast<size_t>(of)];
      const size_t each = before.weight.size() / channels;
      for (size_t c = 0; c < channels; ++c) {
        for (size_t i = c * each; i < (c + 1) * each; ++i)
          before.weight[i] = static_cast<float>(before.weight[i] * scale[c]);
        before.bias[c] = static_cast<float>(before.bias[c] * scale[c] + shift[c]);
      }
      CheckFinite(before.weight, op.name);
      CheckFinite(before.bias, op.name);
      return Known(of, op.layers, input);
    }
    if (op.input_shape.rank() != 3)
      Refuse(
          absl::StrCat(op.name, ": normalisation of anything but images that follows no product"));
    op.kind = Kind::kConv2d;
    op.convolution.groups = static_cast<int64_t>(channels);
    op.weight_shape = {static_cast<int64_t>(channels), 1, 1, 1};
    op.weight.assign(scale.begin(), scale.end());
    op.bias.assign(shift.begin(), shift.end());
    CheckFinite(op.weight, op.name);
    CheckFinite(op.bias, op.name);
    return Add(std::move(op));
  }

  void AddSoftmax() {
    FrozenOp op;
    op.name = "softmax";
    op.kind = Kind::kSoftmax;
    op.input_shape = op.output_shape = graph_.output_shape();
    op.inputs = {static_cast<int>(graph_.ops.size()) - 1};
    if (op.input_shape.rank() != 1) {
      ThrowInvalidArgument(absl::StrCat("frozen network: softmax of an output of shape ",
                                        op.input_shape.ToString(),
                                        ", expected one axis of classes"));
    }
    Add(std::move(op));
  }

  // Rounded here as packing would do it.
  void TakeHalves() {
    for (FrozenOp& op : graph_.ops) {
      if (!op.has_products()) continue;
      op.half_weight.reserve(op.weight.size());
      for (const float value : op.weight) {
        op.half_weight.emplace_back(value);
        if (std::isfinite(static_cast<float>(op.half_weight.back()))) continue;
        throw UnfitWeightsError(absl::StrCat("frozen network: ", op.name, " has a weight ", value,
                                             ", which is beyond 16-bit floats"));
      }
      op.weight = FrozenValues<float>();
    }
  }

  int Add(FrozenOp op) {
    if (const std::string why = engine_.WhyNot(op, graph_.is_half); !why.empty()) {
      Refuse(absl::StrCat(op.name, ": engine [", engine_.name(), "] cannot run it: ", why));
    }
    const int number = static_cast<int>(graph_.ops.size());
    if (op.inputs == std::vector<int>{number - 1}) op.inputs.clear();
    graph_.ops.push_back(std::move(op));
    return number;
  }

  // The value stands for the output of `layers`, too, which take it by the name `input`.
  int Known(int value, const std::vector<int>& layers, const std::string& input) {
    if (value == FrozenOp::kGraphInput) return value;
    if (uses_[input] != 1) has_others_.insert(value);
    std::vector<int>& all = graph_.ops[static_cast<size_t>(value)].layers;
    all.insert(all.end(), layers.begin(), layers.end());
    return value;
  }

  // Whether nobody but who takes it by that name sees the value.
  bool MayBeChanged(int value, const std::string& name) {
    return value != FrozenOp::kGraphInput && uses_[name] == 1 && !has_others_.contains(value);
  }
  static bool ComputesRelu(const FrozenOp& op) {
    return op.has_products() || op.kind == Kind::kAdd || op.kind == Kind::kMultiply;
  }

  static void CheckFinite(const FrozenValues<float>& values, const std::string& name) {
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](float value) { return !std::isfinite(value); });
    if (bad == values.end()) return;
    throw UnfitWeightsError(absl::StrCat("frozen network: ", name, " has ", *bad, " at ",
                                         bad - values.begin(), ", expected finite numbers"));
  }

  FrozenValues<float> CopyOf(const std::string& name) {
    NDArray value = parameters_.at(name)->value.To(Host());
    if (!value.is_dense()) value = value.Dup();
    const float* const from = value.data<float>();
    FrozenValues<float> values(from, from + value.NumElements());
    CheckFinite(values, absl::StrCat("parameter [", name, "]"));
    return values;
  }

  const FrozenEngine& engine_;
  const NetworkConfig& config_;
  std::map<std::string, const NamedParameter*> parameters_;
  std::map<std::string, int> values_;  // by name of an input or a node
  std::map<std::string, int> uses_;
  std::set<int>
      has_others_;  // values that are taken by several under one name, and have other names besides
  FrozenGraph graph_;
};

}  // namespace

FrozenEngine& EngineForFreezing() {
  FrozenEngine* const engine = LinkedFrozenEngine();
  if (engine == nullptr) {
    ThrowUnimplemented(
        "frozen network: no engine for frozen networks is linked; add //backends/cpu to deps");
  }
  if (const std::string why = engine->WhyNotHere(); !why.empty()) {
    ThrowUnimplemented(
        absl::StrCat("frozen network: engine [", engine->name(), "] does not run here: ", why));
  }
  return *engine;
}

FrozenGraph GraphOf(const Network& network, const FrozenOptions& options,
                    const FrozenEngine& engine) {
  if (network.config() == nullptr)
    Refuse("the network is a program, of which no more is known than its results");
  if (network.inputs().size() != 1 || network.output_shapes().size() != 1) {
    Refuse(absl::StrCat("the network has ", network.inputs().size(), " inputs and ",
                        network.output_shapes().size(), " outputs, expected one of each"));
  }
  if (network.dtype() != DType::kFloat32 || network.inputs()[0].dtype != DType::kFloat32) {
    Refuse(absl::StrCat("parameters of ", DTypeName(network.dtype()), " and inputs of ",
                        DTypeName(network.inputs()[0].dtype), ", expected f32"));
  }
  return GraphMaker(network, options, engine).TakeGraph();
}

}  // namespace tidepool::nn
