// Beginnings that more kinds of cycles have in common than are planned together (plan_family.h).
//
// Places of what such kinds begin with are chosen for some of them and are in the way of the others, so each that comes
// leaves its plan, looks for another among thousands, misses, and is planned again in vain. Where that goes on, in more
// than a sixteenth of all cycles, all that begin so are given up: their requests come from free ranges at the cost of any
// allocator. They are planned again when few of them come any more: when two of three cycles that begin so are of kinds
// that had come among the last 512 of these, for some time, which is twice as long each time that this was wrong, up to a
// thousand cycles.
//
// Threads: one at a time. Cost: a look into a table of 16 KiB for a cycle that begins so; a compare for any other.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CROWDS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CROWDS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace tidepool {

class Crowds {
 public:
  struct Crowd {
    size_t first_bytes = 0;    // of the first request; 0: none
    uint64_t missed_at = 0;    // the last time, counted in cycles that had ended
    uint64_t score = 0;        // kMiss for each that missed, less one for each cycle since
    bool given_up = false;     // now
    uint32_t times = 0;        // that it was
    uint64_t given_up_at = 0;  // the last time
    uint64_t known = 0;  // how much more often a kind that had come of late came than two others
  };

  // A cycle that has a plan and begins as more others do than are planned together missed in much of it. True where that
  // was once too often: all that begin so are given up from here on.
  bool Missed(size_t first_bytes, uint64_t cycles) noexcept {
    Crowd& crowd = Of(first_bytes);
    crowd.score -= std::min(crowd.score, cycles - crowd.missed_at);
    crowd.score += kMiss;
    crowd.missed_at = last_missed_ = cycles;
    last_ = first_bytes;
    if (crowd.score < kMost) return false;
    crowd.score = crowd.known = 0;
    crowd.given_up = true;
    crowd.given_up_at = cycles;
    ++crowd.times;
    ++given_up_;
    return true;
  }

  // Whether cycles that begin so are left without a plan, of which one has come with these requests.
  bool Leaves(size_t first_bytes, uint64_t signature) noexcept {
    if (given_up_ == 0) return false;
    Crowd* const crowd = Find(first_bytes);
    if (crowd == nullptr || !crowd->given_up) return false;
    const bool known = Note(signature);
    crowd->known = known ? crowd->known + 1 : crowd->known - std::min<uint64_t>(crowd->known, 2);
    if (crowd->known < kFewCome << std::min(crowd->times, kMostDoublings)) return true;
    crowd->given_up = false;
    --given_up_;
    return false;
  }

  // What those begin with that missed last, and when; of 0 bytes: none did.
  size_t last() const { return last_; }
  uint64_t last_missed() const { return last_missed_; }
  // Those that are left without a plan.
  template <typename Visit>
  void ForEachGivenUp(const Visit& visit) const {
    for (const Crowd& crowd : crowds_) {
      if (crowd.given_up) visit(crowd);
    }
  }
  void Clear() noexcept { *this = {}; }
  size_t state_bytes() const { return kinds_ != nullptr ? kKinds * sizeof(Kind) : 0; }

 private:
  static constexpr uint64_t kMiss = 16;
  static constexpr uint64_t kMost = 256 * kMiss;
  static constexpr uint64_t kFewCome = 64;
  static constexpr uint32_t kMostDoublings = 4;
  static constexpr size_t kKinds = 1024;
  static constexpr uint64_t kOfLate = 512;

  struct Kind {
    uint64_t signature = 0;
    uint64_t came = 0;
  };

  // Whether it had come among the last ones. Of two that share a place the later one is known.
  bool Note(uint64_t signature) noexcept {
    ++came_;
    if (kinds_ == nullptr) kinds_.reset(new (std::nothrow) Kind[kKinds]);
    if (kinds_ == nullptr) return false;
    Kind& kind = kinds_[signature % kKinds];
    const bool known = kind.signature == signature && kind.came > 0 && came_ - kind.came <= kOfLate;
    kind = {signature, came_};
    return known;
  }
  Crowd* Find(size_t first_bytes) noexcept {
    const auto at = std::find_if(crowds_.begin(), crowds_.end(), [first_bytes](const Crowd& crowd) {
      return crowd.first_bytes == first_bytes;
    });
    return at != crowds_.end() ? &*at : nullptr;
  }
  // Where there are too many, the one that missed least lately is planned again.
  Crowd& Of(size_t first_bytes) noexcept {
    if (Crowd* const known = Find(first_bytes)) return *known;
    Crowd& goes =
        *std::min_element(crowds_.begin(), crowds_.end(),
                          [](const Crowd& a, const Crowd& b) { return a.missed_at < b.missed_at; });
    given_up_ -= goes.given_up;
    goes = {first_bytes};
    return goes;
  }

  std::array<Crowd, 16> crowds_{};
  int given_up_ = 0;  // of them
  uint64_t came_ = 0;
  std::unique_ptr<Kind[]> kinds_;
  size_t last_ = 0;
  uint64_t last_missed_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CROWDS_H_
