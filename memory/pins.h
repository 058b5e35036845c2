// Pins: what a kernel is using right now, so that closing it on another thread waits with the bytes.
//
// The dispatcher pins the operands that are outside of workspaces before it looks whether they are
// alive; who closes a buffer makes it dead first and looks for pins then. So either the kernel's
// caller sees a dead buffer, or the closing thread sees the pin and leaves the bytes to the thread
// that has it (M. Michael, "Hazard Pointers", 2004). Memory of workspaces needs no pins: it goes back
// on the thread that has the workspace open.
//
// Threads: any. Cost: a store per operand outside of workspaces and a fence per call that has one.
#ifndef TIDEPOOL_MEMORY_PINS_H_
#define TIDEPOOL_MEMORY_PINS_H_

#include <atomic>

#include "tidepool/memory/buffer.h"

namespace tidepool {

namespace internal {

// One thread's pins. Never freed; a thread that ends leaves its own to the next one.
struct alignas(64) PinSlots {
  static constexpr int kSlots = 62;
  std::atomic<int32_t> depth{0};
  std::atomic<bool> taken{false};
  PinSlots* next = nullptr;
  std::atomic<Buffer*> slots[kSlots] = {};
};

PinSlots* TakePinSlots();
extern thread_local constinit PinSlots* pin_slots;
// Gives the bytes of a buffer back whose close found a pin, unless others have one too. `last`:
// there is no other handle, and who closed it is done.
void FinishPendingClose(Buffer* buffer, bool last) noexcept;

}  // namespace internal

class [[nodiscard]] PinScope {
 public:
  PinScope() = default;
  ~PinScope() {
    if (slots_ != nullptr) Unpin();
  }
  PinScope(const PinScope&) = delete;
  PinScope& operator=(const PinScope&) = delete;

  void Pin(Buffer* buffer) {
    if (buffer == nullptr || buffer->attached) return;
    if (slots_ == nullptr) Begin();
    const int32_t depth = slots_->depth.load(std::memory_order_relaxed);
    if (depth == internal::PinSlots::kSlots) return;  // calls within calls within calls
    slots_->slots[depth].store(buffer, std::memory_order_relaxed);
    slots_->depth.store(depth + 1, std::memory_order_release);
  }
  // After the last Pin, before the operands are looked at.
  void Publish() const {
    if (slots_ != nullptr) Fence();
  }
  static void Fence() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wtsan"
    std::atomic_thread_fence(std::memory_order_seq_cst);
#pragma GCC diagnostic pop
  }

 private:
  void Begin() {
    slots_ = internal::pin_slots != nullptr ? internal::pin_slots : internal::TakePinSlots();
    begin_ = slots_->depth.load(std::memory_order_relaxed);
  }
  void Unpin() {
    const int32_t end = slots_->depth.load(std::memory_order_relaxed);
    slots_->depth.store(begin_, std::memory_order_release);
    for (int32_t i = begin_; i < end; ++i) {
      Buffer* buffer = slots_->slots[i].load(std::memory_order_relaxed);
      if (buffer->stamp.load(std::memory_order_relaxed) == 0) {
        internal::FinishPendingClose(buffer, false);
      }
    }
  }

  internal::PinSlots* slots_ = nullptr;
  int32_t begin_ = 0;
};

namespace internal {

// After buffers were made dead: whether any other thread has pins at all.
bool AnyPinned() noexcept;
// True when a dead buffer is pinned on another thread: its bytes go later then.
bool PostponeClose(Buffer* buffer) noexcept;

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PINS_H_
