// What planning may cost.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "tidepool/memory/workspace/plan_family.h"
#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {
namespace {

// A kind is planned again as soon as it misses so often; then after twice as many of its cycles each time.
constexpr uint32_t kRemadeAtOnce = 6;
constexpr uint32_t kMostDoublings = 20;
// So many cycles that follow a plan is each worth that did before it was away.
constexpr uint64_t kWorthOfComing = 16;
// Families of so few requests are planned whenever one of them misses; of others the price comes down in so many cycles.
constexpr size_t kFewToMend = 256;
constexpr uint64_t kCyclesOfPrice = 4096;
constexpr uint32_t kMendedAtOnePrice = 8;

}  // namespace

size_t PlanLearner::RequestsOf(const Family& family) noexcept {
  size_t requests = 0;
  for (const auto& plan : family) requests += plan->requests.size();
  return requests;
}

// Very many kinds take long.
size_t PlanLearner::LeastGainOf(const Family& family) noexcept {
  return RequestsOf(family) > kFewFamilyRequests ? size_t{64} << 10 : 0;
}

// For each request of a family: twice as many served ones each time that some were planned, and half as many after some time.
size_t PlanLearner::PriceOfMending() noexcept {
  for (; mended_ > 0 && cycles_ - mended_at_ >= kCyclesOfPrice; mended_at_ += kCyclesOfPrice)
    mended_ /= 2;
  return std::min(size_t{1} << std::min(mended_ / kMendedAtOnePrice, 16u), kMostPriceOfMending);
}

// What ends misses is done for as many requests as were served since, and ever more rarely while that goes on.
// What only saves pages leaves enough for that, and is done ever more rarely while it saves none: each of hundreds of kinds
// is looked at.
bool PlanLearner::Affords(const Family& family, bool mends) noexcept {
  const size_t requests = RequestsOf(family);
  if (!effort_.Affords(requests)) return false;
  if (mends) {
    if (requests <= kFewToMend) return true;
    const size_t price = PriceOfMending() * requests;
    if (price > served_) return false;
    ++mended_;
    mended_at_ = cycles_;
    served_ -= price;
    return true;
  }
  if (requests <= kFewToMend) return true;
  // Few are planned at once, until that was in vain.
  const bool few = requests <= kFewFamilyRequests;
  const size_t price = price_of_pages_ / (few ? kLeastPriceOfPages : 1) * requests;
  if (2 * requests > served_ || price > served_for_pages_) {
    price_refused_ = price;
    return false;
  }
  served_for_pages_ = price_refused_ = 0;
  served_ -= requests;
  return true;
}

// Plans whose cycles have not come for long, before these were worth making them.
void PlanLearner::WriteOff() noexcept {
  bool any_goes = false;
  plans_.VisitSome([&](LearnedCycle& cycle) {
    const uint64_t away = cycles_ - std::max<uint64_t>(cycle.used_at, cycle.seen_at);
    if (cycle.followed >= PlanningEffort::kPaidForGood || away < effort_.gone_after()) return;
    if (cycle.debt == 0) cycle.debt = effort_.Lose(cycle.plan->requests.size(), cycle.followed);
    // It is in the way of others, which are compared with it, and keep its places.
    cycle.goes = effort_.loses() && away > std::max(PlanSet::kMostCyclesAway, 2 * cycle.away);
    any_goes = any_goes || cycle.goes;
  });
  if (!any_goes) return;
  plans_.ForgetThoseThatGo();
  ForgotSome();
}

// It was not lost: those like it come again too. What comes often each time is worth more than what comes once.
void PlanLearner::ComeBack(LearnedCycle& used, uint64_t away) noexcept {
  effort_.CameBack(away);
  const uint64_t won = std::min<uint64_t>(used.debt, kWorthOfComing * (1 + used.running));
  used.running = 0;
  used.debt -= static_cast<uint32_t>(won);
  effort_.WinBack(static_cast<uint32_t>(won));
}

// One whose lifetimes are longer again and again misses little, and converges no faster when it is planned each time.
bool PlanLearner::IsRemadeTooSoon(const LearnedCycle& same) const {
  // One that is planned for the shorter lifetimes of late has its longer ones back at once.
  if (same.remade < kRemadeAtOnce || same.alone || same.longer != nullptr) return false;
  const uint64_t away = std::clamp<uint64_t>(same.away, 1, PlanSet::kMostCyclesAway);
  return cycles_ - same.learned_at < away << std::min(same.remade - kRemadeAtOnce, kMostDoublings);
}

// While planning waits, nothing is to be known of a cycle but whether it comes again.
void PlanLearner::DecideToRecord() noexcept {
  if (!effort_.waits()) records_next_ = kFewestCyclesOfRecording;
  const bool waits = effort_.waits() || loose_cycles_ >= kLooseBeforeUnrecorded;
  const bool records = !allows_unrecorded_ || !waits || cycles_ < records_until_;
  if (records == records_) return;
  records_ = records;
  ++version_;
}

// One that was not recorded has come again. It is planned when it comes while cycles are recorded: at its next coming,
// or, where many others come in between, after as many more as it takes until that lasts long enough.
void PlanLearner::RecordAgain() noexcept {
  records_until_ = cycles_ + records_next_;
  records_next_ = std::min(2 * records_next_, kMostCyclesOfRecording);
}

void PlanLearner::ForgetGuesses() noexcept {
  if (plans_.ForgetGuesses([this](uint64_t signature) { effort_.Saw(signature); })) ForgotSome();
}

// Where cycles are hardly ever known, those that nobody has followed for long before they had paid are in the way alone.
void PlanLearner::ForgetUnfollowed() noexcept {
  bool any_goes = false;
  for (const auto& cycle : plans_.cycles()) {
    // That its kind comes is of no use, as it begins without a plan.
    cycle->goes = cycle->followed < PlanningEffort::kPaidForGood &&
                  cycles_ - cycle->came_at >= effort_.gone_after();
    any_goes = any_goes || cycle->goes;
  }
  if (!any_goes) return;
  plans_.ForgetThoseThatGo();
  ForgotSome();
}

// Of a cycle that is not planned for now.
void PlanLearner::NoteLives(const EndedCycle& cycle, LearnedCycle& same) {
  if (!cycle.has_lifetimes()) return;
  same.longest.resize(same.plan->requests.size());
  for (uint32_t slot = 0; slot < same.longest.size(); ++slot)
    same.longest[slot] = std::max(same.longest[slot], cycle.upper(slot));
}

}  // namespace tidepool
