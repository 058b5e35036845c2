#include "tidepool/nn/network.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool::nn {
namespace {

// Arrays in the flat buffers start at cache lines.
constexpr int64_t kParameterAlignment = 16;

WorkspaceConfig ConfigOf(WorkspaceMode mode) {
  WorkspaceConfig config = WorkspaceConfig::Inference();  // the last batch is often a smaller one
  config.workspace_mode = mode;
  if (mode == WorkspaceMode::kSingle) config.policy_learning = LearningPolicy::kFirstLoop;
  if (mode == WorkspaceMode::kSeparate) {
    ThrowUnimplemented(
        "network: workspace_mode separate is not built yet; use enabled, single or none");
  }
  return config;
}

NDArray ViewOf(const NDArray& flat, int64_t offset, const Shape& shape) {
  return flat.Slice(0, offset, offset + shape.NumElements()).Reshape(shape);
}

}  // namespace

Network::Network(Shape input, std::vector<std::unique_ptr<Layer>> layers, uint64_t seed,
                 WorkspaceMode mode, Device device, const std::string& name)
    : name_(name),
      input_shape_(std::move(input)),
      layers_(std::move(layers)),
      mode_(mode),
      device_(device) {
  const WorkspaceConfig config = ConfigOf(mode);
  if (layers_.empty()) ThrowInvalidArgument("network: no layers");
  struct Planned {
    std::string name;
    ParameterSpec spec;
    int64_t offset;
  };
  std::vector<Planned> planned;
  Shape shape = input_shape_;
  int64_t flat = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i] == nullptr) {
      ThrowInvalidArgument(absl::StrCat("network: layer ", i, " is null, expected a layer"));
    }
    first_parameter_.push_back(static_cast<int>(planned.size()));
    const Shape output = layers_[i]->OutputShape(shape);  // refuses inputs that do not fit
    for (ParameterSpec& spec : layers_[i]->Parameters(shape)) {
      std::string name = absl::StrCat(i, ".", layers_[i]->Kind(), ".", spec.name);
      const int64_t count = spec.shape.NumElements();
      parameter_count_ += count;
      planned.push_back({std::move(name), std::move(spec), flat});
      flat += (count + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
    }
    if (i > 0 && layers_[i - 1]->EndsWithRelu() && layers_[i]->CanApplyReluGradient()) {
      layers_[i - 1]->LeaveReluGradientToNext();
      layers_[i]->ApplyReluGradientOfPrevious();
    }
    shape = output;
  }
  first_parameter_.push_back(static_cast<int>(planned.size()));
  output_shape_ = shape;
  caches_.resize(layers_.size());

  const MemoryOwnerScope owner("network");
  parameters_ = Zeros({flat}, DType::kFloat32, Place::On(device));
  gradients_ =
      Zeros({flat}, DType::kFloat32, Place::On(device, MemoryKind::kGradientStandard));
  for (size_t i = 0; i < planned.size(); ++i) {
    const ParameterSpec& spec = planned[i].spec;
    NDArray view = ViewOf(parameters_, planned[i].offset, spec.shape);
    if (spec.uniform_bound > 0) {
      CopyInto(RandomUniform(spec.shape, -spec.uniform_bound, spec.uniform_bound, seed, i,
                             Place::Heap()),
               view);
    } else if (spec.initial != 0) {
      CopyInto(Full(spec.shape, spec.initial, DType::kFloat32, Place::Heap()), view);
    }
    parameter_offsets_.push_back(planned[i].offset);
    parameter_views_.push_back(view);
    gradient_views_.push_back(ViewOf(gradients_, planned[i].offset, spec.shape));
    named_.push_back({planned[i].name, view});
  }
  const auto workspace = [&](const char* what) {
    return std::make_unique<Workspace>(absl::StrCat(this->name(), " ", what), config, device);
  };
  training_workspace_ = workspace("training");
  inference_workspace_ = workspace("inference");
}

std::string Network::Describe() const {
  std::string text = absl::StrCat("input ", input_shape_.ToString());
  for (const auto& layer : layers_) absl::StrAppend(&text, "; ", layer->Describe());
  return text;
}

LayerContext Network::ContextOf(int layer, const std::vector<NDArray>& parameters) const {
  const int begin = first_parameter_[layer];
  const int count = first_parameter_[layer + 1] - begin;
  LayerContext context;
  context.parameters = absl::MakeConstSpan(parameters).subspan(begin, count);
  return context;
}

void Network::ThrowMovedFrom(const char* operation) {
  ThrowFailedPrecondition(absl::StrCat("network: ", operation, ": the network was moved from"));
}

void Network::CheckFeatures(const NDArray& features) const {
  CheckWhole("features");
  features.CheckAlive("network", "features");
  if (features.rank() == input_shape_.rank() + 1 &&
      Shape(features.shape().span().subspan(1)) == input_shape_) {
    if (features.dtype() != parameters_.dtype()) {
      ThrowInvalidArgument(absl::StrCat("network: features are ", DTypeName(features.dtype()),
                                        ", expected ", DTypeName(parameters_.dtype())));
    }
    if (features.dim(0) > 0) return;
    ThrowInvalidArgument(absl::StrCat("network [", name(), "]: a batch of no examples, shape ",
                                      features.shape().ToString(), ", expected at least one"));
  }
  ThrowInvalidArgument(absl::StrCat("network: features have shape ", features.shape().ToString(),
                                    ", expected [batch] + ", input_shape_.ToString()));
}

NDArray Network::Forward(NDArray features) const {
  return Forward(std::move(features), parameters_.device(), parameter_views_);
}

NDArray Network::Forward(NDArray features, const NetworkParameters& parameters) const {
  CheckWhole("forward");
  if (parameters.views.size() != parameter_views_.size()) {
    ThrowInvalidArgument(absl::StrCat("network: parameters are ", parameters.views.size(),
                                      " arrays, expected ", parameter_views_.size()));
  }
  return Forward(std::move(features), parameters.flat.device(), parameters.views);
}

NDArray Network::ForwardByLayers(NDArray features,
                                 absl::FunctionRef<void(int, const NDArray&)> see) const {
  CheckWhole("forward");
  return Forward(std::move(features), parameters_.device(), parameter_views_, see);
}

NDArray Network::Forward(NDArray features, Device device, const std::vector<NDArray>& parameters,
                         absl::FunctionRef<void(int, const NDArray&)> see) const {
  CheckFeatures(features);
  const HandlesOwnScope handles;
  features = features.To(device);
  LayerCache unused;
  for (size_t i = 0; i < layers_.size(); ++i) {
    features = layers_[i]->Forward(ContextOf(static_cast<int>(i), parameters), features, unused);
    see(static_cast<int>(i), features);
  }
  return features;
}

Network::Inputs Network::PrepareInputs(const NDArray& features, const NDArray& labels) const {
  CheckFeatures(features);
  const HandlesOwnScope handles;
  if (output_shape_.rank() == 1) CheckSoftmaxLabels(labels, output_shape_[0]);
  return {features.To(device_), labels.To(device_)};
}

double Network::MeanLoss(const NDArray& losses) {
  HostView<const float> values(losses);
  double sum = 0;
  for (float loss : values) sum += loss;
  return sum / static_cast<double>(values.size());
}

NetworkParameters Network::ParametersIn(const NDArray& flat) const {
  CheckWhole("parameters_in");
  if (!(flat.shape() == parameters_.shape()) || flat.dtype() != parameters_.dtype()) {
    ThrowInvalidArgument(absl::StrCat("network: parameters are ", DTypeName(flat.dtype()), " ",
                                      flat.shape().ToString(), ", expected ",
                                      DTypeName(parameters_.dtype()), " ",
                                      parameters_.shape().ToString()));
  }
  NetworkParameters parameters{flat, {}};
  parameters.views.reserve(parameter_views_.size());
  for (size_t i = 0; i < parameter_views_.size(); ++i) {
    parameters.views.push_back(ViewOf(flat, parameter_offsets_[i], parameter_views_[i].shape()));
  }
  return parameters;
}

double Network::ComputeGradients(const NDArray& features, const NDArray& labels) {
  const Inputs inputs = PrepareInputs(features, labels);
  double loss = 0;
  NDArray losses;
  QueueGradients(inputs, [&](const NDArray& queued) {
    // The host has them by now; a device is not waited for before all of its work is queued.
    if (device_ == Host()) {
      loss = MeanLoss(queued);
    } else {
      losses = queued;
    }
  });
  return losses.is_defined() ? MeanLoss(losses) : loss;
}

void Network::QueueGradients(const Inputs& inputs,
                             absl::FunctionRef<void(const NDArray&)> use_losses) {
  CheckWhole("gradients");
  // On success the layers have emptied their caches already; an exception must not leave any.
  absl::Cleanup clear = [this] {
    for (LayerCache& cache : caches_) cache.Clear();
  };
  const HandlesOwnScope handles;
  const auto context_of = [this](int layer) {
    LayerContext context = ContextOf(layer, parameter_views_);
    context.gradients =
        absl::MakeSpan(gradient_views_).subspan(first_parameter_[layer], context.parameters.size());
    context.training = true;
    return context;
  };
  NDArray gradient;
  {
    NDArray logits = inputs.features;
    for (size_t i = 0; i < layers_.size(); ++i) {
      logits = layers_[i]->Forward(context_of(static_cast<int>(i)), logits, caches_[i]);
    }
    CrossEntropy result = SoftmaxCrossEntropy(logits, inputs.labels, Labels::kChecked);
    const double batch = static_cast<double>(result.loss.NumElements());
    use_losses(result.loss);
    gradient = std::move(result.probabilities);
    SoftmaxCrossEntropyGradInto(gradient, inputs.labels, 1.0 / batch, gradient, Labels::kChecked);
  }
  for (int i = static_cast<int>(layers_.size()) - 1; i >= 0; --i) {
    gradient = layers_[i]->Backward(context_of(i), std::move(gradient), caches_[i],
                                    /*needs_input_gradient=*/i > 0);
  }
  gradients_.MarkWritten();
}

void Network::Infer(absl::FunctionRef<NDArray()> make_input,
                    absl::FunctionRef<void(const NDArray&)> use_output) {
  WorkspaceScope scope(inference_workspace());
  const HandlesOwnScope handles;
  const NDArray output = Forward(make_input());
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
