// Checkpoints of a job: one file, as those of one process (nn/training/checkpoint.h), so that a run
// goes on with any number of ranks.
//
//   CheckpointFolder folder("run");
//   Trainer trainer(network, updater);
//   const auto notes = LoadLatest(*communicator, trainer, folder);
//   DistributedTrainer distributed(trainer, *communicator);   // gives all what rank 0 has loaded
//   DataPosition at = notes ? DataPosition::FromNotes(*notes) : DataPosition();
//   ExampleIterator batches(examples, {.seed = 7, .epoch = at.epoch, .rank = ..., .ranks = ...,
//                                      .together = 64});
//   batches.Seek(at.batch);
//   ... steps ...
//   SaveLatest(*communicator, trainer, folder, at.ToNotes());
//
// A place in the data is that of all ranks: which epoch, and how many batches of all ranks together
// are done. As the batches are the same for any number of ranks (Batching::together), no example is
// left out or seen twice.
#ifndef TIDEPOOL_NN_DISTRIBUTED_DISTRIBUTED_CHECKPOINT_H_
#define TIDEPOOL_NN_DISTRIBUTED_DISTRIBUTED_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

struct DataPosition {
  int64_t examples = 0;  // of an epoch
  int64_t together = 0;  // of a batch of all ranks
  uint64_t seed = 0;     // of the order
  uint64_t epoch = 0;    // under way
  int64_t batch = 0;     // done, of the epoch

  // Notes called "data_...", beside which there may be others.
  CheckpointNotes ToNotes() const;
  // Throws kDataLoss naming the note that is missing or no number.
  static DataPosition FromNotes(const CheckpointNotes& notes);
  // Throws kFailedPrecondition, found and expected, where the data or its order is another one:
  // places in it would be others; kDataLoss for a batch that an epoch does not have.
  void CheckIsIn(int64_t its_examples, int64_t its_together, uint64_t its_seed) const;
  bool operator==(const DataPosition&) const = default;
};

// Collective: `work` on rank 0 alone. What it throws leaves there; others throw kAborted then,
// "rank 0 could not <what>".
void OnRank0(Communicator& communicator, const char* what, absl::FunctionRef<void()> work);

// Collective. Rank 0 writes; where it cannot, all throw: rank 0 why, others kAborted.
void SaveLatest(Communicator& communicator, Trainer& trainer, CheckpointFolder& folder,
                const CheckpointNotes& notes);
// Collective, before there is a DistributedTrainer. Rank 0 reads the newest that is whole
// (CheckpointFolder::Latest), if there is one; all get its notes, and no other rank looks at files.
std::optional<CheckpointNotes> LoadLatest(Communicator& communicator, Trainer& trainer,
                                          const CheckpointFolder& folder);

// Collective: rank 0's notes to all; none for none.
void BroadcastNotes(Communicator& communicator, std::optional<CheckpointNotes>& notes);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_DISTRIBUTED_CHECKPOINT_H_
