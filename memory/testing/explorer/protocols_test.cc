// Known algorithms, right ones and ones with a known mistake: the explorer tells them apart.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr std::memory_order kAcquire = std::memory_order_acquire;
constexpr std::memory_order kRelease = std::memory_order_release;
constexpr std::memory_order kAcqRel = std::memory_order_acq_rel;
constexpr std::memory_order kSeqCst = std::memory_order_seq_cst;

// A stack whose nodes are the test's own: popped ones are pushed again.
struct Node {
  Sync::Atomic<Node*> next{nullptr};
};

// With a count of pops beside the head, or without, which is open to ABA.
template <bool kCounted>
class Stack {
 public:
  struct Head {
    Node* node;
    uint64_t pops;
  };

  void Push(Node* node) {
    Head head = head_.load(kRelaxed);
    do {
      node->next.store(head.node, kRelaxed);
    } while (!head_.compare_exchange_weak(head, Head{node, head.pops}, kRelease, kRelaxed));
  }

  Node* Pop() {
    Head head = head_.load(kAcquire);
    while (head.node != nullptr) {
      Node* next = head.node->next.load(kRelaxed);
      const Head popped{next, head.pops + (kCounted ? 1 : 0)};
      if (head_.compare_exchange_weak(head, popped, kAcquire, kAcquire)) return head.node;
    }
    return nullptr;
  }

 private:
  Sync::Atomic<Head> head_{Head{nullptr, 0}};
};

template <bool kCounted>
Result ExploreStack() {
  return Explore({.name = "stack"}, [](Execution& execution) {
    struct State {
      Node a, b;
      Stack<kCounted> stack;
      bool b_is_free = false;
    };
    State& state = execution.Make<State>();
    state.stack.Push(&state.b);
    state.stack.Push(&state.a);
    execution.Thread([&] { state.stack.Pop(); });
    execution.Thread([&] {
      Node* first = state.stack.Pop();
      Node* second = state.stack.Pop();
      if (first != &state.a || second != &state.b) return;
      state.b_is_free = true;
      state.stack.Push(first);
    });
    execution.AtEnd([&] {
      if (!state.b_is_free) return;
      for (Node* node = state.stack.Pop(); node != nullptr; node = state.stack.Pop()) {
        Check(node != &state.b, "what was taken from the stack is not in it");
      }
    });
  });
}

TEST(Protocols, StackWithAba) {
  const Result result = ExploreStack<false>();
  EXPECT_EQ(result.failure, FailureKind::kCheck) << result.report();
}

TEST(Protocols, StackWithCountedPops) {
  const Result result = ExploreStack<true>();
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted);
}

// Peterson's lock needs the stores of each thread before its loads, and both threads' stores to
// `turn` in one order with what follows. Right are sequentially consistent accesses, or an
// exchange.
enum class Turn { kStore, kStoreAndFence, kExchange };

Result ExplorePeterson(std::memory_order store, std::memory_order load, Turn turn) {
  return Explore({.name = "peterson", .preemptions = 4}, [=](Execution& execution) {
    struct State {
      Sync::Atomic<bool> wants[2] = {false, false};
      Sync::Atomic<int> turn{0};
      Sync::Plain<int> inside{0};
    };
    State& state = execution.Make<State>();
    for (int me = 0; me < 2; ++me) {
      execution.Thread([&state, me, store, load, turn] {
        const int other = 1 - me;
        state.wants[me].store(true, store);
        if (turn == Turn::kExchange) {
          state.turn.exchange(other, kAcqRel);
        } else {
          state.turn.store(other, store);
        }
        if (turn == Turn::kStoreAndFence) Sync::Fence(kSeqCst);
        while (state.wants[other].load(load) && state.turn.load(load) == other) Sync::Yield();
        state.inside.set(state.inside.get() + 1);
        state.wants[me].store(false, store);
      });
    }
    execution.AtEnd([&] { Check(state.inside.get() == 2, "both were inside"); });
  });
}

TEST(Protocols, PetersonsLock) {
  for (const Result& result : {ExplorePeterson(kSeqCst, kSeqCst, Turn::kStore),
                               ExplorePeterson(kRelease, kAcquire, Turn::kExchange)}) {
    EXPECT_TRUE(result.passed()) << result.report();
    EXPECT_TRUE(result.exhausted);
  }
}

// A fence behind the stores is not enough: who comes second may place its store to `turn` before
// the other's in the modification order, and then enters on an old value of `wants`.
TEST(Protocols, BrokenPetersonsLock) {
  for (const Result& result : {ExplorePeterson(kRelease, kAcquire, Turn::kStore),
                               ExplorePeterson(kSeqCst, kAcquire, Turn::kStore),
                               ExplorePeterson(kRelease, kAcquire, Turn::kStoreAndFence)}) {
    EXPECT_EQ(result.failure, FailureKind::kDataRace) << result.report();
  }
}

// The deque of Chase and Lev as published for weak memory (Le, Pop, Cohen, Zappa Nardelli, 2013),
// with a buffer that does not grow. `take` and `steal`: orders of the two fences.
class Deque {
 public:
  Deque(std::memory_order take, std::memory_order steal) : take_(take), steal_(steal) {}

  void Push(int value) {
    const int bottom = bottom_.load(kRelaxed);
    items_[bottom % 4].store(value, kRelaxed);
    Sync::Fence(kRelease);
    bottom_.store(bottom + 1, kRelaxed);
  }

  int Take() {
    const int bottom = bottom_.load(kRelaxed) - 1;
    bottom_.store(bottom, kRelaxed);
    Sync::Fence(take_);
    int top = top_.load(kRelaxed);
    if (top > bottom) {
      bottom_.store(bottom + 1, kRelaxed);
      return 0;
    }
    int value = items_[bottom % 4].load(kRelaxed);
    if (top == bottom) {
      if (!top_.compare_exchange_strong(top, top + 1, kSeqCst, kRelaxed)) value = 0;
      bottom_.store(bottom + 1, kRelaxed);
    }
    return value;
  }

  int Steal() {
    int top = top_.load(kAcquire);
    Sync::Fence(steal_);
    const int bottom = bottom_.load(kAcquire);
    if (top >= bottom) return 0;
    const int value = items_[top % 4].load(kRelaxed);
    return top_.compare_exchange_strong(top, top + 1, kSeqCst, kRelaxed) ? value : 0;
  }

 private:
  const std::memory_order take_;
  const std::memory_order steal_;
  Sync::Atomic<int> top_{1}, bottom_{1};
  Sync::Atomic<int> items_[4];
};

Result ExploreDeque(std::memory_order take, std::memory_order steal) {
  return Explore({.name = "deque", .preemptions = 2}, [=](Execution& execution) {
    struct State {
      State(std::memory_order take, std::memory_order steal) : deque(take, steal) {}
      Deque deque;
      int got[4] = {};
    };
    State& state = execution.Make<State>(take, steal);
    execution.Thread([&] {
      state.deque.Push(1);
      state.deque.Push(2);
      ++state.got[state.deque.Take()];
      ++state.got[state.deque.Take()];
    });
    execution.Thread([&] {
      ++state.got[state.deque.Steal()];
      ++state.got[state.deque.Steal()];
    });
    execution.AtEnd([&] {
      for (int i = state.deque.Take(); i != 0; i = state.deque.Take()) ++state.got[i];
      Check(state.got[1] == 1 && state.got[2] == 1, "each item is taken once");
    });
  });
}

TEST(Protocols, WorkStealingDeque) {
  const Result result = ExploreDeque(kSeqCst, kSeqCst);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted);
}

TEST(Protocols, WorkStealingDequeWithAWeakenedFence) {
  EXPECT_EQ(ExploreDeque(kAcqRel, kSeqCst).failure, FailureKind::kCheck);
  EXPECT_EQ(ExploreDeque(kSeqCst, kAcqRel).failure, FailureKind::kCheck);
}

// A thread sleeps until a word changes. Who wakes it must look for sleepers after changing it, and
// who sleeps must look at the word after counting itself.
Result ExploreWaiting(std::memory_order order, bool always_notify) {
  return Explore({.name = "waiting"}, [=](Execution& execution) {
    struct State {
      Sync::Atomic<int> word{0}, sleepers{0};
    };
    State& state = execution.Make<State>();
    execution.Thread([&state, order] {
      state.sleepers.store(1, order);
      if (state.word.load(order) == 0) state.word.wait(0, order);
    });
    execution.Thread([&state, order, always_notify] {
      state.word.store(1, order);
      if (always_notify || state.sleepers.load(order) != 0) state.word.notify_one();
    });
  });
}

TEST(Protocols, NobodyIsLeftAsleep) {
  for (const Result& result : {ExploreWaiting(kSeqCst, false), ExploreWaiting(kRelaxed, true)}) {
    EXPECT_TRUE(result.passed()) << result.report();
    EXPECT_TRUE(result.exhausted);
  }
}

TEST(Protocols, ALostWakeUpIsADeadlock) {
  const Result result = ExploreWaiting(kRelaxed, false);
  EXPECT_EQ(result.failure, FailureKind::kDeadlock) << result.report();
}

// A reader announces what it is about to use; who replaced that deletes it unless it is announced.
class Guarded {
 public:
  struct Value {
    Sync::Plain<int> number{1};
  };

  Guarded() : current_(Sync::New<Value>()) {}
  ~Guarded() {
    Sync::Delete(current_.load(kRelaxed));
    Sync::Delete(retired_);
  }

  void Read() {
    Value* value = current_.load(kRelaxed);
    while (true) {
      // Relaxed it would end the release sequence of the store below: who loads the second
      // announcement would not see the first use end.
      hazard_.store(value, kRelease);
      Sync::Fence(kSeqCst);
      Value* again = current_.load(kRelaxed);  // the fence acquires what was loaded before
      if (again == value) break;
      value = again;
    }
    value->number.get();
    hazard_.store(nullptr, kRelease);
  }

  void Replace() {
    retired_ = current_.exchange(Sync::New<Value>(), kRelease);
    Sync::Fence(kSeqCst);
    if (hazard_.load(kAcquire) == retired_) return;
    Sync::Delete(retired_);
    retired_ = nullptr;
  }

 private:
  Sync::Atomic<Value*> current_;
  Sync::Atomic<Value*> hazard_{nullptr};
  Value* retired_ = nullptr;
};

TEST(Protocols, HazardPointer) {
  const MutationTable table = ExploreMutations({.name = "hazard"}, [](Execution& execution) {
    auto& guarded = execution.Make<Guarded>();
    execution.Thread([&guarded] {
      guarded.Read();
      guarded.Read();
    });
    execution.Thread([&guarded] { guarded.Replace(); });
  });
  EXPECT_TRUE(table.original.passed()) << table.original.report();
  EXPECT_TRUE(table.original.exhausted);
  EXPECT_EQ(table.undetected(), "") << table.report();
}

// Two locks in opposite order; the same in one order.
Result ExploreLocks(bool same_order) {
  return Explore({.name = "locks"}, [=](Execution& execution) {
    struct State {
      Sync::Mutex first, second;
      Sync::Plain<int> count{0};
    };
    State& state = execution.Make<State>();
    auto add = [&state](Sync::Mutex& outer, Sync::Mutex& inner) {
      outer.lock();
      inner.lock();
      state.count.set(state.count.get() + 1);
      inner.unlock();
      outer.unlock();
    };
    execution.Thread([&state, add] { add(state.first, state.second); });
    execution.Thread([&state, add, same_order] {
      same_order ? add(state.first, state.second) : add(state.second, state.first);
    });
    execution.AtEnd([&state] { Check(state.count.get() == 2, "both counted"); });
  });
}

TEST(Protocols, LocksInOneOrder) {
  const Result result = ExploreLocks(true);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.unbounded);
}

TEST(Protocols, LocksInTwoOrdersAreADeadlock) {
  const Result result = ExploreLocks(false);
  EXPECT_EQ(result.failure, FailureKind::kDeadlock) << result.report();
}

}  // namespace
}  // namespace tidepool::explorer
