#include "tidepool/memory/workspace/plan_set.h"

#include <algorithm>
#include <utility>

namespace tidepool {
namespace {

constexpr size_t kMostForgotten = 64;

}  // namespace

size_t PlanSet::peak_bytes() const {
  size_t peak = 0;
  for (const auto& cycle : cycles_) peak = std::max(peak, cycle->plan->layout.peak_bytes());
  return peak;
}

size_t PlanSet::most_requests() const {
  size_t most = 0;
  for (const auto& cycle : cycles_) most = std::max(most, cycle->plan->requests.size());
  return most;
}

size_t PlanSet::state_bytes() const {
  size_t bytes = cycles_.capacity() * sizeof(cycles_[0]) + forgotten_.capacity() * sizeof(Forgotten);
  for (const auto& cycle : cycles_) bytes += sizeof(LearnedCycle) + cycle->plan->state_bytes();
  return bytes;
}

bool PlanSet::Holds(const LearnedCycle* cycle) const {
  return std::any_of(cycles_.begin(), cycles_.end(),
                     [cycle](const auto& other) { return other.get() == cycle; });
}

LearnedCycle* PlanSet::Find(uint64_t signature, size_t num_requests) const {
  for (const auto& cycle : cycles_) {
    if (cycle->plan->signature() == signature && cycle->plan->requests.size() == num_requests) {
      return cycle.get();
    }
  }
  return nullptr;
}

LearnedCycle* PlanSet::Add(std::shared_ptr<const CyclePlan> plan, uint64_t now) {
  cycles_.reserve(std::min(most_plans_, cycles_.size() + 1));
  forgotten_.reserve(kMostForgotten);
  auto cycle = std::make_unique<LearnedCycle>();
  cycle->plan = std::move(plan);
  cycle->learned_at = cycle->used_at = now;
  cycle->patience = kPatience;
  for (const Forgotten& forgotten : forgotten_) {
    if (forgotten.signature == cycle->plan->signature()) cycle->patience = forgotten.patience;
  }
  LearnedCycle* const same = Find(cycle->plan->signature(), cycle->plan->requests.size());
  if (same != nullptr || cycles_.size() == most_plans_) {
    const auto place =
        same == nullptr
            ? std::prev(cycles_.end())
            : std::find_if(cycles_.begin(), cycles_.end(),
                           [same](const auto& other) { return other.get() == same; });
    if (same != nullptr) {
      cycle->patience = std::max(cycle->patience, same->patience);
      cycle->remade = same->remade + 1;
    } else {
      Remember(**place);
    }
    cycles_.erase(place);
  }
  cycles_.insert(cycles_.begin(), std::move(cycle));
  return cycles_.front().get();
}

void PlanSet::Use(LearnedCycle* cycle, uint64_t now, bool followed) {
  cycle->used_at = now;
  if (followed) cycle->patience = std::min(kMostPatience, 2 * cycle->patience);
  if (cycles_.front().get() == cycle) return;
  const auto place = std::find_if(cycles_.begin(), cycles_.end(),
                                  [cycle](const auto& other) { return other.get() == cycle; });
  std::rotate(cycles_.begin(), place, std::next(place));
}

bool PlanSet::ForgetOutliers(uint64_t now) {
  if (cycles_.size() < 2) return false;
  std::vector<const LearnedCycle*> by_peak;
  for (const auto& cycle : cycles_) by_peak.push_back(cycle.get());
  std::sort(by_peak.begin(), by_peak.end(), [](const auto* a, const auto* b) {
    return a->plan->layout.peak_bytes() > b->plan->layout.peak_bytes();
  });
  size_t keep_up_to = SIZE_MAX;
  const auto used = [now](const LearnedCycle* cycle) { return now - cycle->used_at < kMostUnused; };
  const auto largest_used = std::find_if(by_peak.begin(), by_peak.end(), used);
  if (largest_used != by_peak.end() && largest_used != by_peak.begin()) {
    keep_up_to = (*largest_used)->plan->layout.peak_bytes();
  }
  for (size_t i = 0; i + 1 < by_peak.size(); ++i) {
    if (by_peak[i] == cycles_.front().get() || now - by_peak[i]->used_at < by_peak[i]->patience) {
      break;
    }
    const size_t next = by_peak[i + 1]->plan->layout.peak_bytes();
    if (by_peak[i]->plan->layout.peak_bytes() > next + next / 4) {
      keep_up_to = std::min(keep_up_to, next);
    }
  }
  if (keep_up_to >= by_peak.front()->plan->layout.peak_bytes()) return false;
  for (const auto& cycle : cycles_) {
    if (cycle->plan->layout.peak_bytes() > keep_up_to) Remember(*cycle);
  }
  ForgetLarger(keep_up_to);
  return true;
}

void PlanSet::ForgetLarger(size_t bytes) {
  std::erase_if(cycles_,
                [bytes](const auto& cycle) { return cycle->plan->layout.peak_bytes() > bytes; });
}

void PlanSet::Clear() {
  cycles_.clear();
  forgotten_.clear();
}

void PlanSet::Remember(const LearnedCycle& cycle) {
  std::erase_if(forgotten_, [&cycle](const Forgotten& forgotten) {
    return forgotten.signature == cycle.plan->signature();
  });
  if (forgotten_.size() == kMostForgotten) forgotten_.erase(forgotten_.begin());
  forgotten_.push_back({cycle.plan->signature(), std::min(kMostPatience, 4 * cycle.patience)});
}

}  // namespace tidepool
