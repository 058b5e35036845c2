// A plan that is to be made, and what was made: planning takes long, so it is apart from who learns (plan_learner.h).
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WANTED_PLAN_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WANTED_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/workspace/cycle_plan.h"
#include "tidepool/memory/workspace/plan_set.h"

namespace tidepool {

// A plan that is to be made. What it points to lives as long.
struct WantedPlan {
  enum class Kind : uint8_t { kCycle, kBeginning, kAlone, kRefused };
  Kind kind = Kind::kCycle;
  uint64_t learning = 0;   // what was learned is given up from time to time; of which one it is
  size_t limit_bytes = 0;  // requests beyond are planned outside of the pages
  // Of the pages, where what is alive at once fits into so much. kRefused: in any case.
  size_t most_peak = SIZE_MAX;
  // That pages may have where memory was refused of late: more effort is made where a plan alone needs more.
  size_t room = SIZE_MAX;
  size_t alignment = 0;
  bool pins = false;         // kCycle: around what other plans have
  bool may_give_up = false;  // kCycle: with all that begin alike, where these need too much
  bool to_end = false;       // kCycle: what lives longer than in `same` lives to the end
  std::shared_ptr<const CyclePlan>
      same;  // of the same requests, whose longer lifetimes stay; or null
  std::shared_ptr<const CyclePlan> longer;  // likewise
  std::vector<std::shared_ptr<const CyclePlan>>
      family;                              // of others that begin alike; empty: none, or too many
  std::shared_ptr<const CyclePlan> whole;  // kBeginning: of which it is one
  MappedVector<int64_t>
      longest;  // kCycle: until where requests lived in cycles of these since `same` was made; or none
  MappedVector<LifetimeBuffer> seen;  // kAlone: the longest lifetimes; kRefused: of these
  size_t most_alive = 0;              // kAlone: at once in one of those cycles, bytes
  size_t peak_to_beat = 0;            // kAlone
  size_t least_gain = 0;  // of planning a family together, bytes; kAlone: at most peak_to_beat
  size_t loose_of =
      0;  // kAlone: the most bytes alive, where the plan there is goes if no smaller one is made; else 0
};

// What was made for it.
struct NewPlans {
  std::shared_ptr<const CyclePlan> plan;
  std::vector<PlanSet::Replacement> others;  // of the family
};
using MadePlans = std::shared_ptr<const NewPlans>;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WANTED_PLAN_H_
