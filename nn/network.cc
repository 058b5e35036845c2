#include "tidepool/nn/network.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel/kept_operands.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network/block_body.h"
#include "tidepool/nn/network/graph_body.h"
#include "tidepool/nn/network_hosted.h"

namespace tidepool::nn {
namespace {

NetworkOptions OptionsOf(uint64_t seed, WorkspaceMode mode, Device device,
                         const std::string& name) {
  NetworkOptions options;
  options.seed = seed;
  options.mode = mode;
  options.device = device;
  options.name = name;
  return options;
}

bool IsThe(const Shape& found, const Shape& example) {
  return found.rank() == example.rank() + 1 && Shape(found.span().subspan(1)) == example;
}

}  // namespace

Network::Network(NetworkConfig config, const NetworkOptions& options)
    : Network(std::make_shared<const GraphBody>(std::move(config)), options) {}

Network::Network(std::vector<InputConfig> inputs, std::unique_ptr<Block> block,
                 const NetworkOptions& options)
    : Network(std::make_shared<const BlockBody>(std::move(inputs), std::move(block)), options) {}

Network::Network(Shape input, std::vector<AnyLayer> layers, uint64_t seed, WorkspaceMode mode,
                 Device device, const std::string& name)
    : Network(NetworkConfig::Sequential(std::move(input), std::move(layers)),
              OptionsOf(seed, mode, device, name)) {}

Network::Network(std::shared_ptr<const NetworkBody> body, const NetworkOptions& options,
                 const Network* shared)
    : options_(options), name_(options.name), body_(std::move(body)) {
  if (options_.dtype != DType::kFloat32 && options_.dtype != DType::kFloat64) {
    ThrowInvalidArgument(absl::StrCat("network: parameters of ", DTypeName(options_.dtype),
                                      ", expected f32 or f64"));
  }
  if (options_.compute_type == options_.dtype) options_.compute_type.reset();
  if (options_.compute_type.has_value() && !IsFloating(*options_.compute_type)) {
    ThrowInvalidArgument(absl::StrCat("network: layers that compute by ",
                                      DTypeName(*options_.compute_type),
                                      ", expected a float type"));
  }
  set_inference_workspace(inference_mode(), options_.inference_workspace);
  set_training_workspace(training_mode(), options_.training_workspace);
  MakeArrays(shared);
}

Network::Network(Network&& other) noexcept = default;
Network& Network::operator=(Network&& other) noexcept {
  if (this != &other) {
    std::destroy_at(this);
    std::construct_at(this, std::move(other));
  }
  return *this;
}
Network::~Network() {
  // What kernels have packed of its parameters; those of a replica are its source's.
  const Buffer* const buffer = arrays_.buffer().get();  // null of none, and where they are hosted
  if (source_layout_ == nullptr && buffer != nullptr) ForgetKeptOperand(buffer->id);
}

const std::vector<InputConfig>& Network::inputs() const {
  CheckWhole("inputs");
  return body_->inputs();
}
const std::vector<Shape>& Network::output_shapes() const {
  CheckWhole("output_shapes");
  return body_->output_shapes();
}
const NetworkConfig* Network::config() const { return CheckWhole("config").body_->config(); }
std::vector<AnyLayer> Network::layers() const { return CheckWhole("layers").body_->chain(); }
std::string Network::Describe() const { return body_ == nullptr ? "" : body_->Describe(); }
void Network::ReleaseTape() noexcept { tape_.reset(); }
bool Network::is_random() const { return CheckWhole("is_random").body_->is_random(); }

void Network::ThrowMovedFrom(const char* operation) {
  ThrowFailedPrecondition(absl::StrCat("network: ", operation, ": the network was moved from"));
}

void Network::ThrowStale(const char* operation) const {
  ThrowFailedPrecondition(absl::StrCat(
      "network [", name(), "]: ", operation,
      ": parameters of the network that it is a replica of were frozen or not since, expected a "
      "replica made afterwards"));
}

void Network::CheckMasks(absl::Span<const NDArray> masks,
                         absl::Span<const NDArray> features) const {
  if (masks.size() > features.size()) {
    ThrowInvalidArgument(absl::StrCat("network [", name(), "]: ", masks.size(), " masks of ",
                                      features.size(), " inputs"));
  }
  for (size_t i = 0; i < masks.size(); ++i) {
    const NDArray &mask = masks[i], &x = features[i];
    if (!mask.is_defined()) continue;
    mask.CheckAlive("network", "mask");
    const bool fits =
        x.rank() >= 2 && mask.rank() == 2 && mask.dim(0) == x.dim(0) && mask.dim(1) == x.dim(1);
    if (fits) continue;
    ThrowInvalidArgument(absl::StrCat(
        "network [", name(), "]: the mask of input \"", body_->inputs()[i].name,
        "\", whose features are ", x.shape().ToString(), ", has shape ", mask.shape().ToString(),
        ", expected ",
        x.rank() >= 2 ? absl::StrCat("[batch, length], [", x.dim(0), ", ", x.dim(1), "]")
                      : std::string("none")));
  }
}

void Network::CheckFeatures(const NDArray& features, int input) const {
  CheckWhole("features");
  const InputConfig& expected = body_->inputs()[static_cast<size_t>(input)];
  // Made where it is needed alone: each step comes by here.
  const auto what = [&] {
    return body_->inputs().size() == 1 ? std::string("features")
                                       : absl::StrCat("features of \"", expected.name, "\"");
  };
  features.CheckAlive("network", "features");
  if (!IsThe(features.shape(), expected.shape)) {
    ThrowInvalidArgument(absl::StrCat("network: ", what(), " have shape ",
                                      features.shape().ToString(), ", expected [batch] + ",
                                      expected.shape.ToString()));
  }
  const DType type = IsFloating(expected.dtype) ? options_.dtype : expected.dtype;
  if (features.dtype() != type) {
    ThrowInvalidArgument(absl::StrCat("network: ", what(), " are ", DTypeName(features.dtype()),
                                      ", expected ", DTypeName(type)));
  }
  if (features.dim(0) > 0) return;
  ThrowInvalidArgument(absl::StrCat("network [", name(), "]: a batch of no examples, shape ",
                                    features.shape().ToString(), ", expected at least one"));
}

void Network::CheckFeatures(absl::Span<const NDArray> features) const {
  CheckWhole("features");
  if (features.size() != body_->inputs().size()) {
    ThrowInvalidArgument(
        absl::StrCat("network: ", features.size(), " inputs, expected ", body_->inputs().size()));
  }
  for (size_t i = 0; i < features.size(); ++i) {
    CheckFeatures(features[i], static_cast<int>(i));
    if (features[i].dim(0) == features[0].dim(0)) continue;
    ThrowInvalidArgument(absl::StrCat("network: batches of ", features[0].dim(0), " and ",
                                      features[i].dim(0), " examples, expected one size"));
  }
}

// ---- Inference ----

void Network::CheckStates(const std::vector<NDArray>& states, int64_t batch) const {
  if (states.size() != body_->carried_shapes().size()) {
    ThrowInvalidArgument(absl::StrCat("network: ", states.size(), " states, expected ",
                                      body_->carried_shapes().size(), " as of NewStates()"));
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const NDArray& state = states[i];
    if (!state.is_defined()) continue;
    if (state.dtype() != options_.dtype && state.dtype() != options_.compute_type) {
      ThrowInvalidArgument(
          absl::StrCat("network: state ", i, " is ", DTypeName(state.dtype()), ", expected ",
                       DTypeName(options_.dtype),
                       options_.compute_type.has_value()
                           ? absl::StrCat(" or ", DTypeName(*options_.compute_type))
                           : ""));
    }
    if (IsThe(state.shape(), body_->carried_shapes()[i]) && state.dim(0) == batch) continue;
    ThrowInvalidArgument(absl::StrCat("network: state ", i, " has shape ", state.shape().ToString(),
                                      ", expected [", batch, "] + ",
                                      body_->carried_shapes()[i].ToString()));
  }
}

namespace {

using BufferIds = absl::InlinedVector<uint64_t, 4>;

uint64_t IdOf(const NDArray& array) {
  return array.is_defined() && array.buffer() ? array.buffer()->id : 0;
}

BufferIds IdsOf(const Arrays& arrays) {
  BufferIds ids;
  for (const NDArray& array : arrays) ids.push_back(IdOf(array));
  return ids;
}

// What layers pass on unchanged or reshaped is an array of its own all the same: who writes to the output changes no input.
NDArray Apart(NDArray output, const BufferIds& inputs) {
  const uint64_t id = IdOf(output);
  return id != 0 && std::find(inputs.begin(), inputs.end(), id) != inputs.end() ? output.Dup()
                                                                                : output;
}

}  // namespace

Arrays Network::Run(Arrays inputs, const RunOptions& options) const {
  CheckFeatures(inputs);
  const NetworkParameters* parameters = options.parameters;
  if (parameters != nullptr && parameters->views.size() != parameter_views_.size()) {
    ThrowInvalidArgument(absl::StrCat("network: parameters are ", parameters->views.size(),
                                      " arrays, expected ", parameter_views_.size()));
  }
  CheckMasks(options.masks, inputs);
  const Device device = parameters != nullptr ? parameters->flat.device() : options_.device;
  const HandlesOwnScope handles;
  for (NDArray& input : inputs) input = input.To(device);
  BodyCall call;
  const HostedPass hosted(parameters == nullptr ? this : nullptr, ParameterHost::Pass::kInference);
  call.host = hosted.host();
  call.parameters = parameters != nullptr ? parameters->views : hosted.views();
  call.training = options.training;
  call.seed = options_.seed;
  call.step = step_;
  call.compute_type = options_.compute_type;
  call.frozen = frozen_.empty() ? nullptr : &frozen_;
  for (const NDArray& mask : options.masks)
    call.masks.push_back(mask.is_defined() ? mask.To(device) : mask);
  std::vector<NDArray> states;
  if (options.states != nullptr) {
    CheckStates(*options.states, inputs[0].dim(0));
    states = *options.states;
    call.carried = absl::MakeSpan(states);
  }
  const BufferIds given = IdsOf(inputs);
  Arrays outputs = body_->Forward(call, std::move(inputs));
  for (NDArray& output : outputs) output = Apart(std::move(output), given);
  if (options.states != nullptr) {
    const NoGradientScope constants;
    for (NDArray& state : states) state = state.is_defined() ? state.Detach() : state;
    *options.states = std::move(states);
  }
  return outputs;
}

std::vector<NDArray> Network::NewStates() const {
  return std::vector<NDArray>(CheckWhole("states").body_->carried_shapes().size());
}

NDArray Network::Forward(NDArray features) const {
  CheckWhole("forward");
  return ForwardOne(std::move(features), nullptr, [](int, const NDArray&) {});
}

NDArray Network::Forward(NDArray features, const NetworkParameters& parameters) const {
  CheckWhole("forward");
  if (parameters.views.size() != parameter_views_.size()) {
    ThrowInvalidArgument(absl::StrCat("network: parameters are ", parameters.views.size(),
                                      " arrays, expected ", parameter_views_.size()));
  }
  return ForwardOne(std::move(features), &parameters, [](int, const NDArray&) {});
}

NDArray Network::Forward(NDArray features, const NetworkParameters* parameters,
                         LayerWorkspaceManager& workspaces) const {
  CheckWhole("forward");
  if (parameters != nullptr && parameters->views.size() != parameter_views_.size()) {
    ThrowInvalidArgument(absl::StrCat("network: parameters are ", parameters->views.size(),
                                      " arrays, expected ", parameter_views_.size()));
  }
  const LayerWorkspaceManager::Call call(workspaces, nullptr);
  const NDArray output = ForwardOne(
      std::move(features), parameters, [](int, const NDArray&) {}, &workspaces);
  return workspaces.LeverageTo(ArrayType::kInput, output);
}

NDArray Network::ForwardByLayers(NDArray features,
                                 absl::FunctionRef<void(int, const NDArray&)> see) const {
  CheckWhole("forward");
  return ForwardOne(std::move(features), nullptr, see);
}

NDArray Network::ForwardOne(NDArray features, const NetworkParameters* parameters,
                            absl::FunctionRef<void(int, const NDArray&)> see,
                            LayerWorkspaceManager* workspaces) const {
  if (body_->inputs().size() != 1 || body_->output_shapes().size() != 1) {
    ThrowInvalidArgument(absl::StrCat("network [", name(), "]: it has ", body_->inputs().size(),
                                      " inputs and ", body_->output_shapes().size(),
                                      " outputs, expected one of each, or a call of Run()"));
  }
  CheckFeatures(features);
  const HandlesOwnScope handles;
  const HostedPass hosted(parameters == nullptr ? this : nullptr, ParameterHost::Pass::kInference);
  BodyCall call;
  call.host = hosted.host();
  call.parameters = parameters != nullptr ? parameters->views : hosted.views();
  call.seed = options_.seed;
  call.compute_type = options_.compute_type;
  call.see = &see;
  call.workspaces = workspaces;
  Arrays inputs;
  inputs.push_back(
      std::move(features).To(parameters != nullptr ? parameters->flat.device() : options_.device));
  const BufferIds given = IdsOf(inputs);
  return Apart(std::move(body_->Forward(call, std::move(inputs))[0]), given);
}

NetworkParameters Network::ParametersIn(const NDArray& flat) const {
  CheckOwn("parameters_in");
  if (!(flat.shape() == arrays_.shape()) || flat.dtype() != arrays_.dtype()) {
    ThrowInvalidArgument(absl::StrCat("network: parameters are ", DTypeName(flat.dtype()), " ",
                                      flat.shape().ToString(), ", expected ",
                                      DTypeName(arrays_.dtype()), " ", arrays_.shape().ToString()));
  }
  return {flat, ViewsOf(flat)};
}

void Network::Infer(absl::FunctionRef<NDArray()> make_input,
                    absl::FunctionRef<void(const NDArray&)> use_output) {
  WorkspaceScope scope(inference_workspace());
  const HandlesOwnScope handles;
  const LayerWorkspaceManager::Call call(workspaces_->inference, nullptr);
  const NDArray output = ForwardOne(
      make_input(), nullptr, [](int, const NDArray&) {}, &workspaces_->inference);
  use_output(output);
}

NDArray Network::Output(const NDArray& features) {
  features.CheckAlive("network", "features");
  NDArray result;
  Infer([&] { return features; }, [&](const NDArray& output) { result = output.Leverage(); });
  // Without workspaces of its own (kNone) the network made it on the heap.
  return result.IsAttached() ? result : result.Migrate();
}

}  // namespace tidepool::nn
