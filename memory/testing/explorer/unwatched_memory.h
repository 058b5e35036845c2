// Memory that an execution made and that no variable of Sync's watches: the members beside those. What a
// loop counts there is part of its state.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_UNWATCHED_MEMORY_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_UNWATCHED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/memory/testing/explorer/lifetimes.h"

namespace tidepool::explorer::internal {

class UnwatchedMemory {
 public:
  void Clear() {
    made_.clear();
    known_ = SIZE_MAX;
  }
  // `at` stays as long as the execution.
  void Add(const void* at, size_t bytes) {
    const char* begin = static_cast<const char*>(at);
    made_.push_back({begin, begin + bytes});
    known_ = SIZE_MAX;
  }
  // Of the bytes as they are now, but for those of the variables that are alive. Cost: about a
  // nanosecond for eight of them, and a sort after variables or memory were made.
  uint64_t Hash(const Lifetimes& lifetimes);

 private:
  struct Range {
    const char* begin;
    const char* end;
  };
  void Find(const Lifetimes& lifetimes);

  std::vector<Range> made_, watched_, unwatched_;
  size_t known_ = SIZE_MAX;  // Lifetimes::changes() when `unwatched_` was found
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_UNWATCHED_MEMORY_H_
