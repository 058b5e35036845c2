// The request that memory was refused to, the last one of those in a cycle: what was alive then, which is not known at
// the cycle's end any more, as the error releases it.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_REFUSED_REQUEST_H_
#define TIDEPOOL_MEMORY_WORKSPACE_REFUSED_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/request_slot.h"

namespace tidepool {

class RefusedRequest {
 public:
  bool is_noted() const { return noted_ > 0; }
  // A cycle has ended.
  void Clear() noexcept {
    noted_ = 0;
    bytes_ = 0;
  }
  // The request behind those `made`, of `bytes`, is refused, while the workspace may own `room` bytes in all. Without
  // memory, of one that needs more by itself, and of a cycle that is refused again and again, nothing is known. O(requests).
  void Note(const RequestView& made, size_t bytes, size_t room) noexcept {
    bytes_ = 0;
    if (++noted_ > kMostNoted || bytes > room) return;
    try {
      alive_.clear();
      for (uint32_t slot = 0; slot < made.slots.size(); ++slot) {
        if (made.slots[slot].is_live()) alive_.push_back(slot);
      }
      requests_ = made.count();
      bytes_ = bytes;
      room_ = room;
    } catch (const std::bad_alloc&) {
    }
  }
  // Whether it was the last thing that the cycle wanted, which has made so many requests and not none.
  bool ended(uint32_t requests) const {
    return bytes_ > 0 && requests == requests_ && requests > 0;
  }

  size_t bytes() const { return bytes_; }
  size_t room() const { return room_; }
  // Of the requests before it, with their lifetimes to the cycle's end, and itself: with those that it would have had.
  // Throws std::bad_alloc.
  MappedVector<LifetimeBuffer> Behind(MappedVector<LifetimeBuffer> requests) const {
    const auto last = static_cast<int64_t>(requests.size());
    for (const uint32_t slot : alive_) requests[slot].upper = last + 1;
    requests.push_back({last, last + 1, static_cast<int64_t>(bytes_)});
    return requests;
  }
  size_t state_bytes() const { return alive_.capacity() * sizeof(uint32_t); }

 private:
  static constexpr int kMostNoted = 16;

  std::vector<uint32_t> alive_;  // then
  uint32_t requests_ = 0;
  size_t bytes_ = 0;  // 0: none that is known
  size_t room_ = 0;
  int noted_ = 0;  // in this cycle
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_REFUSED_REQUEST_H_
