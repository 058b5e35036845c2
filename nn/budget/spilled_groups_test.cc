// SpilledTrainer: groups of parameters, and step budgets beside it.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/nn/budget/spilled_trainer.h"
#include "tidepool/nn/budget/spilled_training_runs.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Groups of parameters have their own rates and decay, and some are left alone: as those of a Trainer.
TEST(SpilledTrainer, FollowsTheUpdatersGroups) {
  for (const ClippingKind clipping : {ClippingKind::kNone, ClippingKind::kNormOfEach}) {
    for (const bool padded : {true, false}) {
      SCOPED_TRACE(absl::StrCat(static_cast<int>(clipping), padded ? " padded" : ""));
      UpdaterConfig updater = UpdaterConfig::Of(UpdaterKind::kAdamW);
      updater.clipping = {clipping, 0.02};
      const auto make = [] { return ExampleNetwork("lenet", Options(WorkspaceMode::kEnabled)); };
      Network whole = make(), parts = make(), plain = make();
      std::vector<ParameterGroup> groups;
      for (const NamedParameter& parameter : whole.named_parameters()) {
        if (!parameter.is_trained) continue;
        if (!groups.empty() && padded) groups.back().end = parameter.begin;
        const auto k = static_cast<double>(groups.size());
        groups.push_back({.begin = parameter.begin,
                          .end = parameter.begin + parameter.value.NumElements(),
                          .rate = 1 + k / 4,
                          .decays = groups.size() % 2 == 0,
                          .frozen = groups.size() == 2});
      }
      if (padded) groups.back().end = whole.trained_elements();
      Trainer trainer(whole, updater), without(plain, updater);
      SpilledTrainer spilled(parts, updater, {.file = SmallBlocks(), .ahead = 1});
      Trained expected, trained, other;
      Train(trainer, 0, 2, &expected);
      Train(spilled, 0, 2, &trained);
      Train(without, 0, 5, &other);
      trainer.updater().SetGroups(groups);
      spilled.updater().SetGroups(groups);
      Train(trainer, 2, 5, &expected);
      Train(spilled, 2, 5, &trained);
      for (const NamedParameter& parameter : whole.named_parameters())
        expected.parameters.push_back(BitsOf(parameter.value));
      AddParameters(spilled, parts, &trained);
      EXPECT_EQ(trained, expected);
      EXPECT_NE(other.losses, expected.losses);

      // Within a parameter.
      const std::string before = trained.parameters[2];
      std::vector<ParameterGroup> cut = groups;
      cut[0].begin = 3;  // elements before it have their own rate
      cut[0].rate = 2;
      spilled.updater().SetGroups(cut);
      EXPECT_THAT(MessageOf([&] { Train(spilled, 5, 6, &trained); }),
                  AllOf(HasSubstr("groups of the updater begin or end within \"0.conv2d.filter\""),
                        HasSubstr("expected groups of whole parameters")));
      EXPECT_EQ(spilled.steps(), 5);
      EXPECT_EQ(BitsOf(spilled.Value(2)), before);
      spilled.updater().SetGroups(groups);
      Train(trainer, 5, 7, &expected);
      Train(spilled, 5, 7, &trained);
      EXPECT_EQ(trained.losses, expected.losses);
    }
  }
}

TEST(SpilledTrainer, TakesNoNetworkThatHasAStepBudget) {
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  Network network = DeepNetwork("residual", 4, Options(WorkspaceMode::kEnabled));
  StepBudget budget{.limit = "90%", .shape = {.batch = 4}};
  SetStepBudget(network, budget);
  const std::string before = BitsOf(network.parameters());
  EXPECT_THAT(MessageOf([&] { SpilledTrainer trainer(network, adam, {.file = SmallBlocks()}); }),
              AllOf(HasSubstr("has a step budget"), HasSubstr("ClearStepBudget(network) before")));
  EXPECT_FALSE(network.is_hosted());
  EXPECT_EQ(BitsOf(network.parameters()), before);
  ClearStepBudget(network);
  SpilledTrainer trainer(network, adam, {.file = SmallBlocks()});
  EXPECT_THAT(MessageOf([&] { SetStepBudget(network, budget); }),
              HasSubstr("has its parameters elsewhere (in a SpilledTrainer's file"));
  Trained trained;
  Train(trainer, 0, 2, &trained);
  EXPECT_EQ(trainer.steps(), 2);
}

}  // namespace
}  // namespace tidepool::nn
