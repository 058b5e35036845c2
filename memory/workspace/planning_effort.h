// Whether planning pays for the cycles that come.
//
// A plan costs microseconds for each request and gains nanoseconds for each that follows it, so it pays
// for cycles that come again. At first each cycle that no plan serves is planned at once. When several
// plans were made that no cycle has followed (fewer where they have many requests), planning waits: a cycle is
// planned when it comes again only, which a hash of its requests tells. So streams that never repeat cost no planning,
// and one that repeats is planned some repetitions later. Plans that are followed win the trust back. When many cycles
// running were not worth a plan (two, where plans are large), those that were made at first sight and never followed
// have no use either: they are given up, and made again at the next sight of their cycles. Where cycles come twice or
// three times and then never again, as those do that grow by a little now and then, each plan is followed, and none pays:
// while plans are followed less than kRepaid times each, on average, only what comes for the third time is planned.
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
  enum class Answer : uint8_t { kNo, kNextTime, kYes };
  // A cycle that no plan serves has these requests, the last one of so many. Whether to plan it now.
  Answer PaysFor(uint64_t signature, uint64_t cycles) noexcept {
    ++unfollowed_;
    Weigh(cycles);
    if (!waits()) return Answer::kYes;
    if (seen_ == nullptr) {
      seen_.reset(new (std::nothrow) uint64_t[kSeen]());
      if (seen_ == nullptr) return Answer::kYes;
    }
    const uint64_t times = Note(signature);
    if (times >= (are_hardly_followed_ ? 2 : 1)) return Answer::kYes;
    ++put_off_;
    CountUnpaid();
    return times > 0 ? Answer::kNextTime : Answer::kNo;
  }
  // Plans made at first sight are given up now. True once, until a plan is followed again.
  bool GivesUp() const noexcept { return unpaid_cycles_ == kMostUnpaidCycles; }
  // The cycle with these requests was seen, though it was not put off.
  void Saw(uint64_t signature) noexcept {
    if (seen_ != nullptr && !IsThere(signature, *Find(signature))) Note(signature);
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
  void Spent(size_t requests, uint64_t cycles) noexcept {
    ++made_;
    Weigh(cycles);
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
  void Forget(uint64_t cycles) noexcept {
    unpaid_ = unpaid_cycles_ = 0;
    unpaid_requests_ = 0;
    made_ = unfollowed_ = 0;
    since_ = cycles;
    are_hardly_followed_ = false;
  }

  // Plans are made of what comes again only.
  bool waits() const {
    return are_hardly_followed_ || unpaid_ >= kMostUnpaid || are_large() ||
           (unpaid_ > 1 && unpaid_requests_ >= 2 * kLarge);
  }
  // Plans of late were followed by fewer than kRepaid cycles each.
  bool are_hardly_followed() const { return are_hardly_followed_; }
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

  // How often the plans of late were followed. What is longer ago counts less.
  void Weigh(uint64_t cycles) noexcept {
    if (made_ < kFewPlans) return;
    if (made_ >= 4 * kFewPlans) {
      made_ /= 2;
      since_ += (cycles - since_) / 2;
      unfollowed_ /= 2;
    }
    are_hardly_followed_ = cycles - since_ < unfollowed_ + kRepaid * made_;
  }

  // An entry of the table is a signature but for its lowest bits, which count how often it was seen. 0: none.
  static constexpr uint64_t kTimes = 3;
  uint64_t* PlacesOf(uint64_t signature) const {
    return &seen_[kWays * (signature / (kTimes + 1) % (kSeen / kWays))];
  }
  static bool IsThere(uint64_t signature, uint64_t entry) {
    return entry != 0 && (entry & ~kTimes) == (signature & ~kTimes);
  }
  // Where it is; else the place of the one that has not come for longest.
  uint64_t* Find(uint64_t signature) const {
    uint64_t* const places = PlacesOf(signature);
    return std::find_if(places, places + kWays - 1,
                        [signature](uint64_t entry) { return IsThere(signature, entry); });
  }
  // Returns how often it had been seen. The one that has not come for longest goes.
  uint64_t Note(uint64_t signature) {
    uint64_t* const places = PlacesOf(signature);
    uint64_t* const goes = Find(signature);
    const uint64_t times = IsThere(signature, *goes) ? *goes & kTimes : 0;
    std::copy_backward(places, goes, goes + 1);
    places[0] = (signature & ~kTimes) | std::min(times + 1, kTimes);
    return times;
  }

  static constexpr uint64_t kFewPlans = 64;  // that say something of the next ones
  static constexpr uint64_t kRepaid = 4;     // cycles
  static constexpr uint32_t kMostUnpaid = 8;
  static constexpr size_t kLarge = 1 << 13;  // requests
  static constexpr uint32_t kMostUnpaidCycles = 64;
  static constexpr size_t kSeen = 8192;

  uint32_t unpaid_ = 0;
  size_t unpaid_requests_ = 0;
  uint32_t unpaid_cycles_ = 0;  // put off since the last plan was followed; stays beyond its most
  uint64_t put_off_ = 0;
  // Plans of what had none and cycles that followed none, among those since then.
  uint64_t made_ = 0;
  uint64_t unfollowed_ = 0;
  uint64_t since_ = 0;
  bool are_hardly_followed_ = false;
  std::unique_ptr<uint64_t[]> seen_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLANNING_EFFORT_H_
