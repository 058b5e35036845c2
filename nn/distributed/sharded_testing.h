// For tests of trainers whose state or parameters may be in parts.
#ifndef TIDEPOOL_NN_DISTRIBUTED_SHARDED_TESTING_H_
#define TIDEPOOL_NN_DISTRIBUTED_SHARDED_TESTING_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/sharded_parameters.h"

namespace tidepool::nn {

// What is in parts: the updater's state; parameters that were there; parameters that never were.
enum class Parts { kUpdater, kParameters, kHosted };

// All that ranks have of the parameters, on each.
inline std::vector<double> WholeOf(DistributedTrainer& distributed) {
  Network& network = distributed.trainer().network();
  ShardedParameters* const parts = distributed.sharded_parameters();
  if (parts == nullptr) return Cast(network.parameters(), DType::kFloat64).ToVector<double>();
  std::vector<double> whole;
  for (int bucket = distributed.buckets().count() - 1; bucket >= 0; --bucket) {
    const NDArray values = Cast(parts->Gather(parts->values(), bucket, "test"), DType::kFloat64);
    const std::vector<double> more = values.ToVector<double>();
    whole.insert(whole.end(), more.begin(), more.end());
  }
  return whole;
}

// On every rank: once four steps are made, none takes memory from the system.
inline void ExpectSteady(Communicator& communicator, int64_t steps,
                         const std::function<void(int64_t)>& step) {
  for (int64_t i = 0; i < 4; ++i) step(i);
  communicator.Barrier("test");
  const int64_t before = MemoryTracker::Global().system_allocations();
  communicator.Barrier("test");
  for (int64_t i = 4; i < steps; ++i) step(i);
  communicator.Barrier("test");
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
  communicator.Barrier("test");
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_SHARDED_TESTING_H_
