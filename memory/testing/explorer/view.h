// What a thread, a message or the order of sequentially consistent operations has seen.
//
// A view is a vector of numbers that only grow: first a clock per thread (which of its plain
// accesses happened before), then per atomic variable the time of the newest store in its
// modification order that must not be gone behind any more. Joining takes the larger of each.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_VIEW_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_VIEW_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tidepool/memory/testing/explorer/arena.h"

namespace tidepool::explorer::internal {

// The body of a test, which sets up and checks, and the threads it adds.
inline constexpr int kBody = 0;
inline constexpr int kMaxSlots = 8;

using Time = uint32_t;

// A view that does not change any more, in the arena of the execution.
struct Snapshot {
  uint32_t size;
  Time times[1];  // `size` of them
};

class View {
 public:
  Time at(uint32_t index) const { return index < size_ ? times_[index] : 0; }

  void Raise(uint32_t index, Time time) {
    if (index >= size_) Grow(index + 1);
    if (times_[index] < time) times_[index] = time;
  }

  void Clear() { size_ = 0; }

  void Copy(const View& other) {
    size_ = 0;
    Join(other);
  }

  void Join(const View& other) { Join(other.times_.data(), 0, other.size_); }
  void Join(const Snapshot* other) {
    if (other != nullptr) Join(other->times, 0, other->size);
  }
  // All but the clocks.
  void JoinStores(const View& other) { Join(other.times_.data(), kMaxSlots, other.size_); }

  const Snapshot* Freeze(Arena& arena) const {
    auto* snapshot = static_cast<Snapshot*>(
        arena.Allocate(sizeof(Snapshot) + size_ * sizeof(Time), alignof(Snapshot)));
    snapshot->size = size_;
    for (uint32_t i = 0; i < size_; ++i) snapshot->times[i] = times_[i];
    return snapshot;
  }

 private:
  void Join(const Time* times, uint32_t begin, uint32_t end) {
    if (end > size_) Grow(end);
    Time* mine = times_.data();
    for (uint32_t i = begin; i < end; ++i) mine[i] = std::max(mine[i], times[i]);
  }

  void Grow(uint32_t size) {
    if (size > times_.size()) times_.resize(std::max<size_t>(size, 2 * times_.size() + 16));
    std::fill(times_.begin() + size_, times_.begin() + size, 0);
    size_ = size;
  }

  std::vector<Time> times_;
  uint32_t size_ = 0;
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_VIEW_H_
