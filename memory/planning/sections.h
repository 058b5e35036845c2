// Time, compressed for the planners. Two buffers conflict exactly if some maximal set of buffers
// alive together holds both, so only the moments with such a maximal set matter: each is a
// section, and a lifetime becomes a range of sections. (Interval graphs have at most n maximal
// cliques; a clock has up to 2n distinct ticks.)
#ifndef TIDEPOOL_MEMORY_PLANNING_SECTIONS_H_
#define TIDEPOOL_MEMORY_PLANNING_SECTIONS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

// A buffer of more than 0 bytes: alive in sections [first, last), `size` in units of the
// alignment, at `buffer` in the caller's list.
struct SectionItem {
  int32_t first;
  int32_t last;
  int64_t size;
  int32_t buffer;
};

struct SectionedProblem {
  MappedVector<SectionItem> items;  // in the caller's order
  MappedVector<int64_t> live;       // by section: the sum of sizes alive, in units
  int64_t lower_bound = 0;          // the largest of `live`

  // Too many to compare each with each.
  bool has_many_items() const { return items.size() > 2000; }
};

// Throws like CheckPlacementProblem, and Error(kInvalidArgument) for 2^31 buffers or more.
// O(n log n).
SectionedProblem MakeSections(absl::Span<const LifetimeBuffer> buffers, int64_t alignment);

// The placement in bytes for offsets of `problem.items` in units.
Placement ToPlacement(const SectionedProblem& problem, absl::Span<const int64_t> item_offsets,
                      size_t num_buffers, int64_t alignment);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_SECTIONS_H_
