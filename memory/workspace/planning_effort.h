// Whether planning pays for the cycles that come.
//
// A plan costs microseconds for each request and gains nanoseconds for each that follows it, so it pays
// for cycles that come again. At first each cycle that no plan serves is planned at once. When several
// plans were made that no cycle has followed (fewer where they have many requests), a cycle is planned at its
// second occurrence only, which a hash of its requests tells: streams that never repeat cost no planning, and one that repeats is planned
// one repetition later. Plans that are followed win the trust back. When many cycles running were not worth
// a plan, those that were made at first sight and never followed have no use either: they are given up, and
// made again at the next sight of their cycles.
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
    if (WasSeen(signature)) return true;
    Note(signature);
    ++put_off_;
    unpaid_cycles_ += unpaid_cycles_ <= kMostUnpaidCycles;
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
    return unpaid_ >= kMostUnpaid || (unpaid_ > 1 && unpaid_requests_ >= kMostUnpaidRequests);
  }
  uint64_t put_off() const { return put_off_; }  // cycles that were not planned, ever
  size_t state_bytes() const { return seen_ == nullptr ? 0 : kSeen * sizeof(uint64_t); }

 private:
  // Some that share a place in the table do not push each other out.
  static constexpr size_t kWays = 8;

  uint64_t* PlacesOf(uint64_t signature) const {
    return &seen_[kWays * (signature % (kSeen / kWays))];
  }
  bool WasSeen(uint64_t signature) const {
    const uint64_t* const places = PlacesOf(signature);
    return std::find(places, places + kWays, signature) != places + kWays;
  }
  // The one that was noted first there goes.
  void Note(uint64_t signature) {
    uint64_t* const places = PlacesOf(signature);
    std::copy_backward(places, places + kWays - 1, places + kWays);
    places[0] = signature;
  }

  static constexpr uint32_t kMostUnpaid = 8;
  static constexpr size_t kMostUnpaidRequests = 1 << 14;
  static constexpr uint32_t kMostUnpaidCycles = 64;
  static constexpr size_t kSeen = 8192;

  uint32_t unpaid_ = 0;
  size_t unpaid_requests_ = 0;
  uint32_t unpaid_cycles_ = 0;  // put off since the last plan was followed; stays at its most
  uint64_t put_off_ = 0;
  std::unique_ptr<uint64_t[]> seen_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLANNING_EFFORT_H_
