// The placed buffers of a first-fit or best-fit planner, by time: for problems of so many buffers that
// most of them never meet.
#ifndef TIDEPOOL_MEMORY_PLANNING_INTERVAL_FIT_H_
#define TIDEPOOL_MEMORY_PLANNING_INTERVAL_FIT_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tidepool/memory/planning/fit_list.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {

// The work, in FitList's units, that placing all items takes with the faster of the two; O(n).
int64_t WorkOfOrder(const SectionedProblem& problem);
// Orders of many items may take so much, about half a second; where one alone would take more, the
// plan in the order of time is left as it is. One limit for every planner that tries orders.
inline constexpr int64_t kMostWorkOfOrders = 5'000'000;

// Gives the same offsets as FitList. An interval tree over the sections (Edelsbrunner 1980): each item is
// at the highest node whose middle it is alive at, so that an item's conflicts are at few nodes. O(n)
// memory. FindOffset: O(log n + c log c) for c conflicts, where lifetimes are alike.
class IntervalFit {
 public:
  explicit IntervalFit(const SectionedProblem& problem);
  // Than FitList, which compares lifetimes 64 at a time: where there are many items and few of them meet.
  static bool IsFasterFor(const SectionedProblem& problem);

  // Keeps its memory for the next use.
  void Clear();
  int64_t FindOffset(const SectionItem& item, FitList::Fit fit);
  void Insert(const SectionItem& item, int64_t offset);

  // As FitList's: units of about 50 ns.
  int64_t work() const { return work_ / kEntriesPerUnit; }

 private:
  static constexpr int64_t kEntriesPerUnit = 8;
  struct Entry {
    int32_t first;
    int32_t last;
    int64_t offset;
    int64_t end;
  };
  struct Node {
    // Of the entries here, and of those here and below: what is out of the range is not looked at.
    int32_t first = INT32_MAX, last = -1;
    int32_t first_below = INT32_MAX, last_below = -1;
    std::vector<Entry> entries;
  };

  static constexpr int64_t kLeafSections = 16;

  void Collect(const SectionItem& item);

  int32_t leaves_;             // a power of two
  std::vector<Node> nodes_;    // the root is 1, those below k are 2k and 2k + 1
  std::vector<int32_t> used_;  // nodes with entries
  std::vector<std::pair<int64_t, int64_t>> conflicts_;  // offset and end
  int64_t work_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_INTERVAL_FIT_H_
