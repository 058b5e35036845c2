// DistributedTrainer: one network trained by all ranks of a job, each on its part of each batch.
//
//   auto communicator = Communicator::Open();                      // mpirun -n 4 program
//   ExampleIterator batches(examples, {.batch_size = 64, .seed = 7, .rank = communicator->rank(),
//                                      .ranks = communicator->size()});
//   Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
//   DistributedTrainer distributed(trainer, *communicator);
//   for (int epoch = 0; epoch < 10; ++epoch, batches.Reset()) distributed.Fit(batches);
//   if (communicator->rank() == 0) SaveModel(model, path);
//
// A step is one of a single network on the examples of all ranks: k ranks equal one with batches k
// times as large, to rounding, but for what layers compute over a batch (batch normalisation sees a
// rank's own). Gradients are summed up in buckets while the backward pass goes on
// (gradient_buckets.h), then every rank updates its own copy, to the same bits. Running averages of
// layers become the mean of the ranks'. Layers that draw random numbers draw other ones on each
// rank.
//
// A step ends on all ranks alike: where one fails, nothing has changed on any, that one throws what
// it met and the others which it was, and the next step works. Ranks that have no batch while
// others do take part without examples.
//
// Memory beside the trainer's: some words for each bucket; steady steps allocate nothing. Bytes
// that each of n ranks sends in a step: 2 (n - 1) / n of the gradients' and of the running
// averages', and 3 messages of some words up and down a tree.
//
// With shard_updater gradients are summed up in parts (reduce-scatter), each rank updates its own,
// and all gather the parameters: as many bytes in all, an n-th of the updater's state on each rank,
// and the bits of a job without it but for clipping by the global norm (the sum of squares is that
// of parts). Clipping by each parameter's norm is kUnimplemented. The whole state is there until
// the trainer is handed over here; from then on the trainer does no steps of its own.
//
// With shard_parameters each rank keeps an n-th of the parameters and of their gradients as well
// (sharded_parameters.h), and gathers buckets layer by layer: half as many bytes more, and the bits
// of shard_updater. The network's own memory for parameters is given back; one that is made with
// NetworkOptions::hosted_parameters never takes it, nor its trainer the updater's state, so that a
// network may be larger than what one rank has; they end with this, so they are saved before. Every
// pass over the network is a collective then: evaluations by NextForAll. What is frozen, and what
// layers keep beside their parameters, is whole on each rank. kUnimplemented as
// Network::HostParameters says.
//
// Ownership: trainer and communicator outlive it. Between steps the trainer may be used as ever,
// alike on all ranks. Threads: one at a time. All calls are collective.
#ifndef TIDEPOOL_NN_DISTRIBUTED_DISTRIBUTED_TRAINER_H_
#define TIDEPOOL_NN_DISTRIBUTED_DISTRIBUTED_TRAINER_H_

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/gradient_buckets.h"
#include "tidepool/nn/distributed/sharded_parameters.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

// How ranks share the work; the same on all of them.
struct DistributedConfig {
  int64_t bucket_bytes = int64_t{4} << 20;  // of gradients that are summed up at a time
  int ranks = 0;                            // that the job should have; 0: any
  // Each rank keeps its part of the updater's state and updates its part of the parameters, which
  // all ranks gather then.
  bool shard_updater = false;
  // Each rank keeps its part of parameters, gradients and the updater's state.
  bool shard_parameters = false;
  int gather_ahead = 1;  // buckets of parameters that are gathered before they are needed
};

// What a step was, the same on all ranks.
struct DistributedStep {
  int64_t examples = 0;  // of all ranks
  int ranks = 0;         // that had any
  double loss = 0;       // of the examples, the mean
  bool updated = true;   // false: a step that a loss scale skipped
};

// What Fit went through.
struct DistributedPass {
  int64_t steps = 0, examples = 0;  // of all ranks
  double loss = 0;                  // of the examples, the mean; 0 without any
};

class DistributedTrainer {
 public:
  // Checks that all ranks have the same network, updater and version, then gives all of them rank
  // 0's parameters, updater's state and counters: so what is resumed is loaded there. Throws
  // as CheckFacts (rank_agreement.h); kFailedPrecondition where the job has other than
  // config.ranks; kInvalidArgument for numbers below 1; kUnimplemented for a trainer with graphs
  // and a network on another device than the communicator's.
  DistributedTrainer(Trainer& trainer, Communicator& communicator,
                     const DistributedConfig& config = {});
  ~DistributedTrainer();
  DistributedTrainer(const DistributedTrainer&) = delete;
  DistributedTrainer& operator=(const DistributedTrainer&) = delete;

  // `next` makes this rank's batch in the step's workspace, or none. None: no rank had one, and
  // nothing was done.
  std::optional<DistributedStep> Step(absl::FunctionRef<std::optional<Batch>()> next) {
    return StepOf(next);
  }
  // Of a network of several inputs or outputs.
  std::optional<DistributedStep> Step(absl::FunctionRef<std::optional<MultiDataSet>()> next) {
    return StepOf(next);
  }

  // Steps over the epoch of `batches`, this rank's, from where it is; its Reset() is the caller's.
  // Batches are asked for inside the steps' workspace, one at a time, as by Trainer::Fit. An Error
  // of this rank's step or of `batches` says in front of its message which batch of the pass it was.
  // At the beginning what the trainers are set to is compared (SettingsOf, rank_agreement.h), at the
  // end the ranks' parameters.
  DistributedPass Fit(DataSetIterator& batches) { return FitOn(batches); }
  DistributedPass Fit(MultiDataSetIterator& batches) { return FitOn(batches); }
  // Called behind each step; what it throws ends the pass on this rank alone, so it throws on all
  // or none.
  void set_listener(std::function<void(const DistributedStep&)> listener) {
    listener_ = std::move(listener);
  }

  // As nn::SaveLatest (distributed_checkpoint.h), of the whole updater's state, wherever its parts
  // are: a job of any number of ranks goes on from it. Memory meanwhile, with shard_updater: the
  // state on rank 0, a bucket elsewhere.
  void SaveLatest(CheckpointFolder& folder, const CheckpointNotes& notes);
  // With shard_parameters: goes on from the newest that is whole, as nn::LoadLatest, a bucket at a
  // time, and has its notes, if there is one. Throws kFailedPrecondition without: nn::LoadLatest is
  // called before there is a DistributedTrainer.
  std::optional<CheckpointNotes> LoadLatest(const CheckpointFolder& folder);
  // As SaveModel (model_file.h) on rank 0, of parameters that are in parts as well. `model`: the
  // trainer's network's. Where rank 0 cannot, all throw.
  void SaveModel(const Model& model, const std::string& path);

  // What DoEvaluation asks for batches, within a cycle of the inference workspace: this rank's next
  // one. Where parameters are in parts, ranks that have none left wait here for those that have:
  // all ranks evaluate, each on its part of the data.
  std::optional<Batch> NextForAll(absl::FunctionRef<std::optional<Batch>()> next);

  // Throws kFailedPrecondition where the ranks' parameters are not the same to the last bit.
  void CheckSameParameters();

  // As constructed, and how gradients are divided for summing.
  Trainer& trainer() { return trainer_; }
  Communicator& communicator() { return communicator_; }
  const GradientBuckets& buckets() const { return buckets_; }
  ShardedParameters* sharded_parameters() { return sharded_.get(); }  // null: whole

 private:
  // What ranks tell each other of a step: sums over them.
  struct Told {
    std::array<double, 4> values;
    Pending sum;
  };
  bool shards_updater() const { return config_.shard_updater || config_.shard_parameters; }
  void TakeParts();
  void BroadcastState(bool parameters);
  template <typename Set>
  std::optional<DistributedStep> StepOf(absl::FunctionRef<std::optional<Set>()> next,
                                        std::optional<int64_t> number = std::nullopt);
  template <typename Set>
  DistributedPass FitOn(Iterator<Set>& batches);
  template <typename Set>
  void Compute(const Set& batch, double* loss);
  void LearnOrder();
  bool UpdateOwnParts();
  // Rank 0: into a whole updater, whose state it is.
  void GatherState(Updater* whole);
  [[noreturn]] void ThrowOthersFailed(const Told& told, const char* doing) const;

  Trainer& trainer_;
  Communicator& communicator_;
  const DistributedConfig config_;
  const uint64_t layout_;
  GradientBuckets buckets_;
  std::unique_ptr<ShardedParameters> sharded_;
  // Before the forward pass: examples, ranks with a batch, ranks that have none because they
  // failed, their number. Behind the backward pass: the examples' losses, ranks that failed, their
  // number.
  Told begin_, end_;
  Pending beside_;
  bool order_learned_ = false, fitting_ = false;
  std::function<void(const DistributedStep&)> listener_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_DISTRIBUTED_TRAINER_H_
