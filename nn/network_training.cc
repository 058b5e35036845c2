// Training. Inference and the rest: network.cc.
#include <cmath>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/device_transfer.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/network/carried_states.h"
#include "tidepool/nn/network/network_body.h"
#include "tidepool/nn/network/restore_quietly.h"
#include "tidepool/nn/network_hosted.h"

namespace tidepool::nn {
namespace {

constexpr absl::string_view kLoss = "loss";

// Of the first labels; null: none.
const NDArray* MaskOfLabels(const NetworkInputs& inputs) {
  const bool is_masked = !inputs.labels_masks.empty() && inputs.labels_masks[0].is_defined();
  return is_masked ? &inputs.labels_masks[0] : nullptr;
}

// At once, and not at the first use of each.
void SendInputs(const NetworkInputs& inputs, const NDArray* share) {
  std::vector<const NDArray*> read = {share};
  for (const Arrays* arrays :
       {&inputs.features, &inputs.labels, &inputs.features_masks, &inputs.labels_masks}) {
    for (const NDArray& array : *arrays) read.push_back(&array);
  }
  SendToDevice("gradients", read);
}

// A host of parameters, told by the tape of where the backward pass is: what a layer records is a part of its own.
class TapedHost final : public ParameterHost, public GradientListener {
 public:
  TapedHost(ParameterHost& host, GradientTape& tape, GradientListener* listener)
      : host_(host), tape_(tape), listener_(listener) {}
  void Begin(Pass) override {}
  const NDArray& value(int parameter) const override { return host_.value(parameter); }
  const NDArray& gradient(int parameter) const override { return host_.gradient(parameter); }
  void EnterForward(int layer) override {
    tape_.set_part(layer + 1);
    host_.EnterForward(layer);
  }
  void EnterBackward(int layer) override { host_.EnterBackward(layer); }
  void End() noexcept override {}
  void GradientIsFinal(int parameter) override {
    host_.GradientIsFinal(parameter);
    if (listener_ != nullptr) listener_->GradientIsFinal(parameter);
  }
  void PartIsNext(int part) override {
    if (part > 0) EnterBackward(part - 1);
  }
  bool MovesMemory() const override { return true; }

 private:
  ParameterHost& host_;
  GradientTape& tape_;
  GradientListener* const listener_;
};

}  // namespace

namespace {

// Of the first output, labels and mask of these.
struct LossOfFirst {
  Loss loss;
  NDArray operator()(absl::Span<const NDArray> outputs, const NetworkInputs& inputs) const {
    if (inputs.labels.empty())
      ThrowInvalidArgument(absl::StrCat("network: no labels, expected those of ", loss.ToString()));
    return loss.Of(outputs[0], inputs.labels[0], MaskOfLabels(inputs));
  }
};

// A loss that a step can hold while the network is given another one, by the loss itself among others. Copies are apart, as those of
// what it holds are.
class HeldLoss {
 public:
  explicit HeldLoss(LossFunction loss) : loss_(std::make_shared<LossFunction>(std::move(loss))) {}
  HeldLoss(const HeldLoss& other) : HeldLoss(*other.loss_) {}
  HeldLoss(HeldLoss&&) noexcept = default;
  HeldLoss& operator=(const HeldLoss&) = delete;
  ~HeldLoss() = default;
  NDArray operator()(absl::Span<const NDArray> outputs, const NetworkInputs& inputs) const {
    const std::shared_ptr<LossFunction> held = loss_;  // this may go meanwhile
    return (*held)(outputs, inputs);
  }
  const LossFunction& get() const { return *loss_; }

 private:
  std::shared_ptr<LossFunction> loss_;
};

}  // namespace

void Network::set_loss(Loss loss) { loss_ = LossOfFirst{std::move(loss)}; }
const Loss* Network::loss() const {
  const auto* const held = loss_.target<HeldLoss>();
  const auto* const named = (held != nullptr ? held->get() : loss_).target<LossOfFirst>();
  return named != nullptr ? &named->loss : nullptr;
}

void Network::CheckLabelsMasks(const NetworkInputs& inputs) const {
  const std::vector<Shape>& outputs = body_->output_shapes();
  if (inputs.labels_masks.size() > outputs.size()) {
    ThrowInvalidArgument(absl::StrCat("network [", name(), "]: ", inputs.labels_masks.size(),
                                      " masks of labels and ", outputs.size(), " outputs"));
  }
  for (size_t i = 0; i < inputs.labels_masks.size(); ++i) {
    const NDArray& mask = inputs.labels_masks[i];
    if (!mask.is_defined()) continue;
    mask.CheckAlive("network", "labels_mask");
    bool fits = mask.rank() >= 1 && mask.dim(0) == inputs.features[0].dim(0);
    // A loss of the program's own looks at the other axes as it likes; a Loss says what it expects.
    if (loss_ == nullptr) {
      fits = fits && mask.rank() <= outputs[i].rank() + 1;
      for (int axis = 1; fits && axis < mask.rank(); ++axis)
        fits = mask.dim(axis) == outputs[i][axis - 1];
    }
    if (fits) continue;
    ThrowInvalidArgument(absl::StrCat("network [", name(), "]: the mask of labels ", i,
                                      " has shape ", mask.shape().ToString(),
                                      ", expected the first axes of output ", i, ", [",
                                      inputs.features[0].dim(0), "] + ", outputs[i].ToString()));
  }
}

NDArray Network::LossesOf(absl::Span<const NDArray> outputs, const NetworkInputs& inputs) const {
  NDArray losses;
  if (loss_ != nullptr) {
    losses = loss_(outputs, inputs);
  } else {
    if (inputs.labels.empty()) {
      ThrowInvalidArgument(
          absl::StrCat("network [", name(),
                       "]: no labels, expected those of the default loss, softmax cross-entropy"));
    }
    const NDArray* const mask = MaskOfLabels(inputs);
    const bool is_plain = mask == nullptr && outputs[0].rank() <= 2;
    losses = is_plain ? SoftmaxCrossEntropy(outputs[0], inputs.labels[0], Labels::kChecked).loss
                      : Loss(LossKind::kSoftmaxCrossEntropy)
                            .Of(outputs[0], inputs.labels[0], mask, Labels::kChecked);
  }
  losses.CheckAlive("network", "loss");
  const int64_t batch = inputs.features[0].dim(0);
  if (losses.rank() != 1 || losses.dim(0) != batch || !IsFloating(losses.dtype())) {
    ThrowInvalidArgument(absl::StrCat("network [", name(), "]: the loss is ",
                                      DTypeName(losses.dtype()), " ", losses.shape().ToString(),
                                      ", expected a floating-point number for each example, [",
                                      batch, "]"));
  }
  return losses;
}

Network::Inputs Network::PrepareInputs(const NDArray& features, const NDArray& labels) const {
  return PrepareInputs(NetworkInputs{{features}, {labels}, {}, {}});
}

Network::Inputs Network::PrepareInputs(const NetworkInputs& inputs) const {
  CheckFeatures(inputs.features);
  CheckMasks(inputs.features_masks, inputs.features);
  CheckLabelsMasks(inputs);
  const HandlesOwnScope handles;
  if (loss_ == nullptr) {
    if (body_->output_shapes().size() != 1 || inputs.labels.size() != 1) {
      ThrowInvalidArgument(absl::StrCat(
          "network: ", body_->output_shapes().size(), " outputs and ", inputs.labels.size(),
          " arrays of labels, expected one of each, or a loss of the program's (set_loss)"));
    }
    const Shape& shape = output_shape();
    const NDArray& labels = inputs.labels[0];
    const NDArray* const mask = MaskOfLabels(inputs);
    if (shape.rank() == 1 && (mask == nullptr || labels.rank() != 1)) {
      CheckSoftmaxLabels(labels, shape[0]);
    } else if (shape.rank() > 0 && labels.rank() == shape.rank() &&
               labels.dtype() == DType::kInt64) {
      // Those that the mask leaves out may be anything.
      CheckSoftmaxLabels(WithoutMaskedLabels(labels, mask).ReshapeOrCopy({labels.NumElements()}),
                         shape[shape.rank() - 1]);
    }
  }
  const auto on_device = [&](const Arrays& arrays) {
    Arrays result;
    for (const NDArray& array : arrays)
      result.push_back(array.is_defined() ? array.To(options_.device) : array);
    return result;
  };
  return {on_device(inputs.features), on_device(inputs.labels), on_device(inputs.features_masks),
          on_device(inputs.labels_masks)};
}

void Network::set_loss_scale(double scale) {
  CheckWhole("set_loss_scale");
  if (!(scale > 0) || std::isinf(scale)) {
    ThrowInvalidArgument(
        absl::StrCat("network: loss scale ", scale, ", expected a positive number"));
  }
  loss_scale_ = scale;
}

double Network::MeanLoss(const NDArray& given) {
  const bool is_wide = given.dtype() == DType::kFloat64 || given.dtype() == DType::kFloat32;
  // A loss of the program's may be part of an array, or of a small type.
  if (!is_wide || !given.is_dense()) {
    const NoGradientScope constants;
    return MeanLoss(is_wide ? given.Dup() : Cast(given, DType::kFloat32));
  }
  const NDArray& losses = given;
  double sum = 0;
  const auto add = [&](auto values) {
    for (const auto loss : values) sum += static_cast<double>(loss);
  };
  if (losses.dtype() == DType::kFloat64) {
    add(HostView<const double>(losses));
  } else {
    add(HostView<const float>(losses));
  }
  return sum / static_cast<double>(losses.NumElements());
}

double Network::ComputeGradients(const NDArray& features, const NDArray& labels) {
  return ComputeGradients(NetworkInputs{{features}, {labels}, {}, {}});
}

double Network::ComputeGradients(const NetworkInputs& given, std::vector<NDArray>* states) {
  const Inputs inputs = PrepareInputs(given);
  double loss = 0;
  NDArray losses;
  QueueGradients(
      inputs,
      [&](const NDArray& queued) {
        // The host has them by now; a device is not waited for before all of its work is queued.
        if (device() == Host()) {
          loss = MeanLoss(queued);
        } else {
          losses = queued;
        }
      },
      states, /*given_share=*/nullptr,
      [&] {
        if (losses.is_defined()) loss = MeanLoss(losses);
      });
  return loss;
}

// What is computed again begins with what it began with, and moves no running averages a second time.
void Network::BackwardOf(BodyCall& call, const NetworkInputs& inputs,
                         const std::vector<NDArray>* states, absl::FunctionRef<void()> backward) {
  const bool recomputes = call.pass != nullptr && call.pass->plan().recomputes();
  if (body_->config() != nullptr && !recomputes) return backward();
  std::vector<NDArray> carried = states != nullptr ? *states : std::vector<NDArray>();
  call.carried = absl::MakeSpan(carried);
  call.masks = inputs.features_masks;
  call.workspaces = nullptr;
  NDArray beside;
  if (beside_.is_defined()) {
    const NoGradientScope constants;
    beside = beside_.Dup();
  }
  body_->WhileBackward(call, backward);
  const NoGradientScope constants;
  if (beside.is_defined()) CopyInto(beside, beside_);
}

void Network::QueueGradients(const Inputs& inputs,
                             absl::FunctionRef<void(const NDArray&)> use_losses,
                             std::vector<NDArray>* states, const NDArray* given_share,
                             absl::FunctionRef<void()> finish) {
  CheckWhole("gradients");
  if (loss_ != nullptr && loss_.target<HeldLoss>() == nullptr) loss_ = HeldLoss(loss_);
  if (states != nullptr) CheckStates(*states, inputs.features[0].dim(0));
  const HandlesOwnScope handles;
  // The step's own until its end: a trainer that goes meanwhile releases the network's tape.
  std::unique_ptr<GradientTape> own =
      tape_ != nullptr ? std::move(tape_) : std::make_unique<GradientTape>();
  const absl::Cleanup keep = [&] { tape_ = std::move(own); };
  GradientTape& tape = *own;
  // Outside of a cycle of the workspace everything is made in the current place.
  LayerWorkspaceManager* const workspaces =
      training_workspace_->core()->is_open_on(CurrentThreadToken()) ? &workspaces_->training
                                                                    : nullptr;
  std::optional<LayerWorkspaceManager::Call> placed;
  tape.set_placement(nullptr);
  if (workspaces != nullptr) placed.emplace(*workspaces, &tape);
  // What the forward pass moves beside parameters, running averages say, is as it was where the step fails: it is done again.
  NDArray beside_before;
  if (beside_.is_defined()) beside_before = beside_.Dup();
  absl::Cleanup restore = [&] { RestoreQuietly(beside_before, beside_); };
  const HostedPass hosted(this, ParameterHost::Pass::kTraining);
  std::optional<TapedHost> host;
  if (hosted.host() != nullptr) host.emplace(*hosted.host(), tape, gradient_listener_);
  std::optional<ActivationPass> pass;
  if (activations_ != nullptr) pass.emplace(*activations_, tape, gradient_listener_);
  tape.Restart();
  // An exception must leave nothing of the step behind.
  const absl::Cleanup clear = [&] { tape.Clear(); };
  tape.set_listener(host.has_value() ? &*host : pass.has_value() ? &*pass : gradient_listener_);
  for (size_t k = 0; k < gradient_views_.size(); ++k) {
    const int number = static_cast<int>(k);
    host.has_value() ? tape.Watch(host->value(number), host->gradient(number))
                     : tape.Watch(named_[k].value, gradient_views_[k]);
  }
  if (device() != Host()) SendInputs(inputs, given_share);
  NDArray losses;
  std::vector<NDArray> carried;
  BodyCall call;  // segments of a program are computed again within it
  {
    if (states != nullptr) carried = *states;
    call.carried = absl::MakeSpan(carried);
    call.parameters = hosted.views();
    call.host = host.has_value() ? &*host : nullptr;
    call.pass = pass.has_value() ? &*pass : nullptr;
    if (pass.has_value()) {
      for (const NDArray& features : inputs.features) pass->Stays(features);
      for (const NDArray& labels : inputs.labels) pass->Stays(labels);
    }
    call.training = true;
    call.seed = options_.seed;
    call.step = step_;
    call.compute_type = options_.compute_type;
    call.frozen = frozen_.empty() ? nullptr : &frozen_;
    call.masks = inputs.features_masks;
    call.workspaces = workspaces;
    Arrays outputs = body_->Forward(call, inputs.features);
    LayerWorkspaceManager::Layer loss_placed(workspaces, 0, kLoss);
    losses = LossesOf(outputs, inputs);
    outputs.clear();
    if (host.has_value()) tape.set_part(0);
    use_losses(losses);
    loss_placed.Finish(losses);
    if (pass.has_value()) pass->EndForward();
  }
  // Of their mean, which nobody reads: the gradient of each is one over their number, times the scale of the loss. A device
  // fills it by a kernel, which a captured step repeats.
  const double share = loss_scale_ / static_cast<double>(losses.NumElements());
  const Place place = Place::CurrentOn(losses.device());
  NDArray shares = given_share != nullptr      ? *given_share
                   : losses.device() == Host() ? FromScalar(share, losses.dtype(), place)
                                               : Full({}, share, losses.dtype(), place);
  shares = shares.BroadcastTo(losses.shape());
  BackwardOf(call, inputs, states,
             [&] { tape.BackwardFrom(std::move(losses), std::move(shares)); });
  CarriedStates states_after(carried, states);
  finish();
  states_after.Write();
  std::move(restore).Cancel();
  ++step_;  // one that fails is done again with the same numbers
  if (gradients_.is_defined()) gradients_.MarkWritten();
  states_after.Hand();
}

}  // namespace tidepool::nn
