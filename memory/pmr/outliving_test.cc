// Containers that outlive their cycle, in all ways: told, never harmed, and never harming what
// comes after.
#include <memory>
#include <memory_resource>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/block_oracle.h"
#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

class Sinks {
 public:
  Sinks() {
    SetLeakSink([this](const LeakReport& report) { leaks.push_back(report); });
    SetCycleFindingSink([this](const CycleFinding& finding) { findings.push_back(finding); });
  }
  ~Sinks() {
    SetLeakSink({});
    SetCycleFindingSink({});
  }

  std::vector<LeakReport> leaks;
  std::vector<CycleFinding> findings;
};

using Words = std::pmr::vector<std::pmr::string>;

void Fill(Words& words, int count) {
  for (int i = 0; i < count; ++i) words.emplace_back(30 + i % 100, static_cast<char>('a' + i % 26));
}
bool IsIntact(const Words& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (std::string_view(words[i]) != std::string(30 + i % 100, static_cast<char>('a' + i % 26)))
      return false;
  }
  return true;
}

TEST(OutlivingTest, IsToldWithWorkspaceGenerationBlocksAndBytes) {
  Sinks sinks;
  Workspace workspace("parser", WorkspaceConfig::Inference());
  void* small = nullptr;
  void* large = nullptr;
  for (int i = 0; i < 3; ++i) {
    WorkspaceScope scope(workspace);
    void* const fine = AllocateBytes(workspace, 500);
    if (i == 2) {
      small = AllocateBytes(workspace, 20, 8);
      large = AllocateBytes(workspace, 10000);
    }
    ReleaseBytes(fine, 500);
  }
  ASSERT_EQ(sinks.leaks.size(), 1u);
  EXPECT_EQ(sinks.leaks[0].workspace, "parser");
  EXPECT_EQ(sinks.leaks[0].generation, 3u);
  EXPECT_EQ(sinks.leaks[0].count, 0);
  EXPECT_EQ(sinks.leaks[0].blocks, 2);
  EXPECT_EQ(sinks.leaks[0].block_bytes, 10024);
  ASSERT_EQ(sinks.findings.size(), 1u);
  EXPECT_EQ(sinks.findings[0].kind, CycleFindingKind::kLeakedBlocks);
  EXPECT_EQ(
      sinks.findings[0].text,
      "workspace [parser], generation 3: 2 blocks of 10024 bytes of containers outlived the cycle; "
      "they stay as they are until they are released");
  EXPECT_EQ(workspace.stats().leaked_blocks, 2u);
  EXPECT_EQ(workspace.stats().leaked_arrays, 0u);
  EXPECT_EQ(workspace.stats().findings, 1u);
  ReleaseBytes(small, 20, 8);
  ReleaseBytes(large, 10000);
}

TEST(OutlivingTest, ArraysAndBlocksAreToldTogether) {
  Sinks sinks;
  Workspace workspace("w", WorkspaceConfig::Inference());
  BufferHandle array;
  void* block = nullptr;
  {
    WorkspaceScope scope(workspace);
    array = BufferHandle(AllocateHere(64));
    block = AllocateBytes(workspace, 16);
  }
  ASSERT_EQ(sinks.leaks.size(), 1u);
  EXPECT_EQ(
      sinks.leaks[0].ToString(),
      "workspace [w], generation 1: 1 array of 64 bytes and 1 block of 16 bytes of containers "
      "outlived the cycle\n  request 0, 64 bytes\n");
  EXPECT_FALSE(array->IsAlive());
  ReleaseBytes(block, 16);
}

TEST(OutlivingTest, WhatAFailedCycleLeavesIsCountedNotTold) {
  Sinks sinks;
  Workspace workspace("w", WorkspaceConfig::Inference());
  void* block = nullptr;
  try {
    WorkspaceScope scope(workspace);
    block = AllocateBytes(workspace, 16);
    throw 1;
  } catch (int) {
  }
  EXPECT_TRUE(sinks.leaks.empty());
  EXPECT_EQ(workspace.stats().leaked_blocks, 1u);
  ReleaseBytes(block, 16);
}

// The same cycle again and again over the container that stayed, which is then read and destroyed
// in the middle of one.
TEST(OutlivingTest, ItsBytesStayThroughEqualCyclesAndALateReleaseHarmsNobody) {
  Sinks sinks;
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  std::optional<Words> old;
  std::pmr::vector<char> large(&resource);
  for (int i = 0; i < 10; ++i) {
    WorkspaceScope scope(workspace);
    if (i == 2) {
      old.emplace(&resource);
      Fill(*old, 3000);
      large.assign(3 << 20, 'x');
    }
    Words words(&resource);
    Fill(words, 3000);
    std::pmr::vector<char> bytes(3 << 20, 'y', &resource);
    if (i >= 2 && i <= 6) {
      ASSERT_TRUE(IsIntact(*old));
      ASSERT_EQ(large, std::pmr::vector<char>(3 << 20, 'x'));
    }
    if (i == 6) {
      old.reset();
      large = std::pmr::vector<char>(&resource);
      large.shrink_to_fit();
    }
    Words more(&resource);
    Fill(more, 3000);
    ASSERT_TRUE(IsIntact(words));
    ASSERT_TRUE(IsIntact(more));
    for (const char byte : bytes) ASSERT_EQ(byte, 'y');
  }
  EXPECT_EQ(sinks.leaks.size(), 1u);
  EXPECT_EQ(sinks.leaks[0].generation, 3u);
}

// Each cycle's own count, whatever comes back from earlier ones meanwhile.
TEST(OutlivingTest, WhatComesBackLateDoesNotCountForTheCycleItComesBackIn) {
  Sinks sinks;
  Workspace workspace("w", WorkspaceConfig::Inference());
  void *late_large = nullptr, *late_small = nullptr, *large = nullptr, *small = nullptr;
  {
    WorkspaceScope scope(workspace);
    late_large = AllocateBytes(workspace, 10000);
    late_small = AllocateBytes(workspace, 100);
  }
  {
    WorkspaceScope scope(workspace);
    large = AllocateBytes(workspace, 20000);
    small = AllocateBytes(workspace, 200);
    const int64_t used = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated);
    ReleaseBytes(late_large, 10000);
    ReleaseBytes(late_small, 100);
    EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated), used);
  }
  ASSERT_EQ(sinks.leaks.size(), 2u);
  EXPECT_EQ(sinks.leaks[0].blocks, 2);
  EXPECT_EQ(sinks.leaks[1].blocks, 2);
  EXPECT_EQ(sinks.leaks[1].block_bytes, 20208);
  ReleaseBytes(large, 20000);
  ReleaseBytes(small, 200);
}

TEST(OutlivingTest, ChunksSetAsideServeAgainWhenTheirLastBlockCameBack) {
  Sinks sinks;
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  size_t settled = 0;
  for (int i = 0; i < 1000; ++i) {
    std::optional<Words> old;
    {
      WorkspaceScope scope(workspace);
      old.emplace(&resource);
      Fill(*old, 2000);
      void* const large = resource.allocate(700000);
      resource.deallocate(large, 700000);
    }
    ASSERT_TRUE(IsIntact(*old));  // destroyed between cycles
    if (i == 10) settled = workspace.stats().block_bytes;
  }
  EXPECT_EQ(sinks.leaks.size(), 1000u);
  EXPECT_LE(workspace.stats().block_bytes, settled);
}

TEST(OutlivingTest, WhatComesBackLateGoesBackThoughNoCycleHasBlocksAnyMore) {
  Sinks sinks;
  Workspace workspace("w", WorkspaceConfig::Inference());
  std::optional<Words> old;
  {
    WorkspaceScope scope(workspace);
    old.emplace(ResourceHere());
    Fill(*old, 2000);
  }
  workspace.Trim();
  EXPECT_GT(workspace.stats().block_bytes, 0u);
  old.reset();
  for (int i = 0; i < 140; ++i) WorkspaceScope scope(workspace);
  EXPECT_EQ(workspace.stats().block_bytes, 0u);
}

TEST(OutlivingTest, ASinkMayReleaseWhatItIsToldOf) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  std::optional<Words> old;
  std::pmr::string made_by_sink(ResourceHere());
  SetCycleFindingSink([](const CycleFinding&) {});
  SetLeakSink([&](const LeakReport&) {
    old.reset();
    made_by_sink.assign(1000, 's');  // the process's: the cycle has ended
  });
  for (int i = 0; i < 3; ++i) {
    WorkspaceScope scope(workspace);
    old.emplace(ResourceHere());
    Fill(*old, 2000);
  }
  SetLeakSink({});
  SetCycleFindingSink({});
  EXPECT_EQ(made_by_sink, std::pmr::string(1000, 's'));
  EXPECT_GT(workspace.stats().leaked_blocks, 6000u);
}

TEST(OutlivingTest, RandomSurvivorsKeepTheirBytesThroughCyclesThatDiffer) {
  Sinks sinks;
  RequestMaker make{std::mt19937(17)};
  auto workspace = std::make_unique<Workspace>("w", WorkspaceConfig::Inference());
  auto resource = std::make_unique<WorkspaceResource>(*workspace);
  BlockOracle oracle;
  for (int cycle = 0; cycle < 80 && !HasFatalFailure(); ++cycle) {
    {
      WorkspaceScope scope(*workspace);
      for (int step = 0; step < 600 && !HasFatalFailure(); ++step) {
        if (oracle.size() > 0 && make.random() % 2 == 0) {
          const OutBlock block = oracle.Remove(make.random() % oracle.size());
          resource->deallocate(block.data, block.bytes, block.alignment);
        } else {
          const size_t bytes = make.Bytes(), alignment = make.Alignment();
          oracle.Add(resource->allocate(bytes, alignment), bytes, alignment);
        }
      }
    }
    switch (make.random() % 6) {  // between cycles
      case 0:
        workspace->Trim();
        break;
      case 1:
        workspace->Destroy();
        break;
      case 2:
        for (int i = 0; i < 20 && oracle.size() > 0; ++i) {
          const OutBlock block = oracle.Remove(make.random() % oracle.size());
          resource->deallocate(block.data, block.bytes, block.alignment);
        }
        break;
      case 3:
        workspace = std::make_unique<Workspace>("w", WorkspaceConfig::Inference());
        resource = std::make_unique<WorkspaceResource>(*workspace);
        break;
    }
    ASSERT_TRUE(oracle.AreIntact());
  }
  workspace.reset();
  while (oracle.size() > 0) {
    const OutBlock block = oracle.Remove(make.random() % oracle.size());
    resource->deallocate(block.data, block.bytes, block.alignment);
  }
}

TEST(OutlivingTest, ItsBytesStayAfterTheWorkspaceAndLeaveTheLedgerWithTheLastOne) {
  Sinks sinks;
  MemoryTracker& tracker = MemoryTracker::Global();
  const int64_t before = tracker.CurrentBytes(Host(), MemoryKind::kWorkspace);
  std::optional<Words> words;
  void* large = nullptr;
  {
    Workspace workspace("gone", WorkspaceConfig::Inference());
    auto resource = std::make_unique<WorkspaceResource>(workspace);
    WorkspaceScope scope(workspace);
    words.emplace(ResourceHere());
    Fill(*words, 3000);
    large = AllocateBytes(workspace, 2 << 20);
  }
  ASSERT_EQ(sinks.leaks.size(), 1u);
  EXPECT_TRUE(IsIntact(*words));
  EXPECT_GE(tracker.CurrentBytes(Host(), MemoryKind::kWorkspace) - before, 2 << 20);
  std::thread([&] {
    words.reset();
    EXPECT_GE(tracker.CurrentBytes(Host(), MemoryKind::kWorkspace) - before, 2 << 20);
    ReleaseBytes(large, 2 << 20);
  }).join();
  EXPECT_EQ(tracker.CurrentBytes(Host(), MemoryKind::kWorkspace), before);
}

TEST(OutlivingTest, AResourceThatOutlivesItsWorkspaceServesFromTheProcess) {
  auto workspace = std::make_unique<Workspace>("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(*workspace);
  {
    WorkspaceScope scope(*workspace);
    resource.deallocate(resource.allocate(40), 40);
  }
  workspace.reset();
  Words words(&resource);
  Fill(words, 100);
  // What lies where the other one was is not taken for it.
  Workspace next("next", WorkspaceConfig::Inference());
  WorkspaceScope scope(next);
  Fill(words, 100);
  EXPECT_EQ(next.stats().block_bytes, 0u);
}

TEST(OutlivingTest, AWorkspaceDestroyedWhileOpenKeepsServingUntilItsScopeEnds) {
  Sinks sinks;
  auto workspace = std::make_unique<Workspace>("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(*workspace);
  std::optional<Words> words;
  {
    WorkspaceScope scope(*workspace);
    words.emplace(&resource);
    Fill(*words, 100);
    workspace.reset();
    Fill(*words, 1000);
  }
  words->resize(100);
  EXPECT_TRUE(IsIntact(*words));
  words.reset();
}

}  // namespace
}  // namespace tidepool
