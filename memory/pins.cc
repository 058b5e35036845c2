#include "tidepool/memory/pins.h"

#include <mutex>

#include "tidepool/memory/held_bytes.h"

namespace tidepool {

namespace {

constinit std::atomic<internal::PinSlots*> all_slots{nullptr};
constinit std::mutex pending_mutex;

// A thread's own pins are not in the way of what it closes: a kernel does not close its operands.
bool IsPinned(const Buffer* buffer) {
  for (internal::PinSlots* slots = all_slots.load(std::memory_order_acquire); slots != nullptr;
       slots = slots->next) {
    if (slots == internal::pin_slots) continue;
    const int32_t depth = slots->depth.load(std::memory_order_acquire);
    for (int32_t i = 0; i < depth; ++i) {
      if (slots->slots[i].load(std::memory_order_relaxed) == buffer) return true;
    }
  }
  return false;
}

struct GiveBackAtThreadEnd {
  ~GiveBackAtThreadEnd() {
    internal::PinSlots* slots = internal::pin_slots;
    internal::pin_slots = nullptr;
    if (slots != nullptr) slots->taken.store(false, std::memory_order_release);
  }
};

}  // namespace

namespace internal {

thread_local constinit PinSlots* pin_slots = nullptr;

PinSlots* TakePinSlots() {
  thread_local GiveBackAtThreadEnd at_end;
  static_cast<void>(at_end);
  for (PinSlots* slots = all_slots.load(std::memory_order_acquire); slots != nullptr;
       slots = slots->next) {
    bool taken = false;
    if (slots->taken.compare_exchange_strong(taken, true, std::memory_order_acquire)) {
      return pin_slots = slots;
    }
  }
  auto* slots = new PinSlots;
  slots->taken.store(true, std::memory_order_relaxed);
  slots->next = all_slots.load(std::memory_order_relaxed);
  while (!all_slots.compare_exchange_weak(slots->next, slots, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
  return pin_slots = slots;
}

void FinishPendingClose(Buffer* buffer, bool last) noexcept {
  if (last && (buffer->care.load(std::memory_order_relaxed) & Buffer::kClosePending) == 0) return;
  {
    std::lock_guard<std::mutex> lock(pending_mutex);
    if ((buffer->care.load(std::memory_order_relaxed) & Buffer::kClosePending) == 0) return;
    if (!last && IsPinned(buffer)) return;  // the other thread comes here as well
    buffer->care.fetch_and(static_cast<uint8_t>(~Buffer::kClosePending), std::memory_order_relaxed);
  }
  if (!LeaveToHolds(buffer)) buffer->owner->Close(buffer);
}

bool AnyPinned() noexcept {
  PinScope::Fence();
  for (PinSlots* slots = all_slots.load(std::memory_order_acquire); slots != nullptr;
       slots = slots->next) {
    if (slots != pin_slots && slots->depth.load(std::memory_order_acquire) != 0) return true;
  }
  return false;
}

bool PostponeClose(Buffer* buffer) noexcept {
  if (!IsPinned(buffer)) return false;
  std::lock_guard<std::mutex> lock(pending_mutex);
  // The pin may be gone by now, and its thread may not have seen that the buffer is closed.
  if (!IsPinned(buffer)) return false;
  buffer->care.fetch_or(Buffer::kClosePending, std::memory_order_relaxed);
  return true;
}

}  // namespace internal

}  // namespace tidepool
