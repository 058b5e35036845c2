// More kinds of cycles that begin alike than are planned together.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {
namespace {

// One of a crowd is made anew after twice as many cycles each time.
constexpr uint32_t kMostDoublings = 30;
// And for so many requests that were served for each of its own.
constexpr size_t kPrice = 16;

}  // namespace

// The cycle missed though it has a plan, and others that begin alike are too many to be planned with it. Whether it is
// planned alone, once more.
bool PlanLearner::PlansInCrowd(const EndedCycle& cycle, const LearnedCycle& same) {
  const size_t requests = cycle.made.count();
  const size_t first_bytes = cycle.first_bytes();
  if (MayGiveUp(cycle) && !cycle.was_served() && crowds_.Missed(first_bytes, cycles_)) {
    GiveUpCrowd(first_bytes);
    return false;
  }
  if (cycles_ - same.learned_at < uint64_t{1} << std::min(same.remade, kMostDoublings) ||
      served_ < kPrice * requests) {
    return false;
  }
  served_ -= kPrice * requests;
  return true;
}

void PlanLearner::GiveUpCrowd(size_t first_bytes) {
  size_t most_alive = 0;
  const std::shared_ptr<const PlanList> plans = plans_.list();
  const PlanList::Range alike = BeginningWith(first_bytes);
  plans->ForEach(alike, [&](const LearnedCycle& each) {
    most_alive = std::max({most_alive, each.most_alive, each.plan->most_alive_bytes()});
    plans_given_up_ += each.paid;  // others are guesses
  });
  plans_.ForgetBeginning(first_bytes);
  mended_ = 0;  // that it was in vain was theirs
  GaveUp(most_alive);
}

// One that is left without a plan. It may follow one of others that need more.
std::optional<WantedPlan> PlanLearner::ObserveCrowd(const EndedCycle& cycle) {
  const bool served = cycle.misses == 0 && cycle.followed != nullptr;
  missing_cycles_ = 0;
  if (cycle.followed != nullptr) {
    Use(cycle.followed, false);
    SetNext(cycle.followed);
  }
  effort_.PutOff();
  loose_cycles_ = std::min(loose_cycles_ + 1, kLooseBeforeUnrecorded);
  AddReach(cycle, /*unserved=*/!served);
  ForgetOld();
  FitPages();
  DecideToRecord();
  return std::nullopt;
}

}  // namespace tidepool
