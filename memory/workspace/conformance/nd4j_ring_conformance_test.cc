// Group H (circular workspaces) and what of J (asynchronous iterators) is memory. ND4J's ring is one
// buffer with a cursor, its arrays are valid until overwritten; ours has slots with leases, so each
// test holds our rule for ND4J's situation and says what ND4J does.
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/conformance/nd4j_cases.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"

namespace tidepool::nd4j {
namespace {

using ::testing::HasSubstr;

struct Batch {
  SlotLease lease;
  std::vector<BufferHandle> arrays;
};

WorkspaceConfig Ring(int slots, WorkspaceConfig config) {
  config.policy_reset = ResetPolicy::kEndOfBufferReached;
  config.ring_slots = slots;
  return config;
}

Batch Make(RingWorkspace& ring, const std::vector<size_t>& requests) {
  RingSlotScope slot(ring);
  Batch batch;
  for (size_t bytes : requests) {
    batch.arrays.push_back(Bytes(bytes));
    std::memset(batch.arrays.back()->data, static_cast<int>(slot.generation()), bytes);
  }
  batch.lease = slot.Commit();
  return batch;
}

// As in ND4J, an array of a closed cycle may be used; not until it is overwritten, but until the
// lease goes, and then never.
TEST(Nd4jRing, Nd4jCase084_ClosedIsLegalUntilReleased) {
  RingWorkspace ring("ring", Ring(2, First()));
  Batch batch = Make(ring, {80});
  Batch next = Make(ring, {80});
  EXPECT_TRUE(batch.arrays[0]->IsAlive());
  batch.lease.Release();
  EXPECT_FALSE(batch.arrays[0]->IsAlive());
  EXPECT_THAT(batch.arrays[0]->owner->DescribeStale(batch.arrays[0]->stamp),
              HasSubstr("made in generation 1; its ring slot was released"));
}

// ND4J's cursor runs to the end and wraps over the oldest; here the 101st batch finds no slot.
TEST(Nd4jRing, Nd4jCase087_AHundredBatchesThenTheFirstMustGo) {
  WorkspaceConfig config = Strict(LearningPolicy::kNone);
  config.initial_size = 800;  // of a slot
  RingWorkspace ring("ring", Ring(100, config));
  std::vector<Batch> batches;
  std::set<const std::byte*> addresses;
  for (int i = 0; i < 100; ++i) {
    batches.push_back(Make(ring, {800}));
    addresses.insert(batches.back().arrays[0]->data);
  }
  EXPECT_EQ(addresses.size(), 100);
  EXPECT_EQ(ring.stats().spills, 0);
  EXPECT_FALSE(RingSlotScope::TryOpen(ring));
  const std::byte* const first = batches[0].arrays[0]->data;
  batches[0] = Batch();
  EXPECT_EQ(Make(ring, {800}).arrays[0]->data, first);
}

// ND4J: 520 + 8 a block, five blocks by a ratio of 4. Here slots are counted by themselves, and the
// size is what a batch needs and the overallocation.
TEST(Nd4jRing, Nd4jCase088_OverTimeSizesTheSlotsAtItsFifthBatch) {
  for (size_t element : {4, 8}) {
    WorkspaceConfig config = Aligned16();
    config.policy_learning = LearningPolicy::kOverTime;
    config.cycles_before_initialization = 5;
    RingWorkspace ring("ring", Ring(5, config));
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(ring.slot_size(), i < 5 ? 0 : element == 4 ? 520 : 1040) << i;
      Make(ring, {100 * element});
    }
  }
}

// ND4J keeps the first cycle's spill until the ring turned over; here it goes with its lease.
TEST(Nd4jRing, Nd4jCase089_TheLearningBatchSpillsUntilItsRelease) {
  WorkspaceConfig config = Strict(LearningPolicy::kFirstLoop);
  config.min_size = 10 * kMiB;
  config.prefault = false;
  RingWorkspace ring("ring", Ring(4, config));
  Batch batch = Make(ring, {400});
  EXPECT_EQ(ring.stats().spills, 1);
  EXPECT_EQ(ring.slot_size(), 10 * kMiB);
  for (int i = 0; i < 20; ++i) Make(ring, {400});
  EXPECT_EQ(static_cast<int>(batch.arrays[0]->data[399]), 1);
  EXPECT_EQ(ring.stats().spills, 1);
}

TEST(Nd4jRing, Nd4jCase090_TheSecondBatchComesFromASlot) {
  WorkspaceConfig config = Strict(LearningPolicy::kFirstLoop);
  config.min_size = 10 * kMiB;
  config.prefault = false;
  RingWorkspace ring("ring", Ring(4, config));
  Make(ring, {400});
  EXPECT_EQ(ring.stats().hits, 0);
  Make(ring, {400});
  EXPECT_EQ(ring.stats().hits, 1);
}

// ND4J: block 10408, the large batch pinned for two turns. Here: slot 10400, its spill gone with it.
TEST(Nd4jRing, Nd4jCase091_VariableTimeSeries) {
  WorkspaceConfig config = Aligned16();
  config.policy_learning = LearningPolicy::kFirstLoop;
  RingWorkspace ring("ring", Ring(4, config));
  Make(ring, {4000, 4000});
  EXPECT_EQ(ring.stats().spilled_bytes, 8000);
  EXPECT_EQ(ring.stats().spills, 2);
  EXPECT_EQ(ring.slot_size(), 10400);
  {
    Batch large = Make(ring, {16000});
    EXPECT_EQ(ring.stats().spills, 3);
    EXPECT_EQ(static_cast<int>(large.arrays[0]->data[15999]), 2);
  }
  for (int i = 0; i < 12; ++i) Make(ring, {4000, 4000});
  EXPECT_EQ(ring.stats().spills, 3);
  EXPECT_EQ(ring.stats().spilled_bytes, 24000);
  EXPECT_EQ(ring.slot_size(), 10400);
}

// ND4J's variant of 91 with kReallocate grows in its third turn; here before the next batch.
TEST(Nd4jRing, Nd4jCase091_VariableTimeSeriesReallocate) {
  WorkspaceConfig config = Aligned16();
  config.policy_learning = LearningPolicy::kFirstLoop;
  config.policy_spill = SpillPolicy::kReallocate;
  RingWorkspace ring("ring", Ring(4, config));
  Make(ring, {4000, 4000});
  Make(ring, {16000});
  EXPECT_EQ(ring.slot_size(), 20800);
  Make(ring, {16000});
  EXPECT_EQ(ring.stats().spills, 3);
}

// ND4J: nine pinned arrays in the steady state. Here as many as there are leased batches.
TEST(Nd4jRing, Nd4jCase092_OversizeBatchesAreBounded) {
  WorkspaceConfig config = Aligned16();
  config.policy_learning = LearningPolicy::kFirstLoop;
  RingWorkspace ring("ring", Ring(4, config));
  Make(ring, {4000, 4000});
  const uint64_t learning = ring.stats().spills;
  for (int i = 0; i < 100; ++i) Make(ring, {4000, 4000, 4000});
  EXPECT_EQ(ring.stats().spills, learning + 100);
  EXPECT_EQ(ring.stats().spilled_bytes, 8000 + 100 * 4000);
  for (int i = 0; i < 100; ++i) Make(ring, {4000, 4000});
  EXPECT_EQ(ring.stats().spills, learning + 100);
}

// ND4J derives the number of blocks from the ratio and refuses one below 1. Here any ratio is legal
// and the number of slots must be there.
TEST(Nd4jRing, Nd4jCase095_TheNumberOfSlotsIsChecked) {
  WorkspaceConfig config = Aligned16();
  config.overallocation_limit = Overallocation::Ratio(0.5);
  RingWorkspace legal("ring", Ring(2, config));
  EXPECT_THROW(RingWorkspace("ring", Ring(0, config)), Error);
}

// ND4J recurses for ever.
TEST(Nd4jRing, Nd4jCase096_ARequestLargerThanASlotSpillsOrFails) {
  WorkspaceConfig config = Strict(LearningPolicy::kNone);
  config.initial_size = 1024;
  RingWorkspace spills("ring", Ring(2, config));
  EXPECT_EQ(static_cast<int>(Make(spills, {4096}).arrays[0]->data[4095]), 1);
  EXPECT_EQ(spills.stats().spills, 1);
  config.policy_spill = SpillPolicy::kFail;
  RingWorkspace fails("ring", Ring(2, config));
  EXPECT_THROW(Make(fails, {4096}), OutOfMemoryError);
  Make(fails, {1024});
  EXPECT_EQ(fails.stats().idle, 2);
}

TEST(Nd4jRing, Nd4jCase097_AHundredBatchesOfImages) {
  WorkspaceConfig config = Strict(LearningPolicy::kFirstLoop, SpillPolicy::kReallocate);
  config.min_size = 10 * kMiB;
  config.prefault = false;
  RingWorkspace ring("ring", Ring(24, config));
  std::vector<Batch> held;
  for (int i = 0; i < 100; ++i) {
    held.push_back(Make(ring, {128 * 784 * 4, 128 * 10 * 4}));
    if (held.size() == 23) held.erase(held.begin());
  }
  EXPECT_EQ(ring.stats().spills, 2);
}

// ND4J's blocks of 10408 bytes are aligned to 8.
TEST(Nd4jRing, Nd4jCase098_SlotsAreAligned) {
  for (size_t alignment : {16, 64, 4096}) {
    WorkspaceConfig config = Aligned16();
    config.alignment = alignment;
    RingWorkspace ring("ring", Ring(4, config));
    std::vector<Batch> batches;
    Make(ring, {4000, 4004});
    for (int i = 0; i < 4; ++i) {
      batches.push_back(Make(ring, {4000, 4004}));
      for (const BufferHandle& array : batches.back().arrays) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(array->data) % alignment, 0);
      }
    }
  }
}

// ---- J ----

using Channel = RingChannel<BufferHandle>;

// A producer of `batches` batches, each filled with its number.
class Prefetcher {
 public:
  Prefetcher(int prefetch, int batches)
      : ring_("prefetch", WorkspaceConfig::Ring(prefetch)),
        channel_(ring_),
        thread_([this, batches](std::stop_token stop) { Produce(stop, batches); }) {}
  ~Prefetcher() { thread_.request_stop(); }

  // The number in the next batch, looked at after `delay`; -1 at the end.
  int Next(const std::function<void()>& delay = [] {}) {
    std::optional<Channel::Item> item = channel_.Pop();
    if (!item) return -1;
    delay();
    const int number = Value(item->value, 0);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(Value(item->value, i), number);
    return number;
  }
  Channel& channel() { return channel_; }

 private:
  static int Value(const BufferHandle& array, int i) {
    int value;
    std::memcpy(&value, array->data + 4 * i, 4);
    return value;
  }
  void Produce(const std::stop_token& stop, int batches) {
    try {
      for (int number = 0; number < batches; ++number) {
        std::optional<RingSlotScope> slot = RingSlotScope::Open(ring_, stop);
        if (!slot) break;
        BufferHandle array = F(1000);
        for (int i = 0; i < 1000; ++i) std::memcpy(array->data + 4 * i, &number, 4);
        if (number == 77) throw std::domain_error("record 77");
        channel_.Push(slot->Commit(), std::move(array));
      }
      channel_.Close();
    } catch (...) {
      channel_.Fail(std::current_exception());
    }
  }
  RingWorkspace ring_;
  Channel channel_;
  std::jthread thread_;
};

TEST(Nd4jRing, Nd4jCase099_NothingIsOverwrittenUnderADelayedReader) {
  for (int slots : {1, 3}) {
    Prefetcher prefetcher(slots, 60);
    for (int i = 0; i < 60; ++i) {
      EXPECT_EQ(prefetcher.Next([&] {
        if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }),
                i);
    }
    EXPECT_EQ(prefetcher.Next(), -1);
  }
}

TEST(Nd4jPrefetch, Nd4jCase111_EveryBatchOnceInOrder) {
  for (int repetition = 0; repetition < 10; ++repetition) {
    for (int slots = 2; slots <= 8; ++slots) {
      Prefetcher prefetcher(slots, 70);
      for (int i = 0; i < 70; ++i) EXPECT_EQ(prefetcher.Next(), i);
      EXPECT_EQ(prefetcher.Next(), -1);
    }
  }
}

// ND4J interrupts its thread and joins; here the producer is stopped and another one made.
TEST(Nd4jPrefetch, Nd4jCase112_ResetHalfWay) {
  int seen = 0;
  {
    Prefetcher first(4, 70);
    for (; seen < 35; ++seen) EXPECT_EQ(first.Next(), seen);
  }
  Prefetcher second(4, 70);
  while (second.Next() >= 0) ++seen;
  EXPECT_EQ(seen, 105);
}

TEST(Nd4jPrefetch, Nd4jCase113_TheProducersExceptionHasItsType) {
  Prefetcher prefetcher(4, 100);
  for (int i = 0; i < 77; ++i) EXPECT_EQ(prefetcher.Next(), i);
  EXPECT_THROW(prefetcher.Next(), std::domain_error);
  EXPECT_THROW(prefetcher.Next(), std::domain_error);
}

// ND4J raises 1 to 2; here one slot is enough.
TEST(Nd4jPrefetch, Nd4jCase114_AnyNumberOfSlots) {
  for (int slots : {1, 5, 100}) {
    Prefetcher prefetcher(slots, 70);
    int count = 0;
    while (prefetcher.Next() >= 0) ++count;
    EXPECT_EQ(count, 70);
  }
}

TEST(Nd4jPrefetch, Nd4jCase117_AnExhaustedSource) {
  Prefetcher prefetcher(4, 0);
  EXPECT_EQ(prefetcher.Next(), -1);
}

// In ND4J stored batches turn into later ones; here they stay what they are.
TEST(Nd4jPrefetch, Nd4jCase121_StoredBatchesStayValid) {
  Prefetcher prefetcher(4, 70);
  std::vector<Channel::Item> stored;
  for (int i = 0; i < 3; ++i) stored.push_back(std::move(*prefetcher.channel().Pop()));
  for (int i = 3; i < 70; ++i) EXPECT_EQ(prefetcher.Next(), i);
  for (int i = 0; i < 3; ++i) {
    int value;
    std::memcpy(&value, stored[i].value->data + 3996, 4);
    EXPECT_EQ(value, i);
  }
}

}  // namespace
}  // namespace tidepool::nd4j
