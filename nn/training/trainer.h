// Trainer: the step. Each one is a cycle of the network's training workspace.
//
//   Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
//   double loss = trainer.Step([&] { return batches.Make(i); });
#ifndef TIDEPOOL_NN_TRAINING_TRAINER_H_
#define TIDEPOOL_NN_TRAINING_TRAINER_H_

#include "absl/functional/function_ref.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {

class Trainer {
 public:
  Trainer(Network& network, const UpdaterConfig& updater)
      : network_(network), updater_(updater, network.parameters().shape()) {}

  // Makes the batch inside the step's workspace, computes its gradients, updates the parameters;
  // returns the mean loss. An exception leaves parameters and updater as they were, and the next
  // step works.
  double Step(absl::FunctionRef<Batch()> make_batch);

  int64_t steps() const { return updater_.steps(); }

 private:
  Network& network_;
  Updater updater_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_TRAINER_H_
