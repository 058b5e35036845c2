// Producers and readers on several threads, random sizes, delays, orders and mistakes. Every byte of
// a batch is checked just before its lease goes: nothing may ever be overwritten under a reader.
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"

namespace tidepool {
namespace {

struct Batch {
  SlotLease lease;  // first: it goes last
  unsigned char pattern = 0;
  std::vector<BufferHandle> arrays;
};
using Channel = RingChannel<Batch>;

class Chance {
 public:
  explicit Chance(uint32_t seed) : random_(seed) {}
  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool Percent(int percent) { return Below(100) < static_cast<size_t>(percent); }
  void Delay() {
    if (Percent(70)) return;
    if (Percent(60)) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(Below(200)));
  }

 private:
  std::mt19937 random_;
};

void CheckBytes(const Batch& batch) {
  for (const BufferHandle& array : batch.arrays) {
    ASSERT_TRUE(array->IsAlive());
    for (size_t i = 0; i < array->bytes; ++i) {
      ASSERT_EQ(static_cast<unsigned char>(array->data[i]), batch.pattern)
          << "generation " << batch.lease.generation() << " byte " << i;
    }
  }
}

struct Failed : std::runtime_error {
  Failed() : std::runtime_error("decoder") {}
};

// One batch. Sizes repeat for `shape`, so that plans are made, followed, missed and given up.
Batch Make(RingSlotScope& slot, size_t shape, Chance& chance) {
  Chance sizes(static_cast<uint32_t>(shape));
  Batch batch;
  batch.pattern = static_cast<unsigned char>(slot.generation() * 37 + 1);
  const size_t requests = 1 + sizes.Below(6);
  for (size_t i = 0; i < requests; ++i) {
    BufferHandle array(AllocateHere(1 + sizes.Below(shape % 16 == 0 ? 60000 : 3000)));
    if (sizes.Percent(40)) {
      std::memset(array->data, 0xAA, array->bytes);  // a temporary of the decoder
      continue;
    }
    std::memset(array->data, batch.pattern, array->bytes);
    batch.arrays.push_back(std::move(array));
  }
  if (chance.Percent(3)) throw Failed();
  return batch;
}

struct Scenario {
  WorkspaceConfig config;
  int producers = 1;
  int readers = 1;
  int batches = 300;  // of each producer
  int varying = 30;   // percent of batches of another shape
};

void Producer(RingWorkspace& ring, Channel& channel, const Scenario& scenario, uint32_t seed,
              std::atomic<int>* made) {
  Chance chance(seed);
  std::stop_source never;
  for (int i = 0; i < scenario.batches; ++i) {
    const size_t shape = chance.Percent(scenario.varying) ? chance.Below(50) : 3;
    chance.Delay();
    try {
      std::optional<RingSlotScope> slot = chance.Percent(50)
                                              ? RingSlotScope::Open(ring, never.get_token())
                                              : RingSlotScope::TryOpen(ring);
      if (!slot) {
        std::this_thread::yield();
        --i;
        continue;
      }
      Batch batch = Make(*slot, shape, chance);
      if (chance.Percent(3)) {
        slot->Discard();
        continue;
      }
      SlotLease lease = slot->Commit();
      ++*made;
      channel.Push(std::move(lease), std::move(batch));
    } catch (const Failed&) {
    }
  }
}

void Reader(Channel& channel, const Scenario& scenario, uint32_t seed, std::atomic<int>* read) {
  Chance chance(seed);
  std::deque<Batch> held;  // fewer over all readers than slots, or the ring would stand still
  const size_t most_held = scenario.config.ring_slots / (2 * scenario.readers);
  auto finish = [&](size_t which) {
    Batch batch = std::move(held[which]);
    held.erase(held.begin() + which);
    if (chance.Percent(20)) batch.arrays.resize(batch.arrays.size() / 2);
    CheckBytes(batch);
    if (!chance.Percent(20)) return;
    // Another thread lets go of the lease, and some arrays outlive it.
    BufferHandle late = batch.arrays.empty() ? BufferHandle() : batch.arrays[0];
    std::thread([moved = std::move(batch)]() mutable { moved = Batch(); }).join();
    if (late) {
      EXPECT_FALSE(late->IsAlive());
      EXPECT_NE(late->owner->DescribeStale(late->stamp), "");
    }
  };
  while (std::optional<Channel::Item> item = channel.Pop()) {
    ++*read;
    chance.Delay();
    Batch batch = std::move(item->value);
    batch.lease = item->lease;  // a copy, until the item goes
    item.reset();
    CheckBytes(batch);
    if (chance.Percent(2)) {
      BufferHandle closed = batch.arrays.empty() ? BufferHandle() : batch.arrays.back();
      if (closed) {
        closed->Close();
        batch.arrays.pop_back();
      }
    }
    held.push_back(std::move(batch));
    while (held.size() > most_held) finish(chance.Below(held.size()));
  }
  while (!held.empty()) finish(0);
}

// What a monitor sees at any time is true of one moment.
void Monitor(const RingWorkspace& ring, const Channel& channel, const std::stop_token& stop) {
  uint64_t committed = 0;
  while (!stop.stop_requested()) {
    const RingStats stats = ring.stats();
    ASSERT_EQ(stats.opened, stats.committed + stats.discarded + stats.open);
    ASSERT_GE(stats.committed, committed);
    ASSERT_LE(stats.kept, stats.leased);
    ASSERT_LE(stats.opened, ring.generation());
    committed = stats.committed;
    const std::string dump = ring.Dump();
    ASSERT_NE(dump.find("slot 0 "), std::string::npos);
    ASSERT_GE(ring.slot_size() + channel.size(), 0);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void Stress(const Scenario& scenario, uint32_t seed) {
  const int64_t before = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  {
    std::atomic<int> made{0}, read{0};
    RingWorkspace ring("ring", scenario.config);
    Channel channel(ring);
    std::vector<std::thread> producers, readers;
    std::jthread monitor([&](std::stop_token stop) { Monitor(ring, channel, stop); });
    for (int i = 0; i < scenario.producers; ++i) {
      producers.emplace_back([&, i] { Producer(ring, channel, scenario, seed + 100 + i, &made); });
    }
    for (int i = 0; i < scenario.readers; ++i) {
      readers.emplace_back([&, i] { Reader(channel, scenario, seed + 200 + i, &read); });
    }
    for (std::thread& producer : producers) producer.join();
    channel.Close();
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(made.load(), read.load());
    const RingStats stats = ring.stats();
    EXPECT_EQ(stats.committed, made.load());
    EXPECT_EQ(stats.opened, stats.committed + stats.discarded);
    EXPECT_EQ(stats.idle, scenario.config.ring_slots);
    EXPECT_EQ(stats.kept, 0);
    const MemorySnapshot now = MemoryTracker::Global().Snapshot();
    EXPECT_EQ(now[Host()][MemoryKind::kAllocated].current_bytes, 0);
  }
  EXPECT_EQ(MemoryTracker::Global().Snapshot()[Host()].total.current_bytes, before);
}

uint32_t Seed() {
  static const uint32_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  return seed;
}

TEST(RingStress, OneProducerOneReader) {
  Scenario scenario;
  scenario.config = WorkspaceConfig::Ring(4);
  scenario.batches = 1500;
  Stress(scenario, Seed());
  scenario.varying = 0;
  Stress(scenario, Seed());
}

TEST(RingStress, OneSlot) {
  Scenario scenario;
  scenario.config = WorkspaceConfig::Ring(1);
  Stress(scenario, Seed());
}

TEST(RingStress, ManyProducersAndReaders) {
  Scenario scenario;
  scenario.config = WorkspaceConfig::Ring(8);
  scenario.producers = 3;
  scenario.readers = 3;
  Stress(scenario, Seed());
}

TEST(RingStress, TotalsGrowAndShrink) {
  Scenario scenario;
  scenario.config = WorkspaceConfig::Ring(6);
  scenario.config.policy_learning = LearningPolicy::kFirstLoop;
  scenario.producers = 2;
  scenario.readers = 2;
  scenario.varying = 5;
  Stress(scenario, Seed());
}

TEST(RingStress, TemporarySlots) {
  Scenario scenario;
  scenario.config = WorkspaceConfig::Ring(2);
  scenario.config.policy_ring_full = RingFullPolicy::kSpill;
  scenario.config.ring_max_temporary = 3;
  scenario.producers = 2;
  scenario.readers = 2;
  Stress(scenario, Seed());
}

TEST(RingStress, SmallFixedSlots) {
  Scenario scenario;
  scenario.config = WorkspaceConfig::Ring(4);
  scenario.config.policy_spill = SpillPolicy::kExternal;
  scenario.config.initial_size = 4096;
  scenario.config.temp_block_size = 4096;
  scenario.readers = 2;
  Stress(scenario, Seed());
}

// The ring goes first; readers finish what they hold.
TEST(RingStress, TheRingGoesWhileBatchesAreRead) {
  const uint32_t seed = Seed();
  const int64_t before = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  for (uint32_t round = 0; round < 50; ++round) {
    Chance chance(seed + round);
    auto ring = std::make_unique<RingWorkspace>("ring", WorkspaceConfig::Ring(4));
    std::vector<std::thread> readers;
    for (int i = 0; i < 4; ++i) {
      RingSlotScope slot(*ring);
      Chance never_fails(7);
      Batch batch;
      try {
        batch = Make(slot, 3, never_fails);
      } catch (const Failed&) {
        continue;
      }
      batch.lease = slot.Commit();
      readers.emplace_back([moved = std::move(batch), seed, round, i]() mutable {
        Chance delays(seed + round * 10 + i);
        delays.Delay();
        CheckBytes(moved);
        if (delays.Percent(50)) {
          BufferHandle late = moved.arrays.empty() ? BufferHandle() : moved.arrays[0];
          moved = Batch();
          EXPECT_FALSE(late && late->IsAlive());
        }
      });
    }
    chance.Delay();
    ring.reset();
    for (std::thread& reader : readers) reader.join();
  }
  EXPECT_EQ(MemoryTracker::Global().Snapshot()[Host()].total.current_bytes, before);
}

}  // namespace
}  // namespace tidepool
