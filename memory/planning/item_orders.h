// The orders in which planners take up buffers.
#ifndef TIDEPOOL_MEMORY_PLANNING_ITEM_ORDERS_H_
#define TIDEPOOL_MEMORY_PLANNING_ITEM_ORDERS_H_

#include <cstdint>
#include <initializer_list>
#include <random>

#include "absl/types/span.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {

// What orders go by, for each item of a problem.
struct ItemFeatures {
  ItemFeatures(absl::Span<const LifetimeBuffer> buffers, const SectionedProblem& problem);

  MappedVector<double> size;
  MappedVector<double> width;  // ticks alive
  MappedVector<double> area;   // size * width
  MappedVector<double> crowd;  // the largest sum of sizes alive at a time of its life
  MappedVector<double> early;  // larger for an earlier start
  MappedVector<double> late;   // larger for a later end
};

// Writes the items in descending order of the first feature, at ties of the next, at last of their
// number.
void SortItems(std::initializer_list<const MappedVector<double>*> features,
               MappedVector<int32_t>& order);

// In descending order of a random product of powers of size and width, with noise of up to a half
// of each.
void SortItemsAtRandom(const ItemFeatures& features, std::mt19937_64& random,
                       MappedVector<int32_t>& order);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_ITEM_ORDERS_H_
