// Sync::SharedMutex is what the standard says of std::shared_mutex, no more and no less.
#include <gtest/gtest.h>

#include <atomic>
#include <initializer_list>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>

#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

struct State {
  Sync::SharedMutex mutex, other;
  Sync::Plain<int> plain{0};
  Sync::Atomic<int> flag{0};
};

using Body = void (*)(State&);

Result Threads(std::initializer_list<Body> bodies, Options options = {}) {
  return Explore(options, [&](Execution& execution) {
    State& state = execution.Make<State>();
    for (Body body : bodies) execution.Thread([&state, body] { body(state); });
  });
}

void Alone(State& s, Body body) {
  std::lock_guard<Sync::SharedMutex> lock(s.mutex);
  body(s);
}
void Shared(State& s, Body body) {
  std::shared_lock<Sync::SharedMutex> lock(s.mutex);
  body(s);
}

void WriteAlone(State& s) {
  Alone(s, [](State& s) { s.plain.set(s.plain.get() + 1); });
}
void ReadShared(State& s) {
  Shared(s, [](State& s) { s.plain.get(); });
}
void WriteShared(State& s) {
  Shared(s, [](State& s) { s.plain.set(1); });
}

TEST(SharedMutex, WhoHasItAloneIsOrderedWithAllOthers) {
  const Result result = Threads({WriteAlone, WriteAlone, ReadShared, ReadShared});
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
}

TEST(SharedMutex, WhoSharesItIsNot) {
  EXPECT_EQ(Threads({WriteShared, ReadShared}).failure, FailureKind::kDataRace);
  EXPECT_EQ(Threads({WriteShared, WriteShared}).failure, FailureKind::kDataRace);
  EXPECT_EQ(Threads({WriteShared, WriteAlone}).failure, FailureKind::kNone);
}

// T1 writes, has the lock, and tells without order that it had; T2, told, has the lock and reads. So T2's lock is the
// later one, and what it sees of T1 is what the lock makes it see.
template <bool kFirstAlone, bool kSecondAlone>
FailureKind HandOver() {
  return Threads({[](State& s) {
                    s.plain.set(1);
                    (kFirstAlone ? Alone : Shared)(s, [](State&) {});
                    s.flag.store(1, kRelaxed);
                  },
                  [](State& s) {
                    if (s.flag.load(kRelaxed) == 0) return;
                    (kSecondAlone ? Alone : Shared)(s, [](State& s) { s.plain.get(); });
                  }})
      .failure;
}

TEST(SharedMutex, EachUnlockIsSeenByThoseWhoDoNotShare) {
  EXPECT_EQ((HandOver<true, true>()), FailureKind::kNone);
  EXPECT_EQ((HandOver<true, false>()), FailureKind::kNone);
  EXPECT_EQ((HandOver<false, true>()), FailureKind::kNone);
  EXPECT_EQ((HandOver<false, false>()), FailureKind::kDataRace);
}

// One who has it alone in between orders those before with those after: flag 1, 2, 3 in turns.
TEST(SharedMutex, WhoHasItAloneOrdersThoseWhoShareBeforeAndAfter) {
  const auto explore = [](Body between) {
    return Threads({[](State& s) {
                      s.plain.set(1);
                      Shared(s, [](State& s) { s.flag.store(1, kRelaxed); });
                    },
                    between,
                    [](State& s) {
                      Shared(s, [](State& s) {
                        if (s.flag.load(kRelaxed) == 2) s.plain.get();
                      });
                    }})
        .failure;
  };
  EXPECT_EQ(explore([](State& s) {
              Alone(s, [](State& s) {
                if (s.flag.load(kRelaxed) == 1) s.flag.store(2, kRelaxed);
              });
            }),
            FailureKind::kNone);
  EXPECT_EQ(explore([](State& s) {
              Shared(s, [](State& s) {
                if (s.flag.load(kRelaxed) == 1) s.flag.store(2, kRelaxed);
              });
            }),
            FailureKind::kDataRace);
}

// How many each of two threads finds inside when it leaves, itself counted.
std::set<std::pair<int, int>> SeenInside(const Options& options, bool alone) {
  std::set<std::pair<int, int>> seen;
  const Result result = Explore(options, [&](Execution& execution) {
    struct Inside {
      State state;
      int saw[2] = {};
    };
    Inside& all = execution.Make<Inside>();
    for (int me = 0; me < 2; ++me) {
      execution.Thread([&all, me, alone] {
        alone ? all.state.mutex.lock() : all.state.mutex.lock_shared();
        all.state.flag.fetch_add(1, kRelaxed);
        all.saw[me] = all.state.flag.fetch_sub(1, kRelaxed);
        alone ? all.state.mutex.unlock() : all.state.mutex.unlock_shared();
      });
    }
    execution.AtEnd([&all, &seen] { seen.insert({all.saw[0], all.saw[1]}); });
  });
  EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
  return seen;
}

TEST(SharedMutex, SeveralShareItAtOnce) {
  using Seen = std::set<std::pair<int, int>>;
  const Seen both = {{1, 1}, {1, 2}, {2, 1}};
  EXPECT_EQ(SeenInside({}, false), both);
  EXPECT_EQ(SeenInside({.search = Search::kFull}, false), both);
  EXPECT_EQ(SeenInside({}, true), (Seen{{1, 1}}));
  EXPECT_EQ(SeenInside({.search = Search::kFull}, true), (Seen{{1, 1}}));
}

// The values that threads read come out the same with and without the reduction of kFull.
TEST(SharedMutex, TheReductionLeavesNothingOut) {
  const auto outcomes = [](const Options& options, int64_t* executions) {
    std::set<std::string> seen;
    const Result result = Explore(options, [&](Execution& execution) {
      struct Log {
        State state;
        std::string text[3];
      };
      Log& log = execution.Make<Log>();
      for (int me = 0; me < 3; ++me) {
        execution.Thread([&log, me] {
          const auto look = [&] { log.text[me] += std::to_string(log.state.flag.load(kRelaxed)); };
          if (me == 2) {
            log.state.mutex.lock();
            log.state.flag.store(1, kRelaxed);
            log.state.mutex.unlock();
            return;
          }
          log.state.mutex.lock_shared();
          look();
          log.state.mutex.unlock_shared();
          if (log.state.mutex.try_lock()) {
            log.state.flag.store(2 + me, kRelaxed);
            log.state.mutex.unlock();
          } else if (log.state.mutex.try_lock_shared()) {
            look();
            log.state.mutex.unlock_shared();
          }
        });
      }
      execution.AtEnd([&] {
        seen.insert(log.text[0] + "," + log.text[1] + "," +
                    std::to_string(log.state.flag.load(kRelaxed)));
      });
    });
    EXPECT_TRUE(result.passed() && result.exhausted &&
                (options.search == Search::kFull || result.unbounded))
        << result.report();
    *executions = result.executions;
    return seen;
  };
  int64_t reduced = 0, all = 0;
  const std::set<std::string> full = outcomes({.search = Search::kFull}, &reduced);
  EXPECT_EQ(full, outcomes({.preemptions = 14}, &all));
  EXPECT_GT(full.size(), 10u);
  EXPECT_LT(reduced, all);
}

// ---- waiting ----

void LockShared(Sync::SharedMutex& outer, Sync::SharedMutex& inner) {
  std::shared_lock<Sync::SharedMutex> first(outer);
  std::shared_lock<Sync::SharedMutex> second(inner);
}
template <auto member>
void LockAlone(State& s) {
  std::lock_guard<Sync::SharedMutex> lock(s.*member);
}

TEST(SharedMutex, WaitingForEachOtherIsADeadlock) {
  const Body one_way = [](State& s) {
    std::shared_lock<Sync::SharedMutex> first(s.mutex);
    std::lock_guard<Sync::SharedMutex> second(s.other);
  };
  const Body other_way = [](State& s) {
    std::shared_lock<Sync::SharedMutex> first(s.other);
    std::lock_guard<Sync::SharedMutex> second(s.mutex);
  };
  EXPECT_EQ(Threads({one_way, one_way}).failure, FailureKind::kNone);
  EXPECT_EQ(Threads({one_way, other_way}).failure, FailureKind::kDeadlock);
  EXPECT_EQ(Threads({[](State& s) { s.mutex.lock_shared(); }, WriteAlone}).failure,
            FailureKind::kDeadlock);
}

// Those who share hold up nobody, unless others wait to have it alone and go first.
TEST(SharedMutex, ThoseWhoWaitToHaveItAloneMayGoFirst) {
  const Body one_way = [](State& s) { LockShared(s.mutex, s.other); };
  const Body other_way = [](State& s) { LockShared(s.other, s.mutex); };
  EXPECT_EQ(Threads({one_way, other_way}).failure, FailureKind::kNone);
  EXPECT_EQ(Threads({one_way, other_way, LockAlone<&State::mutex>}).failure, FailureKind::kNone);
  for (const Search search : {Search::kBounded, Search::kFull}) {
    const Result result =
        Threads({one_way, other_way, LockAlone<&State::mutex>, LockAlone<&State::other>},
                {.search = search, .max_executions = 200'000});
    EXPECT_EQ(result.failure, FailureKind::kDeadlock) << result.report();
    EXPECT_NE(
        result.message.find("T1, T2 would share a mutex that another thread waits to have alone"),
        std::string::npos)
        << result.message;
  }
}

TEST(SharedMutex, TryingToLockDoesNotWait) {
  EXPECT_EQ(Threads({[](State& s) {
                       if (!s.mutex.try_lock()) return;
                       s.plain.set(1);
                       s.mutex.unlock();
                     },
                     WriteAlone,
                     [](State& s) {
                       if (!s.mutex.try_lock_shared()) return;
                       s.plain.get();
                       s.mutex.unlock_shared();
                     }})
                .failure,
            FailureKind::kNone);
  // Either may fail for no reason.
  const auto fails = [](bool (*try_and_unlock)(State & s)) {
    return Explore({}, [&](Execution& execution) {
             State& state = execution.Make<State>();
             execution.Thread(
                 [&state, try_and_unlock] { Check(try_and_unlock(state), "it is free"); });
           }).failure == FailureKind::kCheck;
  };
  EXPECT_TRUE(fails([](State& s) { return s.mutex.try_lock() && (s.mutex.unlock(), true); }));
  EXPECT_TRUE(
      fails([](State& s) { return s.mutex.try_lock_shared() && (s.mutex.unlock_shared(), true); }));
}

// ---- mistakes ----

TEST(SharedMutex, MistakesAreTold) {
  const auto misuse = [](Body body, const char* message) {
    const Result result = Threads({body});
    EXPECT_EQ(result.failure, FailureKind::kMisuse) << result.report();
    EXPECT_NE(result.message.find(message), std::string::npos) << result.message;
  };
  misuse([](State& s) { Alone(s, ReadShared); }, "T1 calls lock_shared at ");
  misuse([](State& s) { Shared(s, ReadShared); }, "of a shared mutex that it holds");
  misuse([](State& s) { Shared(s, WriteAlone); }, "T1 calls lock at ");
  misuse([](State& s) { Shared(s, [](State& s) { s.mutex.try_lock(); }); },
         "T1 calls try_lock at ");
  misuse([](State& s) { s.mutex.unlock(); }, "of a shared mutex that it does not hold so");
  misuse([](State& s) { s.mutex.unlock_shared(); }, "T1 calls unlock_shared at ");
  misuse([](State& s) { Shared(s, [](State& s) { s.mutex.unlock(); }); }, "T1 calls unlock at ");
  misuse([](State& s) { Alone(s, [](State& s) { s.mutex.unlock_shared(); }); },
         "T1 calls unlock_shared at ");

  const Result held = Explore({}, [](Execution& execution) {
    execution.Thread([] {
      auto* mutex = Sync::New<Sync::SharedMutex>();
      mutex->lock_shared();
      Sync::Delete(mutex);
    });
  });
  EXPECT_EQ(held.failure, FailureKind::kDataRace) << held.report();
  EXPECT_NE(held.message.find("and held by T1"), std::string::npos) << held.message;
  const Result left = Explore({}, [](Execution& execution) {
    State& state = execution.Make<State>();
    state.mutex.lock_shared();
    state.mutex.unlock_shared();
    execution.Thread([&state] { state.mutex.lock(); });
    execution.AtEnd([&state] { state.mutex.lock_shared(); });
  });
  EXPECT_EQ(left.failure, FailureKind::kDeadlock) << left.report();
}

// ---- teeth ----

// A table that many read and few change; the same class in production and here.
template <typename Policy>
class Table {
 public:
  int Read() {
    mutex_.lock_shared();
    const int value = value_.get();
    mutex_.unlock_shared();
    return value;
  }
  void Change() {
    mutex_.lock();
    value_.set(value_.get() + 1);
    mutex_.unlock();
  }

 private:
  typename Policy::SharedMutex mutex_;
  typename Policy::template Plain<int> value_{0};
};

TEST(SharedMutex, ALockThatIsSharedInsteadIsFound) {
  Table<StdSync> production;
  production.Change();
  EXPECT_EQ(production.Read(), 1);

  const MutationTable table = ExploreMutations({.name = "table"}, [](Execution& execution) {
    auto& table = execution.Make<Table<Sync>>();
    execution.Thread([&table] { table.Change(); });
    execution.Thread([&table] { table.Read(); });
  });
  ASSERT_EQ(table.rows.size(), 1u) << table.report();
  EXPECT_NE(table.rows[0].text().find(" lock -> lock_shared"), std::string::npos) << table.report();
  EXPECT_EQ(table.rows[0].result.failure, FailureKind::kDataRace) << table.report();
  // One that only reads does not need it alone.
  const MutationTable needless = ExploreMutations({.name = "needless"}, [](Execution& execution) {
    State& state = execution.Make<State>();
    execution.Thread([&state] {
      if (!state.mutex.try_lock()) return;
      state.plain.get();
      state.mutex.unlock();
    });
    execution.Thread([&state] {
      state.mutex.lock();
      state.plain.get();
      state.mutex.unlock();
    });
  });
  EXPECT_EQ(needless.rows.size(), 2u) << needless.report();
  EXPECT_NE(needless.undetected().find(" try_lock -> try_lock_shared\n"), std::string::npos)
      << needless.report();
  EXPECT_NE(needless.undetected().find(" lock -> lock_shared\n"), std::string::npos)
      << needless.report();
}

}  // namespace
}  // namespace tidepool::explorer
