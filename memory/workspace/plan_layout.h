// Where each request of a cycle goes, and whose memory it takes over: what a plan says, which never
// changes. Any number of workspaces may follow one layout, each with a PlanFollower of its own.
//
// The tenants of a request are the earlier requests that were last planned to lie in its range: it may
// be placed when they are gone. Threads: immutable.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_LAYOUT_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

class PlanLayout {
 public:
  struct Slot {
    size_t bytes;  // 0: outside
    size_t offset;
    uint32_t tenants_begin;
    uint32_t tenants_end;
    // Of requests with at most two tenants; size(), who always is gone, for each that there is not. size() + 1, who never
    // is, comes first if there are more and for requests outside.
    uint32_t first_tenant;
    uint32_t second_tenant;
  };

  PlanLayout() = default;
  // `requests` in order of their numbers, `offsets` one per request. Requests that would end
  // beyond `limit` are planned outside of the pages. O(n log n + tenants).
  PlanLayout(absl::Span<const LifetimeBuffer> requests, absl::Span<const int64_t> offsets,
             size_t limit = SIZE_MAX);

  size_t size() const { return slots_.size(); }
  size_t peak_bytes() const { return peak_; }  // of the pages
  const Slot& slot(uint32_t number) const { return slots_[number]; }
  const Slot* slots() const { return slots_.data(); }
  uint32_t tenant(uint32_t index) const { return tenants_[index]; }
  const uint32_t* tenants() const { return tenants_.data(); }

  // The plan itself sends request `slot` outside of the pages.
  bool IsOutside(uint32_t slot) const { return slot < slots_.size() && slots_[slot].bytes == 0; }
  // Where request `slot` is planned to go.
  size_t offset(uint32_t slot) const { return slots_[slot].offset; }
  // Bytes of the requests [begin, end) together, and the highest address they reach: what a cycle
  // that followed the plan need not have counted.
  // A look at each of them, of all that there are at nothing.
  size_t bytes_of(uint32_t begin, uint32_t end) const;
  size_t top_of(uint32_t begin, uint32_t end) const;
  // Heap memory.
  size_t state_bytes() const;

 private:
  MappedVector<Slot> slots_;
  size_t bytes_ = 0;                // of all
  MappedVector<uint32_t> tenants_;  // per slot: the last earlier requests in its range
  size_t peak_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_LAYOUT_H_
