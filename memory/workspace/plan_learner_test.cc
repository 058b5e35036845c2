#include "tidepool/memory/workspace/plan_learner.h"

#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/workspace/plan_player.h"

namespace tidepool {
namespace {

constexpr int kWindow = 64;

WorkspaceConfig Totals(SpillPolicy spill) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.policy_learning = LearningPolicy::kFirstLoop;
  config.policy_spill = spill;
  return config;
}

TEST(RecentPeak, RemembersOneToTwoWindows) {
  RecentPeak recent(4);
  recent.Add(100);
  for (int i = 0; i < 7; ++i) {
    recent.Add(5);
    EXPECT_EQ(recent.peak(), 100u) << i;
  }
  recent.Add(5);
  EXPECT_EQ(recent.peak(), 5u);
  recent.Clear();
  EXPECT_EQ(recent.peak(), 0u);
}

TEST(RecentNeed, IsWhatComesAgain) {
  RecentNeed recent(8);
  recent.Add(100);
  recent.Add(0);
  recent.Add(50);
  EXPECT_EQ(recent.peak(), 0u) << "twice is not often";
  recent.Add(50);
  EXPECT_EQ(recent.peak(), 100u);
  for (int i = 0; i < 16; ++i) recent.Add(0);
  EXPECT_EQ(recent.peak(), 0u);
}

// ---- totals -----------------------------------------------------------------------------------

TEST(PlanLearner, TotalsGrowAndOutliersAreForgottenWithinAWindow) {
  Player player(Totals(SpillPolicy::kReallocate), kWindow);
  EXPECT_EQ(player->bytes(), 0u);
  player.Total(0);  // an empty batch teaches nothing
  EXPECT_EQ(player->bytes(), 0u);
  player.Total(1024);
  EXPECT_EQ(player->bytes(), 1024u);
  const uint64_t version = player->version();
  player.Total(512);
  EXPECT_EQ(player->version(), version);
  player.Total(1 << 20);
  EXPECT_EQ(player->bytes(), size_t{1} << 20);
  for (int i = 0; i < 128; ++i) player.Total(1024);
  EXPECT_EQ(player->bytes(), 1024u);
}

TEST(PlanLearner, WithoutAWindowTotalsStay) {
  Player player(Totals(SpillPolicy::kReallocate));
  player.Total(1 << 20);
  for (int i = 0; i < 1000; ++i) player.Total(1024);
  EXPECT_EQ(player->bytes(), size_t{1} << 20);
}

TEST(PlanLearner, ALittleLessMovesNothing) {
  Player player(Totals(SpillPolicy::kReallocate), kWindow);
  player.Total(1000);
  const uint64_t version = player->version();
  for (int i = 0; i < 300; ++i) player.Total(800);
  EXPECT_EQ(player->version(), version);
  EXPECT_EQ(player->bytes(), 1000u);
}

TEST(PlanLearner, ExternalKeepsTheFirstSize) {
  Player player(Totals(SpillPolicy::kExternal), kWindow);
  player.Total(1024);
  player.Total(4096);
  for (int i = 0; i < 300; ++i) player.Total(64);
  EXPECT_EQ(player->bytes(), 1024u);
}

TEST(PlanLearner, SizesRespectTheBounds) {
  WorkspaceConfig config = Totals(SpillPolicy::kReallocate);
  config.min_size = 2048;
  config.max_size = 8192;
  config.policy_allocation = AllocationPolicy::kOverallocate;
  config.overallocation_limit = Overallocation::Ratio(0.5);
  Player player(config, kWindow);
  player.Total(64);
  EXPECT_EQ(player->bytes(), 2048u);
  player.Total(4096);
  EXPECT_EQ(player->bytes(), 6144u);
  player.Total(100000);
  EXPECT_EQ(player->bytes(), 8192u);
  const uint64_t version = player->version();
  player.Total(100000);  // cannot grow: nothing changes again and again
  EXPECT_EQ(player->version(), version);
}

TEST(PlanLearner, OverTimeWaitsForItsNumberOrInitialize) {
  WorkspaceConfig config = Totals(SpillPolicy::kReallocate);
  config.policy_learning = LearningPolicy::kOverTime;
  config.cycles_before_initialization = 3;
  Player player(config, kWindow);
  for (size_t bytes : {100, 300}) player.Total(bytes);
  EXPECT_EQ(player->bytes(), 0u);
  player.Total(200);
  EXPECT_EQ(player->bytes(), 300u);
  config.cycles_before_initialization = 0;
  Player manual(config, kWindow);
  for (size_t bytes : {100, 300, 200, 50}) manual.Total(bytes);
  EXPECT_EQ(manual->bytes(), 0u);
  manual.learner().Initialize();
  EXPECT_EQ(manual->bytes(), 300u);
}

TEST(PlanLearner, TrimAndForget) {
  Player player(Totals(SpillPolicy::kReallocate), kWindow, 256);
  EXPECT_EQ(player->bytes(), 256u);
  player.Total(4096);
  player.learner().Trim(0);
  EXPECT_EQ(player->bytes(), 4096u);
  for (int i = 0; i < 130; ++i) player.Total(3500);
  EXPECT_EQ(player->bytes(), 4096u);
  player.learner().Trim(0);  // also for less than a quarter
  EXPECT_EQ(player->bytes(), 3500u);
  player.learner().Forget();
  EXPECT_EQ(player->bytes(), 256u);
}

// ---- plans ------------------------------------------------------------------------------------

TEST(PlanLearner, OneCycleIsPlannedAtOnce) {
  Player player(WorkspaceConfig::Training());
  // A temporary of 4096 dies before an array of 4096 is made: they share their bytes.
  player.Run({{4096, 1}, {4096}, {128}});
  ASSERT_NE(player->next(), nullptr);
  EXPECT_EQ(player->bytes(), 4096u + 128);
  EXPECT_EQ(player->plans_made(), 1u);
  EXPECT_EQ(player->next()->plan->lower_bound_bytes, 4096u + 128);
  const uint64_t version = player->version();
  for (int i = 0; i < 100; ++i) player.Run({{4096, 1}, {4096}, {128}});
  EXPECT_EQ(player->version(), version);
}

// One strange batch changes nothing; two running, and it is made anew.
TEST(PlanLearner, TheOnlyPlanIsMadeAnewAfterTwoThatMiss) {
  Player player(WorkspaceConfig::Training());
  player.Run({{1024}, {1024}});
  const auto plan = player->next();
  player.Run({{1 << 20}});
  player.Run({{1024}, {1024}});
  EXPECT_EQ(player->next(), plan);
  EXPECT_EQ(player->bytes(), 2048u);
  player.Run({{4096}});
  player.Run({{8192}});
  EXPECT_EQ(player->next()->plan->requests[0].size, 8192);
  EXPECT_EQ(player->bytes(), 8192u);
}

// While a plan is made, other batches are learned from, but none asks for another plan.
TEST(PlanLearner, OnePlanIsMadeAtATime) {
  Player player(WorkspaceConfig::Training());
  player.Make({{1024}, {64}});
  const std::optional<WantedPlan> wanted = player.learner().Observe(player.cycle());
  ASSERT_TRUE(wanted);
  EXPECT_FALSE(player.learner().Observe(player.cycle()));
  EXPECT_EQ(player->next(), nullptr);
  player.learner().Adopt(*wanted, nullptr);  // there was no memory for it
  EXPECT_EQ(player->next(), nullptr);
  const std::optional<WantedPlan> again = player.learner().Observe(player.cycle());
  ASSERT_TRUE(again);
  player.learner().Adopt(*again, PlanLearner::MakePlan(*again, player.cycle()));
  EXPECT_NE(player->next(), nullptr);
  EXPECT_EQ(player->bytes(), 1088u);
}

TEST(PlanLearner, APlanOfWhatWasForgottenMeanwhileIsNotTaken) {
  Player player(WorkspaceConfig::Training());
  player.Make({{1024}});
  const std::optional<WantedPlan> wanted = player.learner().Observe(player.cycle());
  player.learner().Forget();
  const std::optional<WantedPlan> of_now = player.learner().Observe(player.cycle());
  ASSERT_TRUE(of_now);
  player.learner().Adopt(*wanted, PlanLearner::MakePlan(*wanted, player.cycle()));
  EXPECT_EQ(player->next(), nullptr);
  player.learner().Adopt(*of_now, PlanLearner::MakePlan(*of_now, player.cycle()));
  EXPECT_EQ(player->bytes(), 1024u);
}

TEST(PlanLearner, WhoFollowsWhatWasLearnedBeforeDoesNotJudge) {
  Player player(WorkspaceConfig::Training());
  player.Run({{1024}});
  const auto plan = player->next();
  for (int i = 0; i < 5; ++i) {
    player.Make({{64}});
    player.cycle().current = false;
    player.Learn();
  }
  EXPECT_EQ(player->next(), plan);
}

// Who has what was forgotten keeps it.
TEST(PlanLearner, ALessonOutlivesWhatIsForgotten) {
  Player player(WorkspaceConfig::Inference());
  player.Run({{1024}});
  const Lesson lesson = player->lesson();
  player.learner().Forget();
  EXPECT_EQ(player->bytes(), 0u);
  EXPECT_EQ(player->lesson().plans->size(), 0u);
  ASSERT_EQ(lesson.plans->size(), 1u);
  EXPECT_EQ(lesson.next->plan->requests[0].size, 1024);
}

TEST(PlanLearner, NothingIsLearnedWhereNothingMayBe) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.debug_mode = DebugMode::kGuard;
  Player player(config);
  player.Run({{1024}});
  EXPECT_EQ(player->bytes(), 0u);
  EXPECT_EQ(player->next(), nullptr);
}

}  // namespace
}  // namespace tidepool
