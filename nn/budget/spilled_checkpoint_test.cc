// Checkpoints of trainers whose parameters are in a file.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/budget/spilled_trainer.h"
#include "tidepool/nn/budget/spilled_training_runs.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/training/checkpoint.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

// Whoever saves, whoever goes on: the bits are those of a run that never stopped.
TEST(SpilledTrainer, CheckpointsAreThoseOfAnyTrainer) {
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.schedule = Schedule::Cosine(20);
  for (const char* const name : {"residual", "transformer"}) {
    const auto make = [&](uint64_t seed) {
      NetworkOptions options = Options(WorkspaceMode::kEnabled);
      options.seed = seed;
      return DeepNetwork(name, 3, options);
    };
    const auto path = [&](const char* of) {
      return absl::StrCat(testing::TempDir(), "/", name, "_", of, ".safetensors");
    };
    Network whole = make(1), parts = make(1);
    const Trained expected = InMemory(make(1), adam, 8);
    Trained left, right;
    {
      Trainer trainer(whole, adam);
      SpilledTrainer spilled(parts, adam, {.file = SmallBlocks(), .ahead = 1});
      Train(trainer, 0, 4, &left);
      Train(spilled, 0, 4, &right);
      SaveCheckpoint(trainer, path("whole"), {{"by", "trainer"}});
      spilled.SaveCheckpoint(path("parts"), {{"by", "spilled"}});
      EXPECT_THAT(MessageOf([&] {
                    spilled.SaveCheckpoint(path("bad"), {{"steps", "3"}});
                  }),
                  HasSubstr("a note is called \"steps\""));
    }
    Network into_whole = make(1), into_parts = make(1);
    Trainer trainer(into_whole, adam);
    SpilledTrainer spilled(into_parts, adam, {.file = SmallBlocks(), .ahead = 2});
    EXPECT_EQ(LoadCheckpoint(path("parts"), trainer).at("by"), "spilled");
    EXPECT_EQ(spilled.LoadCheckpoint(path("whole")).at("by"), "trainer");
    EXPECT_EQ(spilled.steps(), 4);
    Train(trainer, 4, 8, &left);
    Train(spilled, 4, 8, &right);
    EXPECT_EQ(left.losses, expected.losses) << name;
    AddParameters(spilled, into_parts, &right);
    EXPECT_EQ(right, expected) << name;

    // What it cannot go on from changes nothing.
    UpdaterConfig other = adam;
    other.learning_rate *= 2;
    Network third = make(1);
    SpilledTrainer wrong(third, other, {.file = SmallBlocks()});
    EXPECT_THAT(MessageOf([&] { wrong.LoadCheckpoint(path("whole")); }), HasSubstr("\"updater\""));
    EXPECT_EQ(wrong.steps(), 0);
    // Of one that has made no step: no state, which is zeros.
    wrong.SaveCheckpoint(path("new"));
    Network fourth = make(1);
    Trainer begins(fourth, other);
    LoadCheckpoint(path("new"), begins);
    EXPECT_EQ(begins.Step([] { return SomeBatch(4, 0); }),
              wrong.Step([] { return SomeBatch(4, 0); }));
  }
}

}  // namespace
}  // namespace tidepool::nn
