// Copies between two devices under every interleaving of the threads that queue them and other work
// of both: what conflicts is done one after the other, and nobody waits for ever.
#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "tidepool/memory/sync/peer_programs.h"
#include "tidepool/memory/testing/explorer/mutations.h"

namespace tidepool::explored {
namespace {

using explorer::Execution;
using explorer::FailureKind;
using explorer::Result;

// One of four calls with that part of arrays of both.
void AnyCall(TwoDevices& s, TwoDevices::Thread& thread, uint32_t part, int which) {
  switch (which) {
    case 0:
      return thread.Copy(s.x, s.u, part);
    case 1:
      return thread.CopyBack(s.u, s.x, part);
    case 2:
      return thread.here.Call({{&s.y, false, part}, {&s.x, true, part}});
    default:
      return thread.there.Call({{&s.v, false, part}, {&s.u, true, part}});
  }
}

// All programs of two calls beside one, each thread with a part of its own, in queues of its own or
// of the same one there.
void AnyThreeCalls(Execution& execution) {
  auto& s = execution.Make<TwoDevices>(2, /*whole_items=*/false);
  const int which[] = {explorer::Choose(4), explorer::Choose(4), explorer::Choose(4)};
  execution.Thread([&s, first = which[0], next = which[1]] {
    AnyCall(s, s.first, kLeft, first);
    AnyCall(s, s.first, kLeft, next);
  });
  execution.Thread([&s, only = which[2]] { AnyCall(s, s.second, kRight, only); });
  execution.AtEnd([&s] {
    s.third.there.Read(s.u);
    s.second.here.Write(s.x);
    s.third.here.Write(s.y);
    s.first.there.Write(s.v);
    s.second.there.Release(s.u);
    s.third.here.Release(s.x);
  });
}

struct Scenario {
  const char* name;
  void (*body)(Execution&);
};
constexpr Scenario kScenarios[] = {
    {"copies_crosswise", CopiesCrosswise},
    {"halves_of_one_array", HalvesOfOneArray},
    {"the_other_half_is_written", TheOtherHalfIsWritten},
    {"the_source_is_written_afterwards", TheSourceIsWrittenAfterwards},
    {"the_other_half_of_the_target", TheOtherHalfOfTheTarget},
    {"the_last_handle_of_the_source", TheLastHandleOfTheSource},
    {"cycles_of_both", CyclesOfBoth},
    {"there_and_back", ThereAndBack},
    {"to_a_fresh_block", ToAFreshBlock},
    {"the_second_queue_comes", TheSecondQueueComesWhileACopyIsQueued},
    {"the_queue_of_a_copy_ends", TheQueueOfACopyEnds},
};
explorer::Options OptionsOf(const char* name) {
  return {.name = name, .search = explorer::Search::kFull};
}

class PeerCopiesExploration : public ::testing::TestWithParam<Scenario> {};

TEST_P(PeerCopiesExploration, Holds) {
  const Result result = explorer::Explore(OptionsOf(GetParam().name), GetParam().body);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
  std::printf("%s\n", result.report().c_str());
}
INSTANTIATE_TEST_SUITE_P(All, PeerCopiesExploration, ::testing::ValuesIn(kScenarios),
                         [](const auto& info) { return std::string(info.param.name); });

// None of the turns' locks may be shared.
TEST(PeerCopiesMutations, AreNoticed) {
  const explorer::MutationTable table =
      explorer::ExploreMutations(OptionsOf("peers"), [](Execution& execution) {
        const Scenario& scenario =
            kScenarios[explorer::Choose(static_cast<int>(std::size(kScenarios)))];
        // Whose threads hand over by an order of their own.
        if (scenario.body != TheSourceIsWrittenAfterwards) scenario.body(execution);
      });
  EXPECT_TRUE(table.original.passed()) << table.report();
  EXPECT_FALSE(table.rows.empty());
  EXPECT_EQ(table.undetected(), "") << table.report();
  std::printf("%s\n", table.report().c_str());
}

TEST(PeerCopiesPrograms, AllHold) {
  const Result result = explorer::Explore(OptionsOf("any_three_calls"), AnyThreeCalls);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
  std::printf("%s\n", result.report().c_str());
}

std::string FoundBy(Mistake which) {
  mistake = which;
  std::string found;
  for (const Scenario& scenario : kScenarios) {
    const Result result = explorer::Explore(OptionsOf(scenario.name), scenario.body);
    if (result.passed()) continue;
    found = std::string(scenario.name) + " after " + std::to_string(result.executions) + ": " +
            result.message;
    break;
  }
  mistake = Mistake::kNone;
  return found;
}

// Each thing that a copy can leave out, and what its turns can.
TEST(PeerCopiesMistakes, AreFound) {
  std::vector<Mistake> all = {Mistake::kNoTurn, Mistake::kTurnEndsBeforeWork,
                              Mistake::kLateWorkNotWaitedFor, Mistake::kEndIsForgotten};
  for (int i = static_cast<int>(kLastMistake) + 1; i <= static_cast<int>(kLastMistakeOfTwo); ++i) {
    all.push_back(static_cast<Mistake>(i));
  }
  for (const Mistake each : all) {
    const std::string found = FoundBy(each);
    std::printf("%-24s %s\n", MistakeName(each), found.empty() ? "NOT FOUND" : found.c_str());
    EXPECT_NE(found, "") << MistakeName(each);
  }
}

}  // namespace
}  // namespace tidepool::explored
