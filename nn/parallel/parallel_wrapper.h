// ParallelWrapper: one network trained by several threads of this process.
//
//   Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
//   ParallelWrapper parallel(trainer, {.workers = 4});
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     const ParallelPass pass = parallel.Fit(batches);
//     batches.Reset();
//   }
//
// Networks of several inputs or outputs are given a MultiDataSetIterator. Batches are dealt in rounds, one to each worker. Worker 0 is the calling thread with the
// trainer's own network; the others have replicas of it (Network::NewReplica), threads, and
// workspaces, all made once and kept until the wrapper goes.
//   kGradientSharing     a round is one step of one network on all of its examples: gradients are
//                        added up, in the order of the workers, and the trainer updates once.
//                        Workers share the parameters' memory; k workers equal one with batches k
//                        times as large, to rounding (but for what layers compute over a batch,
//                        such as batch normalisation, which see a worker's own).
//   kParameterAveraging  each worker updates its own copy by its own updater; every
//                        averaging_frequency rounds, and at the end of a pass, parameters become
//                        their mean, and with average_updaters updaters' state too.
//
// Running averages of layers become the mean of the workers' that took part, in each round or each
// averaging. Layers that draw random numbers draw other ones in each worker. A last round of fewer
// batches has as many workers. Results do not depend on timing: the same batches give the same
// bits.
//
// Memory beside the network's: a ring of the batches made ahead; by worker beyond the first
// gradients, running averages and a workspace; with kParameterAveraging parameters and the updater's
// state too. From the second pass of the same shapes on nothing is taken from the system.
//
// Ownership: trainer and network outlive it. Between passes the trainer may be used by itself,
// loaded into, saved, and set otherwise (loss, updater, its groups and gradient scale, loss scale);
// each pass begins with what it has then, on all workers, and what a listener sets holds from the
// next round on. With kParameterAveraging each worker has a loss scale of its own, the trainer's at
// the pass's beginning, and skips steps by it. With average_updaters false each keeps its updater's
// state from pass to pass, and SaveCheckpoint has them all; with it true, and with kGradientSharing,
// a checkpoint of the trainer is as good. Threads: one at a time. Errors: what
// a worker throws comes out once the round has ended, with the worker's number and the batch's in
// the pass. kGradientSharing:
// nothing of the round is left, parameters and running averages are those before it.
// kParameterAveraging: workers that did their step keep it, and what all have is averaged first.
// The next pass works either way.
#ifndef TIDEPOOL_NN_PARALLEL_PARALLEL_WRAPPER_H_
#define TIDEPOOL_NN_PARALLEL_PARALLEL_WRAPPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/data/data_set.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

class WorkerGroup;

// As the head of this header says.
enum class ParallelTraining : uint8_t { kGradientSharing, kParameterAveraging };

// How the workers train.
struct ParallelWrapperConfig {
  int workers = 2;                                                 // 1 to 4096
  ParallelTraining training = ParallelTraining::kGradientSharing;  // what a round does
  int averaging_frequency = 1;   // kParameterAveraging: rounds from one averaging to the next
  bool average_updaters = true;  // kParameterAveraging: false: each keeps its own updater's state
  int prefetch = 2;              // batches made ahead for each worker
  int threads_of_worker = 1;     // that its kernels use
  std::optional<WorkspaceMode> workspace_mode;  // of training, for all workers; none: the network's
};

// What a listener is told.
struct ParallelRound {
  int64_t round = 0;      // of the pass, from 1
  int64_t batches = 0;    // as many workers
  int64_t examples = 0;   // of all its batches
  double loss = 0;        // of the examples, the mean
  bool updated = true;    // false: a loss scale skipped the step, that of all workers
  int64_t skipped = 0;    // workers whose step it skipped; kGradientSharing: none or all
  bool averaged = false;  // kParameterAveraging: parameters are the workers' mean now
};

// What Fit went through.
struct ParallelPass {
  int64_t rounds = 0, batches = 0, examples = 0;  // in all
  double loss = 0;                                // of the examples, the mean; 0 without any
};

class ParallelWrapper {
 public:
  // Makes the replicas. Throws kInvalidArgument for numbers below 1, kUnimplemented for a trainer
  // with graphs, kFailedPrecondition while a workspace of the network is open, kResourceExhausted
  // where there is no thread, OutOfMemoryError.
  explicit ParallelWrapper(Trainer& trainer, const ParallelWrapperConfig& config = {});
  ~ParallelWrapper();

  // A pass over the epoch of `batches`, from where it is. Workers must not wait for the next round's,
  // so they are made ahead of their use (AsyncDataSetIterator) where `batches` allows that: a pass
  // that an exception ends leaves it further on than what was trained on. Else they are made on the
  // calling thread, a round at a time. Its Reset() is the caller's.
  ParallelPass Fit(DataSetIterator& batches) { return FitAhead(batches); }
  ParallelPass Fit(MultiDataSetIterator& sets) { return FitAhead(sets); }

  // Behind a pass: as SaveCheckpoint and LoadCheckpoint of the trainer (training/checkpoint.h), with the
  // state of each worker's updater where that is its own. A run that goes on from it, by as many
  // workers, has the bits of one that never stopped. Throws as those; kFailedPrecondition in a pass.
  void SaveCheckpoint(const std::string& path, const CheckpointNotes& notes = {});
  CheckpointNotes LoadCheckpoint(const std::string& path);

  // Called behind each round on the calling thread; what it throws ends the pass, whose round is
  // done.
  void set_listener(std::function<void(const ParallelRound&)> listener) {
    listener_ = std::move(listener);
  }

  const ParallelWrapperConfig& config() const { return config_; }  // as constructed
  // Of a worker; that of worker 0 is the trainer's, or, with kGradientSharing where layers keep
  // running averages, a replica as well. Between passes all have the same parameters.
  Network& network(int worker);

 private:
  struct Worker;
  struct Pass {
    ParallelPass sums;  // `loss` is the sum of the examples' until the end
    int rounds_since = 0,
        took_part = 0;  // kParameterAveraging: since the last averaging, and how many workers did
  };
  template <typename Set>
  ParallelPass FitAhead(Iterator<Set>& batches);
  template <typename Set>
  ParallelPass FitRounds(absl::FunctionRef<std::optional<Set>()> next);
  // False: there are no more.
  template <typename Set>
  bool Round(absl::FunctionRef<std::optional<Set>()> next, Pass& pass);
  template <typename Set>
  double Share(std::vector<Set>& batches, int64_t first, ParallelRound& round);
  template <typename Set>
  double Step(std::vector<Set>& batches, int64_t first, ParallelRound& round);
  void CheckLayout() const;
  // Of the updaters of workers 1 and on, by their names in a checkpoint; none where they are not their own.
  std::vector<std::pair<std::string, NDArray>> StatesOfOthers(const char* call);
  void FollowPlan();
  void FollowUpdater();
  void FollowSettings();
  void AddGradients(int workers);
  void Average(Pass& pass);
  void AverageBeside(int workers);
  void CopyToReplicas();
  // Elements [begin, end) that a worker has of `count`, of all workers apart.
  std::pair<int64_t, int64_t> PartOf(int worker, int64_t count) const;

  Trainer& trainer_;
  const ParallelWrapperConfig config_;
  const uint64_t layout_;
  std::vector<std::unique_ptr<Worker>> replicas_;  // of workers 1 and on
  // Of worker 0 with kGradientSharing where layers keep something beside their parameters: they
  // move it while others read parameters of the same array.
  std::unique_ptr<Worker> first_;
  std::function<void(const ParallelRound&)> listener_;
  std::optional<RingWorkspace> ring_;  // of batches made ahead
  int64_t passes_ = 0;
  bool fitting_ = false, has_fitted_ = false;
  std::unique_ptr<WorkerGroup> group_;  // last: its threads use all of the above
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_PARALLEL_WRAPPER_H_
