// Small programs whose sets of outcomes are known: the explorer finds each, and no other.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr std::memory_order kAcquire = std::memory_order_acquire;
constexpr std::memory_order kRelease = std::memory_order_release;
constexpr std::memory_order kAcqRel = std::memory_order_acq_rel;
constexpr std::memory_order kSeqCst = std::memory_order_seq_cst;

// Two or three variables, and what the threads read.
struct State {
  Sync::Atomic<int> x{0}, y{0}, z{0};
  int a = 0, b = 0, c = 0, d = 0;
};
using Thread = std::function<void(State&)>;
using Outcomes = std::set<std::string>;

void FenceUnlessRelaxed(std::memory_order order) {
  if (order != kRelaxed) Sync::Fence(order);
}

// "abcd" of the registers, or what `show` makes of the state, of all executions.
Outcomes OutcomesOf(const Options& options, const std::vector<Thread>& threads,
                    const std::function<std::string(State&)>& show) {
  Outcomes outcomes;
  const Result result = Explore(options, [&](Execution& execution) {
    State& state = execution.Make<State>();
    for (const Thread& thread : threads) execution.Thread([&state, &thread] { thread(state); });
    execution.AtEnd([&] { outcomes.insert(show(state)); });
  });
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
  EXPECT_EQ(result.unbounded, !result.stores_left_out) << result.report();
  EXPECT_TRUE(options.stores_in_order || !result.stores_left_out) << result.report();
  return outcomes;
}

std::string Registers(State& state) {
  return std::to_string(state.a) + std::to_string(state.b) + std::to_string(state.c) +
         std::to_string(state.d);
}
std::string TwoRegisters(State& state) { return Registers(state).substr(0, 2); }

// The same by the reduced search and by all interleavings.
Outcomes OutcomesOf(const std::vector<Thread>& threads,
                    const std::function<std::string(State&)>& show = Registers) {
  const Outcomes reduced = OutcomesOf({.search = Search::kFull}, threads, show);
  const Outcomes all = OutcomesOf({.preemptions = 100}, threads, show);
  EXPECT_EQ(reduced, all);
  return all;
}

Outcomes StoreBuffering(std::memory_order store, std::memory_order fence, std::memory_order load) {
  return OutcomesOf({[=](State& s) {
                       s.x.store(1, store);
                       FenceUnlessRelaxed(fence);
                       s.a = s.y.load(load);
                     },
                     [=](State& s) {
                       s.y.store(1, store);
                       FenceUnlessRelaxed(fence);
                       s.b = s.x.load(load);
                     }},
                    TwoRegisters);
}

TEST(Litmus, StoreBuffering) {
  const Outcomes strong = {"01", "10", "11"};
  const Outcomes weak = {"00", "01", "10", "11"};
  EXPECT_EQ(StoreBuffering(kRelaxed, kRelaxed, kRelaxed), weak);
  EXPECT_EQ(StoreBuffering(kRelease, kRelaxed, kAcquire), weak);
  EXPECT_EQ(StoreBuffering(kSeqCst, kRelaxed, kAcquire), weak);
  EXPECT_EQ(StoreBuffering(kRelease, kRelaxed, kSeqCst), weak);
  EXPECT_EQ(StoreBuffering(kSeqCst, kRelaxed, kSeqCst), strong);
  EXPECT_EQ(StoreBuffering(kRelaxed, kAcqRel, kRelaxed), weak);
  EXPECT_EQ(StoreBuffering(kRelaxed, kSeqCst, kRelaxed), strong);
}

// A fence on one side is none, and against sequentially consistent accesses it is one.
TEST(Litmus, StoreBufferingOfTwoKinds) {
  auto with = [](std::memory_order store, std::memory_order load) {
    return OutcomesOf({[](State& s) {
                         s.x.store(1, kRelaxed);
                         Sync::Fence(kSeqCst);
                         s.a = s.y.load(kRelaxed);
                       },
                       [=](State& s) {
                         s.y.store(1, store);
                         s.b = s.x.load(load);
                       }},
                      TwoRegisters);
  };
  EXPECT_EQ(with(kRelease, kAcquire).count("00"), 1);
  EXPECT_EQ(with(kSeqCst, kSeqCst).count("00"), 0);
}

TEST(Litmus, StoreBufferingWithExchanges) {
  auto with = [](std::memory_order order) {
    return OutcomesOf({[=](State& s) {
                         s.x.exchange(1, order);
                         s.a = s.y.load(order == kAcqRel ? kAcquire : order);
                       },
                       [=](State& s) {
                         s.y.exchange(1, order);
                         s.b = s.x.load(order == kAcqRel ? kAcquire : order);
                       }},
                      TwoRegisters);
  };
  EXPECT_EQ(with(kAcqRel).size(), 4);
  EXPECT_EQ(with(kSeqCst), (Outcomes{"01", "10", "11"}));
}

Outcomes MessagePassing(std::memory_order release_fence, std::memory_order store,
                        std::memory_order load, std::memory_order acquire_fence) {
  return OutcomesOf({[=](State& s) {
                       s.x.store(1, kRelaxed);
                       FenceUnlessRelaxed(release_fence);
                       s.y.store(1, store);
                     },
                     [=](State& s) {
                       s.a = s.y.load(load);
                       FenceUnlessRelaxed(acquire_fence);
                       s.b = s.x.load(kRelaxed);
                     }},
                    TwoRegisters);
}

TEST(Litmus, MessagePassing) {
  const Outcomes passed = {"00", "01", "11"};
  const Outcomes weak = {"00", "01", "10", "11"};
  EXPECT_EQ(MessagePassing(kRelaxed, kRelaxed, kRelaxed, kRelaxed), weak);
  EXPECT_EQ(MessagePassing(kRelaxed, kRelease, kRelaxed, kRelaxed), weak);
  EXPECT_EQ(MessagePassing(kRelaxed, kRelaxed, kAcquire, kRelaxed), weak);
  EXPECT_EQ(MessagePassing(kRelaxed, kRelease, kAcquire, kRelaxed), passed);
  EXPECT_EQ(MessagePassing(kRelease, kRelaxed, kAcquire, kRelaxed), passed);
  EXPECT_EQ(MessagePassing(kRelaxed, kRelease, kRelaxed, kAcquire), passed);
  EXPECT_EQ(MessagePassing(kRelease, kRelaxed, kRelaxed, kAcquire), passed);
  EXPECT_EQ(MessagePassing(kAcquire, kRelaxed, kRelaxed, kAcquire), weak);
  EXPECT_EQ(MessagePassing(kRelease, kRelaxed, kRelaxed, kRelease), weak);
}

// Of C++20's four outcomes this model leaves out the one in which both loads read the future.
TEST(Litmus, LoadBufferingIsLeftOut) {
  EXPECT_EQ(OutcomesOf({[](State& s) {
                          s.a = s.x.load(kRelaxed);
                          s.y.store(1, kRelaxed);
                        },
                        [](State& s) {
                          s.b = s.y.load(kRelaxed);
                          s.x.store(1, kRelaxed);
                        }},
                       TwoRegisters),
            (Outcomes{"00", "01", "10"}));
}

TEST(Litmus, CoherenceOfReads) {
  EXPECT_EQ(OutcomesOf({[](State& s) {
                          s.x.store(1, kRelaxed);
                          s.x.store(2, kRelaxed);
                        },
                        [](State& s) {
                          s.a = s.x.load(kRelaxed);
                          s.b = s.x.load(kRelaxed);
                        }},
                       TwoRegisters),
            (Outcomes{"00", "01", "02", "11", "12", "22"}));
}

// Two writers: readers agree on one order.
TEST(Litmus, CoherenceOfTwoReadersOfTwoWriters) {
  auto read = [](int State::*first, int State::*second) {
    return [=](State& s) {
      s.*first = s.x.load(kRelaxed);
      s.*second = s.x.load(kRelaxed);
    };
  };
  const Outcomes outcomes = OutcomesOf(
      {.search = Search::kFull},
      {[](State& s) { s.x.store(1, kRelaxed); }, [](State& s) { s.x.store(2, kRelaxed); },
       read(&State::a, &State::b), read(&State::c, &State::d)},
      Registers);
  EXPECT_EQ(outcomes.count("1221"), 0);
  EXPECT_EQ(outcomes.count("1212"), 1);
  EXPECT_EQ(outcomes.count("2121"), 1);
  // Each reader 00 01 02 11 12 21 22; together all but 12 with 21, both ways.
  EXPECT_EQ(outcomes.size(), 7 * 7 - 2);
}

TEST(Litmus, ReadsOfWritesOfOneselfAndOthers) {
  // CoWR and CoRW: what one wrote, or read, is not gone behind.
  const Outcomes outcomes = OutcomesOf({[](State& s) {
                                          s.x.store(1, kRelaxed);
                                          s.a = s.x.load(kRelaxed);
                                        },
                                        [](State& s) {
                                          s.b = s.x.load(kRelaxed);
                                          s.x.store(2, kRelaxed);
                                          s.c = s.x.load(kRelaxed);
                                        }},
                                       [](State& s) { return Registers(s).substr(0, 3); });
  EXPECT_EQ(outcomes, (Outcomes{"101", "102", "112", "202", "212"}));
}

// Independent reads of independent writes: the weak outcome is that two readers see two stores in
// opposite orders.
Outcomes IndependentReads(std::memory_order store, std::memory_order load,
                          std::memory_order fence) {
  return OutcomesOf({.search = Search::kFull},
                    {[=](State& s) { s.x.store(1, store); }, [=](State& s) { s.y.store(1, store); },
                     [=](State& s) {
                       s.a = s.x.load(load);
                       FenceUnlessRelaxed(fence);
                       s.b = s.y.load(load);
                     },
                     [=](State& s) {
                       s.c = s.y.load(load);
                       FenceUnlessRelaxed(fence);
                       s.d = s.x.load(load);
                     }},
                    Registers);
}

TEST(Litmus, IndependentReadsOfIndependentWrites) {
  EXPECT_EQ(IndependentReads(kRelaxed, kRelaxed, kRelaxed).size(), 16);
  EXPECT_EQ(IndependentReads(kRelease, kAcquire, kRelaxed).size(), 16);
  EXPECT_EQ(IndependentReads(kSeqCst, kAcquire, kRelaxed).size(), 16);
  EXPECT_EQ(IndependentReads(kRelaxed, kRelaxed, kAcqRel).size(), 16);
  const Outcomes loads = IndependentReads(kRelease, kSeqCst, kRelaxed);
  EXPECT_EQ(loads.size(), 15);
  EXPECT_EQ(loads.count("1010"), 0);
  EXPECT_EQ(IndependentReads(kSeqCst, kSeqCst, kRelaxed), loads);
  EXPECT_EQ(IndependentReads(kRelaxed, kRelaxed, kSeqCst), loads);
}

// Two variables, two stores each: the weak outcome is that each thread's first store comes last.
Outcomes TwoByTwo(std::memory_order store, std::memory_order fence, bool stores_in_order = false) {
  const std::vector<Thread> threads = {[=](State& s) {
                                         s.x.store(1, store);
                                         FenceUnlessRelaxed(fence);
                                         s.y.store(2, store);
                                       },
                                       [=](State& s) {
                                         s.y.store(1, store);
                                         FenceUnlessRelaxed(fence);
                                         s.x.store(2, store);
                                       }};
  auto last = [](State& s) { return std::to_string(s.x.load()) + std::to_string(s.y.load()); };
  if (!stores_in_order) return OutcomesOf(threads, last);
  return OutcomesOf({.search = Search::kFull, .stores_in_order = true}, threads, last);
}

TEST(Litmus, TwoStoresOfTwoThreads) {
  const Outcomes strong = {"12", "21", "22"};
  const Outcomes weak = {"11", "12", "21", "22"};
  EXPECT_EQ(TwoByTwo(kRelaxed, kRelaxed), weak);
  EXPECT_EQ(TwoByTwo(kRelease, kRelaxed), weak);
  EXPECT_EQ(TwoByTwo(kSeqCst, kRelaxed), strong);
  EXPECT_EQ(TwoByTwo(kRelaxed, kAcqRel), weak);
  EXPECT_EQ(TwoByTwo(kRelaxed, kSeqCst), strong);
  EXPECT_EQ(TwoByTwo(kRelaxed, kRelaxed, true), strong) << "Options::stores_in_order";
}

// Read-write causality: a store is seen by one thread, whose next load is before another's store.
bool CausalityMayBreak(std::memory_order store, std::memory_order load, std::memory_order fence) {
  return OutcomesOf({.search = Search::kFull},
                    {[=](State& s) { s.x.store(1, store); },
                     [=](State& s) {
                       s.a = s.x.load(load);
                       FenceUnlessRelaxed(fence);
                       s.b = s.y.load(load);
                     },
                     [=](State& s) {
                       s.y.store(1, store);
                       FenceUnlessRelaxed(fence);
                       s.c = s.x.load(load);
                     }},
                    Registers)
             .count("1000") != 0;
}

TEST(Litmus, ReadWriteCausality) {
  EXPECT_TRUE(CausalityMayBreak(kRelaxed, kRelaxed, kRelaxed));
  EXPECT_TRUE(CausalityMayBreak(kRelease, kAcquire, kRelaxed));
  EXPECT_TRUE(CausalityMayBreak(kSeqCst, kAcquire, kRelaxed));
  EXPECT_TRUE(CausalityMayBreak(kRelaxed, kRelaxed, kAcqRel));
  EXPECT_FALSE(CausalityMayBreak(kSeqCst, kSeqCst, kRelaxed));
  EXPECT_FALSE(CausalityMayBreak(kRelaxed, kRelaxed, kSeqCst));
}

// Write-read causality needs no more than release and acquire, in every link.
TEST(Litmus, WriteReadCausality) {
  auto breaks = [](std::memory_order relay) {
    return OutcomesOf({.search = Search::kFull},
                      {[](State& s) { s.x.store(1, kRelease); },
                       [=](State& s) {
                         s.a = s.x.load(kAcquire);
                         s.y.store(1, relay);
                       },
                       [](State& s) {
                         s.b = s.y.load(kAcquire);
                         s.c = s.x.load(kRelaxed);
                       }},
                      Registers)
               .count("1100") != 0;
  };
  EXPECT_TRUE(breaks(kRelaxed));
  EXPECT_FALSE(breaks(kRelease));
}

// After a releasing store, by its thread or another one: an update, or a relaxed store.
Outcomes ReleaseSequence(bool same_thread, bool update, std::memory_order order = kRelaxed) {
  auto go_on = [=](State& s) {
    if (update) {
      s.y.fetch_add(1, order);
    } else {
      s.y.store(2, kRelaxed);
    }
  };
  return OutcomesOf({.search = Search::kFull},
                    {[=](State& s) {
                       s.x.store(1, kRelaxed);
                       s.y.store(1, kRelease);
                       if (same_thread) go_on(s);
                     },
                     [=](State& s) {
                       if (!same_thread) go_on(s);
                     },
                     [](State& s) {
                       s.a = s.y.load(kAcquire);
                       s.b = s.x.load(kRelaxed);
                     }},
                    TwoRegisters);
}

// C++20 took the stores of the same thread out of release sequences.
TEST(Litmus, ReleaseSequencesAreContinuedByUpdatesOnly) {
  EXPECT_EQ(ReleaseSequence(true, true).count("20"), 0);
  EXPECT_EQ(ReleaseSequence(true, false).count("20"), 1);
  EXPECT_EQ(ReleaseSequence(false, true).count("20"), 0);
  EXPECT_EQ(ReleaseSequence(false, true, kRelease).count("20"), 0) << "both release";
  EXPECT_EQ(ReleaseSequence(false, false).count("20"), 1);
}

// Nothing comes between what an update reads and what it writes.
TEST(Litmus, UpdatesAreAtomic) {
  const Outcomes outcomes =
      OutcomesOf({.search = Search::kFull},
                 {[](State& s) { s.a = s.x.fetch_add(1, kRelaxed); },
                  [](State& s) { s.b = s.x.fetch_add(1, kRelaxed); },
                  [](State& s) { s.x.store(10, kRelaxed); }},
                 [](State& s) { return Registers(s) + "=" + std::to_string(s.x.load()); });
  // The store is behind both updates, before both or between them; the updates in either order.
  EXPECT_EQ(outcomes,
            (Outcomes{"0100=10", "1000=10", "101100=12", "111000=12", "01000=11", "10000=11"}));
}

// A failing strong compare-exchange may read an old value, but not one that equals what it expects
// without succeeding.
TEST(Litmus, StrongCompareExchange) {
  const Outcomes outcomes = OutcomesOf({[](State& s) { s.x.store(1, kRelaxed); },
                                        [](State& s) {
                                          int expected = 1;
                                          s.a = s.x.compare_exchange_strong(expected, 2, kRelaxed);
                                          s.b = expected;
                                        }},
                                       TwoRegisters);
  EXPECT_EQ(outcomes, (Outcomes{"00", "11"}));
}

TEST(Litmus, WeakCompareExchangeFailsForNoReason) {
  const Outcomes outcomes = OutcomesOf({[](State& s) {
                                         int expected = 0;
                                         s.a = s.x.compare_exchange_weak(expected, 2, kRelaxed);
                                         s.b = expected;
                                       }},
                                       TwoRegisters);
  EXPECT_EQ(outcomes, (Outcomes{"00", "10"}));
}

}  // namespace
}  // namespace tidepool::explorer
