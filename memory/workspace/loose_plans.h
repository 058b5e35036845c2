// Kinds of cycles that had a plan far larger than what is alive in any of them.
//
// A plan has the longest lifetimes that its cycles ever had. Where lifetimes are other ones each
// time, it is made as if what never lives together did, and holds several times what any allocator
// would. Such a plan is given up: the cycle's requests come from free ranges, which need little
// more than what is alive. What is remembered of it is here: after some repetitions the lifetimes
// of a few are looked at again, and when they are regular by then there is a plan again. Each time
// that this was wrong it is waited twice as long. Plans that begin alike are made for one another, and
// are given up together where that is what makes them so large; there is one again when none of the
// others has come for some time.
//
// Threads: one at a time. Cost: a look into a hash table.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_LOOSE_PLANS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_LOOSE_PLANS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "tidepool/memory/workspace/cycle_plan.h"
#include "tidepool/memory/workspace/plan_set.h"

namespace tidepool {

class LoosePlans {
 public:
  // Looks that find irregular lifetimes are at most so many repetitions apart.
  static constexpr int kMostRepetitions = 256;
  // Those after which a plan was wrong, so many.
  static constexpr int kMostRepetitionsOfWrong = 1 << 16;
  // Kinds that are remembered; beyond that the one that has not come for longest is forgotten, and
  // planned anew.
  static constexpr size_t kMostKinds = 512;

  // A plan beyond it is given up; less is worth the time that plans save.
  static constexpr size_t MostPlanned(size_t alive) {
    return alive + alive / 4 + (size_t{1} << 18);
  }
  // There is a plan again for lifetimes that need no more.
  static constexpr size_t WorthPlanning(size_t alive) {
    return alive + alive / 8 + (size_t{1} << 17);
  }

  // Why a plan was given up, for who asks.
  struct Reason {
    uint64_t signature = 0;
    size_t requests = 0;
    size_t first_bytes = 0;   // of the first request
    size_t needed_bytes = 0;  // by a plan of all lifetimes seen
    size_t alive_bytes = 0;   // at once, at most
    uint64_t cycle = 0;       // counted as came_at
    bool alike =
        false;  // together with all that begin alike, none of which had been too large alone
  };
  struct Kind {
    RepetitionWatch watch;  // since its plan was given up, or the last look
    uint32_t given_up = 0;  // how often
    uint64_t came_at = 0;   // counted in cycles that had ended
    Reason last;            // why, the last time
  };

  // Null: that kind's plan was never given up, as far as is remembered.
  Kind* Find(uint64_t signature, size_t requests) noexcept {
    if (kinds_.empty()) return nullptr;
    const auto at = kinds_.find(ExtendSignature(signature, requests));
    return at != kinds_.end() ? &at->second : nullptr;
  }
  // Its plan is given up. Throws std::bad_alloc, nothing changed.
  void Add(const Reason& why) {
    Kind& kind = kinds_[ExtendSignature(why.signature, why.requests)];
    kind.last = why;
    kind.came_at = why.cycle;
    kind.watch.Restart();
    kind.watch.refresh_after =
        std::min(RepetitionWatch::kFirst << std::min(kind.given_up, 16u), kMostRepetitionsOfWrong);
    ++kind.given_up;
    if (kinds_.size() <= kMostKinds) return;
    kinds_.erase(std::min_element(kinds_.begin(), kinds_.end(), [](const auto& a, const auto& b) {
      return a.second.came_at < b.second.came_at;
    }));
  }
  // The last that came of those that begin so and were given up with others that do, but the one of this signature;
  // null: none, as far as is remembered.
  const Kind* LatestAlike(size_t first_bytes, uint64_t but) const noexcept {
    const Kind* latest = nullptr;
    for (const auto& [key, kind] : kinds_) {
      if (!kind.last.alike || kind.last.first_bytes != first_bytes || kind.last.signature == but)
        continue;
      if (latest == nullptr || kind.came_at > latest->came_at) latest = &kind;
    }
    return latest;
  }
  void Clear() noexcept { kinds_.clear(); }
  // Those that are remembered, in no order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [key, kind] : kinds_) visit(kind);
  }

  size_t state_bytes() const {
    size_t bytes = kinds_.size() * (sizeof(Kind) + 4 * sizeof(void*));
    for (const auto& [key, kind] : kinds_)
      bytes += kind.watch.seen.capacity() * sizeof(LifetimeBuffer);
    return bytes;
  }

 private:
  std::unordered_map<uint64_t, Kind> kinds_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_LOOSE_PLANS_H_
