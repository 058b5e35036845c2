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
// A plan has paid for good when some hundred cycles have followed it. What one that has not come for long lacks of that is lost.
// After some losses only what comes for the 8th time is planned, then what comes for the 32nd, the 128th and the 512th time,
// so that kinds that come often for a while and then never again cost no more than a share of what is served: a plan that was
// lost is made up for by a thousand cycles like it, whatever they follow. Until all are, each new plan counts as lost from the
// beginning, and wins that back cycle by cycle; before, one is only when its cycles stay away, so that kinds that go on coming
// are planned as fast as they come.
//
// Threads: one at a time. Cost: a few instructions.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLANNING_EFFORT_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLANNING_EFFORT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>

namespace tidepool {

class PlanningEffort {
 public:
  enum class Answer : uint8_t { kNo, kNextTime, kYes };
  // A cycle that no plan serves has these requests, the last one of so many. Whether to plan it now. `comings`: plans are
  // hardly of use, so it is to have come so often.
  static constexpr uint64_t kOften = 128, kNeverOften = UINT64_MAX;
  Answer PaysFor(uint64_t signature, uint64_t cycles, uint64_t comings = 0) noexcept {
    ++unfollowed_;
    Weigh(cycles);
    if (!waits() && comings == 0) return Answer::kYes;
    if (seen_ == nullptr) {
      seen_.reset(new (std::nothrow) uint64_t[kSeen]());
      if (seen_ == nullptr) return Answer::kYes;
    }
    const uint64_t times = Note(signature);
    const uint64_t most = std::max(planned_at(), comings);
    if (times + 1 >= most) return Answer::kYes;
    ++put_off_;
    CountUnpaid();
    return times > 0 && times + 2 >= most ? Answer::kNextTime : Answer::kNo;
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

  // ---- plans that were not worth making -------------------------------------------------------
  // What has not come for so many cycles is lost, where fewer than kPaidForGood cycles have followed its plan: twice as many
  // as what came back had been away.
  uint64_t gone_after() const { return gone_after_; }
  static constexpr uint64_t kLeastGoneAfter = 1024, kMostGoneAfter = 1 << 13;
  static constexpr uint32_t kPaidForGood = 256;
  // Cycles that are to follow a plan of so many requests, which so many have, until it has paid for good: they are lost for
  // now. WinBack() is called for each that comes all the same, with what is left where it has come back after some time.
  uint32_t Lose(size_t requests, uint64_t followed) noexcept {
    if (followed >= kPaidForGood) return 0;
    const auto debt = static_cast<uint32_t>(kPaidForGood - followed);
    lost_requests_ = lost_requests_ == 0 ? requests : (7 * lost_requests_ + requests) / 8;
    lost_ = std::min(lost_ + debt, kMostLost);
    trusts_ = trusts_ && lost_ < kLostPerStep;
    return debt;
  }
  void WinBack(uint32_t debt = 1) noexcept {
    lost_ -= std::min<uint64_t>(lost_, debt);
    trusts_ = trusts_ || lost_ == 0;
  }
  void CameBack(uint64_t away) noexcept {
    gone_after_ = std::clamp(2 * away, gone_after_, kMostGoneAfter);
  }
  // A new plan is not lost from its beginning.
  bool trusts() const { return trusts_; }
  // So many requests were made.
  void Served(size_t requests) noexcept {
    budget_ = std::min(budget_ + requests, kMostBudget);
    if (lost_ == 0) return;
    served_ += requests;
    const size_t price = std::max<size_t>(1, kCyclesPerPlan * lost_requests_ / kPaidForGood);
    if (served_ < price) return;
    lost_ -= std::min<uint64_t>(lost_, served_ / price);
    served_ %= price;
    trusts_ = trusts_ || lost_ == 0;
  }
  // ---- what all planning takes together -------------------------------------------------------
  // Whether so many requests may be planned now, whatever for: one for each kServedForOne that were served, and at first, or
  // after as many, some hundred thousand. Nothing that is planned again and again in vain takes more than that.
  bool Affords(size_t requests) noexcept {
    const bool affords = requests <= budget_ / kServedForOne || budget_ == kMostBudget;
    refused_ = affords ? refused_ : requests;
    return affords;
  }
  void Spend(size_t requests) noexcept {
    budget_ -= std::min(budget_, requests * kServedForOne);
    refused_ = 0;
  }
  // So many more are to be served until what was not afforded last is. 0: all was since.
  size_t until_affords() const {
    const size_t wanted = std::min(refused_ * kServedForOne, kMostBudget);
    return wanted - std::min(budget_, wanted);
  }
  // Too many plans of late are lost for what is served.
  bool loses() const { return lost_ >= kLostPerStep; }
  // At which coming a cycle is planned.
  uint64_t planned_at() const {
    static constexpr uint64_t kComings[] = {0, 8, 32, 128, 512};
    const uint64_t at = kComings[std::min<uint64_t>(lost_ / kLostPerStep, std::size(kComings) - 1)];
    return std::max<uint64_t>(at, are_hardly_followed_ ? 3 : waits_for_second() ? 2 : 1);
  }

  void Forget(uint64_t cycles) noexcept {
    lost_ = 0;
    trusts_ = true;
    gone_after_ = kLeastGoneAfter;
    lost_requests_ = served_ = 0;
    unpaid_ = unpaid_cycles_ = 0;
    unpaid_requests_ = 0;
    made_ = unfollowed_ = 0;
    since_ = cycles;
    are_hardly_followed_ = false;
  }

  // Plans are made of what comes again only.
  bool waits() const { return are_hardly_followed_ || loses() || waits_for_second(); }
  // Plans of late were followed by fewer than kRepaid cycles each.
  bool are_hardly_followed() const { return are_hardly_followed_; }
  // The same after so many cycles, as it is found when a cycle comes next that has no plan.
  bool are_hardly_followed(uint64_t cycles) const {
    return are_hardly_followed_ && cycles - since_ < unfollowed_ + kRepaid * made_;
  }
  bool waits_for_second() const {
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
  static constexpr uint64_t kTimes = 1023;
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

  static constexpr uint64_t kLostPerStep = 32 * kPaidForGood;
  static constexpr uint64_t kMostLost = 5 * kLostPerStep;
  static constexpr size_t kCyclesPerPlan = 1024;
  static constexpr uint64_t kFewPlans = 64;  // that say something of the next ones
  static constexpr uint64_t kRepaid = 4;     // cycles
  static constexpr uint32_t kMostUnpaid = 8;
  static constexpr size_t kLarge = 1 << 13;  // requests
  static constexpr uint32_t kMostUnpaidCycles = 64;
  static constexpr size_t kSeen = 8192;
  static constexpr size_t kServedForOne = 128;
  static constexpr size_t kMostBudget = kServedForOne << 19;

  // Cycles that plans lacked of kPaidForGood, less what was made up for since; of how many requests they are, and those
  // served since the last was made up for.
  uint64_t lost_ = 0;
  bool trusts_ = true;
  uint64_t gone_after_ = kLeastGoneAfter;
  size_t lost_requests_ = 0;
  size_t served_ = 0;
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
  size_t budget_ = kMostBudget;  // requests served
  size_t refused_ = 0;           // requests that were not to be planned, last
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLANNING_EFFORT_H_
