// What is recorded of programs, beside a model of what they did.
#include "tidepool/memory/recording/record_requests.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using testing::HasSubstr;
using What = RecordEvent::What;

std::string Path(const std::string& name) { return testing::TempDir() + "/" + name; }

int Count(const Record& record, What what) {
  return static_cast<int>(std::count_if(record.events.begin(), record.events.end(),
                                        [&](const RecordEvent& e) { return e.what == what; }));
}

TEST(RecordRequests, HasCyclesRequestsAndOwners) {
  Workspace workspace("step");
  BufferHandle before;
  {
    MemoryOwnerScope loader("loader");  // counted there, and not above it again
    MemoryOwnerScope cache("cache");
    before = BufferHandle(NewHeapBuffer(12345));
  }
  const auto cycle = [&] {
    WorkspaceScope scope(workspace);
    BufferHandle a(AllocateHere(1000));
    MemoryTagScope tag("layer conv2");
    BufferHandle b(AllocateHere(2000));
    a.Reset();
    BufferHandle c(AllocateHere(3000));
  };
  for (int i = 0; i < 3; ++i) cycle();  // its plan is learned
  StartRecording(Path("cycles"));
  EXPECT_TRUE(IsRecording());
  EXPECT_EQ(RecordingPath(), Path("cycles"));
  EXPECT_THAT(std::string(CatchStatus([] { StartRecording("other"); }).message()),
              HasSubstr("a record is being written to"));
  for (int i = 0; i < 3; ++i) cycle();
  BufferHandle heap(NewHeapBuffer(77));
  heap.Reset();
  StopRecording();
  EXPECT_FALSE(IsRecording());
  cycle();
  before.Reset();

  const Record record = ReadRecord(Path("cycles"));
  EXPECT_TRUE(record.ended);
  EXPECT_EQ(record.process, static_cast<uint64_t>(getpid()));
  int64_t live = 0;
  for (const RecordEvent& event : record.live) live += static_cast<int64_t>(event.bytes);
  EXPECT_EQ(live, 12345);
  ASSERT_EQ(record.live.size(), 1u);
  EXPECT_EQ(record.names[record.live[0].owner], "loader/cache");
  std::vector<std::string> told;
  for (const RecordEvent& e : record.events) {
    const std::string name = record.names[e.owner];
    told.push_back(e.what == What::kAllocate     ? "make " + std::to_string(e.bytes) + " " + name
                   : e.what == What::kFree       ? "free"
                   : e.what == What::kCycleBegin ? "begin " + name
                                                 : "end " + name);
  }
  const std::vector<std::string> one = {"begin workspace step",
                                        "make 1000 process",
                                        "make 2000 process #layer conv2",
                                        "free",
                                        "make 3000 process #layer conv2",
                                        "free",
                                        "free",
                                        "end workspace step"};
  std::vector<std::string> all;
  for (int i = 0; i < 3; ++i) all.insert(all.end(), one.begin(), one.end());
  all.insert(all.end(), {"make 77 process", "free"});
  EXPECT_EQ(told, all);
  // Where nobody records, plans serve again.
  const uint64_t hits = workspace.stats().hits;
  cycle();
  EXPECT_EQ(workspace.stats().hits, hits + 3);
}

// What outlives its cycle goes with it, once; what is closed goes then; what is released later is not
// told again.
TEST(RecordRequests, HasEachReleaseOnce) {
  StartRecording(Path("once"));
  {
    Workspace workspace("leaks", [] {
      WorkspaceConfig config;
      config.use_cycle_detector = false;
      return config;
    }());
    for (int i = 0; i < 4; ++i) {
      BufferHandle leaked, closed;
      {
        WorkspaceScope scope(workspace);
        leaked = BufferHandle(AllocateHere(100));
        closed = BufferHandle(AllocateHere(200));
        closed->Close();
      }
    }
    BufferHandle heap(NewHeapBuffer(300));
    heap->Close();
  }
  StopRecording();
  const Record record = ReadRecord(Path("once"));
  std::map<uint64_t, int> freed;
  for (const RecordEvent& e : record.events) {
    if (e.what == What::kFree) ++freed[e.block];
    if (e.what == What::kAllocate) {
      EXPECT_EQ(freed.count(e.block), 0u);
    }
  }
  EXPECT_EQ(Count(record, What::kAllocate), 9);
  EXPECT_EQ(freed.size(), 9u);
  for (const auto& [block, times] : freed) EXPECT_EQ(times, 1) << block;
}

// Random programs of several threads, which release each other's arrays: the record has the same
// events, each behind what must have been before it.
TEST(RecordRequests, IsWhatRandomProgramsDid) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    constexpr int kThreads = 3;
    std::mutex mutex;
    std::vector<BufferHandle> shared;                                // guarded by it
    std::multiset<std::tuple<int, uint64_t, size_t>> did[kThreads];  // of each thread
    StartRecording(Path("random"));
    const auto run = [&](int number) {
      std::mt19937_64 random(seed * 100 + number);
      Workspace workspace("w" + std::to_string(number));
      for (int cycle = 0; cycle < 30; ++cycle) {
        const auto work = [&](bool in_cycle) {
          std::vector<BufferHandle> mine;
          for (int i = 0; i < 20; ++i) {
            const size_t bytes = 1 + random() % 5000;
            mine.emplace_back(in_cycle ? AllocateHere(bytes) : NewHeapBuffer(bytes));
            did[number].emplace(0, mine.back()->id, bytes);
            if (random() % 3 == 0) {
              const size_t which = random() % mine.size();
              did[number].emplace(1, mine[which]->id, 0);
              std::swap(mine[which], mine.back());
              mine.pop_back();
            }
            if (!in_cycle && random() % 4 == 0 && !mine.empty()) {
              const std::lock_guard<std::mutex> lock(mutex);
              shared.push_back(std::move(mine.back()));
              mine.pop_back();
            }
            BufferHandle other;
            {
              const std::lock_guard<std::mutex> lock(mutex);
              if (random() % 4 == 0 && !shared.empty()) {
                other = std::move(shared.back());
                shared.pop_back();
              }
            }
            if (other) did[number].emplace(1, other->id, 0);
          }
          for (const BufferHandle& handle : mine) did[number].emplace(1, handle->id, 0);
        };
        if (random() % 2 == 0) {
          WorkspaceScope scope(workspace);
          work(true);
        } else {
          work(false);
        }
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(run, i);
    for (std::thread& thread : threads) thread.join();
    for (const BufferHandle& handle : shared) did[0].emplace(1, handle->id, 0);
    shared.clear();
    StopRecording();

    const Record record = ReadRecord(Path("random"));
    std::multiset<std::tuple<int, uint64_t, size_t>> all, told;
    for (const auto& part : did) all.insert(part.begin(), part.end());
    std::map<uint64_t, int> state;  // 1: alive, 2: gone
    std::map<uint32_t, std::set<uint64_t>> of_thread;
    for (const RecordEvent& e : record.events) {
      if (e.what == What::kAllocate) {
        told.emplace(0, e.block, e.bytes);
        EXPECT_EQ(state[e.block]++, 0);
        of_thread[e.thread].insert(e.block);
      } else if (e.what == What::kFree) {
        told.emplace(1, e.block, 0);
        EXPECT_EQ(state[e.block]++, 1);
      }
    }
    EXPECT_EQ(told, all);
    // Each thread's allocations are one thread's.
    for (const auto& part : did) {
      std::set<uint64_t> blocks;
      for (const auto& [what, block, bytes] : part) {
        if (what == 0) blocks.insert(block);
      }
      EXPECT_EQ(std::count_if(of_thread.begin(), of_thread.end(),
                              [&](const auto& entry) { return entry.second == blocks; }),
                1);
    }
    EXPECT_EQ(Count(record, What::kCycleBegin), Count(record, What::kCycleEnd));
  }
}

// Records that begin and end while threads work are whole, each with its own names.
TEST(RecordRequests, BeginsAndEndsWhileThreadsWork) {
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      Workspace workspace("busy" + std::to_string(t));
      for (int i = 0; !ends.load(); ++i) {
        MemoryTagScope tag("t" + std::to_string(i % 5));
        WorkspaceScope scope(workspace);
        BufferHandle a(AllocateHere(100)), b(NewHeapBuffer(100));
      }
    });
  }
  size_t events = 0;
  for (int round = 0; round < 20; ++round) {
    StartRecording(Path("busy"));
    for (int i = 0; i < 200; ++i) BufferHandle(NewHeapBuffer(50)).Reset();
    StopRecording();
    const Record record = ReadRecord(Path("busy"));
    EXPECT_TRUE(record.ended);
    events += record.events.size();
  }
  EXPECT_GE(events, 20u * 400);
  ends = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(RecordRequests, OfAChildIsItsOwn) {
  StartRecording(Path("parent"));
  BufferHandle heap(NewHeapBuffer(100));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    BufferHandle other(NewHeapBuffer(200));
    other.Reset();
    heap.Reset();
    StopRecording();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  heap.Reset();
  StopRecording();
  const Record parent = ReadRecord(Path("parent"));
  EXPECT_EQ(Count(parent, What::kAllocate), 1);
  EXPECT_EQ(Count(parent, What::kFree), 1);
  const Record made = ReadRecord(Path("parent") + "." + std::to_string(child));
  EXPECT_EQ(made.process, static_cast<uint64_t>(child));
  ASSERT_EQ(made.events.size(), 3u);
  EXPECT_EQ(made.events[0].bytes, 200u);
}

TEST(RecordRequests, SaysWhatTheSystemRefuses) {
  EXPECT_THAT(std::string(CatchStatus([] { StartRecording("/no such folder/x"); }).message()),
              HasSubstr("record /no such folder/x: "));
  EXPECT_THAT(std::string(CatchStatus([] { StartRecording("/dev/null"); }).message()),
              HasSubstr("record /dev/null: "));
  EXPECT_FALSE(IsRecording());
}

}  // namespace
}  // namespace tidepool
