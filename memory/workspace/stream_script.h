// How cycles of a stream are written in tests and benchmarks: requests and releases, sizes and lives drawn at random.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_STREAM_SCRIPT_H_
#define TIDEPOOL_MEMORY_WORKSPACE_STREAM_SCRIPT_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tidepool/memory/workspace/streams.h"

namespace tidepool {

// One cycle.
class StreamScript {
 public:
  uint32_t Get(size_t bytes) {
    steps_.push_back({next_, std::max<size_t>(bytes, 1)});
    alive_.push_back(next_);
    return next_++;
  }
  void Put(uint32_t number) {
    PutAt(static_cast<size_t>(std::find(alive_.begin(), alive_.end(), number) - alive_.begin()));
  }
  // Of those that are alive, in the order of their requests.
  void PutAt(size_t which) {
    steps_.push_back({alive_[which], 0});
    alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void PutOneOf(size_t draw) { PutAt(draw % alive_.size()); }
  void PutFirst() { PutAt(0); }
  void PutLast() { PutAt(alive_.size() - 1); }
  size_t alive() const { return alive_.size(); }
  std::vector<Step> Finish() {
    while (!alive_.empty()) PutLast();
    return std::move(steps_);
  }

 private:
  std::vector<Step> steps_;
  std::vector<uint32_t> alive_;
  uint32_t next_ = 0;
};

// From 0 to 1.
inline double Part(std::mt19937_64& random) {
  return static_cast<double>(random() % 100000) / 100000.0;
}

// As many of each power of two.
inline size_t DrawSize(std::mt19937_64& random, size_t least, size_t most) {
  const double low = std::log2(static_cast<double>(least));
  const double power = (std::log2(static_cast<double>(most)) - low) * Part(random);
  return static_cast<size_t>(std::exp2(low + power));
}

// At most `most` alive, and each may go at any time.
inline void ReleaseSome(StreamScript& script, std::mt19937_64& lives, size_t most) {
  while (script.alive() > most || (script.alive() > 0 && lives() % 3 == 0))
    script.PutOneOf(lives());
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_STREAM_SCRIPT_H_
