// Batches of other sizes under a step budget.
#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 16;

Network Deep(const std::string& name) {
  return DeepNetwork(name, 24, SearchingBriefly(Options(WorkspaceMode::kEnabled)));
}

// The last batch of an epoch has other requests, and pages were taken beside the plan's for those that fitted nowhere.
TEST(StepBudgetTest, SmallerBatchesKeepToTheBudget) {
  for (const char* const name : kDeepNetworks) {
    for (const bool told : {false, true}) {
      SCOPED_TRACE(std::string(name) + (told ? ", told" : ""));
      Network network = Deep(name), kept = Deep(name);
      StepShape shape{.batch = kBatch};
      if (told) shape.other_batches = {kBatch / 2, 3};
      const StepBudgetReport report = SetStepBudget(network, {.limit = "60%", .shape = shape});
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam)),
          keeping(kept, UpdaterConfig::Of(UpdaterKind::kAdam));
      const auto step = [](Trainer& of, int64_t batch, uint64_t seed) {
        return of.Step([&] {
          NDArray features = RandomUniform({batch, 28, 28, 1}, 0, 1, seed);
          return Batch(features, RandomIntegers({batch}, 0, 10, seed));
        });
      };
      const auto pages = [&] {
        return MemoryBudget::Global()
            .Of(network.training_workspace().core()->memory_owner, Host())
            .taken_bytes;
      };
      step(trainer, kBatch, 0), step(keeping, kBatch, 0);
      const int64_t before = pages();
      uint64_t seed = 0;
      for (const int64_t batch : {kBatch / 2, kBatch, int64_t{3}, kBatch, kBatch / 2}) {
        ++seed;
        EXPECT_EQ(step(trainer, batch, seed), step(keeping, batch, seed)) << batch;
        const WorkspaceStats stats = network.training_workspace().stats();
        if (told) {
          EXPECT_EQ(stats.misses + stats.spills, 0u) << batch;
          EXPECT_LE(static_cast<int64_t>(stats.planned_peak_bytes) + report.file_bytes,
                    report.planned_bytes)
              << batch;
        }
        EXPECT_LE(pages(), before) << batch;
      }
      EXPECT_EQ(BytesOf(network.arrays()), BytesOf(kept.arrays()));
    }
  }
  Network network = Deep("lstm");
  for (const int64_t batch : {int64_t{0}, int64_t{-3}, kBatch + 1}) {
    EXPECT_THAT(MessageOf([&] {
                  SetStepBudget(network, {.limit = "60%",
                                          .shape = {.batch = kBatch, .other_batches = {batch}}});
                }),
                HasSubstr("examples, expected 1 to 16"));
  }
}

}  // namespace
}  // namespace tidepool::nn
