// The free ranges of a workspace's pages, for requests that no plan places.
//
// An online allocator: each request gets the smallest free range that is large enough, neighbours are
// merged when they are free, and what was never used comes last. Small ranges that come back are
// kept by their exact size first and merged before the used part would grow beyond what it once was, so
// that a stream that repeats itself costs a few instructions and one that does not stays near what is
// alive. (Wilson et al. 1995: best fit with deferred merging.) No bound holds for hostile streams
// (Robson 1974: log2 of the largest by the smallest size, times what is alive).
//
// All bookkeeping is outside of the memory, which may be any device's. Offsets and sizes are
// multiples of one unit. Threads: one at a time. Cost: of a small size that was released, some
// nanoseconds; else the depth of a trie of sizes. Begin() and End() do not depend on what was taken.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_FREE_RANGES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_FREE_RANGES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"

#include "tidepool/memory/resource/fit_tree.h"

namespace tidepool {

class FreeRanges {
 public:
  class Range;

  // `unit`: a power of two.
  explicit FreeRanges(size_t unit) : unit_bits_(std::countr_zero(unit)) {}

  // [begin, end) is free; ranges that were taken before are no more. Multiples of the unit.
  void Begin(size_t begin, size_t end) noexcept;
  // Gives the records back; nothing is begun.
  void Trim() noexcept;
  // Nothing is free or taken.
  void End() noexcept { begun_ = false; }
  bool begun() const { return begun_; }
  // What is below the begin is given too from here on, but for `taken`: ranges that lie there, apart and in
  // ascending order, which get their records. What was reserved is there still. Throws std::bad_alloc, nothing changed.
  struct Taken {
    size_t offset;
    size_t bytes;
    Range* range = nullptr;
  };
  void GiveBelow(absl::Span<Taken> taken);
  // Nothing below `begin` is given any more, and no range that is taken lies there.
  void RaiseBegin(size_t begin) noexcept;

  // Whether there are records for one request.
  bool has_reserved() const { return ranges_.has_next(); }
  // Records for one request, so that Take() needs no memory. Throws std::bad_alloc.
  void Reserve() {
    if (!has_reserved()) AddRecords();
  }
  // Null: no free range is large enough. `bytes`: a positive multiple of the unit; Reserve() came first.
  Range* Take(size_t bytes, size_t* offset) noexcept;
  void Give(Range* range) noexcept;

  // Ranges that are kept by their size are free as all others are.
  void Merge() noexcept { MergeKept(); }
  // More or less is given from here on; not below top().
  void SetEnd(size_t end) noexcept {
    end_ = end;
    reached_ = end < reached_ ? end : reached_;
  }

  size_t begin() const { return begin_; }
  size_t end() const { return end_; }
  // Nothing is taken at or above; after Merge(), right below it something is.
  size_t top() const { return top_; }
  // The largest free range below the top; after Merge(), of all.
  size_t largest_free() const;
  // The highest address that was taken since Begin().
  size_t reached() const { return reached_; }
  size_t state_bytes() const;

 private:
  // Ranges of up to so many units are kept by their size.
  static constexpr size_t kKeptUnits = 128;
  enum class State : uint64_t { kTaken, kKept, kFree };
  struct Node;

  Range* Append(size_t offset, size_t bytes, State state, Range* below) noexcept;
  void AddRecords();
  void PutFree(Range* range) noexcept;
  void TakeOut(Range* range) noexcept;
  void MakeFree(Range* range) noexcept;
  void MergeKept() noexcept;
  Range* TakeFree(size_t bytes) noexcept;
  Range* Cut(size_t bytes) noexcept;
  Range* TakeUnused(size_t bytes) noexcept;

  const int unit_bits_;
  bool begun_ = false;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t top_ = 0;      // nothing at or above is in a range
  size_t reached_ = 0;
  Range* last_ = nullptr;  // the one that ends at top_
  FitTree free_;
  Range* cut_ = nullptr;  // a large free one that is not in the tree, so that it is cut at less cost
  size_t kept_ranges_ = 0;
  Range* kept_[kKeptUnits + 1] = {};
  uint64_t kept_sizes_[kKeptUnits / 64 + 1] = {};  // bits of those that may have some

  // Those of T that are in use, or were: in slabs, each twice as large as the one before.
  template <typename T>
  class Records {
   public:
    bool has_next() const { return recycled_ != nullptr || fresh_ != end_ || next_slab_ < slabs_.size(); }
    T* Next() noexcept;
    void Recycle(T* record) noexcept {
      record->next_ = recycled_;
      recycled_ = record;
    }
    // Throws std::bad_alloc, nothing changed.
    void AddSlab();
    // None is in use any more.
    void Restart() noexcept;
    void Trim() noexcept;
    size_t state_bytes() const;

   private:
    struct Slab {
      std::unique_ptr<T[]> records;
      size_t size;
    };
    std::vector<Slab> slabs_;
    size_t next_slab_ = 0;
    T* fresh_ = nullptr;
    T* end_ = nullptr;
    T* recycled_ = nullptr;
  };
  // Of a free range in the tree. There are as many as there are ranges.
  struct Node : FitNode {
    union {
      Range* range;
      Node* next_;
    };
  };
  Records<Range> ranges_;
  Records<Node> nodes_;
};

// In use by the thousand at once: what every request touches is here, the rest is in its node.
class FreeRanges::Range {
 public:
  size_t offset() const { return offset_; }
  size_t bytes() const { return bytes_; }

 private:
  friend class FreeRanges;
  uint64_t offset_ : 62;
  State state_ : 2;
  size_t bytes_;
  Range* below_;
  Range* above_;
  union {
    Range* next_;  // of kept ones of one size, and of records that are not in use
    Node* node_;   // of a free one in the tree
  };
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_FREE_RANGES_H_
