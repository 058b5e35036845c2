#include "tidepool/memory/workspace/plan_set.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace tidepool {
namespace {

constexpr size_t kMostForgotten = 512;
// When there is no room, a plan goes that was not used for so many cycles, times the plans there are: of
// more kinds of cycles than there is room for, some have their plans and the others none.
constexpr uint64_t kIdlePerPlan = 16;

}  // namespace

// ---- the set ----------------------------------------------------------------------------------

size_t PlanSet::state_bytes() const {
  return plan_bytes_ + cycles_.size() * 4 * sizeof(void*) + list_->state_bytes() +
         by_key_.bucket_count() * sizeof(void*) + by_key_.size() * 4 * sizeof(void*) +
         forgotten_.capacity() * sizeof(Forgotten);
}

LearnedCycle* PlanSet::Find(uint64_t signature, size_t num_requests) const {
  const auto at = by_key_.find(Key(signature, num_requests));
  if (at == by_key_.end()) return nullptr;
  LearnedCycle* const cycle = at->second->get();
  const CyclePlan& plan = *cycle->plan;
  const bool same = plan.signature() == signature && plan.requests.size() == num_requests;
  return same ? cycle : nullptr;
}

bool PlanSet::Holds(const LearnedCycle* cycle) const {
  return cycle != nullptr && Find(cycle->plan->signature(), cycle->plan->requests.size()) == cycle;
}

bool PlanSet::HasRoom(uint64_t now, bool surely) {
  if (surely || cycles_.empty() || most_plans_ == 1) return true;
  const size_t most = most_bytes(std::max(peak_bytes_, loaded_peak_bytes_));
  if (cycles_.size() < most_plans_ && plan_bytes_ + plan_bytes_ / cycles_.size() <= most) {
    return true;
  }
  // Of thousands it is noticed when all are looked at. No use is earlier than the earliest there was.
  const uint64_t idle = kIdlePerPlan * cycles_.size();
  if (now - used_first_ < idle) return false;
  used_first_ = now;
  for (const auto& cycle : cycles_) used_first_ = std::min(used_first_, cycle->used_at.get());
  return now - used_first_ >= idle;
}

LearnedCycle* PlanSet::Add(std::shared_ptr<const CyclePlan> plan, uint64_t now, bool loaded) {
  auto cycle = std::make_shared<LearnedCycle>(std::move(plan));
  cycle->loaded = loaded;
  cycle->learned_at = cycle->came_at = cycle->used_at = cycle->seen_at = now;
  cycle->patience = kPatience;
  for (const Forgotten& forgotten : forgotten_) {
    if (forgotten.signature != cycle->plan->signature()) continue;
    cycle->patience =
        std::max(forgotten.patience, std::min(kMostCyclesAway, 2 * (now - forgotten.used_at)));
  }
  const LearnedCycle* const same = Find(cycle->plan->signature(), cycle->plan->requests.size());
  if (same != nullptr) {
    cycle->patience = std::max(cycle->patience, same->patience);
    cycle->remade = same->remade + 1;
    cycle->away = std::max(same->away, now - same->came_at);
    cycle->watch.refresh_after = same->watch.refresh_after;
    cycle->alone_at = same->alone_at;
    cycle->longer = same->longer;
    cycle->regrets = same->regrets;
    cycle->paid = same->paid;
    cycle->followed = same->followed, cycle->debt = same->debt;
    cycle->seen_at = same->seen_at, cycle->running = same->running;
    cycle->then_signature = same->then_signature, cycle->then_requests = same->then_requests;
    cycle->guessed = same->guessed, cycle->most_alive = same->most_alive;
  }
  return Put(std::move(cycle), same);
}

void PlanSet::Replace(absl::Span<const Replacement> replacements) {
  struct Place {
    Cycles::iterator at;
    std::shared_ptr<LearnedCycle> by;
  };
  std::vector<Place> places;
  places.reserve(replacements.size());
  // They begin as those did, and stand where they stood.
  const bool is_whole = list_is_whole();
  std::shared_ptr<PlanList> list = is_whole ? std::make_shared<PlanList>(*list_) : nullptr;
  for (const Replacement& replacement : replacements) {
    const auto key = by_key_.find(Key(*replacement.plan));
    if (key == by_key_.end() || (*key->second)->plan != replacement.plan) continue;
    const LearnedCycle& old = **key->second;
    auto by = std::make_shared<LearnedCycle>(replacement.by);
    static_cast<CycleHistory&>(*by) = old;
    by->used_at = old.used_at;
    if (is_whole) list->Replace(old, by);
    places.push_back({key->second, std::move(by)});
  }
  if (places.empty()) return;
  if (!is_whole) {  // the last to throw
    PlanList::Cycles cycles(cycles_.begin(), cycles_.end());
    for (const Place& place : places)
      *std::find(cycles.begin(), cycles.end(), *place.at) = place.by;
    list = PlanList::Of(std::move(cycles));
  }
  bool sums = false;
  for (Place& place : places) {
    const LearnedCycle& old = **place.at;
    sums = sums || old.loaded || &old == largest_ ||
           place.by->plan->layout.peak_bytes() >= peak_bytes_;
    plan_bytes_ = plan_bytes_ - BytesOf(old) + BytesOf(*place.by);
    *place.at = std::move(place.by);
  }
  list_ = std::move(list);
  if (sums) Sum();
}

// First of all, without `same` and without those there is no room for.
LearnedCycle* PlanSet::Put(std::shared_ptr<LearnedCycle> cycle, const LearnedCycle* same) {
  // All there are may be forgotten without memory.
  forgotten_.reserve(std::min(kMostForgotten, forgotten_.size() + cycles_.size() + 1));
  const size_t bytes = BytesOf(*cycle);
  const size_t most =
      most_bytes(std::max({peak_bytes_, loaded_peak_bytes_, cycle->plan->layout.peak_bytes()}));
  size_t kept_bytes = plan_bytes_ - (same != nullptr ? BytesOf(*same) : 0);
  size_t count = cycles_.size() + (same != nullptr ? 0 : 1);
  const auto own = same != nullptr ? by_key_.find(Key(*same->plan))->second : cycles_.end();
  // Those from here on, without `same`.
  auto dropped = cycles_.end();
  while (count > 1 && (count > most_plans_ || kept_bytes + bytes > most)) {
    if ((--dropped)->get() == same) continue;
    kept_bytes -= BytesOf(**dropped);
    --count;
  }
  Cycles first;
  first.push_back(std::move(cycle));
  std::shared_ptr<PlanList> list;
  if (list_is_whole()) {
    list = std::make_shared<PlanList>(*list_);
    if (same != nullptr) list->Erase(*same);
    for (auto at = dropped; at != cycles_.end(); ++at) {
      if (at->get() != same) list->Erase(**at);
    }
    list->Insert(first.front());
  } else {
    PlanList::Cycles kept = {first.front()};
    for (auto at = cycles_.begin(); at != dropped; ++at) {
      if (at->get() != same) kept.push_back(*at);
    }
    list = PlanList::Of(std::move(kept));
  }
  LearnedCycle* const added = first.front().get();
  by_key_.insert_or_assign(Key(*added->plan), first.begin());  // the last to throw
  const auto counts = [this](const LearnedCycle& gone) { return gone.loaded || &gone == largest_; };
  bool sums = added->loaded;
  for (auto at = dropped; at != cycles_.end(); ++at) {
    if (at->get() == same) continue;
    sums = sums || counts(**at);
    const auto key = by_key_.find(Key(*(*at)->plan));
    if (key != by_key_.end() && key->second == at) by_key_.erase(key);
    Remember(**at);
  }
  if (same != nullptr) {
    sums = sums || counts(*same);
    if (own == dropped) ++dropped;
    cycles_.erase(own);
  }
  cycles_.erase(dropped, cycles_.end());
  cycles_.splice(cycles_.begin(), first);
  list_ = std::move(list);
  if (sums) {
    Sum();
    return added;
  }
  // Of thousands it is noticed when all are looked at.
  plan_bytes_ = kept_bytes + bytes;
  if (const size_t peak = added->plan->layout.peak_bytes();
      largest_ == nullptr || peak >= peak_bytes_) {
    largest_ = added, peak_bytes_ = peak;
  }
  return added;
}

void PlanSet::Use(const LearnedCycle* cycle, uint64_t now, bool followed) {
  if (cycles_.empty()) return;
  if (cycles_.front().get() != cycle) {
    const auto key = cycle != nullptr ? by_key_.find(Key(*cycle->plan)) : by_key_.end();
    if (key == by_key_.end() || key->second->get() != cycle) return;
    cycles_.splice(cycles_.begin(), cycles_, key->second);
  }
  LearnedCycle& used = *cycles_.front();
  used.used_at = now;
  if (!followed) return;
  if (std::exchange(used.loaded, false)) Sum();
  used.away = std::max(used.away, now - used.came_at);
  used.came_at = now;
  used.patience = std::max(used.patience, std::min(kMostPatience, 2 * used.patience));
}

void PlanSet::SetAlone(bool alone, uint64_t now, std::shared_ptr<const CyclePlan> longer) noexcept {
  LearnedCycle& cycle = *cycles_.front();
  const size_t before = BytesOf(cycle);
  cycle.alone = alone;
  if (alone) {
    cycle.alone_at = now;
    if (longer != nullptr) cycle.longer = std::move(longer);
  }
  plan_bytes_ = plan_bytes_ - before + BytesOf(cycle);
}

void PlanSet::Clear() noexcept {
  by_key_.clear();
  cycles_.clear();
  forgotten_.clear();
  looked_at_ = 0;
  list_ = PlanList::None();
  Sum();
}

// Without the memory for another list the old one stays, which holds some that are forgotten.
void PlanSet::Changed() noexcept {
  try {
    // Those that are left stand in the order in which they stood.
    PlanList::Cycles left;
    left.reserve(cycles_.size());
    for (const PlanList::Part& part : list_->parts_) {
      for (const PlanList::Entry& entry : part.chunk->entries) {
        if (Holds(entry.cycle.get())) left.push_back(entry.cycle);
      }
    }
    list_ = left.size() == cycles_.size()
                ? PlanList::OfSorted(std::move(left))
                : PlanList::Of(PlanList::Cycles(cycles_.begin(), cycles_.end()));
  } catch (const std::bad_alloc&) {
  }
  Sum();
}

void PlanSet::Sum() noexcept {
  peak_bytes_ = loaded_peak_bytes_ = plan_bytes_ = 0;
  largest_ = nullptr;
  for (const auto& cycle : cycles_) {
    const size_t peak = cycle->plan->layout.peak_bytes();
    if (cycle->loaded) {
      loaded_peak_bytes_ = std::max(loaded_peak_bytes_, peak);
    } else if (largest_ == nullptr || peak > peak_bytes_) {
      largest_ = cycle.get(), peak_bytes_ = peak;
    }
    plan_bytes_ += BytesOf(*cycle);
  }
}

void PlanSet::Remember(const LearnedCycle& cycle) noexcept {
  std::erase_if(forgotten_, [&cycle](const Forgotten& forgotten) {
    return forgotten.signature == cycle.plan->signature();
  });
  if (forgotten_.size() == kMostForgotten) forgotten_.erase(forgotten_.begin());
  if (forgotten_.size() == forgotten_.capacity()) return;
  const uint64_t patience = std::max(cycle.patience, std::min(kMostPatience, 4 * cycle.patience));
  forgotten_.push_back({cycle.plan->signature(), cycle.used_at, patience});
}

}  // namespace tidepool
