// One frozen copy of a network for all who predict by it, frozen again when the weights were written to.
#ifndef TIDEPOOL_NN_INFERENCE_SHARED_FROZEN_H_
#define TIDEPOOL_NN_INFERENCE_SHARED_FROZEN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/ndarray/frozen/engine_fork.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/inference/frozen_options.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

class SharedFrozen {
 public:
  // The same for all who ask for the same network with the same options while one of them has it; batches are the same in any
  // order, however often each is named. Nothing is frozen yet. Any thread.
  static std::shared_ptr<SharedFrozen> Of(std::shared_ptr<const Network> network,
                                          const FrozenOptions& options);

  SharedFrozen(std::shared_ptr<const Network> network, const FrozenOptions& options)
      : network_(std::move(network)), options_(options) {}

  // Frozen from the weights as they are now; or null, and why not in `*why_not`: what FrozenNetwork refuses of a network or its
  // weights, weights that were written to when the calibration samples had gone, weights on another
  // device, or such as another library or a raw pointer may write to unseen (Buffer::MayBeWrittenOutside). Who holds an older
  // one keeps it. Any thread, while nobody writes to the weights. Throws OutOfMemoryError, and kInvalidArgument for options.
  // Cost where nothing was written: a lock. fork() waits until what is being frozen is.
  std::shared_ptr<const FrozenNetwork> Current(std::string* why_not);

  // Why kernels are to compute a batch of this size where they may, whatever the weights are now: options.batches has no such, or
  // the engine is estimated to be behind by what was first frozen. Else empty. Nothing is frozen. Cost: a lock.
  std::string WhyKernels(int64_t batch) const;

 private:
  void Freeze();

  const std::shared_ptr<const Network> network_;
  const FrozenOptions options_;
  mutable EngineMutex<EngineLock::kSharedFrozen> mutex_;
  std::shared_ptr<const FrozenNetwork> frozen_;
  bool was_frozen_ = false;    // before
  std::vector<double> gains_;  // of batches; empty: nothing was frozen yet
  std::string why_not_;        // of the weights that frozen_ would be of
  bool is_known_ = false;      // what those give
  uint64_t buffer_id_ = 0;     // of the weights
  uint32_t version_ = 0;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_SHARED_FROZEN_H_
