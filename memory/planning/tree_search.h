// Decides whether a placement problem fits a capacity: a complete depth-first search.
//
// Every section (sections.h) has a floor, the top of what is placed there, and a ceiling. A
// placement can be slid down until every buffer rests on the floor or on another buffer, so at any
// valley of the floor - a run of sections of one height between higher ones - either some buffer
// that covers a given section of it rests on its bottom, or the section stays empty there and its
// floor rises to the next height at which a buffer could rest. The search branches on the section
// with the fewest such answers. It therefore never enumerates the order of buffers that do not
// touch, and a section without room to waste has no "stays empty".
//
// What else keeps it small:
// - A set of sections that no buffer to be placed connects with the rest is solved by itself.
// - A buffer that covers all of such a set goes to its ceiling: everything above it could slide
//   down by its size.
// - Bound: in each section the buffers to be placed, each from its lowest offset up, one after the
//   other, must end below the ceiling (Jackson's rule for one machine with release times).
// - States refuted before (buffers to be placed and room above each floor) are remembered by a
//   hash of 64 bits, across orders and capacities.
// - Twins: of buffers with equal size and sections one order is tried. Room left empty must not
//   hold a buffer that was refuted there.
//
// Sources: Moffitt, "MiniMalloc" (ASPLOS 2023) for the floor, decomposition and refuting by
// section; Carlier, "The one-machine sequencing problem" (1982) for the bound; the skyline of
// strip packing (Burke, Kendall, Whitwell 2004) for the valleys.
#ifndef TIDEPOOL_MEMORY_PLANNING_TREE_SEARCH_H_
#define TIDEPOOL_MEMORY_PLANNING_TREE_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {

// Keeps what it refuted from one Run to the next. Not thread safe.
class TreeSearch {
 public:
  enum class Result {
    kFits,
    kDoesNotFit,  // proven (up to a collision of 64-bit hashes)
    kBudgetSpent,
    kStopped,
  };

  // True if the search can take the problem: its lists hold each buffer once for each of its
  // sections, and it recurses once for each buffer.
  static bool CanSearch(const SectionedProblem& problem);

  // `problem` must outlive the search. O(sum of sections over buffers) memory, plus at most
  // 32 MiB for refuted states.
  explicit TreeSearch(const SectionedProblem& problem);

  // Looks for offsets with a peak of at most `capacity` (in units), at most `node_budget` nodes,
  // 1 to 50 us each for hundreds of buffers and up to 2 ms for thousands. Buffers with smaller
  // rank[item] are tried first. `stop` is asked every 64 nodes or every few milliseconds.
  // Deterministic in the sequence of runs of this object.
  Result Run(int64_t capacity, absl::Span<const int32_t> rank, int64_t node_budget,
             absl::FunctionRef<bool()> stop);

  // By item, in units; after kFits only.
  const MappedVector<int64_t>& offsets() const { return offset_; }
  // Of the last Run.
  int64_t nodes() const { return nodes_; }

 private:
  struct Change {
    int64_t* place;
    int64_t before;
  };
  // Where to come back to.
  struct Mark {
    size_t changes;
    size_t removed;
  };
  // The section to branch on, and the valley it is in.
  struct Branching {
    int32_t section;
    int32_t valley_first;
    int32_t valley_last;
  };

  // Each solves what is to be placed in sections [first, last), which is connected to nothing
  // outside; the second needs it to be connected in itself. Changes stay in place after kFits
  // only.
  Result SolveRange(int32_t first, int32_t last);
  Result SolveComponent(int32_t first, int32_t last);
  Result BranchOn(const Branching& branching, int32_t first, int32_t last);
  Result LeaveEmpty(const Branching& branching, size_t first_candidate, int32_t first,
                    int32_t last);

  bool MoveSpanningToCeiling(int32_t first, int32_t last);
  Branching ChooseBranching(int32_t first, int32_t last) const;
  bool HasTwinBefore(size_t first_candidate, size_t candidate) const;
  bool HoldsRefuted(size_t first_candidate, int64_t level) const;

  // False if the bound of a section is broken then.
  bool Place(int32_t item);
  bool RaiseFloor(int32_t section, int64_t level);
  void RaiseLowest(int32_t item, int64_t level);
  bool Propagate();
  bool PropagateSection(int32_t section);

  void Set(int64_t& place, int64_t value);
  void Remove(int32_t item);
  Mark CurrentMark() const { return {changes_.size(), removed_.size()}; }
  void Undo(Mark mark);

  uint64_t StateHash(int32_t first, int32_t last) const;
  bool IsRefuted(uint64_t hash) const;
  void RecordRefuted(uint64_t hash);

  const SectionedProblem& problem_;
  const MappedVector<SectionItem>& items_;
  const int32_t num_sections_;
  std::vector<int32_t> starts_first_;  // by section: where in starts_ the items begin that ...
  std::vector<int32_t> starts_;        // ... have it as their first
  std::vector<uint64_t> item_key_;     // random, for hashing
  std::vector<int32_t> list_first_;    // by section: where in list_ its items begin ...
  std::vector<int32_t> list_;          // ... those to be placed first, roughly by lowest offset

  // By section.
  std::vector<int32_t> list_count_;  // items to be placed
  std::vector<int64_t> floor_;
  std::vector<int64_t> ceiling_;
  MappedVector<int64_t> remaining_;  // sum of the sizes to be placed
  std::vector<int32_t> crossing_;    // items to be placed that are alive here and in the one before
  std::vector<uint64_t> set_key_;    // the items to be placed that start here, hashed
  std::vector<char> is_dirty_;
  // By item.
  std::vector<int32_t> rank_;
  std::vector<int64_t> lowest_;  // no lower offset is possible
  std::vector<char> is_placed_;
  MappedVector<int64_t> offset_;

  std::vector<int32_t> dirty_;       // sections to propagate
  std::vector<Change> changes_;      // undone from the back
  std::vector<int32_t> removed_;     // items, likewise
  std::vector<int32_t> candidates_;  // of all nodes on the path
  std::vector<uint64_t> refuted_;    // a hash at the index of its top bits, 0 if none
  int refuted_bits_;
  int64_t num_refuted_ = 0;
  int64_t nodes_ = 0;
  int64_t work_ = 0;  // since `stop` was asked: buffers looked at by Propagate
  int64_t node_budget_ = 0;
  int depth_ = 0;
  const absl::FunctionRef<bool()>* stop_ = nullptr;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_TREE_SEARCH_H_
