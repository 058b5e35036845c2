// What the tests of networks' placement run: modes, options of a network, batches.
#ifndef TIDEPOOL_NN_TESTING_PLACEMENT_RUNS_H_
#define TIDEPOOL_NN_TESTING_PLACEMENT_RUNS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {

inline constexpr WorkspaceMode kModes[] = {WorkspaceMode::kNone, WorkspaceMode::kSingle,
                                           WorkspaceMode::kSeparate, WorkspaceMode::kEnabled};

inline std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

inline NetworkOptions Options(WorkspaceMode training, WorkspaceMode inference) {
  NetworkOptions options;
  options.seed = 3;
  options.training_mode = training;
  options.inference_mode = inference;
  return options;
}
inline NetworkOptions Options(WorkspaceMode mode) { return Options(mode, mode); }

inline Batch SomeBatch(int64_t size, uint64_t seed, int64_t side = 28) {
  NDArray labels({size}, DType::kInt64);
  for (int64_t i = 0; i < size; ++i)
    labels.mutable_data<int64_t>()[i] =
        static_cast<int64_t>((seed + static_cast<uint64_t>(i)) % 10);
  return {RandomUniform({size, side, side, 1}, 0, 1, seed), labels};
}
// Bytes that the ledger says a step of Adam takes at most, beyond what there is without the network: of an example network, once
// its steps repeat.
int64_t MeasuredTrainingBytes(const std::string& example, const NetworkOptions& options,
                              int64_t batch);
// Of any network, by its own updater of two arrays.
int64_t MeasuredTrainingBytes(const std::function<Network()>& make, const UpdaterConfig& updater,
                              const std::function<Batch()>& make_batch);

// A training loop whose n-th request of memory is refused, for every n: each refused step throws OutOfMemoryError and changes
// nothing, and done again gives the bits it would have given.
struct RefusedRuns {
  int64_t requests = 0;  // of a loop without faults
  int64_t refused = 0;   // steps, of all loops
  int64_t others =
      0;  // loops that did not end with the same losses, arrays and output; the first is told
};
RefusedRuns RefuseEachRequest(const std::function<Network()>& make, const UpdaterConfig& updater,
                              const std::function<Batch(int64_t)>& make_batch);

// What a training run came to, to the bit.
inline std::string BytesOf(const NDArray& array) {
  return std::string(reinterpret_cast<const char*>(array.raw_data()), array.buffer()->bytes);
}
struct TrainingBits {
  std::vector<double> losses;
  std::string arrays;  // BytesOf()
  bool operator==(const TrainingBits&) const = default;
};

inline NDArray Features(int64_t size) { return RandomUniform({size, 28, 28, 1}, 0, 1, 99); }

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TESTING_PLACEMENT_RUNS_H_
