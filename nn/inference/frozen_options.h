// What a network is frozen to. See frozen_network.h.
#ifndef TIDEPOOL_NN_INFERENCE_FROZEN_OPTIONS_H_
#define TIDEPOOL_NN_INFERENCE_FROZEN_OPTIONS_H_

#include <cstdint>
#include <vector>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

enum class FrozenType : uint8_t {
  kFloat32,
  kFloat16,  // refused: XNNPACK's 2022 interface emulates it on x86, slower than f32
};

struct FrozenOptions {
  FrozenType type = FrozenType::kFloat32;
  // Sizes of batches to make runtimes for, 1 or more each.
  std::vector<int64_t> batches = {1};
  // Append a softmax along the classes.
  bool softmax = false;
  // Pieces of a batch that run at once, 1 to 1024.
  int threads = 1;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_FROZEN_OPTIONS_H_
