// What a learner is told of a cycle, and what it tells.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_ENDED_CYCLE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_ENDED_CYCLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/workspace/cycle_recorder.h"
#include "tidepool/memory/workspace/plan_set.h"
#include "tidepool/memory/workspace/refused_request.h"
#include "tidepool/memory/workspace/request_slot.h"

namespace tidepool {

// A cycle that has ended well, or a batch that was handed over: what is alive of it lives to the end.
struct EndedCycle {
  RequestView made;
  const CycleRecorder* recorder;  // finished
  const LearnedCycle* followed;   // at its end; null: none
  bool current = true;            // it followed what is learned now
  // `made` tells when its requests were released. A batch's readers release it at any time.
  // Then only what was recorded is known.
  bool knows_lifetimes = true;
  uint64_t misses = 0;     // requests a plan existed for but could not be followed
  size_t bytes = 0;        // sum of the requests
  size_t cursor = 0;       // highest address handed out
  uint32_t changes = 0;    // from one plan to another
  size_t reach = 0;        // the pages that would have served all of it as it came
  size_t roomy_reach = 0;  // likewise, with room for larger gaps
  size_t room = SIZE_MAX;  // that limits leave beside all there is
  // Memory was refused to its last request, which is not among these; null: not so. It may have failed for that.
  const RefusedRequest* refused = nullptr;

  // It left its plan, or had none, or was to be recorded.
  bool is_recorded() const { return !recorder->requests().empty(); }
  // It had no plan, and the lesson was not to record it: the hash of its requests is all that is known.
  bool is_unrecorded() const { return followed == nullptr && !is_recorded(); }
  // Of its first request, where it made any.
  size_t first_bytes() const {
    if (followed == nullptr || is_recorded()) return recorder->first_bytes();
    return static_cast<size_t>(followed->plan->requests.front().size);
  }
  // Its plan served it well enough: what it has missed of its requests is little.
  bool was_served() const {
    constexpr uint64_t kShareMissed = 16;
    return followed != nullptr && misses * kShareMissed < made.count();
  }
  bool has_lifetimes() const { return is_recorded() || (knows_lifetimes && !is_unrecorded()); }
  // Before which request `slot` was released.
  int64_t upper(uint32_t slot) const {
    return is_recorded() ? recorder->requests()[slot].upper : made.upper(slot);
  }
  // What it requested: as recorded, or as the plan has it, which it followed to its end.
  MappedVector<LifetimeBuffer> Lifetimes() const;
};

// What is followed from the next cycle on.
struct Lesson {
  uint64_t version = 0;                   // another one when anything is
  size_t bytes = 0;                       // of the pages
  std::shared_ptr<const PlanList> plans;  // that a cycle may turn out to be
  const LearnedCycle* next = nullptr;     // of them, that it is expected to be; null: none
  // Cycles that follow no plan are written down. Else only hashed: planning waits until something comes again.
  bool records = true;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_ENDED_CYCLE_H_
