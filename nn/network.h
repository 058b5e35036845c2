// A network: layers in sequence, their parameters and gradients in two flat arrays.
//
// Parameters, gradients and updater state are persistent, on the heap; everything a step or a
// request makes lives in a workspace that the network opens for it (WorkspaceMode):
//   kEnabled  placed by lifetimes learned in the first step: peak of what is alive at once
//   kSingle   one behind the other: no reuse within the step, most memory
//   kNone     plain heap
// All modes compute the same bits.
//
// On a device (`device`) parameters, gradients and both workspaces are the device's, and the
// initial parameters are those of the host. Features and labels may be on the host: they are copied
// there.
//
// A network has a name ("mlp", or "mlp 2" while there is another one), which its two workspaces
// begin with, so that messages tell whose they are: workspace [mlp 2 training].
//
// The arrays may belong to a manager (Model): what steps and requests make is theirs all the same.
//
// Threads: ComputeGradients and loading use the one gradient array: one thread at a time. Infer and
// Output use the one inference workspace: likewise. Forward: any number.
#ifndef TIDEPOOL_NN_NETWORK_H_
#define TIDEPOOL_NN_NETWORK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/unique_name.h"

namespace tidepool::nn {

struct NamedParameter {
  std::string name;  // "0.conv2d.filter"
  NDArray value;     // a view of the flat parameters
};

// Parameters as the layers take them, on any device.
struct NetworkParameters {
  NDArray flat;
  std::vector<NDArray> views;  // of `flat`, in the order of Network::named_parameters()
};

class Network {
 public:
  // `input`: shape of one example. The layers' parameters are drawn from `seed`. Throws
  // kInvalidArgument naming the layer that is null or whose input does not fit, and kUnimplemented
  // for a mode that is not built.
  Network(Shape input, std::vector<std::unique_ptr<Layer>> layers, uint64_t seed = 0,
          WorkspaceMode mode = WorkspaceMode::kEnabled, Device device = Host(),
          const std::string& name = "network");

  // What was moved from has no parameters, layers and workspaces: whatever needs them throws
  // kFailedPrecondition. It may be assigned to and destroyed.
  Network(Network&& other) = default;
  Network& operator=(Network&& other) = default;

  const std::string& name() const { return name_.text(); }
  const Shape& input_shape() const { return input_shape_; }
  const Shape& output_shape() const { return output_shape_; }
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }
  WorkspaceMode workspace_mode() const { return mode_; }
  Device device() const { return device_; }
  std::string Describe() const;  // "input [28, 28, 1]; conv2d 20 of 5x5 relu; ..."

  const NDArray& parameters() const { return CheckWhole("parameters").parameters_; }
  NDArray& parameters() {  // flat, padded between arrays
    CheckWhole("parameters");
    return parameters_;
  }
  const NDArray& gradients() const { return CheckWhole("gradients").gradients_; }
  const std::vector<NamedParameter>& named_parameters() const {
    return CheckWhole("named_parameters").named_;
  }
  int64_t NumParameters() const { return parameter_count_; }  // padding not counted

  // Loss of `logits` = Forward(features): mean softmax cross-entropy of `labels` [batch] i64.
  // Fills gradients(). Call it inside a scope of training_workspace(): what it makes is per step.
  double ComputeGradients(const NDArray& features, const NDArray& labels);

  // The same in parts, for a step on a device that the host does not wait for in its middle.
  // What may be on the host comes to the device, in the current place; labels are checked.
  struct Inputs {
    NDArray features, labels;
  };
  Inputs PrepareInputs(const NDArray& features, const NDArray& labels) const;
  // Queues the gradients of those; `use_losses` sees the losses [batch] once they are queued, before
  // the backward pass. Nothing waits, and everything the network makes is gone when it returns.
  void QueueGradients(const Inputs& inputs, absl::FunctionRef<void(const NDArray&)> use_losses);
  // Waits for the losses.
  static double MeanLoss(const NDArray& losses);

  // Throws kInvalidArgument unless they are [batch] + input_shape(), of at least one example and of
  // the parameters' type.
  void CheckFeatures(const NDArray& features) const;

  // One inference cycle: `make_input` makes the input [batch, ...] in the inference workspace,
  // `use_output` sees the output there. Neither may keep an array without moving it out.
  void Infer(absl::FunctionRef<NDArray()> make_input,
             absl::FunctionRef<void(const NDArray&)> use_output);
  // The output for `features` in the caller's place, by operators whose results go there as well:
  // for callers with a workspace of their own. On many threads at once; needs no workspace of this.
  NDArray Forward(NDArray features) const;
  // The same by `parameters` instead of the network's own, on their device.
  NDArray Forward(NDArray features, const NetworkParameters& parameters) const;
  // `flat`, a copy of parameters() wherever it is, as Forward takes it.
  NetworkParameters ParametersIn(const NDArray& flat) const;
  // As Forward; `see` gets each layer's number and output, which is gone once the layers behind it need it no more.
  NDArray ForwardByLayers(NDArray features,
                          absl::FunctionRef<void(int layer, const NDArray& output)> see) const;
  // The output for `features`, in the caller's workspace if one is open, else on the device's heap.
  NDArray Output(const NDArray& features);

  Workspace& training_workspace() { return *CheckWhole("training_workspace").training_workspace_; }
  Workspace& inference_workspace() { return *CheckWhole("inference_workspace").inference_workspace_; }

 private:
  // Throws when this was moved from.
  const Network& CheckWhole(const char* operation) const {
    if (training_workspace_ == nullptr) ThrowMovedFrom(operation);
    return *this;
  }
  [[noreturn]] static void ThrowMovedFrom(const char* operation);
  LayerContext ContextOf(int layer, const std::vector<NDArray>& parameters) const;
  NDArray Forward(NDArray features, Device device, const std::vector<NDArray>& parameters,
                  absl::FunctionRef<void(int, const NDArray&)> see = [](int, const NDArray&) {}) const;

  UniqueName name_;
  Shape input_shape_, output_shape_;
  std::vector<std::unique_ptr<Layer>> layers_;
  WorkspaceMode mode_;
  Device device_;
  NDArray parameters_, gradients_;
  int64_t parameter_count_ = 0;
  std::vector<NamedParameter> named_;
  std::vector<int> first_parameter_;         // of each layer in the two lists below; one more at the end
  std::vector<int64_t> parameter_offsets_;   // in the flat arrays
  std::vector<NDArray> parameter_views_;
  std::vector<NDArray> gradient_views_;
  std::vector<LayerCache> caches_;           // of the step under way
  std::unique_ptr<Workspace> training_workspace_, inference_workspace_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_H_
