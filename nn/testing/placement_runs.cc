#include "tidepool/nn/testing/placement_runs.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

int64_t MeasuredTrainingBytes(const std::string& example, const NetworkOptions& options,
                              int64_t batch) {
  return MeasuredTrainingBytes([&] { return ExampleNetwork(example, options); },
                               UpdaterConfig::Of(UpdaterKind::kAdam),
                               [&] { return SomeBatch(batch, 1); });
}

int64_t MeasuredTrainingBytes(const std::function<Network()>& make, const UpdaterConfig& updater,
                              const std::function<Batch()>& make_batch) {
  const int64_t before = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  Network network = make();
  Trainer trainer(network, updater);
  const auto step = [&] { trainer.Step([&] { return make_batch(); }); };
  for (int i = 0; i < 4; ++i) step();
  if (network.training_mode() != WorkspaceMode::kNone)
    network.training_workspace().FinishPlanSearch();
  MemoryTracker::Global().ResetPeaks();
  step();
  return MemoryTracker::Global().Snapshot()[Host()].total.peak_bytes - before;
}

RefusedRuns RefuseEachRequest(const std::function<Network()>& make, const UpdaterConfig& updater,
                              const std::function<Batch(int64_t)>& make_batch) {
  constexpr int kSteps = 3, kMostRefused = 10;
  // The heap gives back what it keeps and asks again before it says no.
  constexpr int64_t kNone = int64_t{1} << 40, kTimes = 3;
  FailingProvider memory{Host()};
  struct Outcome {
    std::vector<double> losses;
    std::vector<float> arrays, output;
    bool operator==(const Outcome&) const = default;
  };
  RefusedRuns runs;
  const auto run = [&](int64_t n, int* refused) {
    Network network = make();
    Trainer trainer(network, updater);
    Outcome outcome;
    memory.faults().FailRequest(n, kTimes);
    while (trainer.steps() < kSteps && *refused < kMostRefused) {
      try {
        outcome.losses.push_back(trainer.Step([&] { return make_batch(trainer.steps()); }));
      } catch (const OutOfMemoryError&) {
        ++*refused;
        for (const Workspace* workspace : network.training_workspaces().workspaces()) {
          if (workspace->is_open()) ++runs.others;
        }
      }
    }
    if (n == kNone) runs.requests = memory.faults().requests();
    memory.faults().Clear();
    outcome.arrays = network.arrays().ToVector<float>();
    outcome.output = network.Output(make_batch(0).features).ToVector<float>();
    return outcome;
  };
  int refused = 0;
  const Outcome expected = run(kNone, &refused);
  runs.others += refused;
  for (int64_t n = 0; n < runs.requests; ++n) {
    refused = 0;
    const bool is_same = run(n, &refused) == expected;
    if (!is_same && runs.others == 0) {
      std::printf("request %lld, %d steps refused: other bits\n", static_cast<long long>(n),
                  refused);
    }
    runs.others += is_same ? 0 : 1;
    runs.refused += refused;
  }
  return runs;
}

}  // namespace tidepool::nn
