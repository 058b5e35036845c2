#include "tidepool/memory/queue_use.h"

#include <algorithm>
#include <bit>

#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr uint16_t Bit(int queue) { return static_cast<uint16_t>(1u << queue); }

uint16_t UsersOf(const Buffer& buffer) {
  const uint16_t users = buffer.queues.load(std::memory_order_relaxed);
  return users != 0 ? users : Bit(buffer.owner->HomeQueue());
}

// Of what nobody has written: that it was used is seen by its readers alone.
void NoteReader(Buffer& buffer, int queue) {
  if (buffer.attached || !IsUnused(buffer)) return;
  buffer.care.fetch_or(Buffer::kOnQueues, std::memory_order_relaxed);
  buffer.queues.fetch_or(UsersOf(buffer) | Bit(queue), std::memory_order_relaxed);
}

bool MustWait(uint16_t users, const QueueUse& use, int queue) {
  return use.writes ? users != Bit(queue) : (users & Bit(queue)) == 0;
}

bool AnyMustWait(absl::Span<const QueueUse> uses, int queue) {
  return std::any_of(uses.begin(), uses.end(), [=](const QueueUse& use) {
    return use.buffer != nullptr && MustWait(UsersOf(*use.buffer), use, queue);
  });
}

// In a turn of its own.
void OrderAlone(Device device, int queue, absl::Span<const QueueUse> uses) {
  uint32_t others = 0;
  for (const QueueUse& use : uses) {
    if (use.buffer == nullptr) continue;
    const uint16_t users = UsersOf(*use.buffer);
    if (MustWait(users, use, queue)) others |= users;
  }
  if (others != 0) OrderQueueAfter(device, queue, others & ~uint32_t{Bit(queue)});
  for (const QueueUse& use : uses) {
    if (use.buffer == nullptr) continue;
    Buffer& buffer = *use.buffer;
    const uint16_t before = UsersOf(buffer);
    if (!MustWait(before, use, queue)) continue;
    // Before the work is there, so that whoever takes the bytes back sees it.
    if ((buffer.care.load(std::memory_order_relaxed) & Buffer::kOnQueues) == 0) {
      buffer.care.fetch_or(Buffer::kOnQueues, std::memory_order_relaxed);
    }
    if (use.writes) {
      buffer.queues.store(Bit(queue), std::memory_order_relaxed);
    } else {
      buffer.queues.fetch_or(before | Bit(queue), std::memory_order_relaxed);
    }
    buffer.owner->UsedInQueue(queue);
  }
}

}  // namespace

bool IsUnused(const Buffer& buffer) {
  return buffer.version.load(std::memory_order_relaxed) == 0 &&
         (buffer.care.load(std::memory_order_relaxed) & Buffer::kOnQueues) == 0;
}

OrderedUses::OrderedUses(Device device, int queue, absl::Span<const QueueUse> uses) {
  if (queues_in_use.load(std::memory_order_relaxed)) {
    turn_.emplace(device, /*alone=*/false);
    if (AnyMustWait(uses, queue)) {
      turn_->End();
      turn_.emplace(device, /*alone=*/true);
      OrderAlone(device, queue, uses);
    }
  }
  for (const QueueUse& use : uses) {
    if (use.buffer != nullptr && !use.writes) NoteReader(*use.buffer, queue);
  }
}

void OrderUsesAlone(Device device, int queue, const QueueUse& use) {
  if (queues_in_use.load(std::memory_order_relaxed)) {
    OrderAlone(device, queue, absl::MakeConstSpan(&use, 1));
  }
}

QueuePoint PointAfterUses(const Buffer& buffer) {
  if (!queues_in_use.load(std::memory_order_relaxed)) return EndOfQueue(buffer.device, 0);
  const uint16_t users = UsersOf(buffer);
  if (std::has_single_bit(users)) return EndOfQueue(buffer.device, std::countr_zero(users));
  // The thread's, which is open; others may have ended.
  const int here = QueueHere(buffer.device);
  OrderQueueAfter(buffer.device, here, users & ~uint32_t{Bit(here)});
  return EndOfQueue(buffer.device, here);
}

namespace internal {

void LeaveQueues(Buffer* buffer) noexcept {
  const uint16_t users = buffer->queues.exchange(0, std::memory_order_relaxed);
  // What a cycle left that has ended waits for nobody any more.
  if (users != 0 && buffer->IsAlive()) buffer->owner->GoesAfter(users);
}

void ReleaseHere(Buffer* buffer) noexcept {
  if (!queues_in_use.load(std::memory_order_relaxed) || buffer->device == Host()) return;
  const uint16_t users = UsersOf(*buffer);
  buffer->queues.store(0, std::memory_order_relaxed);
  if (FindDeviceProvider(buffer->device)->NoteUsers(buffer->data, users)) return;
  ContinueQueueAfter(buffer->device, QueueHere(buffer->device), users);
}

void ReleaseHome(Buffer* buffer, int home) noexcept {
  const uint16_t users = UsersOf(*buffer);
  buffer->queues.store(0, std::memory_order_relaxed);
  if (home != ImportedMemory::kNone) {
    return ContinueQueueAfter(buffer->device, home, users & ~uint32_t{Bit(home)});
  }
  for (int queue = 0; queue < kMostQueues; ++queue) {
    try {
      if ((users >> queue & 1) != 0) {
        FindDeviceProvider(buffer->device)->WaitFor(EndOfQueue(buffer->device, queue));
      }
    } catch (...) {  // the device has failed: there is nothing to wait for
    }
  }
}

}  // namespace internal

}  // namespace tidepool
