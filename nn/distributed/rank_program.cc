// One rank of a job, for mpi_test.cc: does what its first argument says and ends with 1, and why,
// where that went wrong.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/distributed/cost_model.h"
#include "tidepool/nn/distributed/delayed_transport.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/heartbeat.h"
#include "tidepool/nn/distributed/hidden_share.h"
#include "tidepool/nn/distributed/start_limit.h"
#include "tidepool/nn/parallel/parallel_testing.h"

namespace tidepool::nn {
namespace {

int failures = 0;

void Expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

void RunCollectives(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  const auto value = [](int of, int64_t i) { return static_cast<float>((i * 31 + of * 17) % 101); };
  for (const int64_t count : {1, 100, 4097, 300001}) {
    const std::string of = " of " + std::to_string(count);
    std::vector<float> values(static_cast<size_t>(count)), sum(values.size());
    for (int r = 0; r < size; ++r) {
      for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] += value(r, i);
    }
    const auto fill = [&] {
      for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value(rank, i);
    };
    fill();
    communicator.Barrier("before");
    const int64_t before = communicator.stats().bytes_sent;
    communicator.AllReduce(absl::MakeSpan(values), "test");
    const int64_t sent = communicator.stats().bytes_sent - before;
    Expect(values == sum, "all-reduce" + of);
    // Parts differ by one element at most, of which a rank sends all but one, twice.
    if (count > 4096) {
      Expect(std::abs(static_cast<double>(sent) -
                      2.0 * (size - 1) / size * static_cast<double>(count) * 4) <= 8.0 * size,
             "bytes" + of);
    }
    fill();
    communicator.ReduceScatter(absl::MakeSpan(values), "test");
    communicator.AllGather(absl::MakeSpan(values), "test");
    Expect(values == sum, "reduce-scatter and all-gather" + of);
    fill();
    communicator.Broadcast(absl::MakeSpan(values), size - 1, "test");
    bool is_last = true;
    for (int64_t i = 0; i < count; ++i)
      is_last = is_last && values[static_cast<size_t>(i)] == value(size - 1, i);
    Expect(is_last, "broadcast" + of);
  }
}

// A hundred steps on the ranks against as many of one network with all their examples, here.
void RunTraining(Communicator& communicator) {
  constexpr int kSteps = 100;
  const int size = communicator.size();
  const NetworkOptions options{.seed = 5, .dtype = DType::kFloat64};
  Network network = NetworkOf("mlp", options);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kNesterovs));
  DistributedTrainer distributed(trainer, communicator, {.bucket_bytes = 1 << 20, .ranks = size});
  Batches small(4, DType::kFloat64);
  int64_t allocations = 0;
  for (int i = 0; i < kSteps; ++i) {
    if (i == 4) allocations = MemoryTracker::Global().system_allocations();
    distributed.Step([&] { return std::optional<Batch>(small(i * size + communicator.rank())); });
  }
  Expect(MemoryTracker::Global().system_allocations() == allocations,
         "steady steps took memory from the system");
  distributed.CheckSameParameters();
  if (communicator.rank() == 0) {
    Network one = NetworkOf("mlp", options);
    Trainer alone(one, UpdaterConfig::Of(UpdaterKind::kNesterovs));
    Batches large(4 * size, DType::kFloat64);
    for (int i = 0; i < kSteps; ++i) alone.Step([&] { return large(i); });
    const double difference = LargestDifference(one.parameters(), network.parameters());
    Expect(difference < 1e-9, "parameters differ by " + std::to_string(difference));
    std::printf("after %d steps of %d ranks parameters differ by %.3g from one rank's\n", kSteps,
                size, difference);
  }
}

// Rank 1 never comes.
void Hang(Communicator& communicator, bool as_another) {
  Heartbeat heartbeat(communicator, {.interval = std::chrono::milliseconds(100),
                                     .limit = std::chrono::milliseconds(3000)});
  communicator.set_step(12);
  std::vector<float> values(100);
  communicator.AllReduce(absl::MakeSpan(values), "gradients");
  heartbeat.Guard([&] {
    if (communicator.rank() == 1 && as_another)
      communicator.AllReduce(absl::MakeSpan(values).subspan(0, 50), "losses");
    while (communicator.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    communicator.AllReduce(absl::MakeSpan(values), "gradients");
  });
}

// Rank 1 comes to the heartbeat later than a connection may take.
void ComeLate(Communicator& communicator) {
  HeartbeatConfig config;
  config.patience = std::chrono::milliseconds(3000);
  if (communicator.rank() == 1) std::this_thread::sleep_for(config.patience * 4 / 3);
  const Heartbeat heartbeat(communicator, config);
  communicator.Barrier("start");
  Expect(heartbeat.verdict().empty(), heartbeat.verdict());
}

// Seconds of an all-reduce by size, the least of some: what a model of cost is fitted to, or, over
// `link`, compared with (docs/distributed.md).
void MeasureCost(Communicator& communicator, const LinkCost* link = nullptr) {
  const int times = link != nullptr ? 5 : 30;
  for (int64_t bytes = 1 << 10; bytes <= (link != nullptr ? 4 << 20 : 64 << 20); bytes *= 4) {
    std::vector<float> values(static_cast<size_t>(bytes / 4));
    double least = 1e9;
    for (int i = 0; i < times; ++i) {
      communicator.Barrier("before");
      const double before = communicator.stats().busy_seconds;
      communicator.AllReduce(absl::MakeSpan(values), "cost");
      least = std::min(least, communicator.stats().busy_seconds - before);
    }
    if (communicator.rank() != 0) continue;
    std::printf("%d ranks %10lld bytes %10.1f us", communicator.size(),
                static_cast<long long>(bytes), least * 1e6);
    if (link != nullptr) {
      std::printf(", %10.1f by the formula",
                  SecondsOf(CollectiveKind::kAllReduce, bytes, communicator.size(), *link) * 1e6);
    }
    std::printf("\n");
  }
}

// What of the communication is hidden, or what sums cost, over links that are slower.
int MeasureOver(const LinkCost& link, bool is_cost) {
  Communicator communicator(
      [&] { return std::make_unique<DelayedTransport>(OpenTransport(), link); });
  if (is_cost) {
    MeasureCost(communicator, &link);
    communicator.Barrier("end");
    return 0;
  }
  for (const int64_t kib : {64, 256, 1 << 20}) {
    for (const char* const parts : {"nothing", "updater", "parameters"}) {
      DistributedConfig config;
      config.bucket_bytes = kib << 10;
      config.shard_updater = parts[0] == 'u';
      config.shard_parameters = parts[0] == 'p';
      const HiddenShare share = MeasureHidden(communicator, config);
      if (communicator.rank() != 0) continue;
      std::printf(
          "buckets of %7lld KiB, %-10s in parts: %4.0f collectives, %5.0f messages, %9.0f "
          "bytes, %7.2f ms, waited %7.2f ms, hidden %3.0f %%\n",
          static_cast<long long>(kib), parts, share.collectives, share.messages, share.bytes,
          1e3 * share.busy_seconds, 1e3 * share.waited_seconds, 100 * share.hidden());
    }
  }
  communicator.Barrier("end");
  return 0;
}

// Rank 1 is stopped before it has come.
int Start() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank != nullptr && std::string(rank) == "1") raise(SIGSTOP);
  std::optional<StartLimit> start(std::in_place, std::chrono::milliseconds(3000));
  const auto communicator = Communicator::Open();
  Heartbeat heartbeat(*communicator);
  start.reset();
  return 0;
}

int Main(const std::string& what) {
  if (what == "start") return Start();
  const auto communicator = Communicator::Open();
  if (what == "collectives") {
    RunCollectives(*communicator);
  } else if (what == "training") {
    RunTraining(*communicator);
  } else if (what == "cost") {
    MeasureCost(*communicator);
  } else if (what == "hang" || what == "part") {
    Hang(*communicator, what == "part");
  } else if (what == "late") {
    ComeLate(*communicator);
  } else {
    Expect(false, "no such test: " + what);
  }
  communicator->Barrier("end");
  return failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tidepool::nn

int main(int argc, char** argv) {
  try {
    const std::string what = argc > 1 ? argv[1] : "";
    // Of links, microseconds a message and picoseconds a byte.
    if (argc == 4 && (what == "hidden" || what == "cost")) {
      return tidepool::nn::MeasureOver({1e-6 * std::atof(argv[2]), 1e-12 * std::atof(argv[3])},
                                       what == "cost");
    }
    return tidepool::nn::Main(what);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
