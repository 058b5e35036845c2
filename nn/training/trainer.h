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
// A trainer of a model has a manager below the model's that owns the updater's state and is capped;
// each step's manager is below that, with the step's cycle as its place. Closing the model ends the
// trainer: steps throw kFailedPrecondition then. A trainer of a bare network has no managers.
//
// With graphs (set_graphs) Step queues nothing kernel by kernel once its shapes and the workspace's plan
// are steady: forward, loss, backward and update are captured and launched with one call, with the same
// bits. ReplayedStep (ndarray/capture) has the rules; where a step cannot be captured it is done as
// ever. Batches are made in a workspace of the trainer's then, and the network's training workspace
// stays open between steps; NewBatch, ComputeGradients and Update end that until the next Step. The loss
// is read when the update is queued: should a device fail just then, the step throws and is done.
//
// Ownership: a network outlives it. A model may be moved, and destroyed: steps throw
// kFailedPrecondition then. Threads: one at a time. Errors: an exception leaves parameters and
// updater as they were, and the next step works.
#ifndef TIDEPOOL_NN_TRAINING_TRAINER_H_
#define TIDEPOOL_NN_TRAINING_TRAINER_H_

#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/capture/replayed_step.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {

class Trainer {
 public:
  // `workspace`: of the network's training workspace from here on, in the network's mode (NetworkOptions); none: it stays as it is.
  // Throws kInvalidArgument with all reasons why it cannot be, kFailedPrecondition while a step is under way.
  Trainer(Network& network, const UpdaterConfig& updater, const std::optional<WorkspaceConfig>& workspace = std::nullopt);
  Trainer(Model& model, const UpdaterConfig& updater, const std::optional<WorkspaceConfig>& workspace = std::nullopt);
  ~Trainer();

  // Throws kUnimplemented where steps cannot be captured: on the host and the simulated device, without one
  // training workspace (workspace modes none and separate), and where layers draw random numbers.
  void set_graphs(bool graphs);
  // Of Step since set_graphs(true); null without graphs.
  const ReplayedStep::Stats* graph_stats() const;

  // Makes the batch inside the step's workspace, computes its gradients, updates the parameters;
  // returns the mean loss.
  double Step(absl::FunctionRef<Batch()> make_batch);

  // A batch with a manager of its own whose cycle of the training workspace begins here: one at a
  // time, on one thread. Needs a model.
  Batch NewBatch(absl::FunctionRef<Batch()> make_batch);
  // Of the batch's mean loss, which it returns; what it makes is the batch's.
  double ComputeGradients(const Batch& batch);
  void Update();

  int64_t steps() const { return updater_.steps(); }
  // For checkpoints (checkpoint.h), schedules by epoch, scales of losses: between steps.
  Updater& updater() { return updater_; }
  NDManager& manager() { return manager_; }
  void Close();

 private:
  struct Graphs;
  double StepByGraph(absl::FunctionRef<Batch()> make_batch);
  Batch MakeBatch(absl::FunctionRef<Batch()> make_batch, Workspace& workspace);
  void ForgetGraph();
  void CheckOpen() const;
  std::shared_ptr<const ModelLink> model_;  // null: of a bare network
  std::shared_ptr<Network> models_network_;
  Network& network_;
  Updater updater_;
  NDManager manager_;
  std::unique_ptr<Graphs> graphs_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_TRAINER_H_
