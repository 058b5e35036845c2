// Checkpoints: everything a run of training needs to go on as if it had never stopped, to the last bit, in one safetensors file:
// parameters, what layers keep beside them, the updater's state and counters, the loss scale, the place in random numbers, and
// whatever the program adds (its place in the data, a best score).
//
//   CheckpointFolder checkpoints("run");
//   CheckpointNotes notes;
//   if (const auto latest = checkpoints.Latest()) notes = LoadCheckpoint(*latest, trainer);
//   ... from the batch that notes["batch"] says: trainer.Step(...);
//   checkpoints.Save(trainer, {{"epoch_of_data", "3"}, {"batch", "120"}});
//
// A trainer has all of it; loops of one's own hand in the network, the updater and the loss scale they use, if any.
//
// Files appear whole or not at all (memory/io/atomic_file.h). Threads: as the trainer's.
#ifndef TIDEPOOL_NN_TRAINING_CHECKPOINT_H_
#define TIDEPOOL_NN_TRAINING_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/loss_scale.h"
#include "tidepool/nn/training/trainer.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {

// What the program adds, by name.
using CheckpointNotes = std::map<std::string, std::string>;

// Throws Error naming the path; kInvalidArgument for a note called as a field of the file's own is ("epoch", "steps", ...);
// kFailedPrecondition, as loading does, for an updater that keeps a rank's part (DistributedTrainer::SaveLatest), and where the network was
// frozen or not since the trainer was made (Trainer::CheckLayout); of an updater alone, where its state is of another size than what the
// network trains.
void SaveCheckpoint(const Network& network, const Updater& updater, const std::string& path,
                    const CheckpointNotes& notes = {}, const LossScale* loss_scale = nullptr);
void SaveCheckpoint(Trainer& trainer, const std::string& path, const CheckpointNotes& notes = {});

// Into a network and an updater that were made as those saved. Returns the notes. Throws kDataLoss naming file and field, found and
// expected, before anything is written: no checkpoint, another updater, another seed where layers draw random numbers, a loss scale of another kind or none, tensors of another
// network, other frozen parameters; else as SafetensorsReader::Open. An error while reading leaves some arrays written.
CheckpointNotes LoadCheckpoint(const std::string& path, Network& network, Updater& updater,
                               LossScale* loss_scale = nullptr);
CheckpointNotes LoadCheckpoint(const std::string& path, Trainer& trainer);

// The same in parts, for state that is not whole in one place (distributed/sharded_files.h): as safetensors metadata, under
// which names the updater's arrays are, and with arrays read by the caller, once all was found to be as expected. `more`: names of
// arrays that the file has beside those, as long as the updater's.
std::map<std::string, std::string> CheckpointMetadata(const Network& network,
                                                      const Updater& updater,
                                                      const std::string& path,
                                                      const CheckpointNotes& notes,
                                                      const LossScale* loss_scale);
std::string UpdaterStateName(int i);
CheckpointNotes LoadCheckpointInParts(const std::string& path, Network& network, Updater& updater,
                                      LossScale* loss_scale,
                                      absl::FunctionRef<void(const SafetensorsReader& reader)> read,
                                      absl::Span<const std::string> more = {});
// What it reads where all of the state is here.
void ReadCheckpointArrays(const SafetensorsReader& reader, Network& network, Updater& updater);

// A folder of checkpoints, "step-000000120.safetensors", of which the newest are kept.
class CheckpointFolder {
 public:
  // How many whole ones are kept, and who is told of damaged ones.
  struct Options {
    int64_t keep = 3;  // at least 1
    // Of Latest(): a line that names a file and why it is passed over. Empty: to stderr. What it throws leaves Latest(), so that
    // a program can refuse to go on from an older one.
    std::function<void(const std::string& warning)> on_damaged;
  };
  // Makes the folder where there is none. Throws kInvalidArgument for options, Error naming the folder.
  explicit CheckpointFolder(std::string folder, Options options);
  explicit CheckpointFolder(std::string folder) : CheckpointFolder(std::move(folder), Options()) {}

  // Oldest first. Files of other names are not looked at.
  std::vector<std::string> All() const;
  // The newest one that is whole; none for a folder without any. Newer ones that are damaged are told (Options::on_damaged) and
  // passed over: those that no trainer could read, cut off, overwritten, or without the numbers of a checkpoint. Values have no
  // checksum: other bytes of the same number among them are not seen. Whether it is one of this network is LoadCheckpoint's to
  // say, and no reason to take an older one. Throws kDataLoss, why the newest is not whole, where all are damaged: a run that
  // begins anew would remove them one by one. Else as opening fails (kPermissionDenied ...). Cost: reads the header of a file.
  std::optional<std::string> Latest() const;
  // The file that it is called by the updater's steps; then those beyond `keep` go, and before it what writers that were killed have
  // left of others. A damaged one (as Latest() looks at it) does not count: it stays until `keep` whole ones are newer, so that none of
  // these goes for it. Returns its path. What cannot be removed stays. Cost: reads the headers of those kept. Throws as SaveCheckpoint:
  // nothing is removed then.
  std::string Save(const Network& network, const Updater& updater,
                   const CheckpointNotes& notes = {}, const LossScale* loss_scale = nullptr);
  std::string Save(Trainer& trainer, const CheckpointNotes& notes = {});
  // Of what `write` writes to the path it is given.
  std::string SaveBy(int64_t steps, absl::FunctionRef<void(const std::string& path)> write);

 private:
  void TellDamaged(const std::string& warning) const;
  void RemoveLeftFiles() const;

  std::string folder_;
  Options options_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_CHECKPOINT_H_
