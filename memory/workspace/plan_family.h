// Plans of cycles that begin alike, made together so that none is in another's way.
//
// Cycles that begin with requests of the same sizes are told apart only where they differ. Until then a cycle may
// turn out to be any of them, so each request of a common beginning has one place in all of their plans, and
// keeps it for as long as it lives in any of them as far as that one is like them. Whoever follows one plan can
// then change to the other at any time, and lifetimes within those that are known never miss.
//
// Threads: pure functions.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_FAMILY_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_FAMILY_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/cycle_plan.h"

namespace tidepool {

// What a family may have; the largest is planned within some tenths of a second, one of kFewFamilyRequests within
// two milliseconds.
inline constexpr size_t kMostFamilyMembers = 512;
inline constexpr size_t kMostFamilyRequests = size_t{1} << 17;
inline constexpr size_t kFewFamilyRequests = size_t{1} << 11;

// One plan for each member, in their order; members differ in at least one size. Of two ways (the largest member first;
// what is common first, at the bottom) the one whose largest plan is smaller; or, with `favoured` less than their
// number, the one where that member's is; of equal ones the one whose plans are smaller in all. Throws what PlaceRequests does.
std::vector<PlacedRequests> PlaceFamily(absl::Span<const absl::Span<const LifetimeBuffer>> members,
                                        size_t alignment, size_t favoured);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_FAMILY_H_
