// When the buckets of sharded parameters are gathered, dropped and summed up in a step, and where
// they lie meanwhile: all of it is known from the layers that read them, before the first step.
//
// Places are layers in the order of their calls, 0 to places - 1; the forward pass goes through
// them upwards, the backward pass downwards. A bucket is gathered while the buckets `ahead` of it
// in the order are first used, and is there until its last layer of the pass is done; those of the
// last layer stay for the backward pass. The gradients of a bucket are there from its first layer
// of the backward pass on until `ahead` more buckets are being summed up.
#ifndef TIDEPOOL_NN_DISTRIBUTED_GATHER_PLAN_H_
#define TIDEPOOL_NN_DISTRIBUTED_GATHER_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tidepool::nn {

struct BucketUse {
  int first = 0, last = 0;  // places of the layers that read it
  int64_t bytes = 0;
};

struct GatherPlan {
  // Buckets in the order in which they are gathered and summed up.
  std::vector<int> forward, backward, sums;
  // By place: how many of those are there, and begun, when the pass enters it. Of `backward` the
  // first ones are still there from the forward pass: kept.
  std::vector<int> forward_there, forward_begun, backward_there, backward_begun;
  int kept = 0;
  int ahead = 0;

  // Bytes from the begin of the memory of a step, and of an inference pass, which has no gradients.
  std::vector<int64_t> values, gradients, inference_values;
  int64_t bytes = 0, inference_bytes = 0;
};

// `ahead`: at least 0. Offsets are multiples of `alignment`.
GatherPlan PlanGathers(absl::Span<const BucketUse> buckets, int places, int ahead,
                       int64_t alignment);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_GATHER_PLAN_H_
