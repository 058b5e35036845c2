// What all services of the process (ParallelInference) say, by name and device: inference_metrics.h writes it as text.
//
// Each service is in it from its construction to its destruction. fork() waits until no other thread is in the middle of a
// change, so a child can read it.
// Threads: any. Cost: a lock and, for each service, its own.
#ifndef TIDEPOOL_NN_PARALLEL_INFERENCE_CENSUS_H_
#define TIDEPOOL_NN_PARALLEL_INFERENCE_CENSUS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/nn/parallel/inference_stats.h"

namespace tidepool::nn {

// All services of one name on one device.
struct InferenceGroup {
  std::string id;  // the name
  Device device;
  size_t alive = 0;
  int64_t workers = 0, queue_limit = 0;  // sums over those that are alive
  // Sums; counters include services that are gone, `largest_batch` is the largest of all.
  ParallelInferenceStats stats;
};

// By name, then device. Of names without a service 1000 are remembered; then the one that has been without for longest goes
// into "(others)". Throws std::bad_alloc.
std::vector<InferenceGroup> ReadInferences();

// The counters of `from` are added to those of `to`; what is of now is left.
void AddInferenceCounters(const ParallelInferenceStats& from, ParallelInferenceStats& to);

namespace internal {

// `requests` of `examples` in all begin to be computed as one batch.
void CountBatch(ParallelInferenceStats& stats, int64_t requests, int64_t examples);
// A request was answered.
void CountAnswer(ParallelInferenceStats& stats, int64_t examples, std::chrono::nanoseconds time);

// One service, for as long as this exists.
class InferenceMember {
 public:
  // Throws std::bad_alloc.
  InferenceMember(std::string name, Device device);
  virtual ~InferenceMember() = default;
  InferenceMember(const InferenceMember&) = delete;
  InferenceMember& operator=(const InferenceMember&) = delete;

  // Whoever derives calls these when it can be read, and before it cannot any more.
  void Join();  // throws std::bad_alloc
  void Leave() noexcept;

  // Its numbers are added.
  virtual void AddTo(bool is_alive, InferenceGroup& group) = 0;
  // The lock that AddTo() takes.
  virtual void LockForFork() = 0;
  virtual void UnlockAfterFork() = 0;

 private:
  const std::string name_;
  const Device device_;
  bool has_joined_ = false;
};

}  // namespace internal

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_INFERENCE_CENSUS_H_
