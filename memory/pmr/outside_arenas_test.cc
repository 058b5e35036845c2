// Arenas: how many there are, what they keep, and blocks that go back to another thread's.
#include "tidepool/memory/pmr/outside_arenas.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/outside_blocks.h"
#include "tidepool/memory/provider/poison.h"

namespace tidepool {
namespace {

using internal::KeptLarge;
using internal::LargeBlock;
using internal::OutsideBlocks;

constexpr int64_t kMiB = 1 << 20;

int64_t AllocatedBytes() {
  return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated);
}

// ---- large blocks -----------------------------------------------------------------------------

LargeBlock OfBytes(size_t bytes) { return {nullptr, nullptr, bytes, bytes, 0}; }

TEST(KeptLargeTest, KeepsWhatComesAgain) {
  LargeBlock a = OfBytes(10000), b = OfBytes(20000);
  KeptLarge kept;
  EXPECT_EQ(kept.Take(10000), nullptr);
  EXPECT_EQ(kept.Keep(&a), &a);  // nothing like it was asked for after one had gone
  EXPECT_EQ(kept.Take(9990), nullptr);
  EXPECT_EQ(kept.Keep(&a), nullptr);
  EXPECT_EQ(kept.Take(10001), nullptr);
  EXPECT_EQ(kept.Take(5000), nullptr) << "far too large";
  EXPECT_EQ(kept.Take(9000), &a);
  EXPECT_EQ(kept.Take(9000), nullptr) << "it is out";
  EXPECT_EQ(kept.Keep(&b), nullptr);
  EXPECT_EQ(kept.TakeAny(), &b);
  EXPECT_EQ(kept.TakeAny(), nullptr);
}

TEST(KeptLargeTest, KeepsAtMostSoManyAndNothingOfWhatComesInVain) {
  std::vector<LargeBlock> blocks(100, OfBytes(8192));
  KeptLarge kept;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(kept.Take(8192), nullptr);
    LargeBlock* const gone = kept.Keep(&blocks[0]);
    if (gone == nullptr) {
      EXPECT_EQ(kept.TakeAny(), &blocks[0]);  // and it is as at first
    }
  }
  EXPECT_EQ(kept.TakeAny(), nullptr);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(kept.Take(8192), nullptr);
    kept.Keep(nullptr);
    LargeBlock* const gone = kept.Keep(&blocks[static_cast<size_t>(i)]);
    if (gone == nullptr) {
      EXPECT_NE(kept.Take(8192), nullptr);
    }
  }
  // Now many go, and none comes.
  size_t in = 0, out = 0;
  for (LargeBlock& block : blocks) {
    ++in;
    for (LargeBlock* gone = kept.Keep(&block); gone != nullptr; gone = kept.Keep(nullptr)) ++out;
  }
  EXPECT_EQ(in, out);
  EXPECT_EQ(kept.TakeAny(), nullptr);
}

// Bursts have taught that much is kept; then little comes and goes, all of which finds room in chunks that are kept.
TEST(OutsideArenasTest, WhatBurstsTaughtIsForgottenWhereSmallBlocksComeAndGo) {
  Reclaimer::Global().RunNow();
  const int64_t before = AllocatedBytes();
  for (int burst = 0; burst < 6; ++burst) {
    std::vector<void*> blocks;
    for (int i = 0; i < 250000; ++i) blocks.push_back(AllocateBytesHere(100));
    for (void* const block : blocks) ReleaseBytes(block, 100);
  }
  ASSERT_GT(AllocatedBytes() - before, 16 * kMiB);
  std::mt19937 random(3);
  std::vector<std::pair<void*, size_t>> some(40);
  for (auto& [block, bytes] : some) block = AllocateBytesHere(bytes = random() % 4000);
  for (int i = 0; i < 2000000; ++i) {
    auto& [block, bytes] = some[random() % some.size()];
    ReleaseBytes(block, bytes);
    block = AllocateBytesHere(bytes = random() % 4000);
  }
  EXPECT_LE(AllocatedBytes() - before, 8 * kMiB);
  for (const auto& [block, bytes] : some) ReleaseBytes(block, bytes);
}

// ---- threads ----------------------------------------------------------------------------------

// Enough of them that each gets an arena of its own, if it finds others in the common one.
void ComeOften(std::mt19937& random, int times = 3000) {
  std::vector<std::pair<void*, size_t>> blocks;
  for (int i = 0; i < times; ++i) {
    const size_t bytes = random() % 10 == 0 ? random() % 60000 : random() % 700;
    blocks.emplace_back(AllocateBytesHere(bytes), bytes);
    if (blocks.size() < 50) continue;
    std::swap(blocks[random() % blocks.size()], blocks.back());
    ReleaseBytes(blocks.back().first, blocks.back().second);
    blocks.pop_back();
  }
  for (const auto& [block, bytes] : blocks) ReleaseBytes(block, bytes);
}

// So many threads at once, each of which has an arena at the end, before `then`.
template <typename Then>
void InThreads(int count, const Then& then) {
  std::barrier all(count);
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      // In turns, so that no thread is alone for long on few processors.
      for (int turn = 0; turn < 200; ++turn) {
        all.arrive_and_wait();
        ComeOften(random, 20);
      }
      then(t, all);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OutsideArenasTest, ThreadsThatMeetGetTheirOwnAndThereAreNotMoreThanAreOfUse) {
  const int most = std::max(2 * static_cast<int>(std::thread::hardware_concurrency()), 4) + 1;
  InThreads(3, [](int, auto&) {});
  EXPECT_GT(OutsideBlocks::Global().arenas(), 1);
  for (int round = 0; round < 3; ++round) InThreads(40, [](int, auto&) {});
  EXPECT_LE(OutsideBlocks::Global().arenas(), most);
}

TEST(OutsideArenasTest, ThreadsThatComeAndGoLeaveNothing) {
  Reclaimer::Global().RunNow();
  const int64_t before = AllocatedBytes();
  for (int round = 0; round < 20; ++round) InThreads(4, [](int, auto&) {});
  const int64_t once = AllocatedBytes() - before;  // what comes and goes settles
  EXPECT_LE(once, 24 * kMiB);
  for (int round = 0; round < 40; ++round) InThreads(4, [](int, auto&) {});
  EXPECT_LE(AllocatedBytes() - before, once + 4 * kMiB);
  Reclaimer::Global().RunNow();
  EXPECT_LE(AllocatedBytes(), before);
}

// The threads that made them are there, and do nothing.
TEST(OutsideArenasTest, WhatOthersReleaseDoesNotStayWithThreadsThatWait) {
  constexpr int kThreads = 3;
  Reclaimer::Global().RunNow();
  const int64_t before = AllocatedBytes();
  std::vector<std::vector<std::pair<unsigned char*, size_t>>> made(kThreads);
  InThreads(kThreads, [&](int t, auto& all) {
    std::mt19937 random(static_cast<uint32_t>(t));
    for (int i = 0; i < 60000; ++i) {
      const size_t bytes = 1 + random() % 300;
      auto* const block = static_cast<unsigned char*>(AllocateBytesHere(bytes));
      block[0] = static_cast<unsigned char>(i);
      block[bytes - 1] = static_cast<unsigned char>(i);
      made[static_cast<size_t>(t)].emplace_back(block, bytes);
    }
    all.arrive_and_wait();
    if (t == 0) {
      std::vector<std::pair<unsigned char*, size_t>> blocks;
      for (const auto& some : made) {
        for (size_t i = 0; i < some.size(); ++i) {
          EXPECT_EQ(some[i].first[some[i].second - 1], static_cast<unsigned char>(i));
          blocks.push_back(some[i]);
        }
      }
      std::shuffle(blocks.begin(), blocks.end(), random);
      for (const auto& [block, bytes] : blocks) ReleaseBytes(block, bytes);
      // Of each arena four chunks and one that waits, of 27 MB that there were.
      EXPECT_LE(AllocatedBytes() - before, 14 * kMiB);
      Reclaimer::Global().RunNow();
      EXPECT_LE(AllocatedBytes(), before);
    }
    all.arrive_and_wait();
  });
}

// A child has blocks of arenas whose threads are not there, and its own thread's.
TEST(OutsideArenasTest, AChildOfForkReleasesAndMakesBlocksOfAllArenas) {
  if (PoisonsBlocks()) GTEST_SKIP() << "forks among threads";
  constexpr int kThreads = 3;
  std::vector<std::vector<void*>> made(kThreads);
  InThreads(kThreads, [&](int t, auto& all) {
    for (int i = 0; i < 5000; ++i) made[static_cast<size_t>(t)].push_back(AllocateBytesHere(40));
    all.arrive_and_wait();
    if (t == 0) {
      for (int i = 0; i < 20; ++i) {
        const pid_t child = fork();
        if (child == 0) {
          alarm(60);  // a lock that nobody gives back
          for (const auto& blocks : made) {
            for (void* const block : blocks) ReleaseBytes(block, 40);
          }
          std::mt19937 random(7);
          ComeOften(random);
          _exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
      }
    } else {
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int i = 0; i < 50; ++i) ComeOften(random);
    }
    all.arrive_and_wait();
    for (void* const block : made[static_cast<size_t>(t)]) ReleaseBytes(block, 40);
  });
}

// What a thread's variables release at its end, when its arena is not its any more.
TEST(OutsideArenasTest, BlocksThatEndWithTheirThread) {
  struct Late {
    ~Late() {
      for (void* const block : blocks) ReleaseBytes(block, 100);
      ReleaseBytes(AllocateBytesHere(100), 100);
      ReleaseBytes(AllocateBytesHere(9000), 9000);
    }
    std::vector<void*> blocks;
  };
  Reclaimer::Global().RunNow();
  const int64_t before = AllocatedBytes();
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        thread_local Late late;
        for (int i = 0; i < 5000; ++i) late.blocks.push_back(AllocateBytesHere(100));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  Reclaimer::Global().RunNow();
  EXPECT_LE(AllocatedBytes(), before);
}

}  // namespace
}  // namespace tidepool
