// BlockOracle: what a test knows of the blocks that are out: none overlaps another, each is
// aligned, and its bytes are what was written to them.
#ifndef TIDEPOOL_MEMORY_PMR_BLOCK_ORACLE_H_
#define TIDEPOOL_MEMORY_PMR_BLOCK_ORACLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {

struct OutBlock {
  std::byte* data;
  size_t bytes;
  size_t alignment;
  uint32_t seed;

  std::byte At(size_t i) const {
    return static_cast<std::byte>(seed * 2654435761u + i * 131 + (i >> 8));
  }
  // The ends, and some of what is between.
  template <typename Function>
  void ForSome(const Function& function) const {
    const size_t step = bytes > 256 ? bytes / 64 : 1;
    for (size_t i = 0; i < bytes; i += step) function(i);
    if (bytes > 0) function(bytes - 1);
  }
  bool IsIntact() const {
    bool intact = true;
    ForSome([&](size_t i) { intact &= data[i] == At(i); });
    return intact;
  }
};

class BlockOracle {
 public:
  // `data` was allocated so.
  void Add(void* data, size_t bytes, size_t alignment) {
    auto* const at = static_cast<std::byte*>(data);
    ASSERT_NE(at, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(at) % alignment, 0u) << bytes << " bytes";
    const auto begin = reinterpret_cast<uintptr_t>(at);
    const uintptr_t end = begin + (bytes > 0 ? bytes : 1);
    auto after = ends_.lower_bound(begin);
    ASSERT_TRUE(after == ends_.end() || after->first >= end) << "overlaps the block behind it";
    if (after != ends_.begin()) {
      ASSERT_LE(std::prev(after)->second, begin) << "overlaps the block before it";
    }
    ends_[begin] = end;
    const OutBlock block{at, bytes, alignment, next_seed_++};
    block.ForSome([&](size_t i) { block.data[i] = block.At(i); });
    out_.push_back(block);
    live_bytes_ += bytes;
  }
  // Takes the block out of the books; the caller releases it.
  OutBlock Remove(size_t index) {
    const OutBlock block = out_[index];
    EXPECT_TRUE(block.IsIntact()) << block.bytes << " bytes, alignment " << block.alignment;
    out_[index] = out_.back();
    out_.pop_back();
    ends_.erase(reinterpret_cast<uintptr_t>(block.data));
    live_bytes_ -= block.bytes;
    return block;
  }
  size_t size() const { return out_.size(); }
  size_t live_bytes() const { return live_bytes_; }
  bool AreIntact() const {
    for (const OutBlock& block : out_) {
      if (!block.IsIntact()) return false;
    }
    return true;
  }

 private:
  std::vector<OutBlock> out_;
  std::map<uintptr_t, uintptr_t> ends_;  // by beginning
  uint32_t next_seed_ = 1;
  size_t live_bytes_ = 0;
};

// Sizes and alignments of all kinds: most of them small, of which many are of few sizes.
struct RequestMaker {
  std::mt19937 random;

  size_t Bytes() {
    switch (random() % 16) {
      case 0:
        return 0;
      case 1:
        return 4000 + random() % 200;  // around the largest small block
      case 2:
        return random() % 100000;
      case 3:
        return random() % 5 == 0 ? random() % 2000000 : 40;
      case 4:
      case 5:
      case 6:
        return random() % 4200;
      case 7:
      case 8:
      case 9:
        return 24 + random() % 3 * 16;
      default:
        return random() % 200;
    }
  }
  size_t Alignment() { return random() % 4 > 0 ? 8 : size_t{1} << random() % 14; }
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PMR_BLOCK_ORACLE_H_
