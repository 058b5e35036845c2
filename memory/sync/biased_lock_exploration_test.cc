// A lock with a bias under every interleaving: one is inside at a time, and sees what those before did.
#include "tidepool/memory/sync/biased_lock.h"

#include <cstdio>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::Result;
using explorer::Sync;

using Thread = BasicBiasedThread<Sync>;
using Lock = BasicBiasedLock<Sync, 2, 2>;

struct State {
  // As a caller does it. Plain accesses that race, or a number that is lost, are failures.
  void Add(Thread& thread) {
    if (lock.TryLockBiased(thread)) {
      sum.set(sum.get() + 1);
      Lock::UnlockBiased(thread);
      return;
    }
    lock.Lock(&thread);
    sum.set(sum.get() + 1);
    lock.Unlock();
  }
  void TryAdd() {
    if (!lock.TryLock()) return;
    sum.set(sum.get() + 1);
    tried = 1;
    lock.Unlock();
  }

  Lock lock;
  Thread threads[3];
  Sync::Plain<int> sum{0};
  int tried = 0;
};

// One has the bias before another comes.
void BiasIsTakenAway(Execution& execution) {
  auto& state = execution.Make<State>();
  execution.Thread([&] {
    for (int i = 0; i < 4; ++i) state.Add(state.threads[0]);
  });
  execution.Thread([&] { state.Add(state.threads[1]); });
  execution.AtEnd([&] { Check(state.sum.get() == 5, "none is lost"); });
}

// Each gets the bias, and the other takes it away.
void BiasGoesToAndFro(Execution& execution) {
  auto& state = execution.Make<State>();
  for (int thread = 0; thread < 2; ++thread) {
    execution.Thread([&state, thread] {
      for (int i = 0; i < 3; ++i) state.Add(state.threads[thread]);
    });
  }
  execution.AtEnd([&] { Check(state.sum.get() == 6, "none is lost"); });
}

// A third may come between a thread's look at the bias and its being inside.
void ThreeCome(Execution& execution) {
  auto& state = execution.Make<State>();
  state.Add(state.threads[0]);
  state.Add(state.threads[0]);
  execution.Thread([&] { state.Add(state.threads[0]); });
  execution.Thread([&] {
    for (int i = 0; i < 3; ++i) state.Add(state.threads[1]);
  });
  execution.Thread([&] { state.Add(state.threads[2]); });
  execution.AtEnd([&] { Check(state.sum.get() == 7, "none is lost"); });
}

// The biased thread ends, and what named it is gone, while another comes.
void BiasedThreadEnds(Execution& execution) {
  auto& state = execution.Make<State>();
  execution.Thread([&] {
    Thread* const mine = Sync::New<Thread>();
    for (int i = 0; i < 3; ++i) state.Add(*mine);
    state.lock.Forget(*mine);
    Sync::Delete(mine);
  });
  execution.Thread([&] {
    state.Add(state.threads[1]);
    state.Add(state.threads[1]);
  });
  execution.AtEnd([&] { Check(state.sum.get() == 5, "none is lost"); });
}

// Who does not wait for others takes the bias away all the same.
void OneOnlyTries(Execution& execution) {
  auto& state = execution.Make<State>();
  execution.Thread([&] {
    for (int i = 0; i < 3; ++i) state.Add(state.threads[0]);
  });
  execution.Thread([&] { state.TryAdd(); });
  execution.AtEnd([&] { Check(state.sum.get() == 3 + state.tried, "none is lost"); });
}

struct Scenario {
  const char* name;
  void (*body)(Execution&);
  int preemptions = 3;
};
constexpr Scenario kScenarios[] = {
    {"bias_is_taken_away", BiasIsTakenAway},
    {"bias_goes_to_and_fro", BiasGoesToAndFro},
    {"three_come", ThreeCome, 2},
    {"biased_thread_ends", BiasedThreadEnds},
    {"one_only_tries", OneOnlyTries},
};

class BiasedLockExploration : public ::testing::TestWithParam<Scenario> {};

TEST_P(BiasedLockExploration, Holds) {
  const Result result = explorer::Explore(
      {.name = GetParam().name, .preemptions = GetParam().preemptions}, GetParam().body);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
  std::printf("%s\n", result.report().c_str());
}

INSTANTIATE_TEST_SUITE_P(All, BiasedLockExploration, ::testing::ValuesIn(kScenarios),
                         [](const auto& info) { return info.param.name; });

TEST(BiasedLockMutations, AreNoticed) {
  const explorer::MutationTable table = explorer::ExploreMutations(
      {.name = "biased_lock", .preemptions = 2},
      [](Execution& e) { kScenarios[explorer::Choose(std::size(kScenarios))].body(e); });
  EXPECT_TRUE(table.original.passed()) << table.report();
  EXPECT_EQ(table.undetected(), "") << table.report();
}

// ---- negative control ----

// Whether one is inside says the lock and not the thread: who finds its bias gone says for another that
// it is outside.
struct OneFlag {
  bool TryLockBiased(int thread) {
    if (bias.load(std::memory_order_relaxed) != thread) return false;
    inside.store(true, std::memory_order_relaxed);
    Sync::Fence(std::memory_order_seq_cst);
    if (bias.load(std::memory_order_relaxed) == thread) return true;
    inside.store(false, std::memory_order_relaxed);
    return false;
  }
  void Add(int thread) {
    if (TryLockBiased(thread)) {
      sum.set(sum.get() + 1);
      inside.store(false, std::memory_order_release);
      return;
    }
    mutex.lock();
    if (const int biased = bias.load(std::memory_order_relaxed); biased != 0) {
      bias.store(0, std::memory_order_relaxed);
      Sync::Fence(std::memory_order_seq_cst);
      while (biased != thread && inside.load(std::memory_order_acquire)) Sync::Yield();
    }
    sum.set(sum.get() + 1);
    bias.store(thread, std::memory_order_relaxed);
    mutex.unlock();
  }

  Sync::Atomic<int> bias{0};
  Sync::Atomic<bool> inside{false};
  Sync::Mutex mutex;
  Sync::Plain<int> sum{0};
};

TEST(BiasedLockExploration, OneFlagForAllIsNotEnough) {
  const Result result =
      explorer::Explore({.name = "one_flag", .preemptions = 3}, [](Execution& execution) {
        auto& state = execution.Make<OneFlag>();
        state.Add(1);
        execution.Thread([&] { state.Add(1); });
        execution.Thread([&] {
          state.Add(2);
          state.Add(2);
        });
        execution.Thread([&] { state.Add(3); });
      });
  EXPECT_FALSE(result.passed());
}

}  // namespace
}  // namespace tidepool
