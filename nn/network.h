// A network: a function with parameters that a program trains and asks, made of layers by configuration (network_config.h) or
// of a program (block.h).
//
//   Network network({28, 28, 1}, {Conv2D(20, 5, 5, Activation::kRelu), MaxPool2D(), Dense(10)});
//
// Parameters and what layers keep beside them (running averages) are views of one flat array, gradients of another;
// those and updaters' state are persistent, on the heap. Everything a step or a request makes lives in a workspace that the
// network opens for it (WorkspaceMode):
//   kEnabled   placed by lifetimes learned in the first step: peak of what is alive at once
//   kSingle    one behind the other: no reuse within the step, most memory
//   kSeparate  a workspace for each purpose (layer_workspace_manager.h): what a layer needs while it runs is reset after it
//   kNone      plain heap
// chosen for training and inference by themselves. All modes compute the same bits. Gradients are computed by a GradientTape: an
// array that they need is kept until its last use.
//
// On a device (`device`) parameters, gradients and both workspaces are the device's, and the initial parameters are those of
// the host. Features and labels may be on the host: they are copied there.
//
// A network has a name ("mlp", or "mlp 2" while there is another one), which its two workspaces begin with, so that messages
// tell whose they are: workspace [mlp 2 training].
//
// The arrays may belong to a manager (Model): what steps and requests make is theirs all the same.
// Threads: ComputeGradients and loading (one gradient array), Infer and Output (one inference workspace): one at a time. Forward, Run: any.
#ifndef TIDEPOOL_NN_NETWORK_H_
#define TIDEPOOL_NN_NETWORK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/block.h"
#include "tidepool/nn/layer_workspace_manager.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/network_config.h"
#include "tidepool/nn/unique_name.h"

namespace tidepool {
class SpillFile;
class GradientListener;
class GradientTape;
}  // namespace tidepool

namespace tidepool::nn {

class NetworkBody;
class ParameterHost;
struct ActivationPlan;
struct Activations;
class SegmentObserver;
struct BodyCall;
struct LayerParameters;

// What a network may be given beside its layers.
struct NetworkOptions {
  uint64_t seed = 0;  // of initial parameters and of what layers draw while training
  WorkspaceMode mode = WorkspaceMode::kEnabled;                // of both workspaces
  std::optional<WorkspaceMode> training_mode, inference_mode;  // instead of `mode`
  // Of the workspaces, instead of WorkspaceConfig::Inference(), which learns a plan for each batch size. The mode is the one
  // above: workspace_mode is left at kEnabled or says the same. kSingle and kSeparate plan nothing: their policy_learning
  // is kFirstLoop, kOverTime or kNone. Under kSeparate each workspace has it, but for initial_size, which the step's has alone.
  std::optional<WorkspaceConfig> training_workspace, inference_workspace;
  Device device = Host();
  std::string name = "network";
  DType dtype = DType::kFloat32;  // of parameters, f32 or f64
  bool draw_parameters = true;    // false: they are zeros, to be read from a file
  // What layers compute by, if it is not the parameters' type (f16, bf16): parameters are converted for each layer, gradients
  // are of the parameters' type again.
  std::optional<DType> compute_type;
  std::vector<std::string> frozen;  // as SetFrozen takes them
  // Trained parameters and their gradients are somebody else's (HostParameters): no memory is taken for them. Of a network on the
  // host that is made of a configuration.
  bool hosted_parameters = false;
};

// A parameter, or what a layer keeps beside its parameters, and where it lies.
struct NamedParameter {
  std::string name;        // "0.conv2d.filter"
  NDArray value;           // a view of the flat array
  bool is_trained = true;  // has a gradient; not what is frozen, nor what layers keep beside it
  bool is_frozen = false;  // by SetFrozen
  bool decays = true;      // under weight decay and regularisation
  int64_t begin = 0;       // its first element in the flat array
};

// Parameters as the network takes them, on any device.
struct NetworkParameters {
  NDArray flat;                // one array of one axis
  std::vector<NDArray> views;  // of `flat`, in the order of Network::named_parameters()
};

// What a step is given: an array for each input and, of labels, whatever the loss takes. Masks by input [batch, length], its
// first two axes, and by output, of as many of its first axes as they have; fewer or undefined: none.
struct NetworkInputs {
  Arrays features, labels;              // by input and by output of the network
  Arrays features_masks, labels_masks;  // likewise, or fewer
};

// The loss of each example [batch], by operators.
using LossFunction =
    std::function<NDArray(absl::Span<const NDArray> outputs, const NetworkInputs& inputs)>;

class Network {
 public:
  // Throw kInvalidArgument naming the layer that is null or whose input does not fit, and what NetworkConfig and Block
  // say, or all that is wrong with a workspace's configuration.
  explicit Network(NetworkConfig config, const NetworkOptions& options = {});
  Network(std::vector<InputConfig> inputs, std::unique_ptr<Block> block,
          const NetworkOptions& options = {});
  // Layers one behind the other.
  Network(Shape input, std::vector<AnyLayer> layers, uint64_t seed = 0,
          WorkspaceMode mode = WorkspaceMode::kEnabled, Device device = Host(),
          const std::string& name = "network");

  // What was moved from has no parameters, layers and workspaces: whatever needs them throws
  // kFailedPrecondition. It may be assigned to and destroyed.
  Network(Network&& other) noexcept;
  Network& operator=(Network&& other) noexcept;
  ~Network();

  // As constructed; shapes are of one example.
  const std::string& name() const { return name_.text(); }
  const std::vector<InputConfig>& inputs() const;
  const std::vector<Shape>& output_shapes() const;
  const Shape& input_shape() const { return inputs()[0].shape; }  // of the first ones
  const Shape& output_shape() const { return output_shapes()[0]; }
  // What it was made of; null for a block's.
  const NetworkConfig* config() const;
  // Of a chain of one input and one output, first to last; empty for anything else.
  std::vector<AnyLayer> layers() const;
  // As its options say; workspace_mode() is that of training.
  WorkspaceMode workspace_mode() const { return training_mode(); }
  WorkspaceMode training_mode() const { return options_.training_mode.value_or(options_.mode); }
  WorkspaceMode inference_mode() const { return options_.inference_mode.value_or(options_.mode); }
  Device device() const { return options_.device; }
  uint64_t seed() const { return options_.seed; }
  DType dtype() const { return options_.dtype; }
  const std::optional<DType>& compute_type() const { return options_.compute_type; }
  std::string Describe() const;  // "input [28, 28, 1]; conv2d 20 of 5x5 relu; ..."

  // What is trained, flat, padded between arrays, and what is not behind it. gradients() has the shape of parameters().
  // They and arrays() throw kFailedPrecondition where parameters are hosted.
  const NDArray& parameters() const { return CheckOwn("parameters").parameters_; }
  NDArray& parameters();
  // Those of the last Gradients or QueueGradients.
  const NDArray& gradients() const { return CheckOwn("gradients").gradients_; }
  // Parameters and what layers keep beside them, in one array; parameters() is its beginning.
  const NDArray& arrays() const { return CheckOwn("arrays").arrays_; }
  // Of parameters(), with padding, hosted or not.
  int64_t trained_elements() const { return CheckWhole("parameters").trained_elements_; }
  // Trained ones first.
  const std::vector<NamedParameter>& named_parameters() const;
  // That are trained; padding not counted.
  int64_t NumParameters() const { return parameter_count_; }

  // Of parameters that match one of the patterns (name_pattern.h: "stem", "block1.*"), training leaves the values alone: they
  // have no gradient and no state of updaters, and nothing is computed or kept for their sake. They lie behind the trained ones
  // then. A layer all of whose parameters are frozen, or of which a running average is ("1.batch_norm.running_*"), runs in training as
  // in inference: batch normalisation goes by its averages and moves none, dropout within it drops nothing; other parameters that
  // it has are trained. Values, random numbers and workspaces stay; gradients are zeros. None: everything is trained again. To be called
  // between steps, before trainers and views of named parameters are made: those made before show other places, and such trainers
  // throw kFailedPrecondition. Of a model's network: Model::SetFrozen. Throws kInvalidArgument for a pattern that no parameter
  // matches and when nothing would be left to train; OutOfMemoryError; nothing has changed then. Memory meanwhile: the parameters once more.
  void SetFrozen(absl::Span<const std::string> patterns);
  // What layers keep beside their parameters (running averages) and a step moves, flat; undefined where that is nothing.
  const NDArray& beside() const { return CheckWhole("beside").beside_; }
  // A network of the same function, loss, frozen parameters and workspace modes for another thread (parallel/parallel_wrapper.h),
  // with gradients, what layers keep beside their parameters, and workspaces of its own. kShared: the parameters are this
  // one's arrays, so nobody may write them while the other computes; SetFrozen of the replica is kFailedPrecondition, and one of
  // this network ends the replica's use. kOwn: copies. The loss and the layers are called by both at once. `seed`: of what its
  // layers draw. Throws OutOfMemoryError; kFailedPrecondition while a workspace of this is open.
  enum class ReplicaParameters : uint8_t { kShared, kOwn };
  Network NewReplica(ReplicaParameters parameters, uint64_t seed) const;
  // ---- Parameters that are somebody else's ----

  // Trained parameters and their gradients lie where `host` says, in each pass anew (network/parameter_host.h); null: nowhere until the
  // next call, and passes throw kFailedPrecondition. The network's own memory for them is given back at the first call, so
  // whoever wants their values takes them before; what is frozen and what layers keep beside their parameters stay its
  // own. named_parameters() tell shapes then, and values of what is not trained. `host` outlives its use. Throws kUnimplemented where
  // the order of layers is a program's, on a device, and for layers that compute by another type, whose converted
  // parameters a step would keep; kFailedPrecondition while a workspace is open, and of replicas.
  void HostParameters(ParameterHost* host);
  // Throws kUnimplemented as that would.
  void CheckCanBeHosted() const;
  bool is_hosted() const { return options_.hosted_parameters; }
  // What lies behind the trained parameters in arrays(), where they are hosted; undefined where there is nothing.
  const NDArray& untrained() const { return CheckWhole("untrained").untrained_; }
  // What the network begins with, by number of named_parameters(): a new array of the heap.
  NDArray InitialValue(int parameter) const;
  // Layers in the order in which they are called, and the trained parameters that each reads, by numbers of named_parameters().
  // None of a program.
  std::vector<LayerParameters> trained_by_layer() const;

  // How often SetFrozen has changed where parameters lie.
  uint64_t layout_version() const { return layout_version_ != nullptr ? *layout_version_ : 0; }

  // ---- Training ----

  // Softmax cross-entropy of `labels` [batch] i64 unless set, and of their mask, as a Loss of that kind has it. A Loss is of the
  // first output, labels and mask of these. Throws where it is computed: kInvalidArgument unless losses are [batch].
  void set_loss(Loss loss);
  void set_loss(LossFunction loss) { loss_ = std::move(loss); }
  const Loss* loss() const;  // that was set; null: the default one, or a function of the program's
  const LossFunction& loss_function() const { return loss_; }  // of either kind; null: the default

  // The mean loss of an example. Fills gradients(). Call it inside a scope of training_workspace(): what it makes is per step.
  double ComputeGradients(const NDArray& features, const NDArray& labels);
  // `states`: of NewStates(), for sequences that come in parts (truncated back-propagation through time). They are what the part
  // begins with, as constants, and afterwards what it ended with (where it failed: what they were): arrays of the device's heap, written
  // in place once they are there. Of the same examples in each part; NewStates() again for others. Null: each sequence is whole.
  double ComputeGradients(const NetworkInputs& inputs, std::vector<NDArray>* states = nullptr);

  // The same in parts, for a step on a device that the host does not wait for in its middle.
  // What may be on the host comes to the device, in the current place; labels of the default loss are checked.
  using Inputs = NetworkInputs;
  Inputs PrepareInputs(const NDArray& features, const NDArray& labels) const;
  Inputs PrepareInputs(const NetworkInputs& inputs) const;
  // Queues the gradients of those; `use_losses` sees the losses [batch] once they are queued, before
  // the backward pass. Nothing waits, and everything the network makes is gone when it returns.
  // `states` as ComputeGradients takes them. `share`: [], of the losses' type and where they are, the gradient of each
  // example's loss instead of loss_scale() by the number of examples: a captured step reads it in each replay.
  // `finish`: called once all is queued; where it throws nothing was done, as where a call before it does.
  void QueueGradients(
      const Inputs& inputs, absl::FunctionRef<void(const NDArray&)> use_losses,
      std::vector<NDArray>* states = nullptr, const NDArray* share = nullptr,
      absl::FunctionRef<void()> finish = [] {});
  static double MeanLoss(const NDArray& losses);  // waits for them
  // By what gradients are multiplied from the loss on, so that small ones are not lost in f16 (training/loss_scale.h): gradients()
  // are so many times as large, losses as ever. Throws kInvalidArgument unless it is positive and finite.
  void set_loss_scale(double scale);
  double loss_scale() const { return loss_scale_; }

  // Told, while gradients are computed, by the numbers of named_parameters(), that the gradient of a trained one is in gradients()
  // and stays there (ndarray/gradient/gradient_tape.h): of layers at the end first. Outlives the steps; null: nobody.
  void set_gradient_listener(GradientListener* listener) { gradient_listener_ = listener; }

  // How what the backward pass reads waits for it, from the next step on; the same bits by any plan. `file`: of what it spills; shared with
  // whoever else writes there. On a device there is none: what is spilled waits in page-locked memory of the host. A plan without segments: everything
  // is kept. Throws kInvalidArgument for segments that are not all the layers, a plan of the host that spills without a file and a file on a device;
  // kUnimplemented for programs, hosted parameters and modes other than enabled and none; kFailedPrecondition while the training workspace is open. `observer` outlives its use; null: nobody.
  void SetActivationPlan(const ActivationPlan& plan, std::shared_ptr<SpillFile> file = nullptr,
                         SegmentObserver* observer = nullptr);
  // Of how many examples slices (ActivationSegment::slice) of `layers` layers from the `begin`-th call on are multiples: chains of max poolings
  // and convolutions of f32, of one group, with ReLU or no function. 0: they cannot be sliced, because of `why_not`, if not null.
  int64_t SliceOf(int begin, int layers, std::string* why_not = nullptr) const;
  const Activations* activations() const { return activations_.get(); }  // null: everything is kept

  // Which numbers layers draw in the next step: a function of the seed and this. Each QueueGradients counts on.
  uint64_t step() const { return step_; }
  void set_step(uint64_t step) { step_ = step; }
  bool is_random() const;  // whether training draws any
  // Gives back what is kept from step to step beside the workspace: records of the tape. Trainers do when they go.
  void ReleaseTape() noexcept;

  // ---- Inference ----

  // Throws kInvalidArgument unless they are [batch] + the input's shape, of at least one example and of its type.
  void CheckFeatures(const NDArray& features, int input = 0) const;
  // Of all inputs, and that they are of as many examples.
  void CheckFeatures(absl::Span<const NDArray> features) const;
  // Throws kInvalidArgument naming the input unless each mask is [batch, length] of those features, or undefined.
  void CheckMasks(absl::Span<const NDArray> masks, absl::Span<const NDArray> features) const;

  // One inference cycle: `make_input` makes the input [batch, ...] in the inference workspace,
  // `use_output` sees the output there. Neither may keep an array without moving it out.
  void Infer(absl::FunctionRef<NDArray()> make_input,
             absl::FunctionRef<void(const NDArray&)> use_output);
  // The output for `features` in the caller's place, by operators whose results go there as well:
  // for callers with a workspace of their own. On many threads at once; needs no workspace of this.
  NDArray Forward(NDArray features) const;
  // The same with arrays where `workspaces`, of inference, has them: in an open cycle of its main workspace, where the output is
  // afterwards. Null parameters: the network's own. One thread at a time for each of those.
  NDArray Forward(NDArray features, const NetworkParameters* parameters,
                  LayerWorkspaceManager& workspaces) const;
  // The same by `parameters` instead of the network's own, on their device.
  NDArray Forward(NDArray features, const NetworkParameters& parameters) const;
  // `flat`, a copy of arrays() wherever it is, as Forward takes it.
  NetworkParameters ParametersIn(const NDArray& flat) const;
  // As Forward; `see` gets each layer's number and output, which is gone once the layers behind it need it no more.
  NDArray ForwardByLayers(NDArray features,
                          absl::FunctionRef<void(int layer, const NDArray& output)> see) const;
  // The output for `features`, in the caller's workspace if one is open, else on the device's heap.
  NDArray Output(const NDArray& features);
  // At `place`, and written into `output`, of the same shape, type and device (kInvalidArgument).
  NDArray Output(const NDArray& features, Place place);
  void OutputInto(const NDArray& features, NDArray& output);

  // As Forward, of any number of inputs and outputs.
  struct RunOptions {
    Arrays masks;                                   // by input
    const NetworkParameters* parameters = nullptr;  // instead of the network's own
    // States of layers that read sequences, for sequences that come in parts: `states` of NewStates(), which are read and
    // written. Null: each sequence is whole.
    std::vector<NDArray>* states = nullptr;
    bool training = false;  // as in a step: dropout drops, normalisation moves its averages
  };
  // Outputs for inputs [batch, ...], in the current place. Throws kInvalidArgument naming input, found and expected shape.
  Arrays Run(Arrays inputs, const RunOptions& options) const;
  Arrays Run(Arrays inputs) const { return Run(std::move(inputs), RunOptions()); }
  // Undefined ones, which stand for zeros. What Run() leaves in them are arrays of the heap.
  std::vector<NDArray> NewStates() const;

  // Where arrays are made in steps and requests, and of what.
  LayerWorkspaceManager& training_workspaces();
  LayerWorkspaceManager& inference_workspaces();
  // Another mode or configuration for steps to come; what was learned is forgotten. Throws kFailedPrecondition while the workspace is open
  // and where steps of that mode cannot follow the plan of activations there is, and as the constructor does; nothing has changed then.
  void set_training_workspace(WorkspaceMode mode,
                              const std::optional<WorkspaceConfig>& config = std::nullopt);
  void set_inference_workspace(WorkspaceMode mode,
                               const std::optional<WorkspaceConfig>& config = std::nullopt);

  // Those of steps and of requests, for scopes and statistics; of the network's device.
  Workspace& training_workspace();
  Workspace& inference_workspace();

 private:
  friend class NetworkMeter;    // nn/memory_report.cc
  friend class GradientsAside;  // nn/budget/gradients_aside.cc
  // `shared`: whose parameters it has; null: its own.
  Network(std::shared_ptr<const NetworkBody> body, const NetworkOptions& options,
          const Network* shared = nullptr);
  // Throws when this was moved from.
  const Network& CheckWhole(const char* operation) const {
    if (training_workspace_ == nullptr) ThrowMovedFrom(operation);
    if (source_layout_ != nullptr && *source_layout_ != seen_layout_) ThrowStale(operation);
    return *this;
  }
  [[noreturn]] static void ThrowMovedFrom(const char* operation);
  const Network& CheckOwn(const char* operation) const {
    CheckWhole(operation);
    if (options_.hosted_parameters) ThrowHosted(operation);
    return *this;
  }
  [[noreturn]] void ThrowHosted(const char* operation) const;
  class HostedPass;  // nn/network_hosted.h
  [[noreturn]] void ThrowStale(const char* operation) const;
  void CheckLabelsMasks(const NetworkInputs& inputs) const;
  void CheckActivationPlan(const ActivationPlan& plan, bool has_file) const;
  void BackwardOf(BodyCall& call, const NetworkInputs& inputs, const std::vector<NDArray>* states,
                  absl::FunctionRef<void()> backward);
  NDArray LossesOf(absl::Span<const NDArray> outputs, const NetworkInputs& inputs) const;
  struct Layout;
  Layout LayoutOf(absl::Span<const std::string> frozen) const;
  void MakeArrays(const Network* shared);
  void Take(Layout layout, NDArray gradients);
  void TakeBeside(NDArray beside);
  void TakeUntrained(Layout layout, NDArray untrained);
  void ReleaseTrained();
  void DrawParameters(size_t first);  // of named_, from there on
  std::vector<NDArray> ViewsOf(const NDArray& flat) const;
  void CheckStates(const std::vector<NDArray>& states, int64_t batch) const;
  // Null parameters: the network's own, or the host's.
  NDArray ForwardOne(NDArray features, const NetworkParameters* parameters,
                     absl::FunctionRef<void(int, const NDArray&)> see,
                     LayerWorkspaceManager* workspaces = nullptr) const;
  void CheckOutput(const NDArray& features, const NDArray& output) const;

  NetworkOptions options_;
  UniqueName name_;
  std::shared_ptr<const NetworkBody> body_;  // replicas have it too
  LossFunction loss_;
  NDArray arrays_, parameters_, gradients_;
  NDArray beside_;  // what layers keep beside their parameters, undefined where they keep nothing
  NDArray untrained_;  // instead of arrays_, where parameters are hosted
  ParameterHost* host_ = nullptr;
  int64_t trained_elements_ = 0, parameter_count_ = 0;
  std::vector<NamedParameter> named_;       // trained ones first
  std::vector<int> in_body_;                // of those: their places among the body's
  std::vector<int64_t> parameter_offsets_;  // in the flat arrays, of those
  std::vector<NDArray> parameter_views_;    // in the body's order
  std::vector<NDArray> gradient_views_;     // of the trained ones
  std::vector<bool> frozen_;                // by place among the body's; empty: none is
  std::shared_ptr<uint64_t> layout_version_ = std::make_shared<uint64_t>(0);  // replicas look at it
  // Of the network that it is a replica of and shares parameters with; null: it has its own.
  std::shared_ptr<const uint64_t> source_layout_;
  uint64_t seen_layout_ = 0, step_ = 0;
  double loss_scale_ = 1;
  std::unique_ptr<GradientTape> tape_;  // kept from step to step, for its memory
  GradientListener* gradient_listener_ = nullptr;
  std::shared_ptr<Activations> activations_;  // null: all are kept
  // Its address stays when the network is moved.
  struct Workspaces {
    LayerWorkspaceManager training = LayerWorkspaceManager::NoWorkspaces();
    LayerWorkspaceManager inference = LayerWorkspaceManager::NoWorkspaces();
  };
  std::unique_ptr<Workspace> training_workspace_, inference_workspace_;
  std::unique_ptr<Workspaces> workspaces_ =
      std::make_unique<Workspaces>();  // before those, of which they are, go
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_H_
