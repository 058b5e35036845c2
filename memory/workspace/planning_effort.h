// Whether planning pays for the cycles that come.
//
// A plan costs microseconds for each request and gains nanoseconds for each that follows it, so it pays
// for cycles that come again. At first each cycle that no plan serves is planned at once. When several
// plans were made that no cycle has followed (fewer where they have many requests), planning waits: a cycle is
// planned when it comes again only, which a hash of its requests tells. So streams that never repeat cost no planning,
// and one that repeats is planned some repetitions later. Plans that are followed win the trust back. When many cycles
// running were not worth a plan (two, where plans are large), those that were made at first sight and never followed
// have no use either: they are given up, and made again at the next sight of their cycles.
//
// Threads: one at a time. Cost: a few instructions.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLANNING_EFFORT_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLANNING_EFFORT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace tidepool {

class PlanningEffort {
 public:
  // A cycle that no plan serves has these requests. Whether to plan it now.
  bool PaysFor(uint64_t signature) noexcept {
    if (!waits()) return true;
    if (seen_ == nullptr) {
      seen_.reset(new (std::nothrow) uint64_t[kSeen]());
      if (seen_ == nullptr) return true;
    }
    const bool seen = WasSeen(signature);
    Note(signature);
    if (seen) return true;
    ++put_off_;
    CountUnpaid();
    return false;
  }
  // Plans made at first sight are given up now. True once, until a plan is followed again.
  bool GivesUp() const noexcept { return unpaid_cycles_ == kMostUnpaidCycles; }
  // The cycle with these requests was seen, though it was not put off.
  void Saw(uint64_t signature) noexcept {
    if (seen_ != nullptr && !WasSeen(signature)) Note(signature);
  }
  // The same, where it is known whether it comes again.
  bool Pays(bool comes_again) noexcept {
    const bool pays = comes_again || !waits();
    put_off_ += !pays;
    return pays;
  }
  // There was no room for its plan.
  void PutOff() noexcept { ++put_off_; }
  // A plan was made for so many requests, which had none.
  void Spent(size_t requests) noexcept {
    if (waits()) return;
    ++unpaid_;
    unpaid_requests_ += requests;
  }
  // A plan was followed to its end for the first time.
  void Paid() noexcept {
    const uint32_t paid = unpaid_ < 2 ? unpaid_ : 2;
    if (paid > 0) unpaid_requests_ -= unpaid_requests_ / unpaid_ * paid;
    unpaid_ -= paid;
    unpaid_cycles_ = 0;
  }
  void Forget() noexcept {
    unpaid_ = unpaid_cycles_ = 0;
    unpaid_requests_ = 0;
  }

  // Plans are made of what comes again only.
  bool waits() const {
    return unpaid_ >= kMostUnpaid || are_large() || (unpaid_ > 1 && unpaid_requests_ >= 2 * kLarge);
  }
  uint64_t put_off() const { return put_off_; }  // cycles that were not planned, ever
  size_t state_bytes() const { return seen_ == nullptr ? 0 : kSeen * sizeof(uint64_t); }

 private:
  // On average, those that nobody has followed.
  bool are_large() const { return unpaid_ > 0 && unpaid_requests_ / unpaid_ >= kLarge; }
  // A plan of many requests holds a megabyte meanwhile.
  void CountUnpaid() noexcept {
    const uint32_t counts = are_large() ? kMostUnpaidCycles / 2 : 1;
    unpaid_cycles_ = unpaid_cycles_ >= kMostUnpaidCycles
                         ? kMostUnpaidCycles + 1
                         : std::min(kMostUnpaidCycles, unpaid_cycles_ + counts);
  }
  // Some that share a place in the table do not push each other out.
  static constexpr size_t kWays = 8;

  uint64_t* PlacesOf(uint64_t signature) const {
    return &seen_[kWays * (signature % (kSeen / kWays))];
  }
  bool WasSeen(uint64_t signature) const {
    const uint64_t* const places = PlacesOf(signature);
    return std::find(places, places + kWays, signature) != places + kWays;
  }
  // The one that has not come for longest goes.
  void Note(uint64_t signature) {
    uint64_t* const places = PlacesOf(signature);
    uint64_t* const goes = std::find(places, places + kWays - 1, signature);
    std::copy_backward(places, goes, goes + 1);
    places[0] = signature;
  }

  static constexpr uint32_t kMostUnpaid = 8;
  static constexpr size_t kLarge = 1 << 13;  // requests
  static constexpr uint32_t kMostUnpaidCycles = 64;
  static constexpr size_t kSeen = 8192;

  uint32_t unpaid_ = 0;
  size_t unpaid_requests_ = 0;
  uint32_t unpaid_cycles_ = 0;  // put off since the last plan was followed; stays beyond its most
  uint64_t put_off_ = 0;
  std::unique_ptr<uint64_t[]> seen_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLANNING_EFFORT_H_
