// A yield may return at once: nothing that follows is left out because the others had not moved.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tidepool/memory/sync/spin_lock.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr std::memory_order kAcquire = std::memory_order_acquire;
constexpr std::memory_order kRelease = std::memory_order_release;

// Under sanitizers the stack has more on it than the program's variables: a loop may not be known again.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TIDEPOOL_SANITIZED 1
#endif
#endif
#if defined(TIDEPOOL_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKnowsLoops = false;
#else
constexpr bool kKnowsLoops = true;
#endif

struct State {
  Sync::Atomic<int> x{0}, y{0};
  Sync::Plain<int> plain{0};
};
using Part = void (*)(State&);

Result Threads(const Options& options, const std::vector<Part>& parts) {
  return Explore(options, [&](Execution& execution) {
    State& state = execution.Make<State>();
    for (Part part : parts) execution.Thread([&state, part] { part(state); });
  });
}

// Under a bound of no preemption, the usual one and none at all.
void ExpectFound(const std::vector<Part>& parts, FailureKind kind = FailureKind::kCheck) {
  for (const Options& options :
       {Options{.preemptions = 0}, Options{}, Options{.search = Search::kFull}}) {
    const Result result = Threads(options, parts);
    EXPECT_EQ(result.failure, kind) << result.report();
    if (result.passed()) continue;
    Options again = options;
    again.replay = result.replay;
    EXPECT_EQ(Threads(again, parts).message, result.message) << result.report();
  }
}

void ExpectPasses(const std::vector<Part>& parts, bool left_out) {
  for (const Options& options : {Options{}, Options{.search = Search::kFull}}) {
    if (!kKnowsLoops && parts.size() > 2) continue;
    const Result result = Threads(options, parts);
    EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
    if (!kKnowsLoops) continue;
    EXPECT_EQ(result.yields_left_out, left_out) << result.report();
    EXPECT_EQ(result.report().find("Options::yields") != std::string::npos, left_out)
        << result.report();
    EXPECT_FALSE(result.unbounded && left_out);
  }
}

TEST(Yields, WhoYieldsMayGoOnBeforeAnybodyElse) {
  ExpectFound({[](State& s) {
                 Sync::Yield();
                 s.x.store(1);
               },
               [](State& s) { Check(s.x.load() == 0, "nobody stored"); }});
}

TEST(Yields, TwoWhoYieldMayGoOnBeforeTheThird) {
  ExpectFound({[](State& s) {
                 Sync::Yield();
                 s.y.load(kRelaxed);
               },
               [](State& s) {
                 Sync::Yield();
                 s.y.store(1, kRelaxed);
                 s.x.store(1);
               },
               [](State& s) { Check(s.x.load() == 0, "nobody stored"); }});
}

TEST(Yields, OldStoresMayStillBeRead) {
  ExpectFound({[](State& s) {
                 s.x.store(1, kRelaxed);
                 s.y.store(1, kRelaxed);
               },
               [](State& s) {
                 if (s.y.load(kRelaxed) != 1 || s.x.load(kRelaxed) != 0) return;
                 Sync::Yield();
                 Check(s.x.load(kRelaxed) == 1, "x is seen after a yield");
               }});
}

TEST(Yields, ALoopThatGivesUp) {
  // Where it counts: on its stack, ...
  ExpectFound({[](State& s) {
                 for (int i = 0; i < 2; ++i) {
                   if (s.y.load(kRelaxed) != 0) return;
                   Sync::Yield();
                 }
                 s.x.store(1, kRelaxed);
               },
               [](State& s) {
                 s.y.store(1, kRelaxed);
                 Check(s.x.load(kRelaxed) == 0, "it waits long enough");
               }});
  // ... and in its closure.
  const Result result = Explore({}, [](Execution& execution) {
    State& s = execution.Make<State>();
    execution.Thread([&s, rounds = 0]() mutable {
      while (rounds++ < 2) {
        if (s.y.load(kRelaxed) != 0) return;
        Sync::Yield();
      }
      s.x.store(1, kRelaxed);
    });
    execution.Thread([&s] {
      s.y.store(1);
      Check(s.x.load(kRelaxed) == 0, "it waits long enough");
    });
  });
  EXPECT_EQ(result.failure, FailureKind::kCheck) << result.report();
}

// ... and in what the execution made, or Sync::New.
TEST(Yields, ALoopThatCountsInMemoryThatNothingWatches) {
  struct Counter {
    Sync::Atomic<int> x{0};
    int rounds = 0;
  };
  const auto wait = [](Counter& counter) {
    while (counter.x.load(kAcquire) == 0) {
      if (++counter.rounds == 3) Check(false, "it is not waited for so long");
      Sync::Yield();
    }
  };
  for (const Options& options : {Options{}, Options{.search = Search::kFull}}) {
    const Result made = Explore(options, [&](Execution& execution) {
      Counter& counter = execution.Make<Counter>();
      execution.Thread([&wait, &counter] { wait(counter); });
      execution.Thread([&counter] { counter.x.store(1, kRelease); });
    });
    EXPECT_EQ(made.failure, FailureKind::kCheck) << made.report();
    const Result allocated = Explore(options, [&](Execution& execution) {
      Counter* const counter = Sync::New<Counter>();
      execution.Thread([&wait, counter] { wait(*counter); });
      execution.Thread([counter] { counter->x.store(1, kRelease); });
      execution.AtEnd([counter] { Sync::Delete(counter); });
    });
    EXPECT_EQ(allocated.failure, FailureKind::kCheck) << allocated.report();
  }
}

TEST(Yields, LoopsThatOnlyReadLeaveNothingOut) {
  ExpectPasses({[](State& s) {
                  while (s.x.load(kAcquire) == 0) Sync::Yield();
                  s.plain.get();
                },
                [](State& s) {
                  s.plain.set(1);
                  s.y.store(1);
                  s.x.store(1, kRelease);
                }},
               false);
  ExpectPasses({[](State& s) {
                  int expected = 1;
                  while (!s.x.compare_exchange_strong(expected, 2, kAcquire, kRelaxed)) {
                    expected = 1;
                    Sync::Yield();
                  }
                },
                [](State& s) {
                  while (s.x.load(kAcquire) != 2) Sync::Yield();
                },
                [](State& s) { s.x.store(1, kRelease); }},
               false);
}

TEST(Yields, ASpinLockLeavesNothingOut) {
  struct Shared {
    BasicSpinLock<Sync> lock;
    Sync::Plain<int> count{0};
  };
  for (int threads : {2, 3}) {
    if (!kKnowsLoops) return;
    const Result result = Explore(
        {.preemptions = 2, .yields = 4, .stores_in_order = true}, [threads](Execution& execution) {
          Shared& shared = execution.Make<Shared>();
          for (int i = 0; i < threads; ++i) {
            execution.Thread([&shared] {
              shared.lock.lock();
              shared.count.set(shared.count.get() + 1);
              shared.lock.unlock();
            });
          }
          execution.AtEnd(
              [&shared, threads] { Check(shared.count.get() == threads, "all counted"); });
        });
    EXPECT_TRUE(result.passed() && result.exhausted && !result.yields_left_out) << result.report();
  }
}

TEST(Yields, LoopsThatWriteWaitInTheEndAndTheReportSaysSo) {
  ExpectPasses({[](State& s) {
                  while (s.x.exchange(2, kAcquire) != 1) Sync::Yield();
                },
                [](State& s) { s.x.store(1, kRelease); }},
               true);
}

TEST(Yields, LivelocksEnd) {
  // Two that wait for each other.
  ExpectFound({[](State& s) {
                 while (s.x.load() == 0) Sync::Yield();
                 s.y.store(1);
               },
               [](State& s) {
                 while (s.y.load() == 0) Sync::Yield();
                 s.x.store(1);
               }},
              FailureKind::kLivelock);
  // Without any step but yields.
  ExpectFound({[](State& s) {
                while (s.plain.get() == 0) Sync::Yield();
              }},
              FailureKind::kLivelock);
  ExpectFound({[](State&) {
                while (true) Sync::Yield();
              }},
              FailureKind::kLivelock);
}

}  // namespace
}  // namespace tidepool::explorer
