// The places in the explored code that operations are written at, and what is mutated there.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_SITES_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_SITES_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>
#include "absl/strings/string_view.h"

#include "tidepool/memory/testing/explorer/where.h"

namespace tidepool::explorer {

enum class SiteKind : uint8_t { kLoad, kStore, kUpdate, kFailure, kFence, kNotify, kLock };

absl::string_view ToText(std::memory_order order);

namespace internal {

// One operation with one memory order at one place.
struct Site {
  SiteKind kind;
  const char* operation;  // "store", "compare_exchange_weak", ...
  std::memory_order order;
  Where where;
};

struct Mutation {
  int site = -1;
  bool drop = false;
  std::memory_order order = std::memory_order_relaxed;  // unless dropped
};

// Numbers sites in the order that they are first come across.
class Sites {
 public:
  int Find(SiteKind kind, const char* operation, std::memory_order order, const Where& where);

  void set_mutation(Mutation mutation) { mutation_ = mutation; }
  const std::vector<Site>& sites() const { return sites_; }

  std::memory_order OrderAt(SiteKind kind, const char* operation, std::memory_order order,
                            const Where& where) {
    const int site = Find(kind, operation, order, where);
    return site == mutation_.site && !mutation_.drop ? mutation_.order : order;
  }
  bool DropsAt(SiteKind kind, const char* operation, std::memory_order order, const Where& where) {
    return Find(kind, operation, order, where) == mutation_.site && mutation_.drop;
  }

  // The ways to weaken a site by one step; for fences and notifications also leaving them out. Of a lock of
  // a SharedMutex, "left out" is that it is shared.
  static std::vector<Mutation> MutationsOf(const Site& site, int number);

 private:
  std::vector<Site> sites_;
  std::array<int, 256> found_ = {};  // by a hash of the place: the last that was looked for
  Mutation mutation_;
};

}  // namespace internal
}  // namespace tidepool::explorer

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_SITES_H_
