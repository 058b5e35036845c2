// The free ranges of a workspace's pages, for requests that no plan places.
//
// An online allocator: each request gets a free range that is about the smallest that is large enough, neighbours
// are merged when they are free, and what was never used comes last. Small ranges that come back are
// kept by their exact size first. They are merged when the used part would grow beyond what it once was, for a large
// request or while a 32nd of it is kept, so that a stream that repeats itself costs a few instructions and one that does not stays
// near what is alive. (Wilson et al. 1995: best fit with deferred merging; the lists of free ranges are those of
// Masmano et al. 2004: eight for each power of two.) No bound holds for hostile streams
// (Robson 1974: log2 of the largest by the smallest size, times what is alive).
//
// All bookkeeping is outside of the memory, which may be any device's: 24 bytes for each range. Offsets and sizes
// are multiples of one unit. Threads: one at a time. Cost: of a small size that was released, some
// nanoseconds; else a look at up to 32 ranges, and at all that an eighth above its size has where nothing larger is
// free. Begin() and End() do not depend on what was taken.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_FREE_RANGES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_FREE_RANGES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "tidepool/memory/mapped_vector.h"

namespace tidepool {

class FreeRanges {
 public:
  // The number of one that is taken, until it is given.
  enum class Range : uint32_t { kNone = UINT32_MAX };
  // Of so much what is kept is kept beyond the end.
  static constexpr size_t kLittle = size_t{256} << 10;

  // `unit`: a power of two.
  explicit FreeRanges(size_t unit) : unit_bits_(std::countr_zero(unit)) {}

  // [begin, end) is free; ranges that were taken before are no more. Multiples of the unit.
  void Begin(size_t begin, size_t end) noexcept;
  // The same, for who has given all that was taken since the last time, or called Lose(): of the same range, of which little
  // was used, it goes on with what is kept, as cycles of small requests ask for the same sizes though they are ever
  // different. More of them is kept then.
  void BeginAgain(size_t begin, size_t end) noexcept {
    if (!begun_ && goes_on_ && begin == begin_ && end == end_ && top_ - begin <= kLittle &&
        ++begun_again_ < kMostAgain) {
      begun_ = true;
      reached_ = top_;
      return;
    }
    Begin(begin, end);
    goes_on_ = true;
    least_kept_ = kLeastKept;
  }
  // Gives the records back; nothing is begun.
  void Trim() noexcept;
  // Nothing is free or taken.
  void End() noexcept { begun_ = false; }
  // Something that is taken will not be given before BeginAgain().
  void Lose() noexcept { goes_on_ = false; }
  bool begun() const { return begun_; }
  // What is below the begin is given too from here on, but for `taken`: ranges that lie there, apart and in
  // ascending order, which get their records. What was reserved is there still. Throws std::bad_alloc, nothing changed.
  struct Taken {
    size_t offset;
    size_t bytes;
    Range range = Range::kNone;
  };
  void GiveBelow(absl::Span<Taken> taken);
  // Nothing below `begin` is given any more, and no range that is taken lies there.
  void RaiseBegin(size_t begin) noexcept;

  // Whether there is a record for one request.
  bool has_reserved() const { return recycled_ != kNobody || fresh_ < capacity_; }
  // A record for one request, so that Take() needs no memory. Throws std::bad_alloc, nothing changed.
  void Reserve() {
    if (!has_reserved()) AddRecords(1);
  }
  // For so many, likewise.
  void Reserve(size_t records) { AddRecords(records); }
  // Take() is served from what was released in that very size, in a few instructions.
  bool HasKept(size_t bytes) const {
    const size_t units = bytes >> unit_bits_;
    return units <= kKeptUnits && lists_->kept[units] != kNobody;
  }
  // As Take() where HasKept(), else kNone. Something was reserved since Trim(). Of 0 bytes there are none.
  Range TakeKept(size_t bytes, size_t* offset) noexcept {
    const size_t units = bytes >> unit_bits_;
    if (units > kKeptUnits || lists_->kept[units] == kNobody) return Range::kNone;
    const uint32_t taken = lists_->kept[units];
    const Record& record = records_[taken];
    lists_->kept[units] = record.next;
    kept_bytes_ -= bytes;
    *offset = record.offset;
    return Range{taken};
  }
  // kNone: no free range is large enough. `bytes`: a positive multiple of the unit; Reserve() came first.
  Range Take(size_t bytes, size_t* offset) noexcept {
    const Range kept = TakeKept(bytes, offset);
    return kept != Range::kNone ? kept : TakeSlowly(bytes, offset);
  }
  // `bytes`: as taken.
  void Give(Range range, size_t bytes) noexcept {
    const auto given = static_cast<uint32_t>(range);
    const size_t units = bytes >> unit_bits_;
    if (units > kKeptUnits || given == last_) return MakeFree(given);
    // In no list of free ranges, so that for its neighbours it is one that is taken.
    records_[given].next = lists_->kept[units];
    lists_->kept[units] = given;
    lists_->kept_sizes[units / 64] |= uint64_t{1} << (units % 64);
    kept_bytes_ += bytes;
  }

  // Takes these very ranges, which are free, below the end, apart and in ascending order. Two records
  // for each were reserved. O(ranges).
  void TakeAt(absl::Span<Taken> wanted) noexcept;

  // Ranges that are kept by their size are free as all others are.
  void Merge() noexcept { MergeKept(); }
  // More or less is given from here on; not below top().
  void SetEnd(size_t end) noexcept {
    end_ = end;
    reached_ = end < reached_ ? end : reached_;
  }

  // Of one that is taken.
  size_t offset(Range range) const { return records_[static_cast<uint32_t>(range)].offset; }
  size_t bytes(Range range) const { return BytesOf(static_cast<uint32_t>(range)); }

  size_t begin() const { return begin_; }
  size_t end() const { return end_; }
  // Of free ranges that are not merged.
  size_t kept_bytes() const { return kept_bytes_; }
  // Nothing is taken at or above; after Merge(), right below it something is.
  size_t top() const { return top_; }
  // The largest free range below the top; after Merge(), of all. O(those of about its size).
  size_t largest_free() const;
  // The highest address that was taken since Begin().
  size_t reached() const { return reached_; }
  size_t state_bytes() const {
    return capacity_ * sizeof(Record) + (lists_ != nullptr ? sizeof(Lists) : 0);
  }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  // Ranges of up to so many units are kept by their size.
  static constexpr size_t kKeptUnits = 128;
  // Of a size that has eight lists for each power of two, so many are looked at for the smallest.
  static constexpr int kMostLookedAt = 16;
  static constexpr int kLists = 8 * 56;  // sizes of fewer than 2^58 units
  // So many times running; then it begins at the begin again.
  static constexpr uint32_t kMostAgain = 64;
  // So much may be kept by its size, whatever the share: of sizes drawn up to 2,000 bytes nearly each finds one of its own, which
  // a first cache holds. With 32 KiB a third of these merged and searched, and took half as long again.
  static constexpr size_t kLeastKept = size_t{56} << 10;

  enum class State : uint64_t { kTaken, kFree };  // what is kept is kTaken
  // In use by the thousand at once. A range ends where the one above it begins.
  struct Record {
    uint64_t offset : 62;
    State state : 2;
    uint32_t below;  // kNobody: none
    uint32_t above;
    uint32_t
        next;  // of kept ones of one size, of those in a list of free ones, of records not in use
    uint32_t previous;  // of free ones
  };
  static_assert(sizeof(Record) == 24);
  // The first of each size. Not there before something was reserved, as in workspaces that only follow plans.
  struct Lists {
    Lists();
    uint32_t kept[kKeptUnits + 1];
    uint32_t free[kLists];
    // Bits of those that may have some, and of those that have.
    uint64_t kept_sizes[kKeptUnits / 64 + 1] = {};
    uint64_t free_sizes[kLists / 64] = {};
  };

  size_t BytesOf(uint32_t range) const {
    const Record& record = records_[range];
    return (record.above == kNobody ? top_ : records_[record.above].offset) - record.offset;
  }
  void Clear() noexcept;
  void AddRecords(size_t records);
  uint32_t NewRecord() noexcept;
  void Recycle(uint32_t range) noexcept;
  uint32_t Append(size_t offset, State state, uint32_t below) noexcept;
  int ListOf(size_t bytes) const;
  int NextList(int list) const;
  void PutFree(uint32_t range) noexcept;
  void TakeOut(uint32_t range) noexcept;
  void MakeFree(uint32_t range) noexcept;
  void MergeKept() noexcept;
  Range TakeSlowly(size_t bytes, size_t* offset) noexcept;
  uint32_t FindFree(size_t bytes) const noexcept;
  uint32_t TakeFree(size_t bytes) noexcept;
  uint32_t TakeUnused(size_t bytes) noexcept;
  uint32_t TakePart(uint32_t free, size_t offset, size_t bytes) noexcept;

  const int unit_bits_;
  bool begun_ = false;
  bool goes_on_ = false;  // all that was taken is given by the end
  uint32_t begun_again_ = 0;
  size_t least_kept_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t top_ = 0;  // nothing at or above is in a range
  size_t reached_ = 0;
  uint32_t last_ = kNobody;  // the one that ends at top_
  uint32_t free_ranges_ = 0;
  size_t kept_bytes_ = 0;
  std::unique_ptr<Lists> lists_;
  MappedArray<Record> records_;  // untouched until they are used
  uint32_t capacity_ = 0;
  uint32_t fresh_ = 0;  // from here on they were never used
  uint32_t recycled_ = kNobody;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_FREE_RANGES_H_
