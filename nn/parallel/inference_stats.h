// ParallelInferenceStats: what a service of requests (parallel_inference.h) has done.
#ifndef TIDEPOOL_NN_PARALLEL_INFERENCE_STATS_H_
#define TIDEPOOL_NN_PARALLEL_INFERENCE_STATS_H_

#include <array>
#include <cstdint>

namespace tidepool::nn {

// Since it began.
struct ParallelInferenceStats {
  int64_t requests = 0, examples = 0;  // answered
  int64_t batches = 0;                 // computed
  int64_t batch_examples = 0;          // in all batches
  int64_t largest_batch = 0;           // examples
  // Of more than 2^(i-1) and at most 2^i examples, by i; the last one of larger ones as well.
  std::array<int64_t, 17> batches_by_size = {};
  // Answered requests by the microseconds from their call to their answer: more than 2^(i-1) and at most 2^i, by i; the last
  // one of longer ones (from 34 seconds on) as well. And how long all of them took, in nanoseconds.
  std::array<int64_t, 27> requests_by_time = {};
  int64_t nanoseconds = 0;
  int64_t failed = 0;   // by the network or for want of memory
  int64_t refused = 0;  // for want of room
  int64_t expired = 0;  // by their deadline
  int64_t waiting = 0;  // now
  int64_t running = 0;  // requests that are computed now
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_INFERENCE_STATS_H_
