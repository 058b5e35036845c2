// What of its communication a job hides, measured: LeNet trained by real ranks over links that are
// as slow as asked for (delayed_transport.h). For distributed_benchmark and rank_program.
#ifndef TIDEPOOL_NN_DISTRIBUTED_HIDDEN_SHARE_H_
#define TIDEPOOL_NN_DISTRIBUTED_HIDDEN_SHARE_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// Of a step, on this rank. Counts are the same in each run.
struct HiddenShare {
  double collectives = 0, messages = 0, bytes = 0;
  double busy_seconds = 0;    // that collectives took
  double waited_seconds = 0;  // of those, that the step waited for them
  // 0 where callers woke up later than the communicator was done, as on busy processors.
  double hidden() const {
    return busy_seconds > 0 ? std::max(0.0, 1 - waited_seconds / busy_seconds) : 1;
  }
};

// All ranks alike. `communicator` is that of a DelayedTransport.
inline HiddenShare MeasureHidden(Communicator& communicator, const DistributedConfig& config,
                                 int64_t batch = 128, int steps = 5) {
  WorkerPool pool(1);
  const ThreadPoolScope thread(pool);
  NetworkOptions options;
  options.seed = 1;
  options.hosted_parameters = config.shard_parameters;
  Network network(NetworkConfig::Sequential({28, 28, 1}, LayersOf("lenet", 10)), options);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  DistributedTrainer distributed(trainer, communicator, config);
  const auto step = [&] {
    distributed.Step([&] {
      return std::optional<Batch>(Batch(Zeros({batch, 28, 28, 1}), Zeros({batch}, DType::kInt64)));
    });
  };
  // The order of buckets and the workspace's plan are learned.
  for (int i = 0; i < 3; ++i) step();
  communicator.Barrier("before");
  const CommunicatorStats before = communicator.stats();
  for (int i = 0; i < steps; ++i) step();
  const CommunicatorStats after = communicator.stats();
  communicator.Barrier("behind");
  const auto of_a_step = [&](auto b, auto a) { return static_cast<double>(a - b) / steps; };
  return {of_a_step(before.collectives, after.collectives),
          of_a_step(before.messages_sent, after.messages_sent),
          of_a_step(before.bytes_sent, after.bytes_sent),
          of_a_step(before.busy_seconds, after.busy_seconds),
          of_a_step(before.waited_seconds, after.waited_seconds)};
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_HIDDEN_SHARE_H_
