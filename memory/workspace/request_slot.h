// The requests of a cycle by number: which buffer has one, or when it went.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_REQUEST_SLOT_H_
#define TIDEPOOL_MEMORY_WORKSPACE_REQUEST_SLOT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/memory/buffer.h"

namespace tidepool {

// One word: the buffer that is alive, or after how many requests it was released. So a release notes
// when it was at no more cost than that it was, and every lifetime of every cycle is known at its end.
class RequestSlot {
 public:
  RequestSlot() = default;
  explicit RequestSlot(Buffer* live) : word_(reinterpret_cast<uintptr_t>(live)) {}
  static RequestSlot Released(uint32_t after_requests) {
    RequestSlot slot;
    slot.word_ = (uintptr_t{after_requests} << 1) | 1;
    return slot;
  }

  bool is_live() const { return (word_ & 1) == 0; }
  bool holds(const Buffer* buffer) const { return word_ == reinterpret_cast<uintptr_t>(buffer); }
  // Of a live one.
  Buffer* buffer() const { return reinterpret_cast<Buffer*>(word_); }
  // Of one that was released.
  uint32_t released_after() const { return static_cast<uint32_t>(word_ >> 1); }

 private:
  uintptr_t word_ = 1;
};

// What serves a request that no plan places is told by one word of its buffer: null for what lies one
// behind the other or by plan, a free range of the pages with the lowest bit set, or the token of a
// block outside.
inline bool IsRange(const void* token) { return (reinterpret_cast<uintptr_t>(token) & 1) != 0; }

// The requests a cycle has made so far.
struct RequestView {
  absl::Span<const RequestSlot> slots;  // by request number
  const std::byte* base;                // of the pages
  uint32_t unrecorded = 0;              // requests after those, which have none

  uint32_t count() const { return static_cast<uint32_t>(slots.size()) + unrecorded; }
  // Whether request `slot` is alive in the pages: where a plan has it, or beside all plans.
  bool IsInPlan(uint32_t slot) const {
    return slots[slot].is_live() && slots[slot].buffer()->request.spill == nullptr;
  }
  bool IsBesidePlans(uint32_t slot) const {
    return slots[slot].is_live() && IsRange(slots[slot].buffer()->request.spill);
  }
  // Where, of either.
  int64_t offset(uint32_t slot) const { return slots[slot].buffer()->data - base; }
  // Before which request it was released; count() of what is alive. At least the one after it.
  int64_t upper(uint32_t slot) const {
    return slots[slot].is_live() ? count() : slots[slot].released_after();
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_REQUEST_SLOT_H_
