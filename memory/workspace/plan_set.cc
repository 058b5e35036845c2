#include "tidepool/memory/workspace/plan_set.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace tidepool {
namespace {

constexpr uint64_t kPatienceInTheWay = 16;
constexpr size_t kMostForgotten = 512;
// When there is no room, a plan goes that was not used for so many cycles, times the plans there are: of
// more kinds of cycles than there is room for, some have their plans and the others none.
constexpr uint64_t kIdlePerPlan = 16;
// So many sizes of plans are looked at for a gap below them.
constexpr int kMostGaps = 64;

}  // namespace

// ---- the set ----------------------------------------------------------------------------------

size_t PlanSet::state_bytes() const {
  return plan_bytes_ + cycles_.capacity() * sizeof(cycles_[0]) +
         list_->cycles_.capacity() * sizeof(cycles_[0]) + by_key_.bucket_count() * sizeof(void*) +
         by_key_.size() * 4 * sizeof(void*) + forgotten_.capacity() * sizeof(Forgotten);
}

LearnedCycle* PlanSet::Find(uint64_t signature, size_t num_requests) const {
  const auto at = by_key_.find(Key(signature, num_requests));
  if (at == by_key_.end()) return nullptr;
  const CyclePlan& plan = *at->second->plan;
  const bool same = plan.signature() == signature && plan.requests.size() == num_requests;
  return same ? at->second : nullptr;
}

bool PlanSet::Holds(const LearnedCycle* cycle) const {
  return cycle != nullptr && Find(cycle->plan->signature(), cycle->plan->requests.size()) == cycle;
}

bool PlanSet::HasRoom(uint64_t now, bool surely) const {
  if (surely || cycles_.empty() || most_plans_ == 1) return true;
  const size_t most = most_bytes(std::max(peak_bytes_, loaded_peak_bytes_));
  if (cycles_.size() < most_plans_ && plan_bytes_ + plan_bytes_ / cycles_.size() <= most) {
    return true;
  }
  uint64_t used_first = now;
  for (const auto& cycle : cycles_) used_first = std::min(used_first, cycle->used_at.get());
  return now - used_first >= kIdlePerPlan * cycles_.size();
}

LearnedCycle* PlanSet::Add(std::shared_ptr<const CyclePlan> plan, uint64_t now, bool loaded) {
  auto cycle = std::make_shared<LearnedCycle>(std::move(plan));
  cycle->loaded = loaded;
  cycle->learned_at = cycle->came_at = cycle->used_at = now;
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
    cycle->guessed = same->guessed, cycle->most_alive = same->most_alive;
  }
  return Put(std::move(cycle), same);
}

void PlanSet::Replace(absl::Span<const Replacement> replacements) {
  Cycles cycles = cycles_;
  std::vector<std::pair<LearnedCycle**, LearnedCycle*>> places;
  places.reserve(replacements.size());
  // They begin as those did, and stand where they stood.
  const bool is_whole = list_->cycles_.size() == cycles_.size();
  std::shared_ptr<PlanList> with = is_whole ? std::make_shared<PlanList>(*list_) : nullptr;
  for (const Replacement& replacement : replacements) {
    const auto key = by_key_.find(Key(*replacement.plan));
    if (key == by_key_.end() || key->second->plan != replacement.plan) continue;
    const LearnedCycle& old = *key->second;
    auto by = std::make_shared<LearnedCycle>(replacement.by);
    static_cast<CycleHistory&>(*by) = old;
    by->used_at = old.used_at;
    places.push_back({&key->second, by.get()});
    const auto at = std::find_if(cycles.begin(), cycles.end(),
                                 [&old](const auto& cycle) { return cycle.get() == &old; });
    if (with != nullptr) {
      *std::find_if(with->cycles_.begin(), with->cycles_.end(),
                    [&old](const auto& cycle) { return cycle.get() == &old; }) = by;
    }
    *at = std::move(by);
  }
  if (places.empty()) return;
  const std::shared_ptr<const PlanList> list =
      with != nullptr ? std::move(with) : MakeList(cycles);  // the last to throw
  bool sums = false;
  for (const auto& [place, by] : places) {
    const LearnedCycle& old = **place;
    sums = sums || old.loaded || &old == largest_ || by->plan->layout.peak_bytes() >= peak_bytes_;
    plan_bytes_ = plan_bytes_ - BytesOf(old) + BytesOf(*by);
    *place = by;
  }
  cycles_ = std::move(cycles);
  list_ = list;
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
  Cycles cycles;
  cycles.reserve(cycles_.size() + 1);
  cycles.push_back(std::move(cycle));
  for (const auto& other : cycles_) {
    if (other.get() != same) cycles.push_back(other);
  }
  Cycles dropped;
  dropped.reserve(cycles.size());
  while (cycles.size() > 1 && (cycles.size() > most_plans_ || kept_bytes + bytes > most)) {
    kept_bytes -= BytesOf(*cycles.back());
    dropped.push_back(std::move(cycles.back()));
    cycles.pop_back();
  }
  std::shared_ptr<const PlanList> list;
  LearnedCycle* const added = cycles.front().get();
  if (list_->cycles_.size() == cycles_.size()) {
    // One goes in where it belongs: sorting them all each time is noticed when a file has thousands.
    auto with = std::make_shared<PlanList>();
    const uint32_t at =
        list_->Like(*added->plan, static_cast<uint32_t>(added->plan->signatures.size())).begin;
    with->cycles_.reserve(cycles.size() + dropped.size());
    for (uint32_t i = 0; i <= list_->cycles_.size(); ++i) {
      if (i == at) with->cycles_.push_back(cycles.front());
      if (i == list_->cycles_.size()) break;
      const std::shared_ptr<const LearnedCycle>& other = list_->cycles_[i];
      const auto is_other = [&other](const auto& gone) { return gone == other; };
      if (other.get() != same && std::none_of(dropped.begin(), dropped.end(), is_other)) {
        with->cycles_.push_back(other);
      }
    }
    list = std::move(with);
  } else {
    list = MakeList(cycles);
  }
  by_key_.try_emplace(Key(*added->plan), added).first->second = added;  // the last to throw
  const auto counts = [this](const LearnedCycle& gone) { return gone.loaded || &gone == largest_; };
  bool sums = added->loaded || (same != nullptr && counts(*same));
  for (const auto& gone : dropped) {
    sums = sums || counts(*gone);
    const auto at = by_key_.find(Key(*gone->plan));
    if (at != by_key_.end() && at->second == gone.get()) by_key_.erase(at);
    Remember(*gone);
  }
  cycles_ = std::move(cycles);
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
    // What comes again is near the beginning, kinds that come in turns are at the end.
    size_t found = 0;
    for (size_t low = 1, high = cycles_.size(); found == 0 && low < high; ++low) {
      if (cycles_[low].get() == cycle) found = low;
      if (cycles_[--high].get() == cycle) found = high;
    }
    if (found == 0) return;
    const auto at = cycles_.begin() + static_cast<std::ptrdiff_t>(found);
    std::shared_ptr<LearnedCycle> first = std::move(*at);
    std::move_backward(cycles_.begin(), at, std::next(at));
    cycles_.front() = std::move(first);
  }
  LearnedCycle& used = *cycles_.front();
  used.used_at = now;
  if (!followed) return;
  if (std::exchange(used.loaded, false)) Sum();
  used.away = std::max(used.away, now - used.came_at);
  used.came_at = now;
  used.patience = std::max(used.patience, std::min(kMostPatience, 2 * used.patience));
}

// ---- forgetting -------------------------------------------------------------------------------

uint64_t PlanSet::CyclesUntilOutlier(uint64_t now) const noexcept {
  if (cycles_.size() < 2 || largest_ == nullptr) return UINT64_MAX;
  if (largest_ == cycles_.front().get()) return UINT64_MAX;
  const uint64_t idle = now - largest_->used_at;
  return largest_->patience > idle ? largest_->patience - idle - 1 : 0;
}

uint64_t PlanSet::MostUnused() const noexcept {
  return std::max<uint64_t>(kMostUnused, 4 * cycles_.size());
}

bool PlanSet::ForgetOutliers(uint64_t now) noexcept {
  if (cycles_.size() < 2 || largest_ == nullptr) return false;
  const auto peak_of = [](const auto& cycle) { return cycle->plan->layout.peak_bytes(); };
  const auto idle_of = [now](const LearnedCycle& cycle) { return now - cycle.used_at; };
  // Nothing goes while the largest is used, which is the usual case.
  const uint64_t most_unused = MostUnused();
  if (idle_of(*largest_) < largest_->patience) return false;
  // Of very many it is looked for some only now and then.
  if (now - looked_at_ < cycles_.size() / 16) return false;
  looked_at_ = now;
  size_t largest_used = 0;
  for (const auto& cycle : cycles_) {
    if (idle_of(*cycle) < std::max(most_unused, cycle->patience)) {
      largest_used = std::max(largest_used, peak_of(cycle));
    }
  }
  // A little less is not worth learning it again.
  size_t keep_up_to = SIZE_MAX;
  if (largest_used > 0 && largest_used < peak_bytes_ - peak_bytes_ / 16) keep_up_to = largest_used;
  // From the largest down, while their patience is over: the lowest gap. The largest sizes, once each.
  struct Size {
    size_t peak = 0;
    bool all_idle = true;
  };
  std::array<Size, kMostGaps + 1> sizes;
  size_t count = 0;
  for (const auto& cycle : cycles_) {
    const size_t peak = peak_of(cycle);
    if (peak > peak_bytes_) continue;  // of a file
    if (count == sizes.size() && peak < sizes.back().peak) continue;
    const auto at = std::find_if(sizes.begin(), sizes.begin() + count,
                                 [peak](const Size& size) { return size.peak <= peak; });
    if (at == sizes.begin() + count || at->peak != peak) {
      count = std::min(count + 1, sizes.size());
      std::move_backward(at, sizes.begin() + count - 1, sizes.begin() + count);
      *at = {peak, true};
    }
    if (cycle == cycles_.front() || idle_of(*cycle) < cycle->patience) at->all_idle = false;
  }
  for (size_t i = 0; i + 1 < count && sizes[i].all_idle; ++i) {
    const size_t next = sizes[i + 1].peak;
    if (sizes[i].peak > next + next / 4) keep_up_to = std::min(keep_up_to, next);
  }
  if (keep_up_to >= peak_bytes_) return false;
  for (const auto& cycle : cycles_) {
    if (peak_of(cycle) > keep_up_to) Remember(*cycle);
  }
  ForgetLarger(keep_up_to);
  return true;
}

bool PlanSet::ForgetInTheWay(uint64_t now) noexcept {
  const uint64_t most_unused = 4 * MostUnused();
  const auto& list = list_->cycles_;
  const auto first = [](const auto& cycle) { return cycle->plan->requests.front().size; };
  const auto peak = [](const auto& cycle) { return cycle->plan->layout.peak_bytes(); };
  const auto idle = [now](const auto& cycle) { return now - cycle->used_at; };
  bool any = false;
  for (size_t begin = 0, end = 0; begin < list.size(); begin = end) {
    size_t largest_used = 0;
    for (; end < list.size() && first(list[end]) == first(list[begin]); ++end) {
      if (idle(list[end]) < most_unused) largest_used = std::max(largest_used, peak(list[end]));
    }
    if (largest_used == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      if (peak(list[i]) <= largest_used + largest_used / 16 ||
          idle(list[i]) <
              std::max({most_unused, list[i]->patience,
                        kPatienceInTheWay * std::min(list[i]->patience, kMostPatience)})) {
        continue;
      }
      const auto held = by_key_.find(Key(*list[i]->plan));
      if (held == by_key_.end() || held->second != list[i].get()) continue;
      Remember(*held->second);
      held->second->goes = any = true;
    }
  }
  if (!any) return false;
  std::erase_if(by_key_, [](const auto& entry) { return entry.second->goes; });
  std::erase_if(cycles_, [](const auto& cycle) { return cycle->goes; });
  Changed();
  return true;
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

bool PlanSet::ForgetGuesses(const std::function<void(uint64_t)>& saw) noexcept {
  const auto goes = [](const LearnedCycle& cycle) { return cycle.guessed && !cycle.paid; };
  std::erase_if(by_key_, [&](const auto& entry) { return goes(*entry.second); });
  const size_t gone = std::erase_if(cycles_, [&](const auto& cycle) {
    if (goes(*cycle)) saw(cycle->plan->signature());
    return goes(*cycle);
  });
  if (gone > 0) Changed();
  return gone > 0;
}

void PlanSet::Forget(const LearnedCycle* cycle) noexcept {
  by_key_.erase(Key(*cycle->plan));
  std::erase_if(cycles_, [cycle](const auto& other) { return other.get() == cycle; });
  Changed();
}

void PlanSet::ForgetLarger(size_t bytes) noexcept {
  if (std::max(peak_bytes_, loaded_peak_bytes_) <= bytes) return;
  std::erase_if(by_key_, [bytes](const auto& entry) {
    return entry.second->plan->layout.peak_bytes() > bytes;
  });
  std::erase_if(cycles_,
                [bytes](const auto& cycle) { return cycle->plan->layout.peak_bytes() > bytes; });
  Changed();
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
    auto left = std::make_shared<PlanList>();
    left->cycles_.reserve(cycles_.size());
    for (const auto& cycle : list_->cycles_) {
      if (left->cycles_.size() < cycles_.size() && Holds(cycle.get()))
        left->cycles_.push_back(cycle);
    }
    list_ = left->cycles_.size() == cycles_.size() ? std::move(left) : MakeList(cycles_);
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
