// LearningPolicy::kTraining: several plans, chosen by what a cycle requests.
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

WorkspaceConfig Training() {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.policy_learning = LearningPolicy::kTraining;
  return config;
}

// A forward and a backward pass over `layers` activations that shrink: what is alive at once is a
// little more than the activations, what is requested is three times as much.
void Step(Workspace& workspace, size_t batch, int layers) {
  WorkspaceScope scope(workspace);
  std::vector<BufferHandle> activations;
  activations.push_back(New(batch * 8192));
  for (int i = 0; i < layers; ++i) {
    BufferHandle scratch = New(batch * 1024);
    activations.push_back(New(batch * (8192 - 64 * i)));
    std::memset(activations.back()->data, i, activations.back()->bytes);
  }
  BufferHandle gradient = New(batch * 512);
  for (int i = layers; i > 0; --i) {
    EXPECT_EQ(static_cast<int>(activations.back()->data[batch * 512]), i - 1);
    BufferHandle next = New(batch * (8192 - 64 * i));
    activations.pop_back();
    gradient = std::move(next);
  }
}

// ---- without a configuration ----------------------------------------------------------------

TEST(WorkspaceDefaults, AreThoseOfInferenceAndNd4jsAreNamed) {
  const WorkspaceConfig config;
  EXPECT_EQ(config, WorkspaceConfig::Inference());
  EXPECT_EQ(config.policy_learning, LearningPolicy::kTraining);
  EXPECT_EQ(config.policy_spill, SpillPolicy::kReallocate);
  EXPECT_EQ(config.policy_allocation, AllocationPolicy::kStrict);
  const WorkspaceConfig nd4j = WorkspaceConfig::Nd4j();
  EXPECT_EQ(nd4j.policy_learning, LearningPolicy::kFirstLoop);
  EXPECT_EQ(nd4j.policy_spill, SpillPolicy::kExternal);
  EXPECT_EQ(nd4j.policy_allocation, AllocationPolicy::kOverallocate);
  EXPECT_EQ(nd4j.overallocation_limit, Overallocation::Ratio(0.3));
  for (const WorkspaceConfig& legal :
       {config, nd4j, WorkspaceConfig::Training(), WorkspaceConfig::Ring(2)}) {
    EXPECT_TRUE(legal.Reasons().empty());
  }
}

// Kinds of cycles that take turns, and then one that is larger than all: from the second time on each is
// served from the pages, in what is alive at once and not in the sum of its requests.
TEST(WorkspaceDefaults, AWorkspaceLearnsLifetimesAndEachKindOfCycleAndGrows) {
  Workspace workspace("x");
  for (int round = 0; round < 4; ++round) {
    for (const int batch : {4, 8, 2}) Step(workspace, static_cast<size_t>(batch), 6);
  }
  WorkspaceStats before = workspace.stats();
  for (const int batch : {4, 8, 2}) Step(workspace, static_cast<size_t>(batch), 6);
  EXPECT_EQ(workspace.stats().spills, before.spills);
  EXPECT_EQ(workspace.stats().plans, before.plans);
  EXPECT_LE(workspace.size(), before.live_lower_bound_bytes * 11 / 10);
  EXPECT_LT(workspace.size(), before.requested_bytes * 2 / 3);
  Step(workspace, 40, 6);  // spills, and is learned
  EXPECT_GT(workspace.stats().spills, before.spills);
  EXPECT_GT(workspace.size(), 4 * before.size_bytes);
  before = workspace.stats();
  Step(workspace, 40, 6);
  EXPECT_EQ(workspace.stats().spills, before.spills);
}

// kOptimized has one plan: where shapes take turns it misses, and that is said.
TEST(WorkspaceDefaults, MixedShapesAreReportedWhereThereIsOnePlan) {
  Workspace one("one", WorkspaceConfig::Training()), each("each");
  for (int round = 0; round < 30; ++round) {
    for (const int batch : {4, 8, 2}) {
      Step(one, static_cast<size_t>(batch), 6);
      Step(each, static_cast<size_t>(batch), 6);
    }
    if (round == 0) {
      EXPECT_EQ(one.PlanReport(), "");
    }
  }
  EXPECT_THAT(one.PlanReport(),
              testing::HasSubstr("the one plan that policy_learning kOptimized keeps"));
  EXPECT_EQ(each.PlanReport(), "");
  Workspace alike("alike", WorkspaceConfig::Training());
  for (int i = 0; i < 30; ++i) Step(alike, 4, 6);
  EXPECT_EQ(alike.PlanReport(), "");
}

// ---- plans ----------------------------------------------------------------------------------

// Text is made token by token: one request of a service is one cycle of very many requests.
TEST(WorkspaceTraining, ACycleOfAHundredThousandRequestsIsLearned) {
  WorkspaceConfig config = Training();
  config.plan_search_seconds = 0;
  Workspace workspace("w", config);
  constexpr int kRequests = 100000, kAlive = 40;
  const auto cycle = [&] {
    std::mt19937_64 random(1);
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> alive(kAlive);
    for (int i = 0; i < kRequests; ++i) {
      const size_t bytes = 1 + random() % 4096;
      alive[random() % kAlive] = New(bytes);
    }
  };
  cycle();
  EXPECT_EQ(workspace.stats().plans, 1);
  const int64_t system = MemoryTracker::Global().system_allocations();
  for (int i = 0; i < 3; ++i) cycle();
  const WorkspaceStats stats = workspace.stats();
  EXPECT_EQ(stats.hits, 3 * kRequests);
  EXPECT_EQ(stats.misses, 0);
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), system);
  EXPECT_LE(stats.planned_peak_bytes, stats.live_lower_bound_bytes * 5 / 4);
}

TEST(WorkspaceTraining, EachSequenceLengthGetsAPlanOfItsOwn) {
  Workspace workspace("w", Training());
  const std::vector<int> lengths = {3, 5, 8, 4};
  // The first request is the same for all: plans are told apart by the number of requests.
  for (int round = 0; round < 3; ++round) {
    for (int length : lengths) Step(workspace, 2, length);
  }
  const WorkspaceStats learned = workspace.stats();
  EXPECT_EQ(learned.plans_kept, 4);
  const int64_t system = MemoryTracker::Global().system_allocations();
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) Step(workspace, 2, lengths[random() % 4]);
  EXPECT_EQ(workspace.stats().misses, learned.misses);
  EXPECT_EQ(workspace.stats().spills, learned.spills);
  EXPECT_EQ(workspace.stats().plans, learned.plans);
  EXPECT_GT(workspace.stats().plan_switches, learned.plan_switches);
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), system);
}

TEST(WorkspaceTraining, BatchSizesAreKnownByTheFirstRequest) {
  Workspace workspace("w", Training());
  for (size_t batch : {4, 8, 16, 4, 8, 16}) Step(workspace, batch, 4);
  const WorkspaceStats learned = workspace.stats();
  EXPECT_EQ(learned.plans_kept, 3);
  for (size_t batch : {16, 4, 4, 8, 16, 8}) Step(workspace, batch, 4);
  EXPECT_EQ(workspace.stats().misses, learned.misses);
  EXPECT_EQ(workspace.stats().spills, learned.spills);
}

TEST(WorkspaceTraining, ASmallerLastBatchFitsThePlanOfTheLarger) {
  Workspace workspace("w", Training());
  for (int i = 0; i < 3; ++i) Step(workspace, 64, 4);
  const WorkspaceStats before = workspace.stats();
  Step(workspace, 17, 4);
  Step(workspace, 64, 4);
  EXPECT_EQ(workspace.stats().misses, before.misses);
  EXPECT_EQ(workspace.stats().spills, before.spills);
  EXPECT_EQ(workspace.stats().plans_kept, 1);
}

TEST(WorkspaceTraining, AnUnknownLargerBatchIsServedThenLearned) {
  Workspace workspace("w", Training());
  for (int i = 0; i < 3; ++i) Step(workspace, 4, 4);
  Step(workspace, 8, 4);
  const WorkspaceStats before = workspace.stats();
  EXPECT_EQ(before.plans_kept, 2);
  Step(workspace, 8, 4);
  EXPECT_EQ(workspace.stats().spills, before.spills);
  EXPECT_EQ(workspace.stats().planned_peak_bytes, before.planned_peak_bytes);
}

TEST(WorkspaceTraining, AnOutlierIsForgottenAndItsMemoryGivenBackWithinThreeCycles) {
  auto owned = [] { return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes; };
  const int64_t before = owned();
  {
    Workspace workspace("w", Training());
    for (int i = 0; i < 5; ++i) Step(workspace, 8, 4);
    const int64_t usual = owned();
    Step(workspace, 800, 4);
    EXPECT_GT(owned(), usual + 8000000);
    for (int i = 0; i < 3; ++i) Step(workspace, 8, 4);
    EXPECT_LE(owned(), usual + 65536) << "plans and records may have grown";
    EXPECT_EQ(workspace.stats().plans_kept, 1);
    const WorkspaceStats stats = workspace.stats();
    Step(workspace, 8, 4);
    EXPECT_EQ(workspace.stats().spills, stats.spills);
  }
  EXPECT_EQ(owned(), before);
}

// The outlier begins like the usual cycles, which its plan therefore serves without a miss.
TEST(WorkspaceTraining, AnOutlierThatBeginsAlikeIsForgottenToo) {
  auto step = [](Workspace& workspace, int requests) {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> live;
    for (int i = 0; i < requests; ++i) {
      live.push_back(New(8192));
      std::memset(live.back()->data, i, 8192);
    }
    for (int i = 0; i < requests; ++i) ASSERT_EQ(live[i]->data[8191], std::byte(i));
  };
  Workspace known("known", Training());
  for (int requests : {40, 40, 400, 40, 40, 40}) step(known, requests);
  EXPECT_EQ(known.stats().plans_kept, 1);
  EXPECT_EQ(known.size(), 40 * 8192);
  // Here the outlier is the first cycle of all.
  Workspace unknown("unknown", Training());
  for (int requests : {400, 40, 40, 40}) step(unknown, requests);
  EXPECT_EQ(unknown.stats().plans_kept, 1);
  EXPECT_EQ(unknown.size(), 40 * 8192);
  step(unknown, 400);
  step(unknown, 400);
  EXPECT_EQ(unknown.size(), 400 * 8192);
}

TEST(WorkspaceTraining, ASmallerBatchThatStaysGetsPagesOfItsOwnSize) {
  Workspace workspace("w", Training());
  for (int i = 0; i < 3; ++i) Step(workspace, 64, 4);
  const size_t large = workspace.size();
  const uint64_t spills = workspace.stats().spills;
  for (int i = 0; i < 15; ++i) Step(workspace, 8, 4);
  EXPECT_LT(workspace.size(), large / 7);
  EXPECT_EQ(workspace.stats().spills, spills);
}

TEST(WorkspaceOptimized, PagesThatTheNewPlanDoesNotNeedAreGivenBack) {
  Workspace workspace("w", WorkspaceConfig::Training());
  for (int i = 0; i < 3; ++i) Step(workspace, 800, 4);
  const size_t large = workspace.size();
  for (int i = 0; i < 2 + 3; ++i) Step(workspace, 8, 4);
  EXPECT_LT(workspace.size(), large / 50);
  const WorkspaceStats stats = workspace.stats();
  Step(workspace, 8, 4);
  EXPECT_EQ(workspace.stats().spills, stats.spills);
}

// The same requests with lifetimes that vary: the plan takes the longest ones seen, and stays.
TEST(WorkspaceTraining, VaryingLifetimesSettle) {
  Workspace workspace("w", Training());
  std::mt19937 random(5);
  auto step = [&] {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> live;
    for (int i = 0; i < 12; ++i) {
      live.push_back(New(1000 + 100 * i));
      std::memset(live.back()->data, i, live.back()->bytes);
      if (live.size() > 2 + random() % 2) {
        live.erase(live.begin());
      }
    }
  };
  for (int i = 0; i < 50; ++i) step();
  const WorkspaceStats settled = workspace.stats();
  EXPECT_EQ(settled.plans_kept, 1);
  for (int i = 0; i < 100; ++i) step();
  EXPECT_LE(workspace.stats().plans, settled.plans + 1);
  EXPECT_LE(workspace.stats().misses, settled.misses + 2);
}

// The plan of a beginning keeps every request where the longer plan has it. When the first array
// then lives longer than that allows, those places are not to be had: the plan is made without them.
TEST(WorkspaceTraining, ABeginningWhoseFirstArrayLivesLongerIsLearnedAgain) {
  Workspace workspace("w", Training());
  const auto cycle = [&](int requests, bool first_lives) {
    WorkspaceScope scope(workspace);
    BufferHandle first = New(4096);
    std::memset(first->data, 1, 4096);
    if (!first_lives) first.Reset();
    BufferHandle second = New(4096);
    std::memset(second->data, 2, 4096);
    std::vector<BufferHandle> more;
    for (int i = 2; i < requests; ++i) more.push_back(New(4096));
    EXPECT_TRUE(!first_lives || first->data[4095] == std::byte{1});
  };
  for (int i = 0; i < 4; ++i) cycle(20, false);
  for (int i = 0; i < 8; ++i) cycle(2, false);
  cycle(2, true);
  cycle(2, true);
  cycle(2, true);
  const WorkspaceStats settled = workspace.stats();
  for (int i = 0; i < 200; ++i) cycle(2, true);
  EXPECT_EQ(workspace.stats().misses, settled.misses);
  EXPECT_EQ(workspace.stats().spills, settled.spills);
}

// Variable lengths of a recurrent network: after one epoch nearly all bytes come from the pages.
TEST(WorkspaceTraining, AfterOneEpochOfVariableLengthsNearlyAllBytesArePlanned) {
  Workspace workspace("w", Training());
  std::mt19937 random(11);
  std::vector<int> lengths(400);
  for (int& length : lengths) length = 5 + static_cast<int>(random() % 60);
  for (int length : lengths) Step(workspace, 1, length);
  const WorkspaceStats first = workspace.stats();
  const size_t spilled_before = first.spilled_bytes;
  size_t requested = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::shuffle(lengths.begin(), lengths.end(), random);
    for (int length : lengths) {
      Step(workspace, 1, length);
      requested += workspace.bytes_last_cycle();
    }
  }
  const double spilled = static_cast<double>(workspace.stats().spilled_bytes - spilled_before);
  std::printf("first epoch: %llu plans, then %.4f %% of %zu bytes spilled, %zu plans kept\n",
              static_cast<unsigned long long>(first.plans), 100 * spilled / requested, requested,
              workspace.stats().plans_kept);
  EXPECT_LT(spilled, 0.01 * requested);
}

}  // namespace
}  // namespace tidepool
