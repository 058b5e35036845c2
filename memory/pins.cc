#include "tidepool/memory/pins.h"

#include <utility>

#include "tidepool/memory/sync/asymmetric_fence.h"

#include "tidepool/memory/held_bytes.h"

namespace tidepool {
namespace {

struct GiveBackAtThreadEnd {
  ~GiveBackAtThreadEnd() {
    internal::BufferPins::Record* record = std::exchange(internal::pin_record, nullptr);
    if (record != nullptr) internal::buffer_pins.GiveBack(record);
  }
};

}  // namespace

namespace internal {

constinit BufferPins buffer_pins;
thread_local constinit BufferPins::Record* pin_record = nullptr;
thread_local constinit const BufferOwner* innermost_here = nullptr;

BufferPins::Record* TakePinRecord() {
  thread_local GiveBackAtThreadEnd at_end;
  static_cast<void>(at_end);
  AsymmetricFence<StdSync>::Register();
  BufferPins::Record* record = buffer_pins.TakeFree();
  if (record == nullptr) {
    record = new BufferPins::Record;
    buffer_pins.Add(record);
  }
  record->outer.set(pin_record);
  return pin_record = record;
}

BufferPins::Record* UnpinRecords(BufferPins::Record* newest, int count) noexcept {
  for (; count > 0; --count) {
    buffer_pins.Unpin(*newest, 0, FinishPendingClose);
    pin_record = newest->outer.get();
    buffer_pins.GiveBack(std::exchange(newest, pin_record));
  }
  return newest;
}

void FinishPendingClose(Buffer* buffer) noexcept {
  if (LeaveToHolds(buffer)) return;
  DropMirror(buffer);  // before the memory it may be copying to
  buffer->owner->Close(buffer);
}

}  // namespace internal

}  // namespace tidepool
