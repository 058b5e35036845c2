// SpilledTrainer: trains a network whose parameters and updater's state are more than there is memory for. They lie in a file, and
// come layer by layer.
//
//   Network network(NetworkConfig::Sequential({4096}, layers), {.seed = 1, .hosted_parameters = true});
//   SpilledTrainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam), {.memory_bytes = int64_t{1} << 30});
//   double loss = trainer.Step([&] { return batches.Make(i); });
//   trainer.SaveParameters("model.safetensors");
//
// In a step the parameters of a layer are read while the layers before it are computed and dropped behind it, read again
// for the backward pass, updated as soon as their gradients are final, and written while the layers in front of it are
// computed (parameter_plan.h). So a step holds the parameters, gradients and state of a few layers at a time, in one
// array of its workspace that is planned before the first step: stats().step_bytes. Bits are those of a Trainer.
//
// Bytes moved in a step: parameters are read twice (less those of the last layers, which stay) and written once, state is
// read and written once. Where gradients are clipped by the norm of all of them (ClippingKind::kGlobalNorm), which is known behind the
// pass, they are written in it, and read behind it with parameters and state, which are updated then: three times the parameters' bytes
// more. The norm is of the same sums as a Trainer's where no run of the updater's groups goes on in another layer; else its last bits may
// be others.
//
// A step that fails, by an error of the file too, has changed nothing: what it wrote is dropped, and the file keeps what was before
// until a step is done. So the file needs twice the room for a moment. What layers keep beside their parameters (running
// averages) is in memory and as the pass left it.
//
// Ownership: the network outlives it; without it the network's passes throw kFailedPrecondition. Threads: one, of the steps. Errors
// of the file are those of SpillFile.
#ifndef TIDEPOOL_NN_BUDGET_SPILLED_TRAINER_H_
#define TIDEPOOL_NN_BUDGET_SPILLED_TRAINER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/data/data_set.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {

// Where parameters wait and how far ahead they are read.
struct SpilledTrainerOptions {
  std::shared_ptr<SpillFile>
      file;  // others may write there too; null: one of its own, as SpillFileOptions is made
  // Layers that are read before they are needed, at most: 0 to 64.
  int ahead = 2;
  // Of parameters, gradients and state in a step: `ahead` is as much as this allows. 0: no limit; not below 0.
  int64_t memory_bytes = 0;
};

// What it holds and has moved, in bytes.
struct SpilledTrainerStats {
  int64_t parameter_bytes = 0;  // of all trained parameters
  int64_t state_bytes = 0;      // of the updater, in the file
  int64_t step_bytes = 0;       // of both and of gradients that are in memory at once in a step
  int64_t inference_bytes = 0;  // likewise of a request
  int ahead = 0;                // that memory_bytes allowed
  int64_t read_bytes = 0, written_bytes = 0;  // ever
  double stall_seconds = 0;                   // that passes waited for the file, ever
};

class SpilledTrainer {
 public:
  // Takes the network's parameters over, into the file; those of NetworkOptions::hosted_parameters begin as they would in memory.
  // Throws as Network::HostParameters, Updater and SpillFile; kFailedPrecondition while another trainer has them, and for a network
  // that has a step budget (ClearStepBudget), as activations are kept;
  // kInvalidArgument for `ahead` or memory_bytes out of range; OutOfMemoryError where not even ahead = 0 fits into memory_bytes, with what would. Nothing has
  // changed then.
  SpilledTrainer(Network& network, const UpdaterConfig& updater,
                 const SpilledTrainerOptions& options = {});
  ~SpilledTrainer();
  SpilledTrainer(const SpilledTrainer&) = delete;
  SpilledTrainer& operator=(const SpilledTrainer&) = delete;

  // As Trainer::Step.
  double Step(absl::FunctionRef<Batch()> make_batch);
  double Step(absl::FunctionRef<MultiDataSet()> make_set);

  // By number of named_parameters(), of trained ones: a copy on the heap.
  NDArray Value(int parameter) const;
  // Throws kInvalidArgument for another shape or type.
  void SetValue(int parameter, const NDArray& value);
  // As nn::SaveParameters and nn::LoadParameters, a parameter at a time. An error while loading leaves some written.
  void SaveParameters(const std::string& path,
                      const std::map<std::string, std::string>& metadata = {}) const;
  void LoadParameters(const std::string& path);

  // The files of checkpoint.h, so that any trainer of the same network and updater goes on from what any other has saved, to the last
  // bit. In a folder: folder.SaveBy(steps(), [&](const std::string& path) { SaveCheckpoint(path, notes); }). Throw as those;
  // a load that fails has changed no parameter and no state. Memory: a layer's.
  void SaveCheckpoint(const std::string& path, const CheckpointNotes& notes = {}) const;
  CheckpointNotes LoadCheckpoint(const std::string& path);

  // For schedules by epoch, groups and for steps that go on; its state is in the file. Groups (Updater::SetGroups) are of whole parameters, with or
  // without what pads them, and of one each where norms of each are clipped: a step throws kUnimplemented for others.
  Updater& updater();
  int64_t steps() const;
  Network& network();
  SpilledTrainerStats stats() const;

 private:
  class Host;
  template <typename Set>
  double StepOf(absl::FunctionRef<Set()> make);
  std::unique_ptr<Host> host_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_SPILLED_TRAINER_H_
