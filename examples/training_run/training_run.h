// What the programs that train a network have in common: epochs of steps over examples in a new
// order each, progress, the memory table with what steps asked the system for, the saved model.
#ifndef TIDEPOOL_EXAMPLES_TRAINING_RUN_TRAINING_RUN_H_
#define TIDEPOOL_EXAMPLES_TRAINING_RUN_TRAINING_RUN_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::examples {

struct TrainingRun {
  int64_t epochs = 1;
  int64_t batch = 64;  // examples of a step
  uint64_t seed = 1;   // of their order
  std::string save;    // path of the model; empty: nowhere
};

// Steps in a run over so many examples.
int64_t StepsOf(const TrainingRun& run, int64_t examples);

// `make_batch` makes the batch of these examples of that epoch (from 0) in the current place, the
// step's workspace; `score` is asked after each epoch and printed beside the loss. Steps of the
// first epoch are not counted: its last one may be smaller than the others, which is new then.
// Throws kInvalidArgument for an epoch or a batch below 1 and, before the first step, for a model
// that cannot be saved. Training that diverges is tools::CommandFailed, which tells the step; what
// is saved then is the model of the last epoch before, beside the path.
void Train(
    nn::Model& model, const nn::UpdaterConfig& updater, const TrainingRun& run, int64_t examples,
    absl::FunctionRef<nn::Batch(absl::Span<const int64_t> examples, int64_t epoch)> make_batch,
    absl::FunctionRef<double()> score);

// The program's flags, then tools::RunProgram: what main() returns.
int RunProgram(const char* name, int argc, char** argv, absl::FunctionRef<void()> program);

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_TRAINING_RUN_TRAINING_RUN_H_
