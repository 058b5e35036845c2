#include "tidepool/memory/workspace/ring_slot_learner.h"

#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

// Requests that all live to the end.
std::vector<LifetimeBuffer> Record(const std::vector<int64_t>& sizes) {
  std::vector<LifetimeBuffer> record;
  const int64_t end = static_cast<int64_t>(sizes.size()) + 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    record.push_back({static_cast<int64_t>(i) + 1, end + 1, sizes[i]});
  }
  return record;
}

// As a ring does.
void Observe(RingSlotLearner& learning, RingBatch batch) {
  batch.shape = ShapeOf(batch.record);
  if (const std::optional<WantedPlan> wanted = learning.Observe(batch)) {
    learning.Adopt(*wanted, RingSlotLearner::MakePlan(*wanted, batch.record));
  }
}

void ObserveTotal(RingSlotLearner& learning, size_t bytes) {
  RingBatch batch;
  batch.bytes = bytes;
  learning.Observe(batch);
}

// A batch of these sizes, recorded when asked for; `misses` of the plan.
void ObserveBatch(RingSlotLearner& learning, const std::vector<int64_t>& sizes,
                  uint64_t misses = 0) {
  const std::vector<LifetimeBuffer> record = Record(sizes);
  RingBatch batch;
  for (int64_t size : sizes) batch.bytes += size;
  batch.misses = misses;
  if (learning.wants_record()) batch.record = record;
  Observe(learning, batch);
}

WorkspaceConfig Totals(SpillPolicy spill) {
  WorkspaceConfig config = WorkspaceConfig::Ring(4);
  config.policy_learning = LearningPolicy::kFirstLoop;
  config.policy_spill = spill;
  return config;
}

TEST(RecentPeak, RemembersOneToTwoWindows) {
  RecentPeak recent(4);
  recent.Add(100);
  for (int i = 0; i < 7; ++i) {
    recent.Add(5);
    EXPECT_EQ(recent.peak(), 100) << i;
  }
  recent.Add(5);
  EXPECT_EQ(recent.peak(), 5);
  recent.Clear();
  EXPECT_EQ(recent.peak(), 0);
}

TEST(RingSlotLearner, TotalsGrowAndOutliersAreForgotten) {
  RingSlotLearner learning(Totals(SpillPolicy::kReallocate), 64, 0);
  EXPECT_EQ(learning.slot_bytes(), 0);
  ObserveTotal(learning, 0);  // an empty batch teaches nothing
  EXPECT_EQ(learning.slot_bytes(), 0);
  ObserveTotal(learning, 1024);
  EXPECT_EQ(learning.slot_bytes(), 1024);
  const uint64_t version = learning.version();
  ObserveTotal(learning, 512);
  EXPECT_EQ(learning.version(), version);
  ObserveTotal(learning, 1 << 20);
  EXPECT_EQ(learning.slot_bytes(), 1 << 20);
  for (int i = 0; i < 128; ++i) ObserveTotal(learning, 1024);
  EXPECT_EQ(learning.slot_bytes(), 1024);
}

TEST(RingSlotLearner, ALittleLessMovesNothing) {
  RingSlotLearner learning(Totals(SpillPolicy::kReallocate), 64, 0);
  ObserveTotal(learning, 1000);
  const uint64_t version = learning.version();
  for (int i = 0; i < 300; ++i) ObserveTotal(learning, 800);
  EXPECT_EQ(learning.version(), version);
  EXPECT_EQ(learning.slot_bytes(), 1000);
}

TEST(RingSlotLearner, ExternalKeepsTheFirstSize) {
  RingSlotLearner learning(Totals(SpillPolicy::kExternal), 64, 0);
  ObserveTotal(learning, 1024);
  ObserveTotal(learning, 4096);
  for (int i = 0; i < 300; ++i) ObserveTotal(learning, 64);
  EXPECT_EQ(learning.slot_bytes(), 1024);
}

TEST(RingSlotLearner, SizesRespectTheBounds) {
  WorkspaceConfig config = Totals(SpillPolicy::kReallocate);
  config.min_size = 2048;
  config.max_size = 8192;
  config.policy_allocation = AllocationPolicy::kOverallocate;
  config.overallocation_limit = Overallocation::Ratio(0.5);
  RingSlotLearner learning(config, 64, 0);
  ObserveTotal(learning, 64);
  EXPECT_EQ(learning.slot_bytes(), 2048);
  ObserveTotal(learning, 4096);
  EXPECT_EQ(learning.slot_bytes(), 6144);
  ObserveTotal(learning, 100000);
  EXPECT_EQ(learning.slot_bytes(), 8192);
  const uint64_t version = learning.version();
  ObserveTotal(learning, 100000);  // cannot grow: nothing changes again and again
  EXPECT_EQ(learning.version(), version);
}

TEST(RingSlotLearner, OverTimeWaitsForItsNumberOrInitialize) {
  WorkspaceConfig config = Totals(SpillPolicy::kReallocate);
  config.policy_learning = LearningPolicy::kOverTime;
  config.cycles_before_initialization = 3;
  RingSlotLearner learning(config, 64, 0);
  for (size_t bytes : {100, 300}) ObserveTotal(learning, bytes);
  EXPECT_EQ(learning.slot_bytes(), 0);
  ObserveTotal(learning, 200);
  EXPECT_EQ(learning.slot_bytes(), 300);
  config.cycles_before_initialization = 0;
  RingSlotLearner manual(config, 64, 0);
  for (size_t bytes : {100, 300, 200, 50}) ObserveTotal(manual, bytes);
  EXPECT_EQ(manual.slot_bytes(), 0);
  manual.Initialize();
  EXPECT_EQ(manual.slot_bytes(), 300);
}

TEST(RingSlotLearner, RepeatingBatchesArePlannedFromTheFirst) {
  RingSlotLearner learning(WorkspaceConfig::Ring(4), 64, 0);
  EXPECT_TRUE(learning.wants_record());
  // A temporary of 4096 dies before an array of 4096 is made: they share their bytes.
  const std::vector<LifetimeBuffer> record = {{1, 2, 4096}, {3, 5, 4096}, {4, 5, 128}};
  RingBatch batch;
  batch.bytes = 8320;
  batch.record = record;
  Observe(learning, batch);
  EXPECT_FALSE(learning.wants_record());
  ASSERT_NE(learning.learned(), nullptr);
  EXPECT_EQ(learning.slot_bytes(), 4096 + 128);
  EXPECT_EQ(learning.plans(), 1);
  EXPECT_EQ(learning.live_lower_bound_bytes(), 4096 + 128);
}

// One strange batch changes nothing; two running give the plan up; eight alike make a new one.
TEST(RingSlotLearner, APlanIsGivenUpForTotalsAndComesBack) {
  RingSlotLearner learning(WorkspaceConfig::Ring(4), 64, 0);
  ObserveBatch(learning, {1024, 1024});
  const auto plan = learning.learned();
  ObserveBatch(learning, {1 << 20}, 1);
  ObserveBatch(learning, {1024, 1024});
  EXPECT_EQ(learning.learned(), plan);
  EXPECT_EQ(learning.slot_bytes(), 2048);
  ObserveBatch(learning, {4096}, 1);
  ObserveBatch(learning, {8192}, 1);
  EXPECT_EQ(learning.learned(), nullptr);
  EXPECT_EQ(learning.slot_bytes(), 1 << 20);
  for (int i = 0; i < 7; ++i) {
    ObserveBatch(learning, {512, 512});
    EXPECT_EQ(learning.learned(), nullptr);
  }
  ObserveBatch(learning, {512, 512});
  ASSERT_NE(learning.learned(), nullptr);
  EXPECT_EQ(learning.slot_bytes(), 1024);
  EXPECT_EQ(learning.plans(), 2);
}

// While a plan is made, other batches are learned from, but none asks for another plan.
TEST(RingSlotLearner, OnePlanIsMadeAtATime) {
  RingSlotLearner learning(WorkspaceConfig::Ring(4), 64, 0);
  const std::vector<LifetimeBuffer> record = Record({1024, 64});
  RingBatch batch;
  batch.bytes = 1088;
  batch.record = record;
  const std::optional<WantedPlan> wanted = learning.Observe(batch);
  ASSERT_TRUE(wanted);
  EXPECT_TRUE(learning.wants_record());
  EXPECT_FALSE(learning.Observe(batch));
  EXPECT_EQ(learning.learned(), nullptr);
  learning.Adopt(*wanted, nullptr);  // there was no memory for it
  EXPECT_EQ(learning.learned(), nullptr);
  const std::optional<WantedPlan> again = learning.Observe(batch);
  ASSERT_TRUE(again);
  learning.Adopt(*again, RingSlotLearner::MakePlan(*again, record));
  EXPECT_NE(learning.learned(), nullptr);
  EXPECT_EQ(learning.slot_bytes(), 1088);
}

TEST(RingSlotLearner, APlanOfWhatWasForgottenMeanwhileIsNotTaken) {
  RingSlotLearner learning(WorkspaceConfig::Ring(4), 64, 0);
  const std::vector<LifetimeBuffer> record = Record({1024});
  RingBatch batch;
  batch.bytes = 1024;
  batch.record = record;
  const std::optional<WantedPlan> wanted = learning.Observe(batch);
  learning.Forget();
  const std::optional<WantedPlan> of_now = learning.Observe(batch);
  ASSERT_TRUE(of_now);
  learning.Adopt(*wanted, RingSlotLearner::MakePlan(*wanted, record));
  EXPECT_EQ(learning.learned(), nullptr);
  learning.Adopt(*of_now, RingSlotLearner::MakePlan(*of_now, record));
  EXPECT_EQ(learning.slot_bytes(), 1024);
  auto plan = learning.learned();
  learning.Forget();
  EXPECT_EQ(learning.TakeGivenUp(), plan);
}

TEST(RingSlotLearner, BatchesOfOldSlotsDoNotJudgeThePlan) {
  RingSlotLearner learning(WorkspaceConfig::Ring(4), 64, 0);
  ObserveBatch(learning, {1024});
  RingBatch batch;
  batch.bytes = 64;
  batch.current = false;
  batch.misses = 1;
  for (int i = 0; i < 5; ++i) learning.Observe(batch);
  EXPECT_NE(learning.learned(), nullptr);
}

TEST(RingSlotLearner, TrimAndForget) {
  RingSlotLearner learning(Totals(SpillPolicy::kReallocate), 64, 256);
  EXPECT_EQ(learning.slot_bytes(), 256);
  ObserveTotal(learning, 4096);
  learning.Trim();
  EXPECT_EQ(learning.slot_bytes(), 4096);
  for (int i = 0; i < 65; ++i) ObserveTotal(learning, 3500);
  EXPECT_EQ(learning.slot_bytes(), 4096);
  for (int i = 0; i < 64; ++i) ObserveTotal(learning, 3500);
  learning.Trim();  // also for less than a quarter
  EXPECT_EQ(learning.slot_bytes(), 3500);
  learning.Forget();
  EXPECT_EQ(learning.slot_bytes(), 256);
}

TEST(RingSlotLearner, NothingIsLearnedWhereNothingMayBe) {
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.debug_mode = DebugMode::kGuard;
  RingSlotLearner guarded(config, 64, 0);
  ObserveBatch(guarded, {1024});
  EXPECT_EQ(guarded.slot_bytes(), 0);
  EXPECT_FALSE(guarded.wants_record());
}

}  // namespace
}  // namespace tidepool
