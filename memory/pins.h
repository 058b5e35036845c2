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
// pin a fence and a locked instruction; nothing for host memory of a workspace that is open here
// but a look.
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
// One more for the calling thread, above the one it has.
BufferPins::Record* TakePinRecord();

// Gives the bytes back of a buffer whose close was postponed. By who has claimed that.
void FinishPendingClose(Buffer* buffer) noexcept;

}  // namespace internal

class [[nodiscard]] PinScope {
 public:
  PinScope() = default;
  ~PinScope() {
    if (first_ != nullptr) Unpin();
  }
  PinScope(const PinScope&) = delete;
  PinScope& operator=(const PinScope&) = delete;

  void Pin(Buffer* buffer) {
    if (buffer == nullptr || StaysWhileHere(*buffer)) return;
    if (first_ == nullptr) Begin();
    if (internal::pin_record->is_full()) internal::TakePinRecord();
    internal::BufferPins::Pin(*internal::pin_record, buffer);
  }
  // After the last Pin, before the operands are looked at.
  void Publish() const {
    if (first_ != nullptr) internal::BufferPins::Publish();
  }

 private:
  // A host copy of device memory goes with a close on any thread, so that is pinned.
  static bool StaysWhileHere(const Buffer& buffer) {
    return buffer.attached && buffer.device == Host() && buffer.owner->IsOpenHere();
  }
  void Begin() {
    first_ = internal::pin_record != nullptr ? internal::pin_record : internal::TakePinRecord();
    begin_ = first_->depth.load(std::memory_order_relaxed);
  }
  void Unpin() {
    while (internal::pin_record != first_) {
      internal::BufferPins::Record* const record = internal::pin_record;
      internal::buffer_pins.Unpin(*record, 0, internal::FinishPendingClose);
      internal::pin_record = record->outer.get();
      internal::buffer_pins.GiveBack(record);
    }
    internal::buffer_pins.Unpin(*first_, begin_, internal::FinishPendingClose);
  }

  internal::BufferPins::Record* first_ = nullptr;
  int32_t begin_ = 0;  // its pins before are outer scopes'
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PINS_H_
