// Blocks that several threads have: containers handed on and destroyed elsewhere, cycles on threads
// in turn, the end of a workspace beside releases.
#include <atomic>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/pmr/block_oracle.h"
#include "tidepool/memory/pmr/size_classes.h"
#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

// Blocks on their way to other threads.
class Mailbox {
 public:
  void Put(OutBlock block) {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_.push_back(block);
  }
  bool Take(OutBlock* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.empty()) return false;
    std::swap(blocks_[blocks_.size() / 2], blocks_.back());
    *block = blocks_.back();
    blocks_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<OutBlock> blocks_;
};

OutBlock MakeBlock(std::pmr::memory_resource& resource, RequestMaker& make, uint32_t seed) {
  const size_t bytes = make.Bytes() % 20000, alignment = make.Alignment();
  const OutBlock block{static_cast<std::byte*>(resource.allocate(bytes, alignment)), bytes,
                       alignment, seed};
  block.ForSome([&](size_t i) { block.data[i] = block.At(i); });
  return block;
}
void EndBlock(const OutBlock& block) {
  EXPECT_TRUE(block.IsIntact());
  ReleaseBytes(block.data, block.bytes, block.alignment);
}

class QuietLeaks {
 public:
  QuietLeaks() {
    SetLeakSink([](const LeakReport&) {});
    SetCycleFindingSink([](const CycleFinding&) {});
  }
  ~QuietLeaks() {
    SetLeakSink({});
    SetCycleFindingSink({});
  }
};

TEST(BlockThreadsTest, OtherThreadsReleaseDuringTheCycleAndAfterIt) {
  const QuietLeaks quiet;
  const int64_t before = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace);
  Mailbox mail;
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      OutBlock block;
      for (;;) {
        const bool last = done.load();
        while (mail.Take(&block)) EndBlock(block);
        if (last) return;
        std::this_thread::yield();
      }
    });
  }
  uint32_t seed = 1;
  RequestMaker make{std::mt19937(23)};
  for (int round = 0; round < 4; ++round) {
    Workspace workspace("w", WorkspaceConfig::Inference());
    WorkspaceResource resource(workspace);
    for (int cycle = 0; cycle < 30; ++cycle) {
      WorkspaceScope scope(workspace);
      for (int i = 0; i < 200; ++i) {
        const OutBlock block = MakeBlock(resource, make, seed++);
        make.random() % 2 == 0 ? EndBlock(block) : mail.Put(block);
      }
      if (cycle % 7 == 6) std::this_thread::yield();
    }
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace), before);
}

// A cycle that hands all of its blocks to another thread, one after the other, lives on what comes
// back.
TEST(BlockThreadsTest, WhatOthersReleaseServesTheSameCycleAgain) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  WorkspaceScope scope(workspace);
  RequestMaker make{std::mt19937(29)};
  for (int batch = 0; batch < 100; ++batch) {
    std::vector<OutBlock> blocks;
    for (uint32_t i = 0; i < 1000; ++i) blocks.push_back(MakeBlock(resource, make, i));
    std::thread([&] {
      for (const OutBlock& block : blocks) EndBlock(block);
    }).join();
  }
  // A batch is about 2.5 MB of all sizes.
  EXPECT_LE(workspace.stats().block_bytes, size_t{16} << 20);
}

TEST(BlockThreadsTest, CyclesOnThreadsInTurn) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  for (int cycle = 0; cycle < 20; ++cycle) {
    std::thread([&] {
      WorkspaceScope scope(workspace);
      std::pmr::vector<std::pmr::string> words(&resource);
      for (int i = 0; i < 2000; ++i) words.emplace_back(i % 60, 'x');
      words.erase(words.begin(), words.begin() + 1000);
      for (int i = 0; i < 2000; ++i) words.emplace_back(i % 60, 'x');
    }).join();
  }
  EXPECT_EQ(workspace.stats().leaked_blocks, 0u);
}

// Nobody who has no cycle open here takes part in one that is open elsewhere.
TEST(BlockThreadsTest, OnAnotherThreadThanTheCyclesBlocksAreTheProcesss) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  std::vector<OutBlock> made;
  {
    WorkspaceScope scope(workspace);
    resource.deallocate(resource.allocate(16), 16);
    std::thread([&] {
      RequestMaker make{std::mt19937(31)};
      for (uint32_t i = 0; i < 3000; ++i) made.push_back(MakeBlock(resource, make, i));
    }).join();
  }
  EXPECT_EQ(workspace.stats().leaked_blocks, 0u);
  for (const OutBlock& block : made) EndBlock(block);
}

TEST(BlockThreadsTest, TheProcesssBlocksAreSharedByThreads) {
  Mailbox mail;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&mail, t] {
      RequestMaker make{std::mt19937(t)};
      OutBlock block;
      for (uint32_t i = 0; i < 4000; ++i) {
        mail.Put(MakeBlock(*ResourceHere(), make, t * 10000 + i));
        if (make.random() % 3 > 0 && mail.Take(&block)) EndBlock(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  OutBlock block;
  while (mail.Take(&block)) EndBlock(block);
}

// The last blocks of workspaces come back while those end.
TEST(BlockThreadsTest, WorkspacesEndBesideReleases) {
  const QuietLeaks quiet;
  const int64_t before = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace);
  RequestMaker make{std::mt19937(37)};
  for (int round = 0; round < 200; ++round) {
    std::vector<OutBlock> blocks;
    auto workspace = std::make_unique<Workspace>("w", WorkspaceConfig::Inference());
    {
      WorkspaceScope scope(*workspace);
      for (uint32_t i = 0; i < 20; ++i) blocks.push_back(MakeBlock(*ResourceHere(), make, i));
    }
    std::atomic<bool> go{false};
    std::thread other([&] {
      while (!go.load()) {
      }
      for (const OutBlock& block : blocks) EndBlock(block);
    });
    go = true;
    workspace.reset();
    other.join();
  }
  EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace), before);
}

// Also before the workspace's thread has taken it back. In AddressSanitizer builds.
TEST(BlockThreadsTest, UseOfWhatAnotherThreadReleasedIsFound) {
  if (!PoisonsBlocks()) GTEST_SKIP() << "not an AddressSanitizer build";
  Workspace workspace("w", WorkspaceConfig::Inference());
  for (const bool late : {false, true}) {
    for (const size_t bytes : {size_t{24}, size_t{1000}, size_t{5000}, size_t{300000}}) {
      EXPECT_DEATH(
          {
            std::optional<WorkspaceScope> scope(std::in_place, workspace);
            auto* const data = static_cast<volatile char*>(AllocateBytes(workspace, bytes));
            void* const other = AllocateBytes(workspace, bytes);
            if (late) scope.reset();
            std::thread([&] { ReleaseBytes(const_cast<char*>(data), bytes); }).join();
            data[bytes - 1] = 1;
            ReleaseBytes(other, bytes);
          },
          "AddressSanitizer")
          << bytes << ", " << late;
    }
  }
}

}  // namespace
}  // namespace tidepool
