// What random operators take besides those of RandomAttributes (attributes.h).
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_RANDOM_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_RANDOM_H_

#include <cstdint>

namespace tidepool {

struct BernoulliAttributes {
  uint64_t seed = 0, stream = 0;
  double probability = 0.5;  // of a one
};

struct RandomIntegersAttributes {
  uint64_t seed = 0, stream = 0;
  int64_t low = 0, high = 1;  // [low, high)
};

struct PermutationAttributes {
  uint64_t seed = 0, stream = 0;
};

// Z[i] = 0 where element i is dropped, X[i] / (1 - rate) where it is kept.
struct DropoutAttributes {
  uint64_t seed = 0, stream = 0;
  double rate = 0.5;  // in [0, 1)
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_RANDOM_H_
