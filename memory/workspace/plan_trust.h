// Whether the next cycle begins with a plan.
//
// A cycle that is not what it was expected to be leaves that plan at its first request, looks for another one, and has the
// rest served without: that costs more than beginning without one, and where hardly any cycle of late was one that is known
// it gains nothing. Then cycles begin without a plan, until as many come again that are known; what comes twice running is
// followed all the same, and now and then some cycles begin with a plan, as long as these are known, because only who
// follows a plan can tell that it serves shorter cycles too.
//
// What has no plan counts as known where it came in the order in which such cycles came before: kinds that take turns are
// worth planning, as each is expected when it comes.
//
// Threads: one at a time. Cost: a few instructions; 8 KiB once cycles came that were not known.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_TRUST_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_TRUST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace tidepool {

class PlanTrust {
 public:
  // A cycle has ended, which a plan has served, or would have been expected to.
  void Saw(bool known) noexcept {
    trust_ = known ? std::min(trust_ + kForOneKnown, kMost) : std::max(trust_ - 1, 0);
    if (!doubts_) {
      doubts_ = trust_ == 0;
      tries_ = false;
      untried_ = 0;
      waits_ = kUntried;
    } else if (trust_ >= kEnough) {
      doubts_ = false;
    } else if (tries_) {
      tries_ = known;
      if (!tries_) waits_ = std::min(2 * waits_, kMostUntried);
    } else if (++untried_ >= waits_) {
      untried_ = 0;
      tries_ = true;
    }
  }
  // Whether a cycle of this signature came behind one of that the last time. Notes that it does so now.
  bool CameBehind(uint64_t before, uint64_t signature) noexcept {
    if (next_ == nullptr) next_.reset(new (std::nothrow) uint64_t[kOrder]());
    if (next_ == nullptr) return false;
    uint64_t& next = next_[before % kOrder];
    const bool came = next == signature;
    next = signature;
    return came;
  }
  void Forget() noexcept {
    trust_ = kMost;
    doubts_ = tries_ = false;
  }
  size_t state_bytes() const { return next_ != nullptr ? kOrder * sizeof(uint64_t) : 0; }
  // The next cycle begins without a plan.
  bool withholds() const { return doubts_ && !tries_; }
  // Most cycles do.
  bool doubts() const { return doubts_; }

 private:
  // What is known less than one time in five is doubted, after so many cycles.
  static constexpr int kMost = 64;
  static constexpr int kForOneKnown = 4;
  static constexpr int kEnough = 32;
  // So many others come between two that begin with a plan all the same, and twice as many each time that it was none.
  static constexpr int kUntried = 64;
  static constexpr int kMostUntried = 4096;
  static constexpr size_t kOrder = 1024;

  int trust_ = kMost;
  int untried_ = 0;
  int waits_ = kUntried;
  bool doubts_ = false;
  bool tries_ = false;
  std::unique_ptr<uint64_t[]> next_;  // by the signature before
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_TRUST_H_
