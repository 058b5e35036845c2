#include "tidepool/memory/spill/plan_counters.h"

#include <atomic>

#include "absl/strings/str_cat.h"

namespace tidepool {
namespace {

using Member = int64_t SpillPlanCounters::*;
constexpr Member kMembers[] = {&SpillPlanCounters::cycles,
                               &SpillPlanCounters::followed_cycles,
                               &SpillPlanCounters::unrecorded_cycles,
                               &SpillPlanCounters::followed_uses,
                               &SpillPlanCounters::mispredictions,
                               &SpillPlanCounters::ahead,
                               &SpillPlanCounters::ahead_bytes,
                               &SpillPlanCounters::in_time,
                               &SpillPlanCounters::late,
                               &SpillPlanCounters::in_vain,
                               &SpillPlanCounters::early_writes,
                               &SpillPlanCounters::early_bytes,
                               &SpillPlanCounters::early_in_vain};
constexpr int kCount = sizeof(kMembers) / sizeof(kMembers[0]);
static_assert(sizeof(SpillPlanCounters) == kCount * sizeof(int64_t));

constinit std::atomic<int64_t> totals[kCount];

}  // namespace

SpillPlanCounters TotalSpillPlanCounters() noexcept {
  SpillPlanCounters all;
  for (int i = 0; i < kCount; ++i) all.*kMembers[i] = totals[i].load(std::memory_order_relaxed);
  return all;
}

std::string SpillPlanCounters::ToString() const {
  if (cycles + unrecorded_cycles == 0) return "";
  std::string out = absl::StrCat(
      "spill plan: ", followed_cycles, " of ", cycles, " cycles followed it (", followed_uses,
      " uses), ", mispredictions, " left it; ", ahead, " read ahead (", ahead_bytes,
      " bytes): ", in_time, " in time, ", late, " late, ", in_vain, " in vain; ", early_writes,
      " written early (", early_bytes, " bytes), ", early_in_vain, " of them in vain\n");
  if (unrecorded_cycles > 0) {
    absl::StrAppend(&out, "spill plan: ", unrecorded_cycles,
                    " cycles had more uses than are recorded, and were not learned\n");
  }
  return out;
}

namespace internal {

void CountSpillPlan(SpillPlanCounters* counters, const SpillPlanCounters& change) noexcept {
  for (int i = 0; i < kCount; ++i) {
    const int64_t by = change.*kMembers[i];
    if (by == 0) continue;
    counters->*kMembers[i] += by;
    totals[i].fetch_add(by, std::memory_order_relaxed);
  }
}

}  // namespace internal
}  // namespace tidepool
