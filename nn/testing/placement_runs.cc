#include "tidepool/nn/testing/placement_runs.h"

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/training/trainer.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {

int64_t MeasuredTrainingBytes(const std::string& example, const NetworkOptions& options, int64_t batch) {
  const int64_t before = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  Network network = ExampleNetwork(example, options);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  const auto step = [&] { trainer.Step([&] { return SomeBatch(batch, 1); }); };
  for (int i = 0; i < 4; ++i) step();
  if (network.training_mode() != WorkspaceMode::kNone) network.training_workspace().FinishPlanSearch();
  MemoryTracker::Global().ResetPeaks();
  step();
  return MemoryTracker::Global().Snapshot()[Host()].total.peak_bytes - before;
}

}  // namespace tidepool::nn
