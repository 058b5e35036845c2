#include "tidepool/memory/workspace/plan_learner.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

// One request: its size, and before which it is released; 0: it lives to the end.
struct Request {
  size_t bytes;
  uint32_t until = 0;
};

// Plays the part of a workspace or a slot: cycles follow what was learned.
class Player {
 public:
  explicit Player(const WorkspaceConfig& config, int window = 0, size_t initial = 0)
      : learner_(config, 64, window) {
    learner_.SetInitialBytes(initial);
  }

  PlanLearner& learner() { return learner_; }
  const PlanLearner* operator->() const { return &learner_; }
  uint64_t misses() const { return misses_; }

  // A cycle that was handed over, or has ended; it is learned from by Learn().
  void Make(const std::vector<Request>& requests) {
    const auto count = static_cast<uint32_t>(requests.size());
    slots_.clear();
    for (const Request& request : requests) {
      slots_.push_back(RequestSlot::Released(request.until == 0 ? count : request.until));
    }
    lesson_ = learner_.lesson();
    cycle_ = {};
    cycle_.made = {{slots_.data(), slots_.size()}, nullptr};
    cycle_.recorder = &recorder_;
    cycle_.followed = lesson_.next;
    // The plan that has the same requests, as a workspace would find it.
    for (uint32_t i = 0; i < lesson_.plans->size(); ++i) {
      if (Follows((*lesson_.plans)[i], requests)) cycle_.followed = &(*lesson_.plans)[i];
    }
    const bool follows = cycle_.followed != nullptr && Follows(*cycle_.followed, requests);
    if (cycle_.followed != nullptr && !follows) {
      cycle_.misses = 1;
      ++misses_;
    }
    recorder_.Begin(!follows);
    for (uint32_t slot = 0; slot < count; ++slot) {
      cycle_.bytes += requests[slot].bytes;
      if (follows) continue;
      recorder_.Reserve();
      recorder_.Add(slot, requests[slot].bytes);
    }
    recorder_.Finish(cycle_.made);
    cycle_.reach = cycle_.cursor = cycle_.bytes;
  }
  EndedCycle& cycle() { return cycle_; }

  void Learn() {
    if (const std::optional<WantedPlan> wanted = learner_.Observe(cycle_)) {
      learner_.Adopt(*wanted, PlanLearner::MakePlan(*wanted, cycle_));
    }
  }
  void Run(const std::vector<Request>& requests) {
    Make(requests);
    Learn();
  }
  void Total(size_t bytes) {
    slots_.clear();
    cycle_ = {};
    recorder_.Begin(false);
    recorder_.Finish({});
    cycle_.recorder = &recorder_;
    cycle_.bytes = bytes;
    Learn();
  }

 private:
  static bool Follows(const LearnedCycle& learned, const std::vector<Request>& requests) {
    const CyclePlan& plan = *learned.plan;
    if (plan.requests.size() != requests.size()) return false;
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto until = static_cast<int64_t>(requests[i].until == 0 ? requests.size()
                                                                     : requests[i].until);
      if (plan.requests[i].size != static_cast<int64_t>(requests[i].bytes) ||
          plan.requests[i].upper < until) {
        return false;
      }
    }
    return true;
  }

  PlanLearner learner_;
  Lesson lesson_;
  std::vector<RequestSlot> slots_;
  CycleRecorder recorder_;
  EndedCycle cycle_;
  uint64_t misses_ = 0;
};

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

// ---- effort -----------------------------------------------------------------------------------

std::vector<Request> Shape(size_t kind) { return {{64}, {64 * (2 + kind)}, {128}}; }

TEST(PlanLearner, WhatNeverComesAgainIsNotPlannedForLong) {
  for (const WorkspaceConfig& config : {WorkspaceConfig::Inference(), WorkspaceConfig::Training()}) {
    Player player(config);
    for (size_t i = 0; i < 5000; ++i) player.Run(Shape(i));
    EXPECT_LE(player->plans_made(), 8u);
    EXPECT_TRUE(player->effort().waits());
    EXPECT_GT(player->effort().put_off(), 4900u);
    // Its memory is learned all the same: the pages hold each of them.
    EXPECT_GE(player->bytes(), 64 * 5000u);
    // What repeats from now on is planned at its second occurrence.
    const uint64_t misses = player.misses();
    for (int i = 0; i < 50; ++i) player.Run(Shape(100000));
    EXPECT_LE(player.misses(), misses + 2);
    for (int i = 0; i < 300; ++i) player.Run(Shape(100000));
    EXPECT_EQ(player->bytes(), 64 * (100002u + 3)) << "and pages fit it";
  }
}

TEST(PlanLearner, ManyKindsInTurnsAreAllPlanned) {
  constexpr size_t kKinds = 300;
  Player player(WorkspaceConfig::Inference());
  std::mt19937_64 random(1);
  for (int i = 0; i < 6000; ++i) player.Run(Shape(random() % kKinds));
  EXPECT_EQ(player->plans().size(), kKinds);
  EXPECT_LE(player->plans_made(), kKinds * 5 / 4) << "most were planned once";
  const uint64_t misses = player.misses();
  for (int i = 0; i < 3000; ++i) player.Run(Shape(random() % kKinds));
  EXPECT_LE(player.misses(), misses + 5);
}

// More kinds than there is memory for: some are planned, and they do not take turns at being forgotten.
TEST(PlanLearner, BeyondItsMemoryPlansDoNotTakeTurns) {
  Player player(WorkspaceConfig::Inference());
  const auto large = [](size_t kind) {
    std::vector<Request> requests(3000, Request{64});
    requests[0].bytes = 64 * (2 + kind);
    return requests;
  };
  for (int round = 0; round < 4; ++round) {
    for (size_t kind = 0; kind < 400; ++kind) player.Run(large(kind));
  }
  const size_t kept = player->plans().size();
  EXPECT_GT(kept, 50u);
  EXPECT_LT(kept, 400u);
  EXPECT_LE(player->plans().state_bytes(), PlanSet::kMostBytes + PlanSet::kMostBytes / 8);
  const uint64_t misses = player.misses(), made = player->plans_made();
  for (size_t kind = 0; kind < 400; ++kind) player.Run(large(kind));
  EXPECT_LE(player.misses(), misses + 400 - kept + 5);
  EXPECT_LE(player->plans_made(), made + 5);
  // One that repeats at once has a plan whatever there is.
  for (int i = 0; i < 3; ++i) player.Run(large(1000));
  const uint64_t before = player.misses();
  for (int i = 0; i < 10; ++i) player.Run(large(1000));
  EXPECT_EQ(player.misses(), before);
}

}  // namespace
}  // namespace tidepool
