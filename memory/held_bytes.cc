#include "tidepool/memory/held_bytes.h"

#include <utility>

#include "tidepool/memory/pins.h"
#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {
namespace {

// Never destroyed: tensors may be released by static destructors.
internal::BufferHolds& Holds() {
  static auto& holds = []() -> internal::BufferHolds& {
    static constinit const ForkHandlers handlers{[] { Holds().LockForFork(); },
                                                 [] { Holds().UnlockAfterFork(); },
                                                 [] { Holds().UnlockAfterFork(); }};
    HandleFork(ForkLevel::kHolds, &handlers);
    return *new internal::BufferHolds;
  }();
  return holds;
}
[[maybe_unused]] const internal::BufferHolds& at_start = Holds();

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
