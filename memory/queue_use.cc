#include "tidepool/memory/queue_use.h"

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

void OrderSlowly(Device device, int queue, absl::Span<const QueueUse> uses) {
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
         buffer.queues.load(std::memory_order_relaxed) == 0;
}

void OrderUses(Device device, int queue, absl::Span<const QueueUse> uses) {
  if (queues_in_use.load(std::memory_order_relaxed)) OrderSlowly(device, queue, uses);
  for (const QueueUse& use : uses) {
    if (use.buffer != nullptr && !use.writes) NoteReader(*use.buffer, queue);
  }
}

QueuePoint PointAfterUses(const Buffer& buffer) {
  if (!queues_in_use.load(std::memory_order_relaxed)) return EndOfQueue(buffer.device, 0);
  const uint16_t users = UsersOf(buffer);
  const int here = QueueHere(buffer.device);
  const int queue = (users & Bit(here)) != 0 ? here : std::countr_zero(users);
  OrderQueueAfter(buffer.device, queue, users & ~uint32_t{Bit(queue)});
  return EndOfQueue(buffer.device, queue);
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
  ContinueQueueAfter(buffer->device, QueueHere(buffer->device), users);
}

}  // namespace internal

}  // namespace tidepool
