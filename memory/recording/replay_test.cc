// Records that are run again: on every allocator, by as many threads, in an order that may be.
#include "tidepool/memory/recording/replay.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/recorded_blocks.h"
#include "tidepool/memory/recording/recorded_cycles.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

using testing::HasSubstr;
using What = RecordEvent::What;
using Step = ReplayScript::Step;

// Builds records event by event.
class Maker {
 public:
  uint64_t Make(uint32_t thread, uint64_t bytes, uint8_t alignment_log2 = 4) {
    record_.events.push_back({.alignment_log2 = alignment_log2,
                              .thread = thread,
                              .number = ++number_,
                              .block = ++key_,
                              .bytes = bytes});
    record_.threads = std::max(record_.threads, thread + 1);
    return key_;
  }
  void Free(uint32_t thread, uint64_t key) {
    record_.events.push_back(
        {.what = What::kFree, .thread = thread, .number = ++number_, .block = key});
    record_.threads = std::max(record_.threads, thread + 1);
  }
  void Cycle(uint32_t thread, bool begins, const std::string& name, uint64_t generation) {
    record_.events.push_back({.what = begins ? What::kCycleBegin : What::kCycleEnd,
                              .thread = thread,
                              .number = ++number_,
                              .bytes = generation,
                              .owner = record_.Name(name)});
    record_.threads = std::max(record_.threads, thread + 1);
  }
  Record& record() { return record_; }

 private:
  Record record_;
  uint64_t number_ = 0, key_ = 0;
};

// Threads with cycles of their own, whose blocks are released by any of them.
Record Drawn(uint64_t seed, uint32_t threads, int count, bool marks) {
  std::mt19937_64 random(seed);
  Maker maker;
  std::vector<uint64_t> alive;
  std::vector<uint64_t> generation(threads);
  std::vector<bool> open(threads);
  for (int i = 0; i < count; ++i) {
    const auto thread = static_cast<uint32_t>(random() % threads);
    if (marks && random() % 12 == 0) {
      open[thread] = !open[thread];
      generation[thread] += open[thread];
      maker.Cycle(thread, open[thread], "w" + std::to_string(thread), generation[thread]);
    } else if (alive.size() < 5 || random() % 2 == 0) {
      const uint64_t bytes = random() % 3 == 0 ? random() % 200000 : random() % 500;
      alive.push_back(maker.Make(thread, bytes,
                                 static_cast<uint8_t>(random() % 8 == 0 ? 4 + random() % 10 : 4)));
    } else {
      const size_t which = random() % alive.size();
      maker.Free(thread, alive[which]);
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  return std::move(maker.record());
}

// What the threads' steps say is what the record says, and there is an order for them: each step may
// be done once those before it in its thread, and what it waits for, are.
TEST(ReplayScript, IsItsRecordAndCanBePlayedInAnyInterleaving) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Record record = Drawn(seed, 1 + seed % 5, 600, seed % 2 == 0);
    const RecordedBlocks matched = MatchBlocks(record);
    const ReplayScript script(record);
    ASSERT_EQ(script.threads().size(), record.threads);
    // The same multiset of requests, each thread's in its order.
    for (uint32_t thread = 0; thread < record.threads; ++thread) {
      std::vector<std::pair<bool, uint32_t>> expected, told;
      for (uint32_t i = 0; i < record.events.size(); ++i) {
        if (record.events[i].thread != thread || matched.block_of[i] == RecordedBlock::kNever)
          continue;
        expected.emplace_back(record.events[i].what == What::kAllocate, matched.block_of[i]);
      }
      for (const Step& step : script.threads()[thread]) {
        if (step.what == Step::What::kAllocate || step.what == Step::What::kFree) {
          told.emplace_back(step.what == Step::What::kAllocate, step.index);
        }
      }
      ASSERT_EQ(told, expected);
    }
    // Threads in an order drawn anew go on as far as they may; none waits for ever, and what a cycle
    // has is gone when it ends.
    std::mt19937_64 random(seed);
    for (int round = 0; round < 5; ++round) {
      std::vector<size_t> at(record.threads);
      std::vector<int> state(script.blocks().size());
      std::vector<uint32_t> waits;
      for (const auto& cycle : script.cycles()) waits.push_back(cycle.other_frees);
      std::vector<std::vector<uint32_t>> open(record.threads);
      std::map<uint32_t, uint32_t> in_cycle;
      size_t left = 0;
      for (const auto& steps : script.threads()) left += steps.size();
      int idle = 0;
      while (left > 0) {
        const auto thread = static_cast<uint32_t>(random() % record.threads);
        if (at[thread] == script.threads()[thread].size()) continue;
        const Step& step = script.threads()[thread][at[thread]];
        bool may = true;
        if (step.what == Step::What::kFree) may = state[step.index] == 1;
        if (step.what == Step::What::kCycleEnd) may = waits[step.index] == 0;
        ASSERT_LT(idle, 10000) << "threads wait for each other";
        if (!may) {
          ++idle;
          continue;
        }
        idle = 0;
        const auto index = step.index;
        if (step.what == Step::What::kAllocate) {
          ASSERT_EQ(state[index]++, 0);
          if (script.blocks()[index].in_cycle) {
            ASSERT_FALSE(open[thread].empty());
            in_cycle[index] = open[thread].back();
          }
        } else if (step.what == Step::What::kFree) {
          ASSERT_EQ(state[index]++, 1);
          if (script.blocks()[index].wakes != ReplayScript::kNone)
            --waits[script.blocks()[index].wakes];
          in_cycle.erase(index);
        } else if (step.what == Step::What::kCycleBegin) {
          open[thread].push_back(index);
        } else {
          ASSERT_EQ(open[thread].back(), index);
          open[thread].pop_back();
          for (const auto& [block, cycle] : in_cycle) ASSERT_NE(cycle, index) << block;
        }
        ++at[thread];
        --left;
      }
    }
  }
}

TEST(Replay, RunsOnEveryAllocator) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const ReplayScript script(Drawn(seed, 1 + seed % 4, 4000, seed % 2 == 0));
    for (const std::string& allocator : ReplayAllocators()) {
      SCOPED_TRACE(allocator + " " + std::to_string(seed));
      const ReplayResult result =
          Replay(script, allocator, {.runs = 2, .count_system_calls = seed == 1});
      if (!result.absent.empty()) {
        EXPECT_THAT(result.absent, HasSubstr(allocator + ":"));
        continue;
      }
      ASSERT_EQ(result.runs.size(), 2u);
      EXPECT_LE(result.runs[0].seconds, result.runs[1].seconds);
      EXPECT_GT(result.runs[0].seconds, 0);
      EXPECT_GT(result.runs[0].page_faults, 0);
      if (allocator != "pool") {
        EXPECT_EQ(result.runs[0].refused, 0);
      }
    }
  }
}

// What cycles repeat is served from a workspace's plan, in the memory of what is alive.
TEST(Replay, InAWorkspaceIsPlannedByTheCyclesOfTheRecord) {
  Maker maker;
  constexpr uint64_t kMiB = 1 << 20;
  for (uint64_t cycle = 1; cycle <= 50; ++cycle) {
    maker.Cycle(0, true, "step", cycle);
    uint64_t last = maker.Make(0, kMiB);
    for (int i = 0; i < 10; ++i) {
      const uint64_t next = maker.Make(0, kMiB);
      maker.Free(0, last);
      last = next;
    }
    maker.Free(0, last);
    maker.Cycle(0, false, "step", cycle);
  }
  const ReplayScript script(maker.record());
  EXPECT_TRUE(script.cycles_by_marks());
  EXPECT_EQ(script.live_bound(), 2 * kMiB);
  const ReplayResult result = Replay(script, "workspace", {.runs = 1});
  ASSERT_EQ(result.runs.size(), 1u);
  const ReplayRun& run = result.runs[0];
  EXPECT_EQ(run.hits + run.spills, 50 * 11);
  EXPECT_GE(run.hits, 49 * 11);
  EXPECT_EQ(run.plans, 1);  // of fifty equal cycles
  EXPECT_LT(run.peak_bytes, static_cast<int64_t>(16 * kMiB));
  // Without marks the period is found.
  std::erase_if(maker.record().events, [](const RecordEvent& event) {
    return event.what == What::kCycleBegin || event.what == What::kCycleEnd;
  });
  const ReplayScript unmarked(maker.record());
  EXPECT_FALSE(unmarked.cycles_by_marks());
  EXPECT_GE(unmarked.cycles().size(), 40u);
}

// What planning takes is told of a further run, of what plans alone.
TEST(Replay, TellsWhatPlanningTakes) {
  Maker maker;
  for (uint64_t cycle = 1; cycle <= 20; ++cycle) {
    maker.Cycle(0, true, "step", cycle);
    for (uint64_t i = 0; i < 500; ++i) maker.Free(0, maker.Make(0, 100 * (i + 1)));
    maker.Cycle(0, false, "step", cycle);
  }
  const ReplayScript script(maker.record());
  const ReplayResult planned = Replay(script, "workspace", {.runs = 1});
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << planned.why;
#endif
  ASSERT_GE(planned.system_calls, 0) << planned.why;
  EXPECT_EQ(planned.median().plans, 1);
  EXPECT_GT(planned.planning_seconds, 0);
  const ReplayResult not_asked =
      Replay(script, "workspace", {.runs = 1, .count_system_calls = false});
  EXPECT_EQ(not_asked.median().plans, 1);
  EXPECT_LT(not_asked.planning_seconds, 0);
  for (const char* const allocator : {"raw", "heap", "glibc"}) {
    const ReplayResult without = Replay(script, allocator, {.runs = 1});
    EXPECT_EQ(without.median().plans, 0) << allocator;
    EXPECT_EQ(without.planning_seconds, 0) << allocator;
  }
}

TEST(Replay, RunsOnDevices) {
  const ReplayScript script(Drawn(7, 3, 2000, true));
  for (const char* const allocator : {"workspace", "heap", "pool"}) {
    SCOPED_TRACE(allocator);
    const ReplayRun run = ReplayHere(script, allocator, SimulatedDevice::kDevice);
    EXPECT_GE(run.peak_bytes, static_cast<int64_t>(script.live_bound() / 4));
  }
  const ReplayResult result = Replay(script, "glibc", {.device = SimulatedDevice::kDevice});
  EXPECT_THAT(result.absent, HasSubstr("glibc: serves the host alone, found device simulated:0"));
}

TEST(Replay, RefusesWhatItCannotRun) {
  const auto message = [](auto&& work) { return std::string(CatchStatus(work).message()); };
  Maker many;
  many.Make(kMostReplayThreads, 10);
  EXPECT_THAT(message([&] { ReplayScript script(many.record()); }),
              HasSubstr("1025 threads, expected at most 1024"));
  Maker large;
  large.Make(0, uint64_t{1} << 50);
  EXPECT_THAT(message([&] { ReplayScript script(large.record()); }),
              HasSubstr("bytes alive at once, expected at most"));
  const ReplayScript script(Drawn(1, 1, 100, false));
  EXPECT_THAT(message([&] { Replay(script, "mymalloc"); }),
              HasSubstr("found allocator \"mymalloc\", expected one of workspace, raw, pool"));
  EXPECT_THAT(message([&] { Replay(script, "heap", {.runs = 0}); }), HasSubstr("0 runs"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map memory too
TEST(Replay, TellsOfThreadsThatCannotBeStarted) {
  constexpr uint32_t kThreads = 100;
  Maker maker;
  for (uint32_t thread = 0; thread < kThreads; ++thread) maker.Free(thread, maker.Make(thread, 10));
  const ReplayScript script(maker.record());
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before;
  getrlimit(RLIMIT_AS, &before);
  rlimit limit = before;
  // Some stacks, with those that other tests' threads have left, but not all of them.
  limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (96 << 20));
  setrlimit(RLIMIT_AS, &limit);
  const absl::Status status = CatchStatus([&] { ReplayHere(script, "glibc", Host()); });
  setrlimit(RLIMIT_AS, &before);
  EXPECT_THAT(std::string(status.message()),
              testing::MatchesRegex("replay on glibc: cannot start thread [0-9]+ of 100: .+"));
  ReplayHere(script, "glibc", Host());  // the others have ended
}
#endif

TEST(RecordedCycles, FindsThePeriodOfWhatRepeats) {
  std::mt19937_64 random(5);
  for (const uint32_t period : {1u, 2u, 7u, 40u, 333u}) {
    for (const bool noise : {false, true}) {
      SCOPED_TRACE(period);
      std::vector<uint64_t> cycle;
      for (uint32_t i = 0; i < period; ++i) cycle.push_back(64 << random() % 6);
      if (period > 1) cycle[period / 2] = 1000003;
      std::vector<uint64_t> sizes;
      for (int i = 0; i < 30; ++i) sizes.push_back(random() % 100000);  // what comes before
      for (int i = 0; i < 60; ++i) sizes.insert(sizes.end(), cycle.begin(), cycle.end());
      if (noise && period >= 40) {
        for (size_t i = 50; i < sizes.size(); i += 45) sizes[i] = random() % 100000;
      }
      for (int i = 0; i < 10; ++i) sizes.push_back(random() % 100000);
      const Repetition found = FindRepetition(sizes);
      EXPECT_EQ(found.period, period);
      EXPECT_GE((found.end - found.begin) / period, 50u);
    }
  }
  // Each size comes some eighty times in a cycle, as in a parser's.
  std::vector<uint64_t> cycle, sizes;
  for (int i = 0; i < 2300; ++i) cycle.push_back(8 + random() % 30);
  for (int i = 0; i < 66; ++i) sizes.insert(sizes.end(), cycle.begin(), cycle.end());
  for (size_t i = 50; i < sizes.size(); i += 45) sizes[i] = random() % 100000;
  EXPECT_EQ(FindRepetition(sizes).period, 2300u);
  std::vector<uint64_t> never;
  for (int i = 0; i < 3000; ++i) never.push_back(random());
  EXPECT_EQ(FindRepetition(never).period, 0u);
  EXPECT_EQ(FindRepetition({}).period, 0u);
  EXPECT_EQ(FindRepetition({1, 1}).period, 0u);
}

// A cycle begins where little is alive, not where the record happens to.
TEST(RecordedCycles, BeginWhereLittleIsAlive) {
  Maker maker;
  maker.Make(0, 77777);
  uint64_t left = maker.Make(0, 300);  // the end of a cycle whose beginning is missing
  maker.Free(0, left);
  for (int cycle = 0; cycle < 20; ++cycle) {
    const uint64_t a = maker.Make(0, 100), b = maker.Make(0, 200);
    maker.Free(0, a);
    const uint64_t c = maker.Make(0, 300);
    maker.Free(0, b);
    maker.Free(0, c);
  }
  const RecordedBlocks matched = MatchBlocks(maker.record());
  const RecordedCycles found = FindCycles(maker.record(), matched);
  EXPECT_EQ(found.period, 3u);
  EXPECT_GE(found.cycles.size(), 19u);
  EXPECT_EQ(found.outliving, 0u);
  for (const RecordedCycle& cycle : found.cycles) {
    EXPECT_EQ(maker.record().events[cycle.begin].bytes, 100u);
  }
}

}  // namespace
}  // namespace tidepool
