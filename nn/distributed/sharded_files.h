// Checkpoints and models of sharded parameters: the files that whole ones have, written and read by
// rank 0 a bucket at a time, so that nobody has all of it in memory. A job of any number of ranks
// goes on from them, with whole parameters or with parts.
//
// Threads: one, of the steps. All calls are collective.
#ifndef TIDEPOOL_NN_DISTRIBUTED_SHARDED_FILES_H_
#define TIDEPOOL_NN_DISTRIBUTED_SHARDED_FILES_H_

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/gradient_buckets.h"
#include "tidepool/nn/distributed/sharded_parameters.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

// Where the parts are. All outlive it.
struct ShardedState {
  Trainer& trainer;
  Communicator& communicator;
  const GradientBuckets& buckets;
  ShardedParameters& parameters;
};

// `write` is called on rank 0, with what writes each tensor of the file: parameters, and what the
// updater keeps of them by UpdaterStateName. Where it throws all do: rank 0 that, others kAborted.
// Memory: a bucket on each rank.
void WriteSharded(const ShardedState& state, absl::FunctionRef<void(WriteTensor)> write);

void SaveShardedCheckpoint(const ShardedState& state, CheckpointFolder& folder,
                           const CheckpointNotes& notes);
// None where the folder has none. An error while values are read leaves some of them written, on
// all ranks.
std::optional<CheckpointNotes> LoadShardedCheckpoint(const ShardedState& state,
                                                     const CheckpointFolder& folder);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_SHARDED_FILES_H_
