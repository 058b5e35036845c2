#include "tidepool/nn/network/graph_body.h"

#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network/graph_frame.h"

namespace tidepool::nn {
namespace {

[[noreturn]] void Refuse(const std::string& why) {
  ThrowInvalidArgument(absl::StrCat("network: ", why));
}

// In a message: names may come from a file.
std::string Quoted(const std::string& name) {
  constexpr size_t kMost = 100;
  return absl::StrCat("\"", OneLine(name.substr(0, kMost)), name.size() > kMost ? "...\"" : "\"");
}

// Of the i-th one, with its place in the configuration, which is that in JSON: a layer with a name of
// its own is found by it.
std::string LayerAt(const NetworkConfig& config, size_t i) {
  return absl::StrCat("layers[", i, "]: layer ", Quoted(config.nodes[i].name));
}
std::string InputAt(const NetworkConfig& config, size_t i) {
  return absl::StrCat("inputs[", i, "]: input ", Quoted(config.inputs[i].name));
}

}  // namespace

GraphBody::GraphBody(NetworkConfig config) : config_(std::move(config)) {
  inputs_ = config_.inputs;
  if (config_.nodes.empty()) Refuse("no layers");
  if (config_.inputs.empty()) Refuse("no inputs, expected at least one");
  if (config_.outputs.empty()) Refuse("no outputs, expected at least one");
  CheckNames();
  Resolve();
  SortByInputs();
  FindShapes();
  FindLastUses();
}

void GraphBody::CheckNames() {
  const auto add = [&](const std::string& name, const std::string& what) {
    if (name.empty()) Refuse(absl::StrCat(what, " has no name"));
    if (!values_.emplace(name, static_cast<int>(values_.size())).second) {
      Refuse(absl::StrCat(what, " is called ", Quoted(name), ", as another one is"));
    }
  };
  for (size_t i = 0; i < config_.inputs.size(); ++i)
    add(config_.inputs[i].name, absl::StrCat("input ", i));
  for (size_t i = 0; i < config_.nodes.size(); ++i) {
    if (!config_.nodes[i].layer) Refuse(absl::StrCat("layer ", i, " is null, expected a layer"));
    add(config_.nodes[i].name, absl::StrCat("layer ", i));
  }
}

int GraphBody::ValueNamed(const std::string& name, const std::string& where) const {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  Refuse(absl::StrCat(where, " is ", Quoted(name), ", expected the name of an input or a layer"));
}

void GraphBody::Resolve() {
  for (size_t i = 0; i < config_.nodes.size(); ++i) {
    const NodeConfig& config = config_.nodes[i];
    Node node{&*config.layer, {}, {}, {}};
    if (config.inputs.empty()) Refuse(absl::StrCat(LayerAt(config_, i), " has no inputs"));
    for (const std::string& name : config.inputs)
      node.inputs.push_back(ValueNamed(name, absl::StrCat(LayerAt(config_, i), ": an input")));
    nodes_.push_back(std::move(node));
    is_random_ = is_random_ || config.layer->IsRandom();
  }
  for (const std::string& name : config_.outputs) outputs_.push_back(ValueNamed(name, "an output"));
}

// Kahn 1962; of those that are ready the first in the configuration, so that a configuration in order stays as it is.
void GraphBody::SortByInputs() {
  const int inputs = static_cast<int>(inputs_.size());
  std::vector<std::vector<int>> takers(nodes_.size());
  std::vector<int> waits_for(nodes_.size(), 0);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (int value : nodes_[i].inputs) {
      if (value < inputs) continue;
      takers[static_cast<size_t>(value - inputs)].push_back(static_cast<int>(i));
      ++waits_for[i];
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (waits_for[i] == 0) ready.push(static_cast<int>(i));
  }
  while (!ready.empty()) {
    const int node = ready.top();
    ready.pop();
    order_.push_back(node);
    for (int taker : takers[static_cast<size_t>(node)]) {
      if (--waits_for[static_cast<size_t>(taker)] == 0) ready.push(taker);
    }
  }
  if (order_.size() == nodes_.size()) return;
  constexpr size_t kMostNames = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < nodes_.size() && names.size() < kMostNames; ++i) {
    if (waits_for[i] > 0) names.push_back(Quoted(config_.nodes[i].name));
  }
  Refuse(
      absl::StrCat("layers wait for one another in a circle: among ", absl::StrJoin(names, ", ")));
}

void GraphBody::FindShapes() {
  const size_t inputs = inputs_.size();
  shapes_.resize(inputs + nodes_.size());
  std::vector<std::vector<Shape>> of_inputs(nodes_.size());
  const auto check = [](const Shape& shape, const std::string& whose) {
    if (shape.NumElements() < 1)
      Refuse(absl::StrCat(whose, " is of shape ", shape.ToString(), ", expected sizes from 1"));
    if (shape.rank() < kMaxRank) return;
    Refuse(absl::StrCat(whose, " is of shape ", shape.ToString(), ", expected at most ",
                        kMaxRank - 1, " axes, as the batch is one more"));
  };
  for (size_t i = 0; i < inputs; ++i) {
    shapes_[i] = inputs_[i].shape;
    check(shapes_[i], InputAt(config_, i));
  }
  std::vector<std::optional<DType>> types(shapes_.size()), taken;
  for (size_t i = 0; i < inputs; ++i)
    types[i] = IsFloating(inputs_[i].dtype) ? DType::kFloat32 : inputs_[i].dtype;
  for (int i : order_) {
    Node& node = nodes_[i];
    taken.clear();
    for (int value : node.inputs) {
      of_inputs[i].push_back(shapes_[value]);
      taken.push_back(types[value]);
    }
    try {
      shapes_[inputs + i] = node.layer->OutputShapeOf(of_inputs[i]);
      types[inputs + i] = CheckTypes(*node.layer, taken);
    } catch (Error& error) {
      error.AddContext(absl::StrCat("network: ", LayerAt(config_, static_cast<size_t>(i))));
      throw;
    }
    check(shapes_[inputs + i],
          absl::StrCat(LayerAt(config_, static_cast<size_t>(i)), ": what it makes"));
  }
  // In the order of the configuration, which names and initial values hang on.
  for (size_t i = 0; i < nodes_.size(); ++i) {
    try {
      AddParameters(i, of_inputs[i]);
    } catch (Error& error) {
      if (error.message().rfind("network: ", 0) != 0) {
        error.AddContext(absl::StrCat("network: ", LayerAt(config_, i)));
      }
      throw;
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (of_inputs[i].size() != 1) continue;
    nodes_[i].first_carried = static_cast<int>(carried_shapes_.size());
    for (const Shape& shape : nodes_[i].layer->CarriedShapes(of_inputs[i][0]))
      carried_shapes_.push_back(shape);
    nodes_[i].carried = static_cast<int>(carried_shapes_.size()) - nodes_[i].first_carried;
  }
  for (int value : outputs_) output_shapes_.push_back(shapes_[value]);
}

void GraphBody::AddParameters(size_t i, const std::vector<Shape>& input_shapes) {
  const NodeConfig& config = config_.nodes[i];
  std::set<std::string> unused;
  for (const auto& [own, other] : config.tied) unused.insert(own);
  for (ParameterSpec& spec : nodes_[i].layer->ParametersOf(input_shapes)) {
    const auto tie = config.tied.find(spec.name);
    if (tie == config.tied.end()) {
      const int number = static_cast<int>(parameters_.size());
      nodes_[i].parameters.push_back(number);
      parameters_.push_back({absl::StrCat(config.name, ".", spec.name), std::move(spec)});
      if (!parameter_numbers_.emplace(parameters_.back().name, number).second) {
        Refuse(absl::StrCat(LayerAt(config_, i), ": two parameters are called ",
                            Quoted(parameters_.back().name)));
      }
      continue;
    }
    unused.erase(spec.name);
    const std::string where = absl::StrCat(LayerAt(config_, i), ": parameter ", Quoted(spec.name),
                                           " is tied to ", Quoted(tie->second));
    const auto found = parameter_numbers_.find(tie->second);
    if (found == parameter_numbers_.end()) {
      Refuse(absl::StrCat(
          where, ", expected a parameter of a layer that stands before it in the configuration"));
    }
    const ParameterSpec& other = parameters_[static_cast<size_t>(found->second)].spec;
    if (!(other.shape == spec.shape) || !other.is_trained || !spec.is_trained) {
      Refuse(absl::StrCat(where, ", which is ", other.shape.ToString(),
                          other.is_trained ? "" : " and not trained",
                          ", expected trained ones of shape ", spec.shape.ToString()));
    }
    nodes_[i].parameters.push_back(found->second);
  }
  if (!unused.empty()) {
    Refuse(absl::StrCat(LayerAt(config_, i), ": ", Quoted(*unused.begin()),
                        " is tied, but it is no parameter of [", config.layer->Describe(), "]"));
  }
  for (size_t p = 1; p < nodes_[i].parameters.size(); ++p) {
    nodes_[i].is_run = nodes_[i].is_run &&
                       nodes_[i].parameters[p] == nodes_[i].parameters[0] + static_cast<int>(p);
  }
}

void GraphBody::FindLastUses() {
  made_at_.assign(shapes_.size(), 0);
  last_used_at_.assign(shapes_.size(), 0);
  for (size_t at = 0; at < order_.size(); ++at) {
    made_at_[inputs_.size() + static_cast<size_t>(order_[at])] = at;
    for (const int value : nodes_[static_cast<size_t>(order_[at])].inputs)
      last_used_at_[static_cast<size_t>(value)] = at;
  }
  for (const int value : outputs_) last_used_at_[static_cast<size_t>(value)] = order_.size();
  std::vector<bool> used(shapes_.size(), false);
  for (int value : outputs_) used[value] = true;
  for (auto i = order_.rbegin(); i != order_.rend(); ++i) {
    Node& node = nodes_[*i];
    if (!used[inputs_.size() + *i]) {
      Refuse(absl::StrCat(LayerAt(config_, static_cast<size_t>(*i)),
                          ": no output and no other layer takes what it computes"));
    }
    node.last_use.assign(node.inputs.size(), false);
    for (size_t k = node.inputs.size(); k-- > 0;) {  // the same value may come twice
      node.last_use[k] = !used[node.inputs[k]];
      used[node.inputs[k]] = true;
    }
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!used[i]) Refuse(absl::StrCat(InputAt(config_, i), ": no layer takes it"));
  }
}

std::string GraphBody::Describe() const {
  std::string text;
  const bool is_chain = !chain().empty();
  for (const InputConfig& input : inputs_) {
    absl::StrAppend(&text, text.empty() ? "input " : "; input ",
                    is_chain ? "" : Quoted(input.name) + " ", input.shape.ToString());
  }
  for (const NodeConfig& node : config_.nodes) {
    absl::StrAppend(&text, "; ");
    if (!is_chain)
      absl::StrAppend(&text, Quoted(node.name), " of ", absl::StrJoin(node.inputs, ", "), ": ");
    absl::StrAppend(&text, node.layer->Describe());
  }
  return text;
}

Arrays GraphBody::Forward(BodyCall& call, Arrays inputs) const {
  const FrameLease lease(*this);
  Frame& frame = *lease;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    frame.values[i] = std::move(inputs[i]);
    if (i < call.masks.size()) frame.masks[i] = std::move(call.masks[i]);
    if (call.compute_type.has_value() && IsFloating(frame.values[i].dtype())) {
      frame.values[i] = Cast(frame.values[i], *call.compute_type);
    }
  }
  call.masks.clear();
  call.pass != nullptr ? RunByPlan(call, frame) : Run(call, frame, 0, order_.size());
  Arrays results;
  for (int value : outputs_) {
    results.push_back(call.compute_type.has_value() && !call.parameters.empty()
                          ? Cast(frame.values[value], call.parameters[0].dtype())
                          : frame.values[value]);
    call.masks.push_back(frame.masks[value]);
  }
  return results;
}

// Of layers of one's own, whose mistakes would be found in the next layer.
void GraphBody::CheckMade(const Node& node, int i, absl::Span<const NDArray> inputs,
                          const NDArray& output) const {
  const Shape& expected = shapes_[inputs_.size() + static_cast<size_t>(i)];
  const int64_t batch = inputs[0].dim(0);
  bool fits = output.is_defined() && output.rank() == expected.rank() + 1 && output.dim(0) == batch;
  for (int axis = 0; fits && axis < expected.rank(); ++axis)
    fits = output.dim(axis + 1) == expected[axis];
  const bool is_typed =
      !fits || !IsFloating(inputs[0].dtype()) || output.dtype() == inputs[0].dtype();
  if (fits && is_typed) return;
  ThrowInvalidArgument(absl::StrCat(
      "layer ", Quoted(config_.nodes[static_cast<size_t>(i)].name), " [", node.layer->Describe(),
      "]: its Forward() returned ",
      output.is_defined() ? absl::StrCat(DTypeName(output.dtype()), " ", output.shape().ToString())
                          : std::string("an undefined array"),
      ", expected ", is_typed ? "" : absl::StrCat(DTypeName(inputs[0].dtype()), " "), "[", batch,
      "] + ", expected.ToString()));
}

void GraphBody::Run(BodyCall& call, Frame& frame, size_t begin, size_t end) const {
  for (size_t at = begin; at < end; ++at) {
    const int i = order_[at];
    const Node& node = nodes_[i];
    if (call.host != nullptr) call.host->EnterForward(i);
    LayerContext context;
    if (node.is_run && !call.compute_type.has_value()) {
      if (!node.parameters.empty()) {
        context.parameters = call.parameters.subspan(node.parameters[0], node.parameters.size());
      }
    } else {
      for (int p : node.parameters) {
        frame.parameters.push_back(
            InComputeType(call.parameters[p], parameters_[p].spec, call.compute_type));
      }
      context.parameters = frame.parameters;
    }
    context.training = call.training && !(call.frozen != nullptr && IsFrozen(node, *call.frozen));
    // What is gathered for a layer is gone behind it.
    context.parameters_stay =
        !call.training && !call.compute_type.has_value() && call.host == nullptr;
    context.seed = call.seed;
    context.stream = StreamOf(call.step, static_cast<size_t>(i));
    if (!call.carried.empty())
      context.carried = call.carried.subspan(node.first_carried, node.carried);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const int value = node.inputs[k];
      if (!context.mask.is_defined()) context.mask = frame.masks[value];
      if (node.inputs.size() > 1) frame.taken_masks.push_back(frame.masks[value]);
      frame.taken.push_back(node.last_use[k] ? std::move(frame.values[value])
                                             : frame.values[value]);
    }
    context.masks = frame.taken_masks;
    NDArray& output = frame.values[inputs_.size() + i];
    LayerWorkspaceManager::Layer placed(call.workspaces, i + 1, config_.nodes[i].name);
    try {
      CheckTypes(*node.layer, frame.taken);
      output = node.layer->ForwardOf(context, frame.taken);
    } catch (Error& error) {
      error.AddContext(absl::StrCat("layer ", Quoted(config_.nodes[i].name)));
      throw;
    }
    CheckMade(node, i, frame.taken, output);
    placed.Finish(output, context.mask);
    frame.taken.clear();
    frame.taken_masks.clear();
    frame.parameters.clear();
    DropMaskOfOthers(context.mask, output);
    frame.masks[inputs_.size() + i] = std::move(context.mask);
    if (call.see != nullptr) (*call.see)(i, output);
  }
}

}  // namespace tidepool::nn
