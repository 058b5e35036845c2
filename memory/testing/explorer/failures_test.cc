// Each kind of failure is found where it is, and not where it is not.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr std::memory_order kAcquire = std::memory_order_acquire;
constexpr std::memory_order kRelease = std::memory_order_release;

struct Item {
  Sync::Atomic<int> count{0};
  Sync::Plain<int> value{7};
};

struct State {
  Sync::Atomic<Item*> item{nullptr};
  Sync::Atomic<int> x{0}, y{0}, done{0};
  Sync::Plain<int> plain{0};
  Sync::Mutex mutex;
};

using Body = void (*)(State&);

Result Threads(std::initializer_list<Body> bodies, Options options = {}) {
  return Explore(options, [&](Execution& execution) {
    State& state = execution.Make<State>();
    for (Body body : bodies) execution.Thread([&state, body] { body(state); });
  });
}

FailureKind FailureOf(std::initializer_list<Body> bodies) { return Threads(bodies).failure; }

TEST(Failures, DataRaces) {
  auto write = [](State& s) { s.plain.set(1); };
  auto read = [](State& s) { s.plain.get(); };
  EXPECT_EQ(FailureOf({write, write}), FailureKind::kDataRace);
  EXPECT_EQ(FailureOf({write, read}), FailureKind::kDataRace);
  EXPECT_EQ(FailureOf({read, write}), FailureKind::kDataRace);
  EXPECT_EQ(FailureOf({read, read}), FailureKind::kNone);
  auto locked = [](State& s) {
    std::lock_guard<Sync::Mutex> lock(s.mutex);
    s.plain.set(s.plain.get() + 1);
  };
  EXPECT_EQ(FailureOf({locked, locked, locked}), FailureKind::kNone);
  EXPECT_EQ(FailureOf({locked, read}), FailureKind::kDataRace);
}

// A reader that passed on what it read must have ended before the next write.
TEST(Failures, DataRacesWithReadersThatDoNotRelease) {
  EXPECT_EQ(FailureOf({[](State& s) {
                         s.plain.get();
                         s.x.store(1, kRelease);
                       },
                       [](State& s) {
                         if (s.x.load(kAcquire) == 1) s.plain.set(1);
                       }}),
            FailureKind::kNone);
  EXPECT_EQ(FailureOf({[](State& s) {
                         s.plain.get();
                         s.x.store(1, kRelaxed);
                       },
                       [](State& s) {
                         if (s.x.load(kAcquire) == 1) s.plain.set(1);
                       }}),
            FailureKind::kDataRace);
}

// An item published by a thread, used and deleted by another.
template <std::memory_order kPublish, std::memory_order kUse>
Result Publish() {
  return Threads({[](State& s) { s.item.store(Sync::New<Item>(), kPublish); },
                  [](State& s) {
                    Item* item;
                    while ((item = s.item.load(kUse)) == nullptr) Sync::Yield();
                    item->count.fetch_add(1, kRelaxed);
                    item->value.set(8);
                    Sync::Delete(item);
                  }});
}

TEST(Failures, UseOfWhatNeedNotBeMade) {
  const Result right = Publish<kRelease, kAcquire>();
  EXPECT_TRUE(right.passed()) << right.report();
  EXPECT_TRUE(right.exhausted);
  EXPECT_EQ((Publish<kRelaxed, kAcquire>().failure), FailureKind::kDataRace);
  EXPECT_EQ((Publish<kRelease, kRelaxed>().failure), FailureKind::kDataRace);
}

// Two users of an item that drop it; who is last deletes it.
template <std::memory_order kDrop>
Result Count() {
  return Explore({}, [](Execution& execution) {
    Item* item = Sync::New<Item>();
    item->count.store(2);
    for (int i = 0; i < 2; ++i) {
      execution.Thread([item] {
        item->value.get();
        if (item->count.fetch_sub(1, kDrop) == 1) Sync::Delete(item);
      });
    }
  });
}

TEST(Failures, DeletingUnderUse) {
  const Result right = Count<std::memory_order_acq_rel>();
  EXPECT_TRUE(right.passed()) << right.report();
  EXPECT_EQ(Count<kRelease>().failure, FailureKind::kDataRace);
  EXPECT_EQ(Count<kAcquire>().failure, FailureKind::kDataRace);
}

TEST(Failures, UseAfterFreeDoubleFreeAndLeak) {
  auto with = [](void (*use)(Item*)) {
    return Explore({}, [use](Execution& execution) {
      Item* item = Sync::New<Item>();
      execution.Thread([item, use] { use(item); });
    });
  };
  EXPECT_TRUE(with([](Item* item) { Sync::Delete(item); }).passed());
  EXPECT_EQ(with([](Item* item) {
              Sync::Delete(item);
              item->count.load();
            }).failure,
            FailureKind::kUseAfterFree);
  EXPECT_EQ(with([](Item* item) {
              Sync::Delete(item);
              item->value.get();
            }).failure,
            FailureKind::kUseAfterFree);
  EXPECT_EQ(with([](Item* item) {
              Sync::Delete(item);
              Sync::Delete(item);
            }).failure,
            FailureKind::kDoubleFree);
  const Result leak = with([](Item*) {});
  EXPECT_EQ(leak.failure, FailureKind::kLeak);
  EXPECT_NE(leak.message.find("1 of 1 objects of Sync::New are not deleted, the first a "),
            std::string::npos)
      << leak.message;
  EXPECT_NE(leak.message.find("Item of the body"), std::string::npos) << leak.message;
}

// Nothing is read in front of what Sync::New did not make: here that page cannot be.
TEST(Failures, DeletingWhatWasNotMade) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const pages =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(pages, page, PROT_NONE), 0);
  int* const foreign = reinterpret_cast<int*>(static_cast<char*>(pages) + page);
  const Result result = Explore({}, [foreign](Execution& execution) {
    Item* item = Sync::New<Item>();
    execution.Thread([item] { Sync::Delete(item); });
    execution.Thread([foreign] { Sync::Delete(foreign); });
  });
  EXPECT_EQ(result.failure, FailureKind::kMisuse) << result.report();
  EXPECT_NE(result.message.find("by T2 of what Sync::New did not make in this execution"),
            std::string::npos)
      << result.message;
  munmap(pages, 2 * page);
}

TEST(Failures, ALockThatItsHolderTries) {
  const Result result = Explore({}, [](Execution& execution) {
    auto& mutex = execution.Make<Sync::Mutex>();
    execution.Thread([&mutex] {
      mutex.lock();
      if (mutex.try_lock()) Check(false, "it is held");
      mutex.unlock();
    });
  });
  EXPECT_EQ(result.failure, FailureKind::kMisuse) << result.report();
  EXPECT_NE(result.message.find("T1 tries at "), std::string::npos) << result.message;
  EXPECT_NE(result.message.find("to lock a mutex that it holds"), std::string::npos);
}

TEST(Failures, WhatWasReadOfAPlainVariableIsACopy) {
  static_assert(std::is_same_v<decltype(std::declval<const Sync::Plain<int>&>().get()), int>);
  static_assert(std::is_same_v<decltype(std::declval<const Sync::Plain<std::string>&>().get()),
                               const std::string&>);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TIDEPOOL_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TIDEPOOL_SANITIZED 1
#endif
#if !defined(TIDEPOOL_SANITIZED)  // which say so themselves
int Deeper(State& state, int depth) {
  volatile char frame[1000] = {};
  if (state.done.load() == depth) return 0;
  return Deeper(state, depth + 1) + frame[depth % 1000];
}

TEST(FailuresDeathTest, AStackThatIsTooSmall) {
  EXPECT_DEATH(
      Explore({.name = "deep"},
              [](Execution& execution) {
                State& state = execution.Make<State>();
                execution.Thread([] {});
                execution.Thread([&state] { Deeper(state, 1); });
              }),
      "in exploration deep T2 needs more stack than its 262144 bytes: raise Options::stack_bytes");
}
#endif

TEST(Failures, LoopsThatYieldEnd) {
  const Result result = Threads({[](State& s) {
                                   while (s.done.load(kAcquire) == 0) Sync::Yield();
                                 },
                                 [](State& s) {
                                   while (s.done.load(kAcquire) == 0) Sync::Yield();
                                 },
                                 [](State& s) {
                                   s.x.store(1, kRelaxed);
                                   s.done.store(1, kRelease);
                                 }},
                                {.preemptions = 2});
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted);
}

TEST(Failures, Livelocks) {
  // Nobody sets it.
  EXPECT_EQ(FailureOf({[](State& s) {
              while (s.done.load() == 0) Sync::Yield();
            }}),
            FailureKind::kLivelock);
  // Without a yield nobody else need run.
  EXPECT_EQ(FailureOf({[](State& s) {
                         while (s.done.load() == 0) {
                         }
                       },
                       [](State& s) { s.done.store(1); }}),
            FailureKind::kLivelock);
}

TEST(Failures, Deadlocks) {
  EXPECT_EQ(FailureOf({[](State& s) { s.x.wait(0); }}), FailureKind::kDeadlock);
  EXPECT_EQ(FailureOf({[](State& s) { s.x.wait(0); },
                       [](State& s) {
                         s.x.store(1);
                         s.x.notify_one();
                       }}),
            FailureKind::kNone);
  // Both wait for the same store; one is woken.
  auto wait = [](State& s) { s.x.wait(0); };
  EXPECT_EQ(FailureOf({wait, wait,
                       [](State& s) {
                         s.x.store(1);
                         s.x.notify_one();
                       }}),
            FailureKind::kDeadlock);
  EXPECT_EQ(FailureOf({wait, wait,
                       [](State& s) {
                         s.x.store(1);
                         s.x.notify_all();
                       }}),
            FailureKind::kNone);
  // A notification wakes for the change that it followed, not for one to come.
  EXPECT_EQ(FailureOf({wait,
                       [](State& s) {
                         s.x.notify_all();
                         s.x.store(1);
                       }}),
            FailureKind::kDeadlock);
}

TEST(Failures, AMutexLeftLocked) {
  auto lock = [](State& s) { s.mutex.lock(); };
  EXPECT_EQ(FailureOf({lock, lock}), FailureKind::kDeadlock);
  EXPECT_EQ(FailureOf({lock}), FailureKind::kDataRace) << "it is destroyed, held";
  EXPECT_EQ(FailureOf({[](State& s) { s.mutex.unlock(); }}), FailureKind::kMisuse);
  EXPECT_EQ(FailureOf({[](State& s) {
              s.mutex.lock();
              s.mutex.lock();
            }}),
            FailureKind::kMisuse);
  EXPECT_EQ(FailureOf({[](State& s) {
                         if (!s.mutex.try_lock()) return;
                         s.plain.set(1);
                         s.mutex.unlock();
                       },
                       [](State& s) {
                         std::unique_lock<Sync::Mutex> lock(s.mutex);
                         s.plain.set(2);
                       }}),
            FailureKind::kNone);
}

TEST(Failures, Exceptions) {
  const Result result = Threads({[](State&) { throw std::runtime_error("no more"); }});
  EXPECT_EQ(result.failure, FailureKind::kException);
  EXPECT_EQ(result.message, "an exception left T1: no more");
  EXPECT_EQ(FailureOf({[](State&) { throw 1; }}), FailureKind::kException);
  // One that is caught while another thread has one in flight.
  auto handle = [](State& s) {
    try {
      try {
        throw std::runtime_error(std::to_string(s.x.fetch_add(1)));
      } catch (const std::exception&) {
        s.y.fetch_add(1);
        throw;
      }
    } catch (const std::exception& error) {
      s.y.fetch_add(1);
      Check(std::uncaught_exceptions() == 0, "nothing is in flight");
      Check(std::string(error.what()).size() == 1, "the exception is this thread's");
    }
  };
  EXPECT_EQ(FailureOf({handle, handle}), FailureKind::kNone);
}

TEST(Failures, WrongOrders) {
  EXPECT_EQ(FailureOf({[](State& s) { s.x.load(kRelease); }}), FailureKind::kMisuse);
  EXPECT_EQ(FailureOf({[](State& s) { s.x.store(1, kAcquire); }}), FailureKind::kMisuse);
  EXPECT_EQ(FailureOf({[](State& s) {
              int expected = 0;
              s.x.compare_exchange_strong(expected, 1, kAcquire, kRelease);
            }}),
            FailureKind::kMisuse);
}

Result WithInvariant(bool atomically, Search search) {
  return Explore({.search = search}, [=](Execution& execution) {
    State& state = execution.Make<State>();
    execution.Thread([&state, atomically] {
      if (atomically) {
        state.x.fetch_add(2, kRelaxed);
      } else {
        state.x.fetch_add(1, kRelaxed);
        state.x.fetch_add(1, kRelaxed);
      }
    });
    execution.Thread([&state] { state.y.store(1); });
    execution.Invariant([&state] { Check(state.x % 2 == 0, "x is even"); });
  });
}

TEST(Failures, Invariants) {
  for (const Search search : {Search::kBounded, Search::kFull}) {
    EXPECT_TRUE(WithInvariant(true, search).passed());
    const Result broken = WithInvariant(false, search);
    EXPECT_EQ(broken.failure, FailureKind::kInvariant) << broken.report();
  }
  const Result changes = Explore({}, [](Execution& execution) {
    State& state = execution.Make<State>();
    execution.Thread([&state] { state.x.store(1); });
    execution.Invariant([&state] { state.x.store(2); });
  });
  EXPECT_EQ(changes.failure, FailureKind::kMisuse);
}

TEST(Failures, TooManyThreads) {
  Body body = [](State&) {};
  EXPECT_EQ(FailureOf({body, body, body, body, body, body, body}), FailureKind::kNone);
  EXPECT_EQ(FailureOf({body, body, body, body, body, body, body, body}), FailureKind::kMisuse);
}

// A variable on a thread's own stack that another one uses.
TEST(Failures, AVariableThatEndsUnderUse) {
  const Result result = Explore({}, [](Execution& execution) {
    auto& pointer = execution.Make<Sync::Atomic<Sync::Atomic<int>*>>(nullptr);
    execution.Thread([&pointer] {
      Sync::Atomic<int> local{0};
      pointer.store(&local, kRelease);
      pointer.store(nullptr, kRelaxed);
    });
    execution.Thread([&pointer] {
      auto* local = pointer.load(kAcquire);
      if (local != nullptr) local->store(1, kRelaxed);
    });
  });
  EXPECT_TRUE(result.failure == FailureKind::kDataRace ||
              result.failure == FailureKind::kUseAfterFree)
      << result.report();
}

}  // namespace
}  // namespace tidepool::explorer
