// Queues that use the same bytes under every interleaving of the threads that queue work in them: what conflicts is
// done one after the other, and memory is somebody else's behind all that used it.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <string>

#include "tidepool/memory/sync/queue_programs.h"
#include "tidepool/memory/testing/explorer/mutations.h"

namespace tidepool::explored {
namespace {

using explorer::Execution;
using explorer::FailureKind;
using explorer::Result;

// ---- all programs of a few calls ----

// One of six calls with that part of two arrays.
void AnyCall(Host<>& host, Item& x, Item& y, uint32_t part, int which) {
  switch (which) {
    case 0:
      return host.Read(x, part);
    case 1:
      return host.Write(x, part);
    case 2:
      return host.Call({{&x, false, part}, {&y, true, part}});
    case 3:
      return host.Call({{&y, false, part}, {&x, true, part}});
    case 4:
      return host.Call({{&x, true, part}, {&y, true, part}});
    default:
      return host.Call({{&x, false, part}, {&y, false, part}});
  }
}

// Each thread uses a part of its own, so that none has to wait for another's. `opens`: the last thread opens the second
// queue, while each of the others is in one call.
void AnyCalls(Execution& execution, int threads, int calls,
              std::initializer_list<std::array<int, 3>> queues, bool opens = false) {
  constexpr uint32_t kParts[] = {kLeft, kRight, kMiddle};
  auto& s = execution.Make<Three<>>(opens ? 0 : 2);
  s.world.device.whole_items = !opens;
  Host<>* const hosts[] = {&s.first, &s.second, &s.third};
  const std::array<int, 3>& chosen =
      queues.begin()[explorer::Choose(static_cast<int>(queues.size()))];
  for (int thread = 0; thread < threads; ++thread) {
    Host<>& host = *hosts[thread];
    host.queue = chosen[thread];
    std::array<int, 2> which = {};
    const bool opens_here = opens && thread == threads - 1;
    const int its_calls = opens && !opens_here ? 1 : calls;
    for (int call = 0; call < its_calls; ++call) which[call] = explorer::Choose(6);
    execution.Thread([&s, &host, which, calls = its_calls, part = kParts[thread], opens_here] {
      if (opens_here) host.queue = s.world.Open();
      for (int call = 0; call < calls; ++call) AnyCall(host, s.x, s.y, part, which[call]);
    });
  }
  execution.AtEnd([&s, opens] {
    if (opens) s.third.queue = s.world.Open();
    s.second.Read(s.x);
    s.first.Write(s.y);
    s.third.Release(s.x);
    s.second.Release(s.y);
  });
}
void AnyTwoCallsOfTwo(Execution& execution) {
  AnyCalls(execution, 2, 2, {{0, 1, 2}, {1, 2, 0}, {1, 1, 0}});
}
void AnyCallOfThree(Execution& execution) {
  AnyCalls(execution, 3, 1, {{0, 1, 2}, {1, 2, 2}, {0, 0, 1}});
}
void AnyCallWhileTheSecondQueueComes(Execution& execution) {
  AnyCalls(execution, 2, 2, {{0, 0, 0}}, /*opens=*/true);
}

struct Scenario {
  const char* name;
  void (*body)(Execution&);
};
constexpr Scenario kScenarios[] = {
    {"writers_of_halves", WritersOfHalves},
    {"readers_then_a_writer", ReadersThenAWriter},
    {"reader_meets_writer", ReaderMeetsWriterOfAnotherHalf},
    {"two_arrays_crosswise", TwoArraysCrosswise},
    {"in_place", InPlace},
    {"three_threads", ThreeThreads},
    {"threads_of_one_queue", ThreadsOfOneQueue},
    {"the_last_handle", TheLastHandle},
    {"arrays_leave_a_cycle", ArraysLeaveACycle},
    {"close_meets_a_late_reader", CloseMeetsALateReader},
    {"a_queue_ends", AQueueEndsWhileAnotherComesBehindIt<>},
    {"a_number_is_used_again", ANumberIsUsedAgain},
    {"the_host_waits", TheHostWaits},
    {"the_host_sends", TheHostSends},
    {"first_uses_of_a_block", FirstUsesOfABlock},
    {"the_second_queue_comes", TheSecondQueueComes},
    {"the_second_queue_comes_while_the_host_sends", TheSecondQueueComesWhileTheHostSends},
    {"the_second_queue_comes_and_goes", TheSecondQueueComesAndGoes},
    {"the_second_queue_comes_before_the_last_handle", TheSecondQueueComesBeforeTheLastHandle},
    {"any_two_calls_of_two", AnyTwoCallsOfTwo},
    {"any_call_of_three", AnyCallOfThree},
    {"any_call_while_the_second_queue_comes", AnyCallWhileTheSecondQueueComes},
};
// All there are, within no bound.
explorer::Options OptionsOf(const char* name) {
  return {.name = name, .search = explorer::Search::kFull};
}

class QueueUsersExploration : public ::testing::TestWithParam<Scenario> {};

TEST_P(QueueUsersExploration, Holds) {
  const Result result = explorer::Explore(OptionsOf(GetParam().name), GetParam().body);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
  std::printf("%s\n", result.report().c_str());
}

std::string NameOf(const ::testing::TestParamInfo<Scenario>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, QueueUsersExploration, ::testing::ValuesIn(kScenarios), NameOf);

// ---- teeth ----

// There is no order to weaken: the locks are what is left. None may be shared.
TEST(QueueUsersMutations, AreNoticed) {
  const explorer::MutationTable table =
      explorer::ExploreMutations(OptionsOf("queues"), [](Execution& execution) {
        const Scenario& scenario =
            kScenarios[explorer::Choose(static_cast<int>(std::size(kScenarios)))];
        // Whose orders are PinRegistry's, with a table of their own.
        if (scenario.body != CloseMeetsALateReader) scenario.body(execution);
      });
  EXPECT_TRUE(table.original.passed()) << table.report();
  EXPECT_FALSE(table.rows.empty());
  EXPECT_EQ(table.undetected(), "") << table.report();
  std::printf("%s\n", table.report().c_str());
}

// The first scenario that fails with `which`, and after how many executions; empty when none does.
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

// What a thread finds out about a queue that ends meanwhile is one of two things.
struct WithoutLocks : Sync {
  struct Mutex {
    void lock() {}
    void unlock() {}
  };
};
TEST(QueueUsersMistakes, NumbersWithoutALockAreFound) {
  const Result result =
      explorer::Explore(OptionsOf("numbers"), AQueueEndsWhileAnotherComesBehindIt<WithoutLocks>);
  EXPECT_EQ(result.failure, FailureKind::kDataRace) << result.report();
}

TEST(QueueUsersMistakes, ATurnAloneWithinOneThatIsNotIsFound) {
  const Result result = explorer::Explore(OptionsOf("within"), AloneWithinOneThatIsNot);
  EXPECT_EQ(result.failure, FailureKind::kCheck) << result.report();
}

TEST(QueueUsersMistakes, AreFound) {
  for (int i = 1; i <= static_cast<int>(kLastMistake); ++i) {
    const std::string found = FoundBy(static_cast<Mistake>(i));
    std::printf("%-24s %s\n", MistakeName(static_cast<Mistake>(i)),
                found.empty() ? "NOT FOUND" : found.c_str());
    EXPECT_NE(found, "") << MistakeName(static_cast<Mistake>(i));
  }
}

}  // namespace
}  // namespace tidepool::explored
