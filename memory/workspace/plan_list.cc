// Plans in the order of what their requests begin with.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tidepool/memory/workspace/plan_set.h"

namespace tidepool {
namespace {

// How many requests both begin with.
uint32_t CommonRequests(const CyclePlan& a, const CyclePlan& b) {
  const size_t shorter = std::min(a.signatures.size(), b.signatures.size());
  const auto differ = std::partition_point(
      a.signatures.begin(), a.signatures.begin() + static_cast<std::ptrdiff_t>(shorter),
      [&](const uint64_t& signature) {
        return signature == b.signatures[static_cast<size_t>(&signature - a.signatures.data())];
      });
  return static_cast<uint32_t>(differ - a.signatures.begin());
}

// What is next after `slot` requests: those that end there come first.
struct Next {
  bool ends;
  uint64_t signature;
};
Next NextOf(const CyclePlan& plan, uint32_t slot) {
  if (plan.signatures.size() <= slot) return {true, 0};
  return {false, plan.signatures[slot]};
}
bool Before(const Next& a, const Next& b) {
  return a.ends != b.ends ? a.ends : a.signature < b.signature;
}

bool BeginsBefore(const CyclePlan& a, const CyclePlan& b) {
  const uint32_t common = CommonRequests(a, b);
  return Before(NextOf(a, common), NextOf(b, common));
}

}  // namespace

const std::shared_ptr<const PlanList>& PlanList::None() {
  // Never destroyed: workspaces may end after the statics of the program.
  static const auto* const none = new std::shared_ptr<const PlanList>(std::make_shared<PlanList>());
  return *none;
}

PlanList::Range PlanList::Like(const CyclePlan& plan, uint32_t count) const {
  // Those before it that are unlike it, those that are like it, those after it.
  const auto side = [&](const std::shared_ptr<const LearnedCycle>& cycle) {
    const uint32_t common = CommonRequests(*cycle->plan, plan);
    if (common >= count) return 0;
    return Before(NextOf(*cycle->plan, common), NextOf(plan, common)) ? -1 : 1;
  };
  const auto begin = std::partition_point(cycles_.begin(), cycles_.end(),
                                          [&](const auto& cycle) { return side(cycle) < 0; });
  const auto end = std::partition_point(begin, cycles_.end(),
                                        [&](const auto& cycle) { return side(cycle) == 0; });
  return {static_cast<uint32_t>(begin - cycles_.begin()),
          static_cast<uint32_t>(end - cycles_.begin())};
}

PlanList::Range PlanList::Narrow(Range range, uint32_t slot, uint64_t signature) const {
  if (range.empty()) return range;
  const Next next{false, signature};
  const auto is_next = [&](uint32_t i) {
    const Next of = NextOf(*cycles_[i]->plan, slot);
    return !of.ends && of.signature == signature;
  };
  if (is_next(range.begin) && is_next(range.end - 1)) return range;
  const auto first = cycles_.begin() + range.begin, last = cycles_.begin() + range.end;
  const auto begin = std::partition_point(
      first, last, [&](const auto& cycle) { return Before(NextOf(*cycle->plan, slot), next); });
  const auto end = std::partition_point(
      begin, last, [&](const auto& cycle) { return !Before(next, NextOf(*cycle->plan, slot)); });
  return {static_cast<uint32_t>(begin - cycles_.begin()),
          static_cast<uint32_t>(end - cycles_.begin())};
}

std::shared_ptr<const PlanList> PlanSet::MakeList(const Cycles& cycles) {
  auto list = std::make_shared<PlanList>();
  list->cycles_.assign(cycles.begin(), cycles.end());
  std::sort(list->cycles_.begin(), list->cycles_.end(), [](const auto& a, const auto& b) {
    return a != b && BeginsBefore(*a->plan, *b->plan);
  });
  return list;
}

}  // namespace tidepool
