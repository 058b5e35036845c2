// Full rings: waiting, stopping, keeping too much, and readers on other threads.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Channel = RingChannel<BufferHandle>;

SlotLease Make(RingWorkspace& ring, std::string_view tag = {}) {
  RingSlotScope slot(ring);
  BufferHandle array(AllocateHere(64));
  return slot.Commit(tag);
}

void Produce(RingWorkspace& ring, Channel& channel, int batches) {
  try {
    for (int i = 0; i < batches; ++i) {
      RingSlotScope slot(ring);
      BufferHandle array(AllocateHere(64));
      std::memset(array->data, i, 64);
      if (!channel.Push(slot.Commit(), std::move(array))) return;
    }
    channel.Close();
  } catch (...) {
    channel.Fail(std::current_exception());
  }
}

Error ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(absl::StatusCode::kOk, "nothing was thrown");
}

void WaitUntil(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

// There was another thread once, so that it takes a second to know that there is none now. (ThreadSanitizer
// has one of its own, which could release a slot for all that is known.)
TEST(RingWait, AThreadThatIsLeftAloneIsTold) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer has a thread of its own";
#endif
  std::thread([] {}).join();
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  const SlotLease first = Make(ring), second = Make(ring);
  const Error error = ErrorOf([&] { Make(ring); });
  EXPECT_THAT(error.what(), HasSubstr("would wait for ever"));
}

TEST(RingWait, AProducerWaitsForASlotAndIsWoken) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  SlotLease first = Make(ring), second = Make(ring);
  std::atomic<uint64_t> got{0};
  std::thread producer([&] { got = Make(ring).generation(); });
  WaitUntil([&] { return ring.stats().waits == 1; });
  EXPECT_EQ(got.load(), 0);
  second.Release();  // any order
  producer.join();
  EXPECT_EQ(got.load(), 3);
  EXPECT_EQ(ring.stats().wake_ups, 1);
  EXPECT_GT(ring.stats().wait_nanoseconds, 0);
  first.Release();
  EXPECT_EQ(ring.stats().wake_ups, 1);  // nobody waited
}

TEST(RingWait, StoppingEndsTheWaitAndChangesNothing) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(1));
  SlotLease lease = Make(ring);
  std::jthread producer([&](std::stop_token stop) {
    EXPECT_FALSE(RingSlotScope::Open(ring, stop));
    EXPECT_FALSE(RingSlotScope::Open(ring, stop));  // stopped before
  });
  WaitUntil([&] { return ring.stats().waits == 1; });
  producer.request_stop();
  producer.join();
  EXPECT_EQ(ring.generation(), 1);
  lease.Release();
  std::stop_source stopped;
  stopped.request_stop();
  EXPECT_FALSE(RingSlotScope::Open(ring, stopped.get_token()));
  std::optional<RingSlotScope> slot = RingSlotScope::Open(ring, std::stop_token());
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot->generation(), 2);
}

TEST(RingWait, SeveralProducersShareWhatIsFreed) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  std::vector<std::thread> producers;
  for (int i = 0; i < 6; ++i) {
    producers.emplace_back([&] {
      for (int j = 0; j < 50; ++j) Make(ring);
    });
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(ring.stats().committed, 300);
  EXPECT_EQ(ring.stats().idle, 2);
}

TEST(RingWait, DestroyingTheRingWakesWhoWaits) {
  auto ring = std::make_unique<RingWorkspace>("ring", WorkspaceConfig::Ring(1));
  SlotLease lease = Make(*ring);
  Error error(absl::StatusCode::kOk, "");
  RingWorkspace& waited_for = *ring;
  std::thread producer([&] { error = ErrorOf([&] { Make(waited_for); }); });
  WaitUntil([&] { return ring->stats().waits == 1; });
  ring.reset();
  producer.join();
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("ring [ring] was destroyed"));
}

TEST(RingWait, KeepingTheLastSlotIsAnErrorThatNamesThemAll) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(3));
  SlotLease a = Make(ring, "a"), b = Make(ring, "b"), c = Make(ring, "c");
  a.Keep();
  b.Keep("replay");
  b.Keep();
  EXPECT_EQ(ring.stats().kept, 2);
  const Error error = ErrorOf([&] { c.Keep(); });
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("generation 3 would be kept slot number 3 of 3"),
                    HasSubstr("slot 0 generation 1 leased and kept by this thread [a]"),
                    HasSubstr("slot 1 generation 2 leased and kept by this thread [replay]"),
                    HasSubstr("slot 2 generation 3 leased [c]")));
  c.Release();
  c = Make(ring);
  a.Release();
  EXPECT_EQ(ring.stats().kept, 1);
  c.Keep();
  EXPECT_EQ(ErrorOf([] { SlotLease().Keep(); }).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RingWait, AWaitOnlyThisThreadCouldEndIsAnError) {
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.ring_max_kept = 2;
  RingWorkspace ring("ring", config);
  std::thread other([] {});  // the process has had a second thread
  other.join();
  SlotLease kept = Make(ring);
  kept.Keep();
  RingSlotScope open(ring);
  const Error error = ErrorOf([&] { RingSlotScope third(ring); });
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("only this thread could release a slot"),
                    HasSubstr("slot 0 generation 1 leased and kept by this thread"),
                    HasSubstr("slot 1 generation 2 open by this thread")));
}

// Without another thread there is nobody who could release.
TEST(RingWaitDeathTest, ASingleThreadDoesNotWaitForItself) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
        std::vector<SlotLease> leases;
        const Error error = ErrorOf([&] {
          for (;;) leases.push_back(Make(ring, "mine"));
        });
        std::fprintf(stderr, "%s\n", error.message().c_str());
        std::exit(leases.size() == 2 ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "would wait for ever: only this thread could release a slot: slot 0 generation 1 leased "
      ".mine., slot 1 generation 2 leased .mine.");
}

// A slot that N later ones have passed is kept, whether or not its holder said so. Opening waits for
// the holder, who may be slow, and fails when it seems that nobody will release one.
TEST(RingWait, PassedSlotsCountAgainstTheLimit) {
  WorkspaceConfig config = WorkspaceConfig::Ring(3);
  config.ring_max_kept = 1;
  config.ring_stall_limit_ms = 1;
  RingWorkspace ring("ring", config);
  SlotLease first = Make(ring, "first"), second = Make(ring, "second");
  for (int i = 0; i < 2; ++i) Make(ring);
  EXPECT_EQ(ring.stats().kept, 1);
  Make(ring);
  EXPECT_EQ(ring.stats().kept, 2);
  EXPECT_FALSE(RingSlotScope::TryOpen(ring));
  const Error error = ErrorOf([&] { Make(ring); });
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("2 of 3 slots are kept, ring_max_kept is 1"),
                                     HasSubstr("generation 1 leased and kept [first]"),
                                     HasSubstr("generation 2 leased and kept [second]")));
  second.Release();
  EXPECT_EQ(Make(ring).generation(), 6);
}

// A temporary slot is gone with its thread; what is left of the scope does not look at it.
TEST(RingWait, AScopeWhoseThreadHasEndedDoesNotLookAtItsSlot) {
  WorkspaceConfig config = WorkspaceConfig::Ring(1);
  config.policy_ring_full = RingFullPolicy::kSpill;
  RingWorkspace ring("ring", config);
  SlotLease lease = Make(ring);
  std::unique_ptr<RingSlotScope> left;
  std::thread([&] { left = std::make_unique<RingSlotScope>(ring); }).join();
  EXPECT_EQ(ring.stats().discarded, 1);
  EXPECT_EQ(left->generation(), 0);  // it was discarded
}

// Each has a slot open and wants another: the second is told, whatever the stall limit, and what it
// gives up lets the first go on.
TEST(RingWait, ProducersThatWaitForEachOtherAreTold) {
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.ring_stall_limit_ms = 0;
  RingWorkspace ring("ring", config);
  std::atomic<int> opened{0}, done{0};
  std::vector<Error> errors(2, Error(absl::StatusCode::kOk, ""));
  std::vector<std::thread> producers;
  for (Error& error : errors) {
    producers.emplace_back([&] {
      error = ErrorOf([&] {
        RingSlotScope first(ring);
        ++opened;
        WaitUntil([&] { return opened == 2; });
        RingSlotScope second(ring);
        EXPECT_NE(second.generation(), 0);
        ++done;
      });
    });
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(done, 1);
  if (errors[0].code() != absl::StatusCode::kResourceExhausted) std::swap(errors[0], errors[1]);
  EXPECT_EQ(errors[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(errors[0].message(),
              AllOf(HasSubstr("ring [ring] is full and would wait for ever"),
                    HasSubstr("generation 1 open by "), HasSubstr("generation 2 open by "),
                    HasSubstr("by another thread that waits for a slot")));
  EXPECT_THAT(errors[1].message(), HasSubstr("nothing was thrown"));
  EXPECT_EQ(ring.stats().idle, 2);
}

// What is open on a thread that waits is as good as kept: with a reader that keeps the rest, it
// would never end.
TEST(RingWait, AStallEndsForAProducerWithASlotOpen) {
  WorkspaceConfig config = WorkspaceConfig::Ring(3);
  config.ring_stall_limit_ms = 1;
  RingWorkspace ring("ring", config);
  SlotLease a = Make(ring, "a"), b = Make(ring, "b");
  a.Keep();
  b.Keep();
  Error error(absl::StatusCode::kOk, "");
  std::thread([&] {
    error = ErrorOf([&] {
      RingSlotScope first(ring);
      RingSlotScope second(ring);
    });
  }).join();
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("ring [ring]: 2 of 3 slots are kept, ring_max_kept is 0"),
                    HasSubstr("none was released in 1 ms"),
                    HasSubstr("generation 2 leased and kept by another thread [b]"),
                    HasSubstr("generation 3 open by this thread")));
}

// ---- channel ----

TEST(RingChannel, DeliversInOrderAndEnds) {
  for (int slots : {1, 2, 5, 100}) {
    RingWorkspace ring("ring", WorkspaceConfig::Ring(slots));
    Channel channel(ring);
    std::thread producer([&] { Produce(ring, channel, 100); });
    int count = 0;
    while (std::optional<Channel::Item> item = channel.Pop()) {
      EXPECT_TRUE(item->value->IsAlive());
      EXPECT_EQ(static_cast<int>(item->value->data[63]), count++);
    }
    EXPECT_EQ(count, 100);
    EXPECT_FALSE(channel.Pop());
    producer.join();
    EXPECT_EQ(ring.stats().idle, slots);
    EXPECT_EQ(ring.stats().leaked_arrays, 0);
  }
}

// The arrays go before their slot, also where another batch is assigned over them.
TEST(RingChannel, AssigningOverABatchLeavesNothing) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  Channel channel(ring);
  std::optional<Channel::Item> item;
  for (int i = 0; i < 10; ++i) {
    RingSlotScope slot(ring);
    BufferHandle array(AllocateHere(100));
    ASSERT_TRUE(channel.Push(slot.Commit(), std::move(array)));
    item = channel.Pop();
    EXPECT_TRUE(item->value->IsAlive());
  }
  item.reset();
  EXPECT_EQ(ring.stats().leaked_arrays, 0u);
}

TEST(RingChannel, ReadersGetTheProducersExceptionAfterItsBatches) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(4));
  Channel channel(ring);
  std::thread producer([&] {
    try {
      for (int i = 0; i < 2; ++i) {
        RingSlotScope slot(ring);
        BufferHandle array(AllocateHere(64));
        if (i == 1) throw std::out_of_range("file");
        channel.Push(slot.Commit(), std::move(array));
      }
    } catch (...) {
      channel.Fail(std::current_exception());
    }
  });
  EXPECT_TRUE(channel.Pop());
  for (int i = 0; i < 2; ++i) EXPECT_THROW(channel.Pop(), std::out_of_range);
  producer.join();
  EXPECT_EQ(ring.stats().idle, 4);
  EXPECT_FALSE(channel.Push(Make(ring), BufferHandle()));
  EXPECT_EQ(ring.stats().idle, 4);
}

TEST(RingChannel, AReaderCanBeStopped) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  Channel channel(ring);
  std::jthread reader([&](std::stop_token stop) { EXPECT_FALSE(channel.Pop(stop)); });
  reader.request_stop();
  reader.join();
  channel.Push(Make(ring), BufferHandle());
  EXPECT_EQ(channel.size(), 1);
}

// Without a limit both sides would wait for ever: after a while the producer fails and the reader
// gets its error.
TEST(RingChannel, AStallEndsWithAnErrorOnBothSides) {
  WorkspaceConfig config = WorkspaceConfig::Ring(3);
  config.ring_stall_limit_ms = 1;
  RingWorkspace ring("ring", config);
  Channel channel(ring);
  std::thread producer([&] { Produce(ring, channel, 100); });
  std::vector<Channel::Item> stored;
  const Error error = ErrorOf([&] {
    while (std::optional<Channel::Item> item = channel.Pop()) stored.push_back(std::move(*item));
  });
  producer.join();
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("3 of 3 slots are kept"), HasSubstr("none was released in 1 ms"),
                    HasSubstr("slot 2 generation 3 leased and kept")));
  EXPECT_EQ(stored.size(), 3);
}

// A reader that hands batches on and comes back holds nothing itself for long: no error.
TEST(RingChannel, BatchesMayBeFinishedElsewhere) {
  WorkspaceConfig config = WorkspaceConfig::Ring(3);
  config.ring_stall_limit_ms = 0;
  RingWorkspace ring("ring", config);
  Channel channel(ring);
  std::thread producer([&] { Produce(ring, channel, 100); });
  std::vector<std::thread> workers;
  int count = 0;
  while (std::optional<Channel::Item> item = channel.Pop()) {
    workers.emplace_back([held = std::move(*item), count] {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      EXPECT_EQ(static_cast<int>(held.value->data[0]), count);
    });
    ++count;
  }
  for (std::thread& worker : workers) worker.join();
  producer.join();
  EXPECT_EQ(count, 100);
}

}  // namespace
}  // namespace tidepool
