// Which plans are forgotten.
#include <algorithm>
#include <array>

#include "tidepool/memory/workspace/plan_set.h"

namespace tidepool {
namespace {

constexpr uint64_t kPatienceInTheWay = 16;
// So many sizes of plans are looked at for a gap below them.
constexpr int kMostGaps = 64;

}  // namespace

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
  if (now - looked_at_ < cycles_.size() / 4) return false;
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
  const PlanList& list = *list_;
  const auto first = [](const LearnedCycle& cycle) { return cycle.plan->requests.front().size; };
  const auto peak = [](const LearnedCycle& cycle) { return cycle.plan->layout.peak_bytes(); };
  const auto idle = [now](const LearnedCycle& cycle) { return now - cycle.used_at; };
  bool any = false;
  for (uint32_t begin = 0, end = 0; begin < list.size(); begin = end) {
    size_t largest_used = 0;
    for (; end < list.size() && first(list[end]) == first(list[begin]); ++end) {
      if (idle(list[end]) < most_unused) largest_used = std::max(largest_used, peak(list[end]));
    }
    if (largest_used == 0) continue;
    for (uint32_t i = begin; i < end; ++i) {
      const LearnedCycle& cycle = list[i];
      if (peak(cycle) <= largest_used + largest_used / 16 ||
          idle(cycle) < std::max({most_unused, cycle.patience,
                                  kPatienceInTheWay * std::min(cycle.patience, kMostPatience)})) {
        continue;
      }
      const auto held = by_key_.find(Key(*cycle.plan));
      if (held == by_key_.end() || held->second->get() != &cycle) continue;
      Remember(cycle);
      (*held->second)->goes = any = true;
    }
  }
  if (!any) return false;
  ForgetThoseThatGo();
  return true;
}

template <typename Goes>
bool PlanSet::ForgetAll(const Goes& goes) noexcept {
  std::erase_if(by_key_, [&](const auto& entry) { return goes(**entry.second); });
  const size_t gone = std::erase_if(cycles_, [&](const auto& cycle) { return goes(*cycle); });
  if (gone > 0) Changed();
  return gone > 0;
}

bool PlanSet::ForgetGuesses(const std::function<void(uint64_t)>& saw) noexcept {
  const auto goes = [](const LearnedCycle& cycle) { return cycle.guessed && !cycle.paid; };
  for (const auto& cycle : cycles_) {
    if (goes(*cycle)) saw(cycle->plan->signature());
  }
  return ForgetAll(goes);
}

void PlanSet::ForgetThoseThatGo() noexcept {
  ForgetAll([](const LearnedCycle& cycle) { return cycle.goes; });
}

void PlanSet::ForgetBeginning(size_t first_bytes) noexcept {
  ForgetAll([first_bytes](const LearnedCycle& cycle) {
    return cycle.plan->requests.front().size == static_cast<int64_t>(first_bytes);
  });
}

void PlanSet::Forget(const LearnedCycle* cycle) noexcept {
  by_key_.erase(Key(*cycle->plan));
  std::erase_if(cycles_, [cycle](const auto& other) { return other.get() == cycle; });
  Changed();
}

void PlanSet::ForgetLarger(size_t bytes) noexcept {
  if (std::max(peak_bytes_, loaded_peak_bytes_) <= bytes) return;
  ForgetAll([bytes](const LearnedCycle& cycle) { return cycle.plan->layout.peak_bytes() > bytes; });
}

}  // namespace tidepool
