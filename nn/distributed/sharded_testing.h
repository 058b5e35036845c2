// For tests of sharded parameters.
#ifndef TIDEPOOL_NN_DISTRIBUTED_SHARDED_TESTING_H_
#define TIDEPOOL_NN_DISTRIBUTED_SHARDED_TESTING_H_

#include <vector>

#include "tidepool/ndarray/ops/elementwise.h"
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

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_SHARDED_TESTING_H_
