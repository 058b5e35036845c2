#include "tidepool/memory/held_bytes.h"

#include <utility>

#include "tidepool/memory/pins.h"

namespace tidepool {
namespace {

// Never destroyed: tensors may be released by static destructors.
internal::BufferHolds& Holds() {
  static auto& holds = *new internal::BufferHolds;
  return holds;
}

}  // namespace

HeldBytes::HeldBytes(BufferHandle buffer) : buffer_(std::move(buffer)) {
  if (buffer_) Holds().Begin(buffer_.get());
}

HeldBytes::~HeldBytes() {
  if (buffer_ && Holds().End(buffer_.get())) internal::FinishPendingClose(buffer_.get());
}

namespace internal {

bool LeaveHeldToHolds(Buffer* buffer) noexcept { return Holds().LeaveToHolds(buffer); }

}  // namespace internal

}  // namespace tidepool
