// Pins: what a kernel is using right now, so that closing it meanwhile waits with the bytes.
//
// The dispatcher pins its operands before it looks whether they are alive; who closes a buffer, on
// whichever thread, makes it dead first and looks for pins then (memory/sync/pin_registry.h). So
// either the kernel's caller sees a dead buffer, or the bytes go when the last thread that has it
// pinned is done.
//
// Host memory of a workspace that is open on the calling thread needs no pin: only that thread
// gives its bytes back, and it is in the kernel. What ends together with a workspace's cycle or a
// ring slot's last lease is not waited for: who ends those has to know that nobody computes with
// their arrays.
//
// The caller has a handle of what it pins, until the scope has ended.
// Threads: any; a scope is its thread's. Cost: a store per operand, and per call that has one to
// pin a fence; nothing for host memory of a workspace that is open here but a look.
#ifndef TIDEPOOL_MEMORY_PINS_H_
#define TIDEPOOL_MEMORY_PINS_H_

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/sync/pin_registry.h"
#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

namespace internal {

using BufferPins = PinRegistry<StdSync, Buffer, 60>;
extern BufferPins buffer_pins;
// The calling thread's record with the newest pins; null before the first. Records are never freed:
// a thread that ends leaves its own to the next one.
extern thread_local constinit BufferPins::Record* pin_record;
// One more for the calling thread, above the one it has; and back to that one.
BufferPins::Record* TakePinRecord();
BufferPins::Record* GiveBackPinRecord() noexcept;

// Gives the bytes back of a buffer whose close was postponed. By who has claimed that.
void FinishPendingClose(Buffer* buffer) noexcept;

}  // namespace internal

class [[nodiscard]] PinScope {
 public:
  PinScope() = default;
  ~PinScope() {
    if (newest_ != nullptr) Unpin();
  }
  PinScope(const PinScope&) = delete;
  PinScope& operator=(const PinScope&) = delete;

  void Pin(Buffer* buffer) {
    if (buffer == nullptr || StaysWhileHere(*buffer)) return;
    if (newest_ == nullptr) Begin();
    if (newest_->is_full()) newest_ = internal::TakePinRecord();
    internal::BufferPins::Pin(*newest_, buffer);
  }
  // After the last Pin, before the operands are looked at.
  void Publish() const {
    if (newest_ != nullptr) internal::BufferPins::Publish();
  }

 private:
  // A host copy of device memory goes with a close on any thread, so that is pinned.
  bool StaysWhileHere(const Buffer& buffer) {
    if (!buffer.attached || buffer.device != Host()) return false;
    if (buffer.owner == open_here_) return true;
    if (!buffer.owner->IsOpenHere()) return false;
    open_here_ = buffer.owner;
    return true;
  }
  void Begin() {
    first_ = internal::pin_record != nullptr ? internal::pin_record : internal::TakePinRecord();
    newest_ = first_;
    begin_ = first_->depth.load(std::memory_order_relaxed);
  }
  void Unpin() {
    while (newest_ != first_) {
      internal::buffer_pins.Unpin(*newest_, 0, internal::FinishPendingClose);
      newest_ = internal::GiveBackPinRecord();
    }
    internal::buffer_pins.Unpin(*first_, begin_, internal::FinishPendingClose);
  }

  internal::BufferPins::Record* newest_ = nullptr;  // the thread's, while no inner scope has more
  internal::BufferPins::Record* first_;             // where its pins begin
  int32_t begin_;                                   // those before are outer scopes'
  const BufferOwner* open_here_ = nullptr;          // the last one seen
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PINS_H_
