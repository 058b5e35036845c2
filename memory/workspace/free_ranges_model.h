// For tests of free ranges: what was taken of them.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_FREE_RANGES_MODEL_H_
#define TIDEPOOL_MEMORY_WORKSPACE_FREE_RANGES_MODEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tidepool/memory/workspace/free_ranges.h"

namespace tidepool {

// While it is false the tests' operator new ends the program.
extern thread_local bool may_allocate;

inline constexpr size_t kUnit = 64;

// What is taken, by offset, held against the ranges that were given.
class Model {
 public:
  explicit Model(FreeRanges& ranges) : ranges_(ranges) {}

  bool Take(size_t bytes) {
    ranges_.Reserve();
    size_t offset = 0;
    may_allocate = false;
    const FreeRanges::Range range = ranges_.Take(bytes, &offset);
    may_allocate = true;
    if (range == FreeRanges::Range::kNone) return false;
    EXPECT_EQ(ranges_.offset(range), offset);
    EXPECT_EQ(ranges_.bytes(range), bytes);
    EXPECT_EQ(offset % kUnit, 0u);
    EXPECT_LE(offset + bytes, ranges_.end());
    EXPECT_LE(offset + bytes, ranges_.reached());
    const auto above = taken_.lower_bound(offset);
    EXPECT_TRUE(above == taken_.end() || above->first >= offset + bytes);
    EXPECT_TRUE(above == taken_.begin() ||
                std::prev(above)->first + ranges_.bytes(std::prev(above)->second) <= offset);
    taken_[offset] = range;
    live_ += bytes;
    most_live_ = std::max(most_live_, live_);
    return true;
  }
  // One that was taken otherwise.
  void Add(const FreeRanges::Taken& one) {
    EXPECT_EQ(ranges_.offset(one.range), one.offset);
    EXPECT_EQ(ranges_.bytes(one.range), one.bytes);
    taken_[one.offset] = one.range;
    live_ += one.bytes;
  }
  const std::map<size_t, FreeRanges::Range>& taken() const { return taken_; }
  void Give(size_t number) {
    const auto at = std::next(taken_.begin(), static_cast<std::ptrdiff_t>(number));
    const size_t bytes = ranges_.bytes(at->second);
    live_ -= bytes;
    may_allocate = false;
    ranges_.Give(at->second, bytes);
    may_allocate = true;
    taken_.erase(at);
  }
  // Ranges of others below the begin.
  void GiveBelow(std::vector<FreeRanges::Taken> pieces) {
    ranges_.GiveBelow(absl::MakeSpan(pieces));
    for (const FreeRanges::Taken& piece : pieces) {
      EXPECT_EQ(ranges_.offset(piece.range), piece.offset);
      EXPECT_EQ(ranges_.bytes(piece.range), piece.bytes);
      taken_[piece.offset] = piece.range;
      live_ += piece.bytes;
    }
    most_live_ = std::max(most_live_, live_);
  }
  void GiveAll() {
    while (!taken_.empty()) Give(taken_.size() / 2);
  }
  size_t size() const { return taken_.size(); }
  size_t lowest() const { return taken_.empty() ? SIZE_MAX : taken_.begin()->first; }
  size_t live() const { return live_; }
  size_t most_live() const { return most_live_; }

 private:
  FreeRanges& ranges_;
  std::map<size_t, FreeRanges::Range> taken_;
  size_t live_ = 0;
  size_t most_live_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_FREE_RANGES_MODEL_H_
