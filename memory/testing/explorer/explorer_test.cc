// What the explorer reports, counts and repeats.
#include "tidepool/memory/testing/explorer/explore.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr std::memory_order kRelease = std::memory_order_release;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A place for one value, handed from one thread to another; the template that the guide shows.
template <typename Sync>
class Mailbox {
 public:
  explicit Mailbox(std::memory_order publish = kRelease) : publish_(publish) {}

  void Put(int value) {
    value_.set(value);
    full_.store(1, publish_);
    full_.notify_one();
  }
  int Take() {
    full_.wait(0, std::memory_order_acquire);
    const int value = value_.get();
    full_.store(0, std::memory_order_relaxed);
    return value;
  }
  bool empty() const { return full_.load(std::memory_order_relaxed) == 0; }

 private:
  const std::memory_order publish_;
  typename Sync::template Plain<int> value_{0};
  typename Sync::template Atomic<int> full_{0};
};

Result ExploreMailbox(const Options& options, std::memory_order publish) {
  return Explore(options, [publish](Execution& execution) {
    auto& box = execution.Make<Mailbox<Sync>>(publish);
    execution.Thread([&box] { box.Put(42); });
    execution.Thread([&box] { Check(box.Take() == 42, "what was put is taken"); });
    execution.AtEnd([&box] { Check(box.empty(), "the box is empty"); });
  });
}

TEST(Explore, WhatIsExploredRunsInProduction) {
  Mailbox<StdSync> box;
  box.Put(42);
  EXPECT_EQ(box.Take(), 42);
  const Result result = ExploreMailbox({.name = "mailbox"}, kRelease);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted);
  EXPECT_TRUE(result.unbounded);
}

// Without ":123", which changes with the file.
std::string WithoutLines(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(\.cc:\d+)"), ".cc");
}

TEST(Explore, WhatAFailureSays) {
  const Result result = ExploreMailbox({.name = "mailbox"}, kRelaxed);
  EXPECT_EQ(result.failure, FailureKind::kDataRace);
  EXPECT_EQ(WithoutLines(result.message),
            "a plain variable is written by T1 at explorer_test.cc and read by T2 at "
            "explorer_test.cc, neither before the other");
  EXPECT_EQ(WithoutLines(result.trace),
            "  step  T1                                               T2\n"
            "     1  plain set  explorer_test.cc\n"
            "     2  a1.store relaxed 1  explorer_test.cc\n"
            "     3  a1.notify_one finds nobody  explorer_test.cc\n"
            "     4                                                   a1.wait acquire 1  "
            "explorer_test.cc\n"
            "     5                                                   <-- data race\n"
            "  made: a1 explorer_test.cc\n");
  EXPECT_EQ(result.replay, "mailbox/p0-");
  EXPECT_TRUE(
      Contains(result.report(), "exploration mailbox: data race: a plain variable is written"));
  EXPECT_TRUE(Contains(result.report(), result.trace));
  EXPECT_TRUE(Contains(result.report(), "  replay: TIDEPOOL_EXPLORER_REPLAY='mailbox/p0-'\n"));
}

TEST(Explore, AStringReplaysAFailure) {
  const Result found = ExploreMailbox({.name = "mailbox"}, kRelaxed);
  const Result again = ExploreMailbox({.name = "mailbox", .replay = found.replay}, kRelaxed);
  EXPECT_EQ(again.failure, found.failure);
  EXPECT_EQ(again.message, found.message);
  EXPECT_EQ(again.trace, found.trace);
  EXPECT_EQ(again.replay, found.replay);
  EXPECT_TRUE(again.replayed);
  EXPECT_EQ(again.executions, 0);
}

TEST(Explore, TheEnvironmentReplaysTheExplorationThatItNames) {
  const Result found = ExploreMailbox({.name = "mailbox"}, kRelaxed);
  setenv("TIDEPOOL_EXPLORER_REPLAY", found.replay.c_str(), 1);
  const Result named = ExploreMailbox({.name = "mailbox"}, kRelaxed);
  const Result other = ExploreMailbox({.name = "other"}, kRelease);
  unsetenv("TIDEPOOL_EXPLORER_REPLAY");
  EXPECT_TRUE(named.replayed);
  EXPECT_EQ(named.message, found.message);
  EXPECT_FALSE(other.replayed);
}

TEST(Explore, BadStringsToReplayAreErrors) {
  for (const char* text : {"x", "mailbox/", "p-0", "p2", "px-1", "p*-1#", "p*-(1"}) {
    EXPECT_THROW(ExploreMailbox({.replay = text}, kRelease), Error) << text;
  }
  // Of another program: more choices than there are, and larger ones.
  for (const char* text : {"p*-zzz1", "p*-9"}) {
    const Result result = ExploreMailbox({.replay = text}, kRelease);
    EXPECT_EQ(result.failure, FailureKind::kNotDeterministic) << text;
  }
}

std::string RefusalOf(const Options& options) {
  try {
    ExploreMailbox(options, kRelease);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(Explore, AnotherExplorationsStringToReplayIsRefused) {
  EXPECT_EQ(RefusalOf({.name = "inbox", .replay = "mailbox/p0-"}),
            "explorer::Options.replay is of exploration [mailbox], expected one of [inbox]");
  EXPECT_EQ(RefusalOf({.name = "mailbox", .replay = "mailbox/p0-"}), "");
  EXPECT_EQ(RefusalOf({.name = "mailbox", .replay = "p0-"}), "");
}

TEST(Explore, StacksThatCannotBeAreRefusedByTheirNumber) {
  EXPECT_EQ(RefusalOf({.stack_bytes = SIZE_MAX}),
            "explorer::Options.stack_bytes is 18446744073709551615, expected 16384 to 1073741824");
}

TEST(Explore, BadOptionsAreErrors) {
  EXPECT_THROW(ExploreMailbox({.preemptions = -1}, kRelease), Error);
  EXPECT_THROW(ExploreMailbox({.max_executions = 0}, kRelease), Error);
  EXPECT_THROW(ExploreMailbox({.stack_bytes = 1}, kRelease), Error);
}

// Two threads of `steps` steps each on variables of their own.
Result ExploreIndependent(const Options& options, int steps) {
  return Explore(options, [steps](Execution& execution) {
    struct State {
      Sync::Atomic<int> x{0}, y{0};
    };
    State& state = execution.Make<State>();
    for (auto* variable : {&state.x, &state.y}) {
      execution.Thread([variable, steps] {
        for (int i = 0; i < steps; ++i) variable->store(i, kRelaxed);
      });
    }
  });
}

TEST(Explore, CountsInterleavings) {
  // 6 over 3.
  Result result = ExploreIndependent({.preemptions = 100}, 3);
  EXPECT_TRUE(result.unbounded);
  EXPECT_EQ(result.rounds.back().executions, 20);
  // Which of them have so many preemptions: one thread after the other; with a preemption after the
  // first or second step of either; and so on.
  std::vector<int64_t> distinct;
  for (const Result::Round& round : result.rounds) distinct.push_back(round.distinct);
  EXPECT_EQ(distinct, (std::vector<int64_t>{2, 4, 8, 4, 2}));
  // All are the same but for the order of independent steps.
  result = ExploreIndependent({.search = Search::kFull}, 3);
  EXPECT_EQ(result.rounds.back().distinct, 1);
  EXPECT_TRUE(result.exhausted);
}

TEST(Explore, SaysWhenTheBoundKeptSomethingOut) {
  Result result = ExploreIndependent({.preemptions = 1}, 3);
  EXPECT_TRUE(result.exhausted);
  EXPECT_FALSE(result.unbounded);
  result = ExploreIndependent({.preemptions = 100, .max_executions = 10}, 3);
  EXPECT_TRUE(result.passed());
  EXPECT_FALSE(result.exhausted);
  EXPECT_EQ(result.executions, 10);
}

TEST(Explore, SaysWhenStoresInOrderLeftSomethingOut) {
  auto stores = [](int variables, Search search, bool in_order) {
    return Explore(
        {.search = search, .preemptions = 100, .stores_in_order = in_order},
        [variables](Execution& execution) {
          auto& x = execution.Make<std::array<Sync::Atomic<int>, 2>>();
          for (int i = 0; i < 2; ++i) {
            execution.Thread([&x, i, variables] { x[i % variables].store(i, kRelaxed); });
          }
        });
  };
  for (const Search search : {Search::kBounded, Search::kFull}) {
    const Result some = stores(1, search, true);
    EXPECT_TRUE(some.passed() && some.exhausted && some.stores_left_out) << some.report();
    EXPECT_FALSE(some.unbounded) << some.report();
    EXPECT_TRUE(Contains(some.report(),
                         "exhausted within the bound, but for stores placed before others "
                         "that ran earlier (Options::stores_in_order)"))
        << some.report();
    for (const Result& all : {stores(1, search, false), stores(2, search, true)}) {
      EXPECT_TRUE(all.unbounded && !all.stores_left_out) << all.report();
      EXPECT_FALSE(Contains(all.report(), "stores_in_order")) << all.report();
    }
  }
}

// Fails if the second thread takes its first step, and no other, between the first two of the
// first.
void NeedsTwoPreemptions(Execution& execution) {
  struct State {
    Sync::Atomic<int> x{0};
  };
  State& state = execution.Make<State>();
  execution.Thread([&state] {
    state.x.exchange(1);
    const int second = state.x.exchange(2);
    const int third = state.x.exchange(3);
    Check(second != 10 || third != 2, "nobody came in between once");
  });
  execution.Thread([&state] {
    state.x.exchange(10);
    state.x.exchange(20);
  });
}

TEST(Explore, FindsWhatNeedsTwoPreemptionsWithTwo) {
  EXPECT_TRUE(Explore({.preemptions = 1}, NeedsTwoPreemptions).passed());
  const Result result = Explore({.preemptions = 2}, NeedsTwoPreemptions);
  EXPECT_EQ(result.failure, FailureKind::kCheck);
  EXPECT_EQ(result.rounds.size(), 3);
  EXPECT_FALSE(Explore({.search = Search::kFull}, NeedsTwoPreemptions).passed());
}

TEST(Explore, RandomSearchesFindItAndReplay) {
  for (const Search search : {Search::kRandom, Search::kPriorities}) {
    const Options options = {.search = search, .executions = 5000, .seed = 7};
    const Result result = Explore(options, NeedsTwoPreemptions);
    ASSERT_EQ(result.failure, FailureKind::kCheck) << result.report();
    EXPECT_EQ(Explore(options, NeedsTwoPreemptions).replay, result.replay) << "the same seed";
    const Result again = Explore({.replay = result.replay}, NeedsTwoPreemptions);
    EXPECT_EQ(again.trace, result.trace);
    EXPECT_EQ(again.failure, FailureKind::kCheck);
  }
}

TEST(Explore, ChoosesForTheBody) {
  std::multiset<int> seen;
  const Result result = Explore({}, [&](Execution& execution) {
    auto& x = execution.Make<Sync::Atomic<int>>(0);
    const int offset = 10 * Choose(2);
    execution.Thread([&x, offset] { x.store(offset + Choose(3)); });
    execution.AtEnd([&] { seen.insert(x.load()); });
  });
  EXPECT_TRUE(result.unbounded);
  EXPECT_EQ(seen, (std::multiset<int>{0, 1, 2, 10, 11, 12}));
}

TEST(Explore, ABodyThatRemembersIsNotDeterministic) {
  int calls = 0;
  const Result result = Explore({}, [&](Execution& execution) {
    auto& x = execution.Make<Sync::Atomic<int>>(0);
    const int steps = ++calls;
    for (int i = 0; i < 2; ++i) {
      execution.Thread([&x, steps] {
        for (int j = 0; j < 3 - steps % 2; ++j) x.store(j);
      });
    }
  });
  EXPECT_EQ(result.failure, FailureKind::kNotDeterministic) << result.report();
}

// Where no execution offers other choices than the one before: the steps and variables of it tell.
TEST(Explore, ABodyWhoseOperationsChangeIsNotDeterministic) {
  auto explored = [](auto&& steps_of_call, auto&& variables_of_call,
                     Search search = Search::kBounded) {
    int calls = 0;
    return Explore({.search = search}, [&](Execution& execution) {
      auto& x = execution.Make<Sync::Atomic<int>>(0);
      const int steps = steps_of_call(++calls);
      for (int i = 0; i < variables_of_call(calls); ++i) execution.Make<Sync::Atomic<int>>(0);
      execution.Thread([&x, steps] {
        for (int i = 0; i < steps; ++i) x.fetch_add(1);
      });
      execution.Thread([&x] {
        x.load();
        x.load();
      });
    });
  };
  auto none = [](int) { return 0; };
  auto one = [](int) { return 1; };
  auto of_three = [](int call) { return call % 3; };
  auto grows = [](int call) { return call; };
  for (const Result& result : {explored(of_three, none), explored(grows, none),
                               explored(one, grows), explored(one, grows, Search::kFull)}) {
    EXPECT_EQ(result.failure, FailureKind::kNotDeterministic) << result.report();
    EXPECT_TRUE(Contains(result.message, "that the explorer does not choose")) << result.report();
  }
  EXPECT_TRUE(explored(one, one).exhausted && explored(one, one, Search::kFull).unbounded);
}

// Constant expressions have no undefined behaviour.
static_assert(internal::Plus(std::numeric_limits<int64_t>::max(), 1) ==
              std::numeric_limits<int64_t>::min());
static_assert(internal::Minus(std::numeric_limits<int32_t>::min(), 1) ==
              std::numeric_limits<int32_t>::max());
static_assert(internal::Plus(int8_t{-1}, int8_t{-128}) == 127);

TEST(Explore, SignedUpdatesWrap) {
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const Result result = Explore({}, [](Execution& execution) {
    auto& x = execution.Make<Sync::Atomic<int64_t>>(kMost);
    execution.Thread([&x] {
      Check(x.fetch_add(1) == kMost && x.load() == kLeast, "fetch_add wraps");
      Check(x.fetch_sub(1) == kLeast && x.load() == kMost, "fetch_sub wraps");
      Check(++x == kLeast && --x == kMost, "so do ++ and --");
      Check((x += kMost) == -2 && (x -= kMost) == kMost, "and += and -=");
    });
  });
  EXPECT_TRUE(result.passed()) << result.report();
}

TEST(Explore, DestroysWhatItMade) {
  struct Counts {
    explicit Counts(int& alive) : alive(alive) { ++alive; }
    ~Counts() { --alive; }
    int& alive;
  };
  int alive = 0, most = 0;
  const Result result = Explore({}, [&](Execution& execution) {
    EXPECT_EQ(alive, 0);
    execution.Make<Counts>(alive);
    auto& x = execution.Make<Sync::Atomic<int>>(0);
    for (int i = 0; i < 2; ++i) execution.Thread([&x] { x.store(1); });
    execution.AtEnd([&] { most = std::max(most, alive); });
  });
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(most, 1);
}

TEST(Explore, SeveralThreadsMayExplore) {
  Result results[2];
  std::vector<std::thread> threads;
  for (Result& result : results) {
    threads.emplace_back([&result] { result = ExploreIndependent({.preemptions = 100}, 4); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Result& result : results) EXPECT_EQ(result.rounds.back().executions, 70);  // 8 over 4
}

TEST(Explore, MayNotExploreWithinAnExploration) {
  const Result result = Explore({}, [](Execution&) { Explore({}, [](Execution&) {}); });
  EXPECT_EQ(result.failure, FailureKind::kException);
  EXPECT_TRUE(Contains(result.message, "explorer::Explore is called by what it explores"));
}

}  // namespace
}  // namespace tidepool::explorer
