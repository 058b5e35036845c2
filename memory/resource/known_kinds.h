// Hashes of the last kinds of uses of a pool, so that those that come again are told from those
// that never do.
//
// Threads: one at a time. Cost: a look at each of up to 256. Errors: none; without the memory for
// one more, as many are known as there was memory for.
#ifndef TIDEPOOL_MEMORY_RESOURCE_KNOWN_KINDS_H_
#define TIDEPOOL_MEMORY_RESOURCE_KNOWN_KINDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace tidepool {

class KnownKinds {
 public:
  static constexpr size_t kMost = 256;

  // Whether it came before, and is known; from here on it is, in the place of the oldest one.
  bool Note(uint64_t kind) noexcept {
    if (std::find(kinds_.begin(), kinds_.end(), kind) != kinds_.end()) return true;
    if (kinds_.size() < kMost) {
      try {
        kinds_.push_back(kind);
        return false;
      } catch (const std::bad_alloc&) {
        if (kinds_.empty()) return false;
      }
    }
    kinds_[next_ % kinds_.size()] = kind;
    next_ = (next_ + 1) % kinds_.size();
    return false;
  }

 private:
  std::vector<uint64_t> kinds_;
  size_t next_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_KNOWN_KINDS_H_
