// Queues that use the same bytes under every interleaving of the threads that queue work in them: what conflicts is
// done one after the other, and memory is somebody else's behind all that used it.
#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <string>

#include "tidepool/memory/sync/explored_queues.h"
#include "tidepool/memory/sync/pin_registry.h"
#include "tidepool/memory/testing/explorer/mutations.h"

namespace tidepool::explored {
namespace {

using explorer::Execution;
using explorer::FailureKind;
using explorer::Result;

// Two items of an owner, three queues, a thread in each.
template <typename Policy = Sync>
struct Three {
  explicit Three(int queues = 2, int home = 0) : owner(home), world(queues) {}
  Owner owner;
  Item x{owner, 0}, y{owner, 1};
  World<Policy> world;
  Host<Policy> first{world, 0}, second{world, 1}, third{world, 2};
};

// ---- several queues from the beginning ----

// Two halves of one array; who comes later comes behind both.
void WritersOfHalves(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  execution.Thread([&s] {
    s.first.Write(s.x, kLeft);
    s.first.Write(s.x, kLeft);
  });
  execution.Thread([&s] {
    s.second.Write(s.x, kRight);
    s.second.Write(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.third.Read(s.x);
    s.second.Read(s.x);
    s.first.Write(s.x);
    s.third.Release(s.x);
  });
}

void ReadersThenAWriter(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] { s.second.Read(s.x); });
  execution.Thread([&s] {
    s.third.Read(s.x);
    s.third.Read(s.x);
  });
  execution.AtEnd([&s] {
    s.first.Write(s.x);
    s.second.Release(s.x);
  });
}

void ReaderMeetsWriterOfAnotherHalf(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] {
    s.second.Read(s.x, kLeft);
    s.second.Write(s.x, kLeft);
  });
  execution.Thread([&s] {
    s.third.Write(s.x, kRight);
    s.third.Read(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.first.Read(s.x);
    s.first.Release(s.x);
  });
}

// Each writes a half of one array from a half of another.
void TwoArraysCrosswise(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] { s.first.Call({{&s.x, false, kLeft}, {&s.y, true, kLeft}}); });
  execution.Thread([&s] { s.second.Call({{&s.y, false, kRight}, {&s.x, true, kRight}}); });
  execution.AtEnd([&s] {
    s.third.Call({{&s.x, true}, {&s.y, true}});
    s.first.Release(s.x);
    s.first.Release(s.y);
  });
}

// Into and out of the same array, and one that stands there twice.
void InPlace(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] { s.first.Call({{&s.x, false, kLeft}, {&s.x, true, kLeft}}); });
  execution.Thread([&s] { s.second.Call({{&s.x, false, kRight}, {&s.x, false, kRight}, {&s.x, true, kRight}}); });
  execution.AtEnd([&s] { s.third.Read(s.x); });
}

void ThreeThreads(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  execution.Thread([&s] { s.first.Write(s.x, kLeft); });
  execution.Thread([&s] { s.second.Write(s.x, kRight); });
  execution.Thread([&s] { s.third.Call({{&s.y, true}}); });
  execution.AtEnd([&s] {
    s.third.Call({{&s.x, false}, {&s.y, true}});
    s.second.Release(s.x);
  });
}

// Two threads in one queue, one in another.
void ThreadsOfOneQueue(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  auto& beside = execution.Make<Host<>>(s.world, 1);
  s.second.Write(s.x);
  execution.Thread([&s] { s.second.Write(s.x, kLeft); });
  execution.Thread([&beside] { beside.Call({}); });
  execution.Thread([&s] { s.first.Write(s.x, kRight); });
  execution.AtEnd([&] {
    beside.Read(s.x);
    s.third.Release(s.x);
  });
}

// ---- memory that goes ----

// Whoever drops the last handle gives it back, in its own order.
void TheLastHandle(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.x.handles.store(2, kRelaxed);
  s.third.Write(s.x);
  execution.Thread([&s] {
    s.first.Read(s.x);
    s.first.DropAndRelease(s.x);
  });
  execution.Thread([&s] {
    s.second.Write(s.x, kRight);
    s.second.DropAndRelease(s.x);
  });
}

// Arrays of a workspace go before its cycle ends; the record is the next array's, of memory that another had in the
// order of the home.
void ArraysLeaveACycle(Execution& execution) {
  auto& s = execution.Make<Three<>>(2, 2);
  auto& before = execution.Make<Item>(s.owner, 3);
  s.x.attached = s.y.attached = true;
  s.x.handles.store(2, kRelaxed);
  s.third.Write(s.y);
  const auto drop = [&](Host<>& host) {
    if (!host.Drop(s.x)) return;
    s.third.Write(before);
    host.LeaveCycle(s.x, /*next_memory=*/3);
    host.Write(s.x);
  };
  execution.Thread([&s, drop] {
    s.first.Write(s.x, kLeft);
    drop(s.first);
  });
  execution.Thread([&s, drop] {
    s.second.Write(s.x, kRight);
    drop(s.second);
  });
  execution.AtEnd([&s] { s.first.BeginCycle(s.owner, {0, 1, 3}); });
}

// Someone closes an array while another uses it: the bytes go when that is done (pin_registry.h).
void CloseMeetsALateReader(Execution& execution) {
  struct Closing {
    explicit Closing(Three<>& its) : s(its) { pins.Add(&record); }
    Three<>& s;
    PinRegistry<Sync, Item, 2> pins;
    PinRegistry<Sync, Item, 2>::Record record;
    Sync::Atomic<bool> dead{false};
  };
  auto& s = execution.Make<Three<>>();
  auto& c = execution.Make<Closing>(s);
  s.first.Write(s.x);
  execution.Thread([&s, &c] {
    c.pins.Pin(c.record, &s.x);
    c.pins.Publish();
    if (!c.dead.load(kRelaxed)) s.second.Read(s.x);
    c.pins.Unpin(c.record, 0, [&s](Item* item) { s.second.Release(*item); });
  });
  execution.Thread([&s, &c] {
    c.dead.store(true, kRelaxed);
    if (c.pins.AnyPinned() && c.pins.Postpone(&s.x)) return;
    s.third.Release(s.x);
  });
}

// ---- queues that end ----

template <typename Policy = Sync>
void AQueueEndsWhileAnotherComesBehindIt(Execution& execution) {
  auto& s = execution.Make<Three<Policy>>();
  execution.Thread([&s] {
    s.second.Write(s.x, kLeft);
    s.world.Close(1);
  });
  execution.Thread([&s] { s.third.Write(s.x, kRight); });
  execution.AtEnd([&s] {
    s.first.Read(s.x);
    s.third.Release(s.x);
  });
}

// The number is another queue's then, which begins behind what stands in sets for the one before.
void ANumberIsUsedAgain(Execution& execution) {
  auto& s = execution.Make<Three<>>(1);
  execution.Thread([&s] {
    s.second.Write(s.x, kLeft);
    s.world.Close(1);
  });
  execution.Thread([&s] {
    s.third.queue = s.world.Open();  // 1 or 2
    s.third.Write(s.y);
    s.third.Write(s.x, kRight);
    s.world.Close(s.third.queue);
  });
  execution.AtEnd([&s] {
    s.first.Read(s.x);
    s.first.Release(s.x);
    s.first.Release(s.y);
  });
}

// ---- the host ----

// It waits for one half, which was written before, without a turn.
void TheHostWaits(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.world.device.whole_items = false;
  s.first.Write(s.x);
  s.third.Read(s.x);
  execution.Thread([&s] {
    s.second.Write(s.x, kLeft);
    s.second.ReadOnHost(s.x, kLeft);
    s.second.Write(s.x, kLeft);
  });
  execution.Thread([&s] {
    s.third.ReadOnHost(s.x, kRight);
    s.third.Write(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.first.ReadOnHost(s.x);
    s.third.Release(s.x);
  });
}

void TheHostSends(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] {
    s.second.Upload(s.x, kLeft);
    s.second.Read(s.x, kLeft);
  });
  execution.Thread([&s] { s.first.Write(s.x, kRight); });
  execution.AtEnd([&s] {
    s.third.Upload(s.x);
    s.first.Release(s.x);
  });
}

// Memory of a block that was somebody else's before; what reads it first is not written yet.
void FirstUsesOfABlock(Execution& execution) {
  auto& s = execution.Make<Three<>>(explorer::Choose(2) * 2);
  const bool several = s.world.several.load(kRelaxed);
  Item& before = execution.Make<Item>(s.owner, 0);
  s.first.Write(before);
  const Works earlier = s.world.EndOf(0);
  s.x.version.store(0, kRelaxed);
  auto& handed_over = execution.Make<Sync::Atomic<bool>>(false);
  execution.Thread([&] {
    s.first.Read(s.x);
    handed_over.store(true, std::memory_order_release);
  });
  execution.Thread([&, several] {
    if (!handed_over.load(std::memory_order_acquire)) return;
    (several ? s.second : s.first).Upload(s.x, kWhole, earlier);
  });
}

// ---- the second queue comes while a program of one is under way ----

// A call that began with one queue, and work of a queue that has come since.
void TheSecondQueueComes(Execution& execution) {
  auto& s = execution.Make<Three<>>(0);
  s.world.device.whole_items = false;
  execution.Thread([&s] { s.first.Write(s.x, kLeft); });
  execution.Thread([&s] {
    s.second.queue = s.world.Open();
    s.second.Write(s.x, kRight);
    s.second.Write(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.second.Read(s.x);
    s.first.Read(s.x);
    s.second.Release(s.x);
  });
}

void TheSecondQueueComesWhileTheHostSends(Execution& execution) {
  auto& s = execution.Make<Three<>>(0);
  s.world.device.whole_items = false;
  execution.Thread([&s] {
    s.first.Upload(s.x, kLeft);
    s.first.Read(s.x, kLeft);
  });
  execution.Thread([&s] {
    s.second.queue = s.world.Open();
    s.second.Write(s.x, kRight);
    s.second.Write(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.first.ReadOnHost(s.x);
    s.second.Read(s.x);
    s.first.Read(s.x);
    s.second.Release(s.x);
  });
}

// It has ended before the call that began without it has.
void TheSecondQueueComesAndGoes(Execution& execution) {
  auto& s = execution.Make<Three<>>(0);
  s.world.device.whole_items = false;
  execution.Thread([&s] { s.first.Call({{&s.x, false, kLeft}, {&s.y, true, kLeft}}); });
  execution.Thread([&s] {
    s.second.queue = s.world.Open();
    s.second.Call({{&s.x, true, kRight}, {&s.y, true, kRight}});
    s.world.Close(s.second.queue);
  });
  execution.AtEnd([&s] {
    s.third.queue = s.world.Open();
    s.third.Call({{&s.x, true}, {&s.y, true}});
    s.third.Release(s.x);
    s.first.Release(s.y);
  });
}

struct Scenario {
  const char* name;
  void (*body)(Execution&);
  int preemptions = 3;
};
constexpr Scenario kScenarios[] = {
    {"writers_of_halves", WritersOfHalves},
    {"readers_then_a_writer", ReadersThenAWriter},
    {"reader_meets_writer", ReaderMeetsWriterOfAnotherHalf},
    {"two_arrays_crosswise", TwoArraysCrosswise},
    {"in_place", InPlace},
    {"three_threads", ThreeThreads, 2},
    {"threads_of_one_queue", ThreadsOfOneQueue, 2},
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
};

class QueueUsersExploration : public ::testing::TestWithParam<Scenario> {};

TEST_P(QueueUsersExploration, Holds) {
  const Result result = explorer::Explore(
      {.name = GetParam().name, .preemptions = GetParam().preemptions}, GetParam().body);
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
      explorer::ExploreMutations({.name = "queues", .preemptions = 1}, [](Execution& execution) {
        const Scenario& scenario = kScenarios[explorer::Choose(static_cast<int>(std::size(kScenarios)))];
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
    const Result result =
        explorer::Explore({.name = scenario.name, .preemptions = scenario.preemptions}, scenario.body);
    if (result.passed()) continue;
    found = std::string(scenario.name) + " after " + std::to_string(result.executions) + ": " + result.message;
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
      explorer::Explore({.name = "numbers"}, AQueueEndsWhileAnotherComesBehindIt<WithoutLocks>);
  EXPECT_EQ(result.failure, FailureKind::kDataRace) << result.report();
}

TEST(QueueUsersMistakes, AreFound) {
  for (int i = 1; i <= static_cast<int>(kLastMistake); ++i) {
    const std::string found = FoundBy(static_cast<Mistake>(i));
    std::printf("%-24s %s\n", MistakeName(static_cast<Mistake>(i)), found.empty() ? "NOT FOUND" : found.c_str());
    EXPECT_NE(found, "") << MistakeName(static_cast<Mistake>(i));
  }
}

}  // namespace
}  // namespace tidepool::explored
