// What is advised for programs whose cycles are known.
#include "tidepool/memory/recording/advice.h"

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/recording/record.h"

namespace tidepool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Use = CycleAdvice::Use;
using What = RecordEvent::What;

// Cycles of chains: each block is released when the next one is made.
Record Chains(int cycles, bool marks, const std::function<std::vector<uint64_t>(int)>& sizes) {
  Record record;
  record.threads = 1;
  const uint32_t name = record.Name("workspace step");
  uint64_t number = 0, key = 0;
  const auto mark = [&](What what, int cycle) {
    if (!marks) return;
    record.events.push_back(
        {.what = what, .number = ++number, .bytes = static_cast<uint64_t>(cycle), .owner = name});
  };
  const auto free = [&](uint64_t block) {
    record.events.push_back({.what = What::kFree, .number = ++number, .block = block});
  };
  for (int cycle = 1; cycle <= cycles; ++cycle) {
    mark(What::kCycleBegin, cycle);
    uint64_t last = 0;
    for (const uint64_t bytes : sizes(cycle)) {
      record.events.push_back({.number = ++number, .block = ++key, .bytes = bytes});
      if (last != 0) free(last);
      last = key;
    }
    if (last != 0) free(last);
    mark(What::kCycleEnd, cycle);
  }
  return record;
}

std::vector<uint64_t> Fixed(int) { return {1000, 64000, 128000, 64000, 640}; }

TEST(Advice, OfOneKindOfCycleIsOnePlan) {
  for (const bool marks : {true, false}) {
    SCOPED_TRACE(marks);
    const Advice advice = Advise(Chains(100, marks, &Fixed));
    EXPECT_EQ(advice.by_marks, marks);
    EXPECT_EQ(advice.requests, 500u);
    ASSERT_EQ(advice.of_cycles.size(), 1u);
    const CycleAdvice& of = advice.of_cycles[0];
    EXPECT_EQ(of.use, Use::kPlans);
    EXPECT_EQ(of.kinds, 1u);
    EXPECT_EQ(of.requested_bytes, 1024u + 64000 + 128000 + 64000 + 640);
    EXPECT_EQ(of.live_bound, 128000u + 64000);
    EXPECT_EQ(of.planned_bytes, 192000u);
    EXPECT_EQ(of.config.policy_learning, LearningPolicy::kOptimized);
    EXPECT_EQ(of.config.initial_size, 192000u);
    of.config.Validate("step");
    EXPECT_EQ(of.outliving, 0u);
    if (marks) {
      EXPECT_EQ(of.cycles, 100u);
      EXPECT_EQ(of.name, "step");
      EXPECT_THAT(
          of.code,
          ElementsAre("WorkspaceConfig config = WorkspaceConfig::Training();",
                      "config.initial_size = 192000;  // the first cycle has its pages too",
                      "Workspace workspace(\"step\", config);",
                      "WorkspaceScope scope(workspace);  // in each cycle, around all it makes"));
    } else {
      EXPECT_EQ(advice.period, 5u);
      EXPECT_GE(of.cycles, 98u);
      EXPECT_THAT(advice.ToString(), HasSubstr("found by their period: 5 requests"));
    }
  }
}

TEST(Advice, OfSeveralKindsIsAPlanForEach) {
  const Advice advice = Advise(Chains(90, true, [](int cycle) {
    return std::vector<uint64_t>{static_cast<uint64_t>(cycle % 3 + 1) * 10000, 5000};
  }));
  ASSERT_EQ(advice.of_cycles.size(), 1u);
  EXPECT_EQ(advice.of_cycles[0].use, Use::kManyPlans);
  EXPECT_EQ(advice.of_cycles[0].kinds, 3u);
  EXPECT_EQ(advice.of_cycles[0].cycles_that_repeat, 90u);
  EXPECT_EQ(advice.of_cycles[0].config.policy_learning, LearningPolicy::kTraining);
}

TEST(Advice, OfCyclesThatAreNeverAlikeIsMemoryWithoutPlans) {
  std::mt19937_64 random(1);
  const Advice advice = Advise(Chains(90, true, [&](int) {
    std::vector<uint64_t> sizes;
    for (int i = 0; i < 20; ++i) sizes.push_back(random() % 10000);
    return sizes;
  }));
  ASSERT_EQ(advice.of_cycles.size(), 1u);
  EXPECT_EQ(advice.of_cycles[0].use, Use::kContainers);
  EXPECT_THAT(advice.of_cycles[0].code[1], HasSubstr("WorkspaceResource"));
}

// Of malloc these are containers' nodes.
TEST(Advice, OfSmallBlocksOfMallocIsContainers) {
  Record record = Chains(50, true, [](int) { return std::vector<uint64_t>{72, 40, 72, 200}; });
  EXPECT_EQ(Advise(record).of_cycles.at(0).use, Use::kPlans);
  record.source = record::Source::kMalloc;
  EXPECT_EQ(Advise(record).of_cycles.at(0).use, Use::kContainers);
}

TEST(Advice, SaysWhyThereIsNone) {
  std::mt19937_64 random(1);
  const auto drawn = [&](int) {
    return std::vector<uint64_t>{random() % 100000, random() % 100000};
  };
  const Advice none = Advise(Chains(90, false, drawn));
  EXPECT_TRUE(none.of_cycles.empty());
  EXPECT_THAT(
      none.ToString(),
      HasSubstr(
          "no cycles: nothing is marked (tidepool_mark_cycle_begin() in record_marks.h does), "
          "and no thread's requests repeat"));
  const Advice few = Advise(Chains(2, true, &Fixed));
  ASSERT_EQ(few.of_cycles.size(), 1u);
  EXPECT_EQ(few.of_cycles[0].use, Use::kNothing);
  EXPECT_THAT(few.of_cycles[0].why, HasSubstr("only 2 cycles"));
  EXPECT_TRUE(Advise(Record()).of_cycles.empty());
}

TEST(Advice, CountsWhatOutlivesItsCycle) {
  Record record = Chains(50, true, &Fixed);
  // The last release of every cycle comes behind the next one.
  std::vector<RecordEvent> late;
  for (RecordEvent& event : record.events) {
    if (event.what == What::kFree && event.block % 5 == 0) event.number += 4;
  }
  const Advice advice = Advise([&] {
    const Record sorted = ParseRecord(
        [&] {
          uint64_t number = 0;
          std::stable_sort(
              record.events.begin(), record.events.end(),
              [](const RecordEvent& a, const RecordEvent& b) { return a.number < b.number; });
          for (RecordEvent& event : record.events) event.number = ++number;
          return FormatRecord(record);
        }(),
        "case");
    return sorted;
  }());
  ASSERT_EQ(advice.of_cycles.size(), 1u);
  EXPECT_EQ(advice.of_cycles[0].outliving, 50u);
  EXPECT_EQ(advice.of_cycles[0].outliving_bytes, 50u * 640);
  EXPECT_THAT(advice.ToString(), HasSubstr("50 of 0.03 MiB outlive it"));
}

}  // namespace
}  // namespace tidepool
