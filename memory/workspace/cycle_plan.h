// One cycle as a workspace learned it: its requests, their lifetimes and where each goes.
//
// Immutable once made, so that it is shared: by the slots of a ring, by workspaces that serve the
// same shape. Who follows it keeps its own state in a PlanFollower.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_PLAN_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/pinned_planner.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/plan_layout.h"

namespace tidepool {

// The sizes of requests, hashed one after the other.
inline constexpr uint64_t kNoRequests = 0x2545f4914f6cdd1d;
inline uint64_t ExtendSignature(uint64_t signature, size_t bytes) {
  uint64_t x = (signature ^ bytes) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}

// The requests of a cycle with a place for each.
struct PlacedRequests {
  // Sizes and lifetimes, counted in requests: alive from request `lower` to before `upper`.
  MappedVector<LifetimeBuffer> requests;
  std::vector<int64_t> offsets;
  std::vector<PinnedBuffer> pins;  // what had to keep its place for the sake of other plans
  size_t peak_bytes = 0;           // what lies outside the pages included
  size_t lower_bound_bytes = 0;    // no placement can go below it
  size_t requested_bytes = 0;      // what no reuse would need
  // At once, at most, in one of the cycles whose longest lifetimes these are; 0: as lower_bound_bytes.
  size_t alive_bytes = 0;

  size_t most_alive_bytes() const { return alive_bytes > 0 ? alive_bytes : lower_bound_bytes; }
};

// Plans `requests` around `pins` for pages whose offsets are multiples of `alignment`. Pins that these
// lifetimes do not allow any more are dropped. Throws what PlanAround does.
PlacedRequests PlaceRequests(absl::Span<const LifetimeBuffer> requests,
                             absl::Span<const PinnedBuffer> pins, size_t alignment);

// Without pins, and with more effort where that needs more than `most_peak` bytes. Throws std::bad_alloc.
PlacedRequests PlaceWithin(absl::Span<const LifetimeBuffer> requests, size_t alignment,
                           size_t most_peak);

struct CyclePlan : PlacedRequests {
  PlanLayout layout;                  // has the offsets: `offsets` is empty
  MappedVector<uint64_t> signatures;  // of requests [0, i]

  uint64_t signature() const { return signatures.empty() ? kNoRequests : signatures.back(); }
  // The plan itself sends this request outside of the pages.
  bool IsOutside(uint32_t slot, size_t bytes) const {
    return layout.IsOutside(slot) && requests[slot].size == static_cast<int64_t>(bytes);
  }
  // Heap memory, itself included.
  size_t state_bytes() const;
};

// Whether both have the same lifetimes and places, of requests of the same sizes.
bool SamePlaces(const PlacedRequests& a, const CyclePlan& b);

// `limit`: requests that would end beyond it are planned outside of the pages.
std::shared_ptr<const CyclePlan> MakeCyclePlan(PlacedRequests placed, size_t limit);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_PLAN_H_
