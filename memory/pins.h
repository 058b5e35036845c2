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
// pin a fence; for host memory of a workspace that is open here, a look: a compare for that of the
// innermost scope, a virtual call for others.
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
// Takes all pins of so many off, the newest first, and returns the one below them.
BufferPins::Record* UnpinRecords(BufferPins::Record* newest, int count) noexcept;

// The workspace of the calling thread's innermost scope, where its memory is the host's; else null.
// Its scopes keep it (memory/workspace).
extern thread_local constinit const BufferOwner* innermost_here;

// Gives the bytes back of a buffer whose close was postponed. By who has claimed that.
void FinishPendingClose(Buffer* buffer) noexcept;

}  // namespace internal

class [[nodiscard]] PinScope {
 public:
  PinScope() = default;
  ~PinScope() {
    if (record_ != nullptr) Unpin();
  }
  PinScope(const PinScope&) = delete;
  PinScope& operator=(const PinScope&) = delete;

  void Pin(Buffer* buffer) {
    if (buffer == nullptr || (buffer->attached && StaysWhileHere(*buffer))) return;
    if (record_ == nullptr) Begin();
    if (depth_ == internal::BufferPins::kMostPins) [[unlikely]] {
      record_ = internal::TakePinRecord();
      depth_ = 0;
      ++others_;
    }
    internal::BufferPins::Pin(*record_, depth_++, buffer);
  }
  // After the last Pin, before the operands are looked at.
  void Publish() const {
    if (record_ != nullptr) internal::BufferPins::Publish();
  }

 private:
  // A host copy of device memory goes with a close on any thread, so that is pinned.
  static bool StaysWhileHere(const Buffer& buffer) {
    return buffer.owner == internal::innermost_here ||
           (buffer.device == Host() && buffer.owner->IsOpenHere());
  }
  void Begin() {
    record_ = internal::pin_record;
    if (record_ == nullptr) [[unlikely]]
      record_ = internal::TakePinRecord();
    begin_ = depth_ = record_->depth.load(std::memory_order_relaxed);
  }
  // Inner scopes have taken theirs off: the newest record of the thread is this scope's newest.
  void Unpin() {
    if (others_ > 0) [[unlikely]]
      record_ = internal::UnpinRecords(record_, others_);
    internal::buffer_pins.Unpin(*record_, begin_, internal::FinishPendingClose);
  }

  internal::BufferPins::Record* record_ = nullptr;  // the thread's newest, where pins go
  int32_t depth_;                                   // of it, while no inner scope has more
  int32_t begin_;       // in the first record: those before are outer scopes'
  int32_t others_ = 0;  // records after the first, each begun with by this scope
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PINS_H_
