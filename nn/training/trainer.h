// Trainer: the step. Each one is a cycle of the network's training workspace.
//
//   Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
//   double loss = trainer.Step([&] { return batches.Make(i); });
//
// or, with the parts in one's own hands:
//
//   Batch batch = trainer.NewBatch([&] { return batches.Make(i); });
//   double loss = trainer.ComputeGradients(batch);
//   trainer.Update();
//                                      // the batch's end frees all the step made
//
// or, an epoch at a time,
//
//   for (int epoch = 0; epoch < 10; ++epoch, batches.Reset()) trainer.Fit(batches);
//
// A network of several inputs or outputs is given a MultiDataSet in the place of the Batch.
//
// A trainer of a model has a manager below the model's that owns the updater's state and is capped;
// each step's manager is below that, with the step's cycle as its place. Closing the model ends the
// trainer: steps throw kFailedPrecondition then. A trainer of a bare network has no managers.
//
// With graphs (set_graphs) Step queues nothing kernel by kernel once its shapes and the workspace's plan
// are steady: forward, loss, backward and update are captured and launched with one call, with the same
// bits. ReplayedStep (ndarray/capture) has the rules; where a step cannot be captured it is done as
// ever. Batches are made in a workspace of the trainer's then, and the network's training workspace
// stays open between steps; NewBatch, ComputeGradients and Update end that until the next Step. The loss
// is read when the update is queued: should a device fail just then, the step throws and is done (Settle).
//
// With a loss scale (set_loss_scale) gradients are of the loss times a scale, which the update takes back: for networks
// whose layers compute in f16 (NetworkOptions::compute_type), where small gradients would be lost. A step whose gradients
// are not finite is skipped: parameters, running averages, the updater's state and steps() stay (random numbers and
// batches go on), the scale shrinks, and the host waits for the
// gradients in each step for that. With graphs it does not: the scale lies in an array that the captured step reads, the update
// leaves everything as it is, and averages are put back, where the device finds gradients that are not finite, and the host reads
// which it was with the loss.
// Where the scale can go no lower, DivergedError says that training has ended.
//
// Ownership: a network outlives it. A model may be moved, and destroyed: steps throw
// kFailedPrecondition then. Threads: one at a time. Errors: an exception leaves parameters, running averages and
// updater as they were, and the next step works.
#ifndef TIDEPOOL_NN_TRAINING_TRAINER_H_
#define TIDEPOOL_NN_TRAINING_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/capture/replayed_step.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/data/data_set.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/loss_scale.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {

// Gradients are not finite, and no scale of the loss helps. kDataLoss. Parameters are those before the step.
class DivergedError final : public Error {
 public:
  explicit DivergedError(std::string message)
      : Error(absl::StatusCode::kDataLoss, std::move(message)) {}
};

// What a network is given of a batch.
NetworkInputs InputsOf(const Batch& batch);
NetworkInputs InputsOf(const MultiDataSet& set);

// What a listener is told of a step.
struct TrainedStep {
  int64_t batches = 0;   // of the pass, this one too: with where it began the place to go on from
  int64_t examples = 0;  // of this batch
  double loss = 0;       // of the examples, the mean
  bool updated = true;   // false: a step that a loss scale skipped
};

// What Fit went through.
struct TrainingPass {
  int64_t batches = 0, examples = 0;  // trained on
  double loss = 0;                    // of the examples, the mean; 0 without any
};

class Trainer {
 public:
  // `workspace`: of the network's training workspace from here on, in the network's mode (NetworkOptions); none: it stays as it is.
  // Throws kInvalidArgument with all reasons why it cannot be, kFailedPrecondition while a step is under way.
  Trainer(Network& network, const UpdaterConfig& updater,
          const std::optional<WorkspaceConfig>& workspace = std::nullopt);
  Trainer(Model& model, const UpdaterConfig& updater,
          const std::optional<WorkspaceConfig>& workspace = std::nullopt);
  ~Trainer();

  // Throws kUnimplemented where steps cannot be captured: on the host and the simulated device, without one
  // training workspace (workspace modes none and separate), and where layers draw random numbers.
  void set_graphs(bool graphs);
  // Of Step since set_graphs(true); null without graphs.
  const ReplayedStep::Stats* graph_stats() const;
  // A step that is captured holds the network's training workspace open. It goes, for who gives the network another workspace or
  // plan (budgets do so by themselves, of StepShape::trainer), and the next steps are done as they are until one is captured
  // again. Nothing without graphs. Throws what waiting for the device throws; it is gone then as well.
  void ForgetGraph() const;

  // From here on, beginning with config.first. The updater's gradient scale is the trainer's then. Throws as LossScale; with
  // graphs as Settle, too.
  void set_loss_scale(const LossScaleConfig& config);
  // Null: without one. For reports (TrainingWatch) and checkpoints.
  LossScale* loss_scale() { return loss_scale_.has_value() ? &*loss_scale_ : nullptr; }
  const LossScale* loss_scale() const { return loss_scale_.has_value() ? &*loss_scale_ : nullptr; }

  // Makes the batch inside the step's workspace, computes its gradients, updates the parameters or skips that (loss scale);
  // returns the mean loss.
  double Step(absl::FunctionRef<Batch()> make_batch) { return StepOn(make_batch); }
  double Step(absl::FunctionRef<MultiDataSet()> make_set) { return StepOn(make_set); }

  // Steps over the epoch of `batches`, from where it is; its Reset() is the caller's. Batches are asked for inside the steps'
  // workspace, one at a time: made there, or ahead of their use where `batches` is an AsyncDataSetIterator. Errors, of steps and of
  // `batches`: an Error (but of a type derived by others) is a copy that says in front of its message which batch of the pass it was.
  // Throws kFailedPrecondition in a listener.
  TrainingPass Fit(DataSetIterator& batches) { return FitOn(batches); }
  TrainingPass Fit(MultiDataSetIterator& sets) { return FitOn(sets); }
  // Called behind each step of Fit; what it throws ends the pass, whose step is done.
  void set_listener(std::function<void(const TrainedStep&)> listener) {
    listener_ = std::move(listener);
  }

  // A batch with a manager of its own whose cycle of the training workspace begins here: one at a
  // time, on one thread. Needs a model.
  Batch NewBatch(absl::FunctionRef<Batch()> make_batch);
  // Of the batch's mean loss, which it returns; what it makes is the batch's.
  double ComputeGradients(const Batch& batch);
  // What it makes is in the current place.
  double ComputeGradients(const MultiDataSet& set);
  // False: it was skipped. Throws kFailedPrecondition where gradients are those of the last update, or none were ever computed.
  bool Update();
  // Makes in the current place what Update() makes there, in its order, and changes nothing. For steps that are run to be measured.
  void MakeWhatUpdateMakes() const;
  // With graphs and a loss scale a step whose results could not be read, because its device failed just then, throws before it is
  // known whether it was skipped. This reads and counts it; everything above and SaveCheckpoint begin with it. Throws what the
  // device throws, DivergedError. Else it does nothing.
  void Settle();
  // Throws kFailedPrecondition where the network was frozen or not (Network::SetFrozen) since the trainer was made: its updater's state
  // is of other parameters then. Everything above but the constructors, what saves and loads checkpoints, and what is made of a trainer
  // do so by it.
  void CheckLayout() const;

  int64_t steps() const { return updater_.steps(); }  // updates; skipped ones do not count
  // What is trained; not to be stepped by others meanwhile.
  Network& network() { return network_; }
  const Network& network() const { return network_; }
  // For checkpoints (checkpoint.h), schedules by epoch, scales of losses: between steps.
  Updater& updater() { return updater_; }
  NDManager& manager() { return manager_; }
  void Close();

 private:
  struct Graphs;
  template <typename Set>
  struct Made;  // a batch and the manager of its step
  template <typename Set>
  Made<Set> Make(absl::FunctionRef<std::optional<Set>()> next, Workspace& workspace);
  template <typename Set>
  double StepOn(absl::FunctionRef<Set()> make) {
    return *StepOf<Set>([&] { return std::optional<Set>(make()); });
  }
  // None: `next` gave none, and nothing was done.
  template <typename Set>
  std::optional<double> StepOf(absl::FunctionRef<std::optional<Set>()> next);
  template <typename Set>
  std::optional<double> StepByGraph(absl::FunctionRef<std::optional<Set>()> next);
  template <typename Set>
  TrainingPass FitOn(Iterator<Set>& batches);
  template <typename Set>
  bool FitOne(Iterator<Set>& batches, TrainingPass& pass);
  double ReplayStep(const NetworkInputs& inputs);
  double CountStep();
  bool Observe(bool finite);
  void CheckOpen();
  double Gradients(const NetworkInputs& inputs);
  // What layers keep beside their parameters is as it was before the step's gradients were computed.
  void UndoBeside();
  void UpdateOfStep();
  uint32_t GradientsVersion() const;
  std::shared_ptr<const ModelLink> model_;  // null: of a bare network
  std::shared_ptr<Network> models_network_;
  Network& network_;
  const uint64_t layout_;  // of the network's parameters, as the updater has it
  Updater updater_;
  std::optional<LossScale> loss_scale_;
  NDArray
      beside_before_;  // Network::beside() before the last gradients; undefined where no update may be undone
  bool may_undo_ = false;         // that has not been updated by
  uint32_t updated_version_ = 0;  // of the gradients that the last update was by
  NDManager manager_;
  std::unique_ptr<Graphs> graphs_;
  std::function<void(const TrainedStep&)> listener_;
  bool fitting_ = false;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_TRAINER_H_
