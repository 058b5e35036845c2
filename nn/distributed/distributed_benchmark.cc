// What of the time that sums of gradients take a backward pass hides, by ranks and links: the times
// at which buckets are complete are measured, as processor time of the thread, which a busy machine
// changes little; what sums take is the model's (cost_model.h). The same measured, by two ranks
// that are threads, over links whose messages are delayed. And with layers that sleep, which take
// no processor from the communicator, beside the most that the order of buckets lets be hidden.
#include <benchmark/benchmark.h>
#include <time.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/cost_model.h"
#include "tidepool/nn/distributed/delayed_transport.h"
#include "tidepool/nn/distributed/gradient_buckets.h"
#include "tidepool/nn/distributed/hidden_share.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Hands on to the buckets, and notes when each was complete.
class Timed final : public GradientListener {
 public:
  explicit Timed(GradientBuckets& buckets) : buckets_(buckets) {}
  void Begin() {
    buckets_.Begin();
    complete_.clear();
  }
  void GradientIsFinal(int parameter) override {
    const size_t before = buckets_.completed_count();
    buckets_.GradientIsFinal(parameter);
    if (buckets_.completed_count() > before) complete_.push_back(ProcessorSeconds());
  }
  const std::vector<double>& complete() const { return complete_; }

 private:
  GradientBuckets& buckets_;
  std::vector<double> complete_;
};

// Arguments: ranks, KiB of a bucket, alpha in microseconds, beta in picoseconds a byte.
void BM_HiddenBehindTheBackwardPass(benchmark::State& state) {
  constexpr int64_t kBatch = 128;
  const LinkCost link{1e-6 * static_cast<double>(state.range(2)),
                      1e-12 * static_cast<double>(state.range(3))};
  WorkerPool pool(1);
  const ThreadPoolScope thread(pool);
  ThreadRanks alone(1);
  Communicator communicator([&] { return alone.Open(0); });
  Network network(NetworkConfig::Sequential({28, 28, 1}, LayersOf("lenet", 10)), {.seed = 1});
  GradientBuckets buckets(network, communicator, state.range(1) << 10);
  Timed timed(buckets);
  network.set_gradient_listener(&timed);
  double communication = 0, exposed = 0, backward = 0, steps = 0;
  for (auto _ : state) {
    const WorkspaceScope scope(network.training_workspace());
    const NetworkInputs inputs =
        network.PrepareInputs(Zeros({kBatch, 28, 28, 1}), Zeros({kBatch}, DType::kInt64));
    timed.Begin();
    double begin = 0;
    network.QueueGradients(inputs, [&](const NDArray&) { begin = ProcessorSeconds(); });
    const double took = ProcessorSeconds() - begin;
    buckets.BeginRest();
    buckets.Wait();
    std::vector<BucketTime> times;
    const std::vector<int32_t> order = buckets.completed();
    for (size_t i = 0; i < timed.complete().size(); ++i) {
      const auto [first, end] = buckets.range(order[i]);
      times.push_back({timed.complete()[i] - begin, (end - first) * 4});
    }
    const Overlap overlap = OverlapOf(times, took, static_cast<int>(state.range(0)), link);
    communication += overlap.communication;
    exposed += overlap.exposed;
    backward += took;
    ++steps;
  }
  state.counters["backward_ms"] = 1e3 * backward / steps;
  state.counters["communication_ms"] = 1e3 * communication / steps;
  state.counters["exposed_ms"] = 1e3 * exposed / steps;
  state.counters["hidden_percent"] = 100 * (1 - exposed / communication);
}
void Cases(benchmark::internal::Benchmark* benchmark) {
  for (const int ranks : {2, 8, 64, 256, 1024}) {
    for (const int kib : {64, 256, 1 << 20}) {
      benchmark->Args({ranks, kib, 2, 80});    // 100 Gb/s
      benchmark->Args({ranks, kib, 20, 800});  // 10 Gb/s
    }
  }
}
BENCHMARK(BM_HiddenBehindTheBackwardPass)
    ->ArgNames({"ranks", "bucket_KiB", "alpha_us", "beta_ps"})
    ->Apply(Cases)
    ->Unit(benchmark::kMillisecond);

// Calls `body` on a thread for each rank, whose messages take what `link` says.
void RunRanks(int count, const LinkCost& link, absl::FunctionRef<void(Communicator&)> body) {
  ThreadRanks ranks(count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator communicator(
          [&] { return std::make_unique<DelayedTransport>(ranks.Open(rank), link); });
      body(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Arguments: KiB of a bucket, alpha in microseconds, beta in picoseconds a byte, what is in parts.
void BM_HiddenOverDelayedLinks(benchmark::State& state) {
  constexpr int kRanks = 2;
  const LinkCost link{1e-6 * static_cast<double>(state.range(1)),
                      1e-12 * static_cast<double>(state.range(2))};
  DistributedConfig config;
  config.bucket_bytes = state.range(0) << 10;
  config.shard_updater = state.range(3) == 1;
  config.shard_parameters = state.range(3) == 2;
  HiddenShare found;
  for (auto _ : state) {
    RunRanks(kRanks, link, [&](Communicator& communicator) {
      const HiddenShare share = MeasureHidden(communicator, config);
      if (communicator.rank() == 0) found = share;
    });
  }
  state.counters["collectives"] = found.collectives;
  state.counters["messages"] = found.messages;
  state.counters["bytes"] = found.bytes;
  state.counters["communication_ms"] = 1e3 * found.busy_seconds;
  state.counters["waited_ms"] = 1e3 * found.waited_seconds;
  state.counters["hidden_percent"] = 100 * found.hidden();
}
BENCHMARK(BM_HiddenOverDelayedLinks)
    ->ArgNames({"bucket_KiB", "alpha_us", "beta_ps", "parts"})
    ->ArgsProduct({{64, 256, 1 << 20}, {20}, {800, 8000}, {0, 1, 2}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// What it is given; each pass takes that long and no processor.
class Sleeping final : public Layer {
 public:
  explicit Sleeping(std::chrono::milliseconds time) : time_(time) {}
  std::string Kind() const override { return "sleeping"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext& context, const NDArray& input) const override {
    if (context.training) std::this_thread::sleep_for(time_);
    NDArray output;
    {
      const NoGradientScope none;
      output = input.Dup();
    }
    SetGradient("sleeping", {&input, 1}, {&output, 1},
                [time = time_](absl::Span<const NDArray> gradients) {
                  std::this_thread::sleep_for(time);
                  return std::vector<NDArray>{gradients[0].Dup()};
                });
    return output;
  }

 private:
  const std::chrono::milliseconds time_;
};

// Arguments: layers in a bucket, milliseconds of a layer's pass. Sums of a layer's 64 KiB take 20 ms, so that what a busy
// machine adds to a sleep or a message is little beside it.
void BM_HiddenBehindLayersThatSleep(benchmark::State& state) {
  constexpr int kRanks = 2, kLayers = 6, kSteps = 4;
  constexpr int64_t kBytes = 128 * 128 * 4;
  const LinkCost link{1e-3, 9e-3 / (kBytes / 2)};
  const std::chrono::milliseconds pass(state.range(1));
  double busy = 0, waited = 0;
  for (auto _ : state) {
    RunRanks(kRanks, link, [&](Communicator& communicator) {
      WorkerPool pool(1);
      const ThreadPoolScope thread(pool);
      std::vector<AnyLayer> layers;
      for (int i = 0; i < kLayers; ++i) {
        layers.push_back(Dense(128, Activation::kIdentity, {.bias = false}));
        layers.push_back(Sleeping(pass));
      }
      Network network(NetworkConfig::Sequential({128}, layers));
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
      DistributedTrainer distributed(trainer, communicator,
                                     {.bucket_bytes = kBytes * state.range(0)});
      const auto step = [&] {
        distributed.Step([] {
          return std::optional<Batch>(Batch(Zeros({1, 128}), Zeros({1}, DType::kInt64)));
        });
      };
      for (int i = 0; i < 2; ++i) step();
      communicator.Barrier("before");
      const CommunicatorStats before = communicator.stats();
      for (int i = 0; i < kSteps; ++i) step();
      const CommunicatorStats after = communicator.stats();
      communicator.Barrier("behind");
      if (communicator.rank() > 0) return;
      busy = (after.busy_seconds - before.busy_seconds) / kSteps;
      waited = (after.waited_seconds - before.waited_seconds) / kSteps;
    });
  }
  // A layer's gradient is complete when the pass of its sleeper and those behind is over; the first layer's sleeper ends
  // the whole pass. Words at a step's beginning are behind the forward pass, those at its end are not.
  const double words = SecondsOf(CollectiveKind::kAllReduce, 32, kRanks, link);
  const int of_bucket = static_cast<int>(state.range(0));
  std::vector<BucketTime> times;
  for (int end = of_bucket; end <= kLayers; end += of_bucket)
    times.push_back({1e-3 * static_cast<double>(end * state.range(1)), kBytes * of_bucket});
  const Overlap most =
      OverlapOf(times, 1e-3 * static_cast<double>(kLayers * state.range(1)), kRanks, link);
  state.counters["communication_ms"] = 1e3 * busy;
  state.counters["waited_ms"] = 1e3 * waited;
  state.counters["hidden_percent"] = 100 * (1 - waited / busy);
  state.counters["most_percent"] =
      100 * (1 - (most.exposed + words) / (most.communication + 2 * words));
}
BENCHMARK(BM_HiddenBehindLayersThatSleep)
    ->ArgNames({"layers_of_bucket", "pass_ms"})
    ->ArgsProduct({{1, 2, 3, 6}, {30}})
    ->Args({1, 15})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidepool::nn
