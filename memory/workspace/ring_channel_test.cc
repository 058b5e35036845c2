// What a channel's items and readers are to the ring: who drops what first, and who keeps what.
#include "tidepool/memory/workspace/ring_channel.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/thread_state.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Channel = RingChannel<std::vector<BufferHandle>>;

void Push(RingWorkspace& ring, Channel& channel) {
  RingSlotScope slot(ring);
  std::vector<BufferHandle> arrays;
  for (int i = 0; i < 3; ++i) arrays.emplace_back(AllocateHere(64));
  channel.Push(slot.Commit(), std::move(arrays));
}

void WaitUntil(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

// Memberwise, the lease would go before the arrays, which then count as leaked.
TEST(RingItem, AssigningOverOneDropsItsArraysFirst) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(8));
  Channel channel(ring);
  for (int i = 0; i < 8; ++i) Push(ring, channel);
  std::optional<Channel::Item> item = channel.Pop();
  item = channel.Pop();               // generation 2
  *item = std::move(*channel.Pop());  // 3
  EXPECT_EQ(item->lease.generation(), 3);
  EXPECT_EQ(ring.stats().leased, 6);
  std::vector<Channel::Item> window;
  for (int i = 0; i < 5; ++i) window.push_back(std::move(*channel.Pop()));
  window.erase(window.begin());
  EXPECT_EQ(window[0].lease.generation(), 5);
  EXPECT_TRUE(window[0].value[2]->IsAlive());
  EXPECT_EQ(ring.stats().leased, 5);
  std::swap(window[0], *item);
  EXPECT_EQ(item->lease.generation(), 5);
  Channel::Item copy = window[1];
  copy = window[2];
  window.clear();
  EXPECT_EQ(ring.stats().leased, 2);
  item.reset();
  EXPECT_TRUE(copy.value[0]->IsAlive());
  copy = Channel::Item();
  EXPECT_EQ(ring.stats().leased, 0);
  EXPECT_EQ(ring.stats().leaked_arrays, 0);
}

// A batch that nobody takes is dropped in the same order.
TEST(RingItem, WhatAClosedChannelRefusesIsNotLeaked) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(4));
  {
    Channel channel(ring);
    Push(ring, channel);
    channel.Close();
    Push(ring, channel);
    EXPECT_EQ(ring.stats().leased, 1);
  }
  EXPECT_EQ(ring.stats().leased, 0);
  EXPECT_EQ(ring.stats().leaked_arrays, 0);
}

// Runs `first` on a thread and then `second` on one that has the ended one's address. False when
// none of many threads has.
bool OnThreadsOfOneAddress(const std::function<void()>& first,
                           const std::function<void()>& second) {
  const void* address = nullptr;
  std::thread([&] {
    address = CurrentThreadToken();
    first();
  }).join();
  for (int i = 0; i < 100; ++i) {
    bool found = false;
    std::thread([&] {
      found = CurrentThreadToken() == address;
      if (found) second();
    }).join();
    if (found) return true;
  }
  return false;
}

// The second thread comes for the first time: what the first one took is not its.
TEST(RingReaders, AThreadIsNotTheEndedOneWhoseAddressItHas) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(4));
  Channel channel(ring);
  for (int i = 0; i < 3; ++i) Push(ring, channel);
  std::optional<Channel::Item> taken, taken_later;
  int kept = -1;
  const bool reused = OnThreadsOfOneAddress([&] { taken = channel.Pop(); },
                                            [&] {
                                              taken_later = channel.Pop();
                                              kept = ring.stats().kept;
                                              channel.Pop();  // now it comes back
                                            });
  if (!reused) GTEST_SKIP() << "no two threads had one address";
  EXPECT_EQ(kept, 0);
  EXPECT_EQ(ring.stats().kept, 1);
  EXPECT_EQ(taken_later->lease.generation(), 2);
}

// Nor is what an ended thread said Keep() of the waiting one's to release.
TEST(RingReaders, AWaitIsNotRefusedForWhatAnEndedThreadKept) {
  WorkspaceConfig config = WorkspaceConfig::Ring(1);
  config.ring_max_kept = 1;
  RingWorkspace ring("ring", config);
  SlotLease lease;
  bool refused = false;
  std::atomic<bool> done{false};
  std::thread releases([&] {
    WaitUntil([&] { return done || ring.stats().waits == 1; });
    lease.Release();
  });
  const bool reused = OnThreadsOfOneAddress(
      [&] {
        RingSlotScope slot(ring);
        lease = slot.Commit();
        lease.Keep();
      },
      [&] {
        try {
          RingSlotScope slot(ring);
        } catch (const Error&) {
          refused = true;
        }
      });
  done = true;
  releases.join();
  if (!reused) GTEST_SKIP() << "no two threads had one address";
  EXPECT_FALSE(refused);
}

// The reader that keeps too much is told, releases one and goes on; so does the producer, which
// came for a slot meanwhile.
TEST(RingChannel, AReaderThatWasToldReleasesAndGoesOn) {
  WorkspaceConfig config = WorkspaceConfig::Ring(5);
  config.ring_max_kept = 2;
  RingWorkspace ring("ring", config);
  Channel channel(ring);
  for (int i = 0; i < 4; ++i) Push(ring, channel);
  std::vector<Channel::Item> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(std::move(*channel.Pop()));
  EXPECT_THROW(channel.Pop(), Error);
  EXPECT_EQ(ring.stats().kept, 3);
  std::atomic<bool> failed{false};
  std::thread producer([&] {
    try {
      for (int i = 0; i < 20; ++i) Push(ring, channel);
      channel.Close();
    } catch (...) {
      failed = true;
      channel.Fail(std::current_exception());
    }
  });
  WaitUntil([&] { return failed || ring.stats().waits == 1; });
  EXPECT_EQ(ring.stats().idle, 1);  // it waits though there is one
  kept.erase(kept.begin());
  uint64_t expected = 4;
  try {
    while (std::optional<Channel::Item> item = channel.Pop()) {
      EXPECT_EQ(item->lease.generation(), expected++);
    }
  } catch (const Error& error) {
    ADD_FAILURE() << "the stream is lost: " << error.what();
  }
  EXPECT_EQ(expected, 25);
  producer.join();
  EXPECT_FALSE(RingSlotScope::TryOpen(ring) == std::nullopt);
}

TEST(RingItem, AnEmptyLeaseIsRefusedAndChangesNothing) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  RingChannel<int> channel(ring);
  EXPECT_THROW(channel.Push(SlotLease(), 1), Error);
  EXPECT_EQ(channel.size(), 0u);
}

// With a limit it is told at once, where the mistake is.
TEST(RingReaders, WhoKeepsMoreThanTheLimitIsTold) {
  WorkspaceConfig config = WorkspaceConfig::Ring(4);
  config.ring_max_kept = 2;
  RingWorkspace ring("ring", config);
  Channel channel(ring);
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) Push(ring, channel);
  });
  std::vector<Channel::Item> stored;
  const absl::Status status = CatchStatus([&] {
    while (std::optional<Channel::Item> item = channel.Pop()) stored.push_back(std::move(*item));
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("3 of 4 slots are kept, ring_max_kept is 2"),
                                      HasSubstr("generation 1 leased and kept")));
  ASSERT_EQ(stored.size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(stored[i].value[0]->IsAlive());
  channel.Close();
  stored.clear();
  producer.join();
}

// The producer does not wait, or has ended without a word: the reader is told by its own wait.
TEST(RingReaders, WhoKeepsEverySlotIsToldWhateverTheProducerDoes) {
  for (const bool tries : {false, true}) {
    WorkspaceConfig config = WorkspaceConfig::Ring(3);
    config.ring_stall_limit_ms = 1;
    RingWorkspace ring("ring", config);
    Channel channel(ring);
    std::jthread producer([&](std::stop_token stop) {
      for (int i = 0; !stop.stop_requested() && (tries || i < 3); ++i) {
        std::optional<RingSlotScope> slot = RingSlotScope::TryOpen(ring);
        if (slot.has_value()) channel.Push(slot->Commit(), {});
      }
    });
    std::vector<Channel::Item> stored;
    const absl::Status status = CatchStatus([&] {
      while (std::optional<Channel::Item> item = channel.Pop()) stored.push_back(std::move(*item));
    });
    EXPECT_EQ(stored.size(), 3);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("ring [ring]: 3 of 3 slots are kept, ring_max_kept is 0 and none "
                                "was released in 1 ms"),
                      HasSubstr("slot 2 generation 3 leased and kept")));
    producer.request_stop();
    producer.join();
    stored.clear();  // and goes on
    Push(ring, channel);
    EXPECT_TRUE(channel.Pop());
  }
}

// A batch that is made comes, however long that takes and whoever keeps the others.
TEST(RingReaders, ABatchInTheMakingIsWaitedFor) {
  WorkspaceConfig config = WorkspaceConfig::Ring(3);
  config.ring_stall_limit_ms = 1;
  RingWorkspace ring("ring", config);
  Channel channel(ring);
  SlotLease kept[2];
  for (SlotLease& lease : kept) {
    RingSlotScope slot(ring);
    lease = slot.Commit();
    lease.Keep();
  }
  std::thread producer([&] {
    RingSlotScope slot(ring);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    channel.Push(slot.Commit(), {});
  });
  EXPECT_TRUE(channel.Pop());
  producer.join();
}

TEST(RingChannel, TemporarySlotsMakeItLonger) {
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.policy_ring_full = RingFullPolicy::kSpill;
  RingWorkspace ring("ring", config);
  Channel channel(ring);
  for (int i = 0; i < 50; ++i) Push(ring, channel);
  channel.Close();
  EXPECT_EQ(channel.size(), 50);
  EXPECT_EQ(ring.stats().temporary, 48);
  for (int i = 0; i < 50; ++i) {
    std::optional<Channel::Item> item = channel.Pop();
    ASSERT_TRUE(item);
    EXPECT_TRUE(item->value[0]->IsAlive()) << i;
  }
  EXPECT_FALSE(channel.Pop());
}

}  // namespace
}  // namespace tidepool
