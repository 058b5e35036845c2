// What a channel's items and readers are to the ring: who drops what first, and who keeps what.
#include "tidepool/memory/workspace/ring_channel.h"

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/thread_state.h"

namespace tidepool {
namespace {

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

}  // namespace
}  // namespace tidepool
