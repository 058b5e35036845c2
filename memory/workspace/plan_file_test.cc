#include "tidepool/memory/workspace/plan_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using testing::HasSubstr;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

void Step(Workspace& workspace, int layers, size_t bytes = 10000) {
  WorkspaceScope scope(workspace);
  std::vector<BufferHandle> activations;
  for (int i = 0; i < layers; ++i) {
    New(bytes / 2);
    activations.push_back(New(bytes + 100 * i));
  }
  while (!activations.empty()) {
    New(bytes / 3);
    activations.pop_back();
  }
}

WorkspaceConfig Training() {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.policy_learning = LearningPolicy::kTraining;
  config.plan_search_seconds = 0;
  return config;
}

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string Read(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string SavedPlans(const std::string& path) {
  Workspace workspace("w", Training());
  for (int layers : {3, 5, 3, 5, 3}) Step(workspace, layers);
  workspace.SavePlans(path);
  return Read(path);
}

TEST(PlanFile, AJobThatStartsAgainNeedNotLearn) {
  const std::string path = PathOf("warm.plans");
  SavedPlans(path);
  Workspace workspace("w", Training());
  const PlansLoaded loaded = workspace.LoadPlans(path);
  EXPECT_EQ(loaded.ignored, "");
  EXPECT_EQ(loaded.plans, 2);
  EXPECT_EQ(workspace.stats().plans_kept, 2);
  EXPECT_EQ(workspace.size(), 0) << "no cycle has begun as the file says";
  Step(workspace, 3);
  EXPECT_GT(workspace.size(), 0);
  const int64_t system = MemoryTracker::Global().system_allocations();
  for (int layers : {5, 5, 3}) Step(workspace, layers);
  EXPECT_EQ(workspace.stats().spills, 0);
  EXPECT_EQ(workspace.stats().misses, 0);
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), system);
}

TEST(PlanFile, AWorkspaceThatWasDestroyedIsWarmToo) {
  const std::string path = PathOf("destroyed.plans");
  SavedPlans(path);
  WorkspaceConfig config = Training();
  config.initial_size = 4096;
  Workspace workspace("w", config);
  Step(workspace, 3);
  workspace.Destroy();
  const uint64_t spills = workspace.stats().spills;
  EXPECT_EQ(workspace.LoadPlans(path).plans, 2);
  Step(workspace, 3);
  EXPECT_EQ(workspace.stats().spills, spills);
}

// Buffers of requests that need nothing but the plan are numbered ahead, others as they come: then what is
// allocated elsewhere in between has the number between theirs.
TEST(PlanFile, LoadedPlansAreFollowedAsQuicklyAsLearnedOnes) {
  const std::string path = PathOf("quick.plans");
  SavedPlans(path);
  Workspace workspace("w", Training());
  workspace.LoadPlans(path);
  Step(workspace, 3);
  WorkspaceScope scope(workspace);
  const BufferHandle first(AllocateHere(workspace.PlannedRequests()[0].size));
  const BufferHandle elsewhere(NewHeapBuffer(64));
  const BufferHandle second(AllocateHere(workspace.PlannedRequests()[1].size));
  EXPECT_EQ(workspace.stats().misses, 0);
  EXPECT_EQ(second->id, first->id + 1);
}

TEST(PlanFile, UnderOptimizedTheLastUsedPlanIsTaken) {
  const std::string path = PathOf("one.plans");
  SavedPlans(path);
  Workspace workspace("w", WorkspaceConfig::Training());
  const PlansLoaded loaded = workspace.LoadPlans(path);
  EXPECT_EQ(loaded.plans, 1);
  EXPECT_THAT(loaded.ignored, HasSubstr("more plans than are kept"));
  Step(workspace, 3);
  EXPECT_EQ(workspace.stats().spills, 0);
}

TEST(PlanFile, APlanOfAnotherNetworkIsLeftAndTheRightOneLearned) {
  const std::string path = PathOf("other.plans");
  SavedPlans(path);
  Workspace workspace("w", Training());
  workspace.LoadPlans(path);
  Step(workspace, 4, 20000);
  EXPECT_GT(workspace.stats().spills, 0);
  const uint64_t spills = workspace.stats().spills;
  Step(workspace, 4, 20000);
  EXPECT_EQ(workspace.stats().spills, spills);
}

TEST(PlanFile, WhatDoesNotFitIsIgnoredWithTheReason) {
  const std::string path = PathOf("misfit.plans");
  const std::string bytes = SavedPlans(path);
  auto ignored = [&](WorkspaceConfig config) {
    Workspace workspace("w", config);
    const PlansLoaded loaded = workspace.LoadPlans(path);
    EXPECT_EQ(loaded.plans, 0);
    EXPECT_EQ(workspace.size(), 0);
    Step(workspace, 3);  // learns as if there had been no file
    EXPECT_GT(workspace.size(), 0);
    return loaded.ignored;
  };
  WorkspaceConfig config = Training();
  config.alignment = 256;
  EXPECT_THAT(ignored(config), HasSubstr("found alignment 64, expected 256"));
  config = Training();
  config.max_size = 30000;
  config.policy_spill = SpillPolicy::kExternal;
  EXPECT_THAT(ignored(config), HasSubstr("expected at most 30000"));

  std::string other = bytes;
  other[16] = 2;
  Write(path, other);
  EXPECT_THAT(ignored(Training()), HasSubstr("found version 2, expected 1"));
  Write(path, "some other file, long enough to have a header of forty bytes");
  EXPECT_THAT(ignored(Training()), HasSubstr("wrong magic"));
  Write(path, "");
  EXPECT_THAT(ignored(Training()), HasSubstr("found 0 bytes"));
  std::remove(path.c_str());
  EXPECT_THAT(ignored(Training()), HasSubstr("misfit.plans"));
  // Nobody writes to the pipe: who waited for that would wait with the workspace claimed.
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(ignored(Training()), HasSubstr("misfit.plans: found a pipe or device"));
  std::remove(path.c_str());
  ASSERT_EQ(symlink("/dev/zero", path.c_str()), 0);
  EXPECT_THAT(ignored(Training()), HasSubstr("misfit.plans: found a pipe or device"));
  std::remove(path.c_str());
}

// A file is believed only when its checksum is right, and even then not without a look at every
// placement: here the checksum is made right again after the damage.
TEST(PlanFile, DamagedFilesAreIgnored) {
  const std::string bytes = SavedPlans(PathOf("damaged.plans"));
  ASSERT_EQ(ParsePlans(bytes, 64).cycles.size(), 2);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(ParsePlans(bytes.substr(0, length), 64).ignored, "") << length;
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] ^= 0x10;
    EXPECT_NE(ParsePlans(damaged, 64).ignored, "") << at;
  }
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  int believed = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = bytes.substr(0, bytes.size() - 8);
    for (int k = 1 + random() % 3; k > 0; --k) {
      damaged[32 + random() % (damaged.size() - 32)] = static_cast<char>(random() % 256);
    }
    uint64_t checksum = 0xcbf29ce484222325;
    for (const char c : damaged) {
      checksum = (checksum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
    damaged.append(reinterpret_cast<const char*>(&checksum), 8);
    const ParsedPlans parsed = ParsePlans(damaged, 64);
    believed += parsed.ignored.empty();
    for (const auto& cycle : parsed.cycles) {
      for (size_t i = 0; i < cycle.requests.size(); ++i) {
        ASSERT_EQ(cycle.offsets[i] % 64, 0);
        for (size_t k = 0; k < i; ++k) {
          const auto& a = cycle.requests[i];
          const auto& b = cycle.requests[k];
          ASSERT_TRUE(b.upper <= a.lower || cycle.offsets[i] >= cycle.offsets[k] + b.size ||
                      cycle.offsets[k] >= cycle.offsets[i] + a.size);
        }
      }
    }
  }
  EXPECT_GT(believed, 0) << "some damage leaves a valid placement";
  EXPECT_LT(believed, 20000);
}

TEST(PlanFile, PlannedRequestsAreTheCycle) {
  Workspace workspace("w", Training());
  EXPECT_TRUE(workspace.PlannedRequests().empty());
  {
    WorkspaceScope scope(workspace);
    BufferHandle a = New(100);
    New(64);
    BufferHandle b = New(1);
  }
  const std::vector<LifetimeBuffer> requests = workspace.PlannedRequests();
  ASSERT_EQ(requests.size(), 3);
  const int64_t expected[3][3] = {{0, 3, 128}, {1, 2, 64}, {2, 3, 64}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(requests[i].lower, expected[i][0]);
    EXPECT_EQ(requests[i].upper, expected[i][1]);
    EXPECT_EQ(requests[i].size, expected[i][2]);
  }
  const WorkspaceScope scope(workspace);
  EXPECT_EQ(workspace.PlannedRequests().size(), requests.size())
      << "by the thread that has it open";
  std::thread([&] { EXPECT_THROW(workspace.PlannedRequests(), Error); }).join();
}

absl::StatusCode CodeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return absl::StatusCode::kOk;
}

TEST(PlanFile, SavingWhileAnotherThreadsCycleIsOpenIsRefusedAndLeavesTheFile) {
  const std::string path = PathOf("open.plans");
  const std::string before = SavedPlans(path);
  Workspace workspace("w", Training());
  for (int i = 0; i < 3; ++i) Step(workspace, 2);
  std::latch opened(1), looked(1);
  std::thread other([&] {
    WorkspaceScope scope(workspace);
    opened.count_down();
    looked.wait();
  });
  opened.wait();
  EXPECT_EQ(CodeOf([&] { workspace.SavePlans(path); }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Read(path), before);
  looked.count_down();
  other.join();
  workspace.SavePlans(path);
  EXPECT_NE(Read(path), before);
}

// Each cycle is of another length, so that plans are made, added and dropped all the time.
TEST(PlanFile, WhatIsSavedBesideRunningCyclesIsWholeOrRefused) {
  const std::string path = PathOf("beside.plans");
  Workspace workspace("w", Training());
  for (int i = 0; i < 3; ++i) Step(workspace, 2);
  std::atomic<bool> enough{false};
  uint64_t cycles = 3;
  std::thread other([&] {
    for (int i = 0; !enough; ++i, ++cycles)
      Step(workspace, 1 + i * 7 % 23, 4000 + 512 * (i * 5 % 11));
  });
  int64_t attempts = 0, saved = 0, refused = 0;
  const auto save = [&] {
    ++attempts;
    const absl::StatusCode code = CodeOf([&] { workspace.SavePlans(path); });
    if (code != absl::StatusCode::kOk) {
      refused += code == absl::StatusCode::kFailedPrecondition;
      return;
    }
    ++saved;
    const ParsedPlans parsed = ParsePlans(Read(path), 64);
    EXPECT_EQ(parsed.ignored, "");
    EXPECT_FALSE(parsed.cycles.empty());
  };
  // A cycle is open most of the time: who never meets one does not look.
  while (attempts < 300 || (refused == 0 && attempts < 1000)) save();
  enough = true;
  other.join();
  save();
  EXPECT_GE(saved, 1);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(saved + refused, attempts);
  EXPECT_EQ(workspace.stats().failed_cycles, 0);
  EXPECT_EQ(workspace.stats().cycles, cycles);
  std::printf("%lld of %lld saved beside cycles\n", static_cast<long long>(saved),
              static_cast<long long>(attempts));
}

TEST(PlanFile, MisuseIsAnError) {
  Workspace open("w", Training());
  Workspace planless("v", WorkspaceConfig::Nd4j());
  const std::string path = PathOf("misuse.plans");
  EXPECT_THROW(planless.SavePlans(path), Error);
  EXPECT_THROW(planless.LoadPlans(path), Error);
  EXPECT_THROW(open.SavePlans("/nowhere/at.all"), Error);
  WorkspaceScope scope(open);
  EXPECT_THROW(open.SavePlans(path), Error);
  EXPECT_THROW(open.LoadPlans(path), Error);
  EXPECT_THROW(open.FinishPlanSearch(), Error);
}

// Lifetimes that no greedy order places at the lower bound are searched on the background thread.
TEST(BackgroundSearch, ABetterPlanIsTakenBetweenCycles) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.plan_search_seconds = 20;
  const uint32_t seed = 6;
  int improved = 0;
  for (int trial = 0; trial < 20 && improved == 0; ++trial) {
    Workspace workspace("w", config);
    auto cycle = [&] {
      std::mt19937 random(seed + trial);
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> live;
      for (int i = 0; i < 60; ++i) {
        live.push_back(New(64 * (1 + random() % 40)));
        std::memset(live.back()->data, i, live.back()->bytes);
        while (live.size() > 6 || (live.size() > 1 && random() % 3 == 0)) {
          const size_t which = random() % live.size();
          const BufferHandle& buffer = live[which];
          for (size_t k = 0; k < buffer->bytes; ++k) ASSERT_EQ(buffer->data[k], buffer->data[0]);
          live.erase(live.begin() + which);
        }
      }
    };
    cycle();
    const WorkspaceStats greedy = workspace.stats();
    if (greedy.planned_peak_bytes == greedy.live_lower_bound_bytes) continue;
    workspace.FinishPlanSearch();
    const WorkspaceStats searched = workspace.stats();
    if (searched.plans_improved == 0) continue;
    ++improved;
    EXPECT_LT(searched.planned_peak_bytes, greedy.planned_peak_bytes);
    EXPECT_GE(searched.planned_peak_bytes, searched.live_lower_bound_bytes);
    for (int i = 0; i < 5; ++i) cycle();
    EXPECT_EQ(workspace.stats().misses, 0);
    EXPECT_EQ(workspace.stats().spills, greedy.spills);
    EXPECT_LE(workspace.size(), searched.planned_peak_bytes) << "pages follow after three cycles";
  }
  EXPECT_GT(improved, 0);
}

}  // namespace
}  // namespace tidepool
