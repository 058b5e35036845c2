// The end of leases and of rings under every interleaving: a producer commits, readers release, the
// ring is destroyed, a producer waits. The pieces are those of rings (ring_sharing.h); put together as
// in RingCore, without what is under its lock besides.
#include "tidepool/memory/workspace/ring_sharing.h"

#include <atomic>
#include <iostream>
#include <mutex>
#include <string>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::Explore;
using explorer::ExploreMutations;
using explorer::Options;
using explorer::Result;
using explorer::Sync;

// ThreadSanitizer has nothing to see in an exploration, which is one thread, and makes it slow.
#if defined(__SANITIZE_THREAD__)
constexpr int kFewerPreemptions = 1;
#else
constexpr int kFewerPreemptions = 0;
#endif

struct Slot {
  Holders<Sync> leases;
  Sync::Plain<Slot*> next_on_shelf{nullptr};
  Sync::Plain<int> batch{0};
};

struct Ring {
  // What is put on the shelf is a holder, and so is the RingWorkspace.
  explicit Ring(int slots) : holders(slots + 1) {
    for (int i = 0; i < slots; ++i) (void)shelf.PutBack(Sync::New<Slot>());
  }

  Slot* Open() {
    std::lock_guard<Sync::Mutex> lock(mutex);
    return shelf.Take();
  }

  void Leave() {
    if (holders.Leave()) Sync::Delete(this);
  }

  void Free(Slot* slot) {
    Sync::Delete(slot);
    Leave();
  }

  void Release(Slot* slot) {
    if (!slot->leases.Leave()) return;
    slot->batch.set(0);  // the cycle ends: the last one has it alone
    bool removed;
    {
      std::lock_guard<Sync::Mutex> lock(mutex);
      removed = !shelf.PutBack(slot);
    }
    if (removed) Free(slot);
  }

  void Abandon() {
    Slot* idle;
    {
      std::lock_guard<Sync::Mutex> lock(mutex);
      idle = shelf.Close();
    }
    while (idle != nullptr) Free(std::exchange(idle, idle->next_on_shelf.get()));
    Leave();
  }

  // As a producer that finds no slot. True: it got one; the ring may be gone otherwise.
  bool WaitForSlot(Sync::Atomic<bool>* waits, Slot** slot) {
    mutex.lock();
    holders.Add();
    waits->store(true, std::memory_order_release);
    while (!shelf.is_closed() && shelf.empty()) {
      mutex.unlock();
      Sync::Yield();
      mutex.lock();
    }
    const bool closed = shelf.is_closed();
    if (!closed) {
      *slot = shelf.Take();
      (void)holders.Leave();
    }
    mutex.unlock();
    if (closed) Leave();
    return !closed;
  }

  Sync::Mutex mutex;
  SlotShelf<Sync, Slot> shelf;
  Holders<Sync> holders;
};

// One lease, passed from thread to thread as a channel does.
struct Passed {
  Sync::Atomic<Slot*> slot{nullptr};

  void Push(Slot* leased) { slot.store(leased, std::memory_order_release); }
  Slot* Pop() {
    Slot* leased;
    while ((leased = slot.load(std::memory_order_acquire)) == nullptr) Sync::Yield();
    return leased;
  }
};

void Commit(Ring* ring, Passed* to, int readers) {
  Slot* slot = ring->Open();
  slot->batch.set(7);
  slot->leases.Begin();
  for (int i = 1; i < readers; ++i) slot->leases.Add();
  for (int i = 0; i < readers; ++i) to[i].Push(slot);
}

void ReadAndRelease(Ring* ring, Passed* from) {
  Slot* slot = from->Pop();
  Check(slot->batch.get() == 7, "a leased batch is as it was made");
  ring->Release(slot);
}

// The producer makes a batch and destroys the ring while it is read.
void OneReader(Execution& execution) {
  Ring* ring = Sync::New<Ring>(2);
  Passed* passed = &execution.Make<Passed>();
  execution.Thread([=] {
    Commit(ring, passed, 1);
    ring->Abandon();
  });
  execution.Thread([=] { ReadAndRelease(ring, passed); });
}

void TwoReaders(Execution& execution) {
  struct Channels {
    Passed of[2];
  };
  Ring* ring = Sync::New<Ring>(1);
  Passed* passed = execution.Make<Channels>().of;
  execution.Thread([=] {
    Commit(ring, passed, 2);
    ring->Abandon();
  });
  for (int reader = 0; reader < 2; ++reader) {
    execution.Thread([=] { ReadAndRelease(ring, &passed[reader]); });
  }
}

// The slot comes back while the producer wants it for the next batch.
void TheNextBatch(Execution& execution) {
  struct State {
    Passed passed[2];
    Sync::Atomic<bool> waits{false};
  };
  Ring* ring = Sync::New<Ring>(1);
  State* state = &execution.Make<State>();
  execution.Thread([=] {
    Commit(ring, &state->passed[0], 1);
    Slot* slot = nullptr;
    Check(ring->WaitForSlot(&state->waits, &slot), "the ring is there");
    Check(slot->batch.get() == 0, "the batch before has ended");
    slot->batch.set(7);
    slot->leases.Begin();
    state->passed[1].Push(slot);
  });
  execution.Thread([=] {
    ReadAndRelease(ring, &state->passed[0]);
    ReadAndRelease(ring, &state->passed[1]);
    ring->Abandon();
  });
}

// A producer waits for the one slot, which comes back, or is removed as the ring is destroyed.
void AProducerWaits(Execution& execution) {
  struct State {
    Passed passed;
    Sync::Atomic<bool> waits{false};
  };
  Ring* ring = Sync::New<Ring>(1);
  State* state = &execution.Make<State>();
  Commit(ring, &state->passed, 1);
  execution.Thread([=] {
    Slot* slot = nullptr;
    if (!ring->WaitForSlot(&state->waits, &slot)) return;
    slot->leases.Begin();
    ring->Release(slot);
  });
  execution.Thread([=] { ReadAndRelease(ring, &state->passed); });
  execution.Thread([=] {
    while (!state->waits.load(std::memory_order_acquire)) Sync::Yield();  // its caller's to see to
    ring->Abandon();
  });
}

void ExpectExhausted(const char* name, int preemptions, void (*body)(Execution&), int yields = 2) {
  const Result result = Explore(
      {.name = name, .preemptions = preemptions - kFewerPreemptions, .yields = yields}, body);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
  std::cout << result.report() << std::endl;
}

TEST(RingSharing, TwoThreads) {
  ExpectExhausted("one reader", 3, OneReader);
  ExpectExhausted("the next batch", 2, TheNextBatch);
  ExpectExhausted("the next batch", 3, TheNextBatch, 0);
}

TEST(RingSharing, ThreeThreads) {
  ExpectExhausted("two readers", 2, TwoReaders);
  ExpectExhausted("a producer waits", 2, AProducerWaits);
}

// What the counting of holders is for: were the ring freed by who saw that no slot is left, another
// one that took its slot out before could still be at freeing it, which looks at the ring.
struct RingWithoutHolders {
  void Release(Slot* slot) {
    bool last;
    {
      std::lock_guard<Sync::Mutex> lock(mutex);
      slots.set(slots.get() - 1);
      last = slots.get() == 0;
    }
    (void)growing.load(std::memory_order_relaxed);  // as the Reclaimer does until the slot is gone
    Sync::Delete(slot);
    if (last) Sync::Delete(this);
  }

  Sync::Mutex mutex;
  Sync::Plain<int> slots{2};
  Sync::Atomic<int> growing{0};
};

TEST(RingSharing, AnEmptyTableDoesNotSayThatTheRingIsUnused) {
  const Result result = Explore({.name = "without holders"}, [](Execution& execution) {
    auto* ring = Sync::New<RingWithoutHolders>();
    for (int reader = 0; reader < 2; ++reader) {
      Slot* slot = Sync::New<Slot>();
      execution.Thread([=] { ring->Release(slot); });
    }
  });
  EXPECT_EQ(result.failure, explorer::FailureKind::kDataRace) << result.report();
}

// Weakened by a step, each order of the pieces and of the hand-over is missed by somebody.
TEST(RingSharing, EachOrderIsNeeded) {
  const explorer::MutationTable table =
      ExploreMutations({.name = "two readers", .preemptions = 2 - kFewerPreemptions}, TwoReaders);
  std::cout << table.report() << std::endl;
  EXPECT_TRUE(table.original.passed()) << table.report();
  EXPECT_EQ(table.undetected(), "") << table.report();
}

}  // namespace
}  // namespace tidepool
