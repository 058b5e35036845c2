#include "tidepool/memory/held_bytes.h"

#include <map>
#include <mutex>
#include <utility>

#include "tidepool/memory/pins.h"

namespace tidepool {
namespace {

struct Holds {
  int count = 0;
  bool closed = false;  // who closed it has left the bytes here
};

constinit std::mutex holds_mutex;

// Guarded by holds_mutex. Never destroyed: tensors may be released by static destructors.
std::map<Buffer*, Holds>& AllHolds() {
  static auto& holds = *new std::map<Buffer*, Holds>;
  return holds;
}

}  // namespace

HeldBytes::HeldBytes(BufferHandle buffer) : buffer_(std::move(buffer)) {
  if (!buffer_) return;
  {
    std::lock_guard<std::mutex> lock(holds_mutex);
    ++AllHolds()[buffer_.get()].count;
    buffer_->care.fetch_or(Buffer::kHeld, std::memory_order_relaxed);
  }
  // As with pins: either who closes it sees the hold, or who asks next sees a dead buffer.
  StdSync::Fence(std::memory_order_seq_cst);
}

HeldBytes::~HeldBytes() {
  if (!buffer_) return;
  Buffer* const buffer = buffer_.get();
  bool closed;
  {
    std::lock_guard<std::mutex> lock(holds_mutex);
    const auto at = AllHolds().find(buffer);
    if (--at->second.count > 0) return;
    closed = at->second.closed;
    AllHolds().erase(at);
    // What the holder wrote, before who reads the version can take it for known again.
    buffer->version.fetch_add(1, std::memory_order_relaxed);
    buffer->care.fetch_and(static_cast<uint8_t>(~Buffer::kHeld), std::memory_order_release);
  }
  if (closed) internal::FinishPendingClose(buffer);
}

namespace internal {

bool LeaveHeldToHolds(Buffer* buffer) noexcept {
  std::lock_guard<std::mutex> lock(holds_mutex);
  const auto at = AllHolds().find(buffer);
  if (at == AllHolds().end()) return false;
  at->second.closed = true;
  return true;
}

}  // namespace internal

}  // namespace tidepool
