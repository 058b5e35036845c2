// What the slots of a ring learn, once for all of them: how big a slot is and, where batches
// repeat, where each request goes.
//
// kFirstLoop, kOverTime: the largest total of the recent batches. kOptimized (kTraining is the same
// here): the first batch becomes a plan by lifetimes; a plan that two batches running do not follow
// is given up for totals, which serve batches of any shape; a shape that then comes several times
// running is planned again. Under policy_spill kReallocate a batch that outgrows its slot makes all
// slots larger and, once the recent batches no longer need it, smaller again, so an outlier is
// forgotten. Under kExternal and kFail the size stays what it first became.
//
// Making a plan takes long (a millisecond for hundreds of requests, seconds for a million), so it
// is apart: Observe() says that one is wanted, MakePlan() needs nothing that others use, Adopt()
// takes it.
//
// Threads: one at a time (the ring's lock), but MakePlan(), which may run beside everything. Cost:
// tens of nanoseconds, likewise.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_SLOT_LEARNER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_SLOT_LEARNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/cycle_plan.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

// One committed batch.
struct RingBatch {
  size_t bytes = 0;     // sum of its requests, each rounded up
  bool current = true;  // made in a slot that followed what is learned now
  uint64_t misses = 0;  // requests the plan did not foresee
  // Requests and lifetimes when recorded; what is alive at the commit is alive to the end.
  absl::Span<const LifetimeBuffer> record;
  uint64_t shape = 0;  // ShapeOf(record)
};

// The same for records that are alike, and hardly for others. O(requests).
uint64_t ShapeOf(absl::Span<const LifetimeBuffer> record);

// The largest of the last `window` to 2 * `window` values.
class RecentPeak {
 public:
  explicit RecentPeak(int window) : window_(window) {}
  void Add(size_t value);
  size_t peak() const { return current_ > previous_ ? current_ : previous_; }
  void Clear() { *this = RecentPeak(window_); }

 private:
  int window_;
  int added_ = 0;
  size_t current_ = 0;
  size_t previous_ = 0;
};

// A plan that is to be made of a batch's record.
struct WantedPlan {
  uint64_t learning = 0;   // what was learned is given up from time to time; of which one it is
  size_t limit_bytes = 0;  // requests beyond are planned outside of the pages
  size_t alignment = 0;
};

// What slots follow.
struct SlotLesson {
  uint64_t version = 0;  // another one when anything is
  size_t slot_bytes = 0;
  std::shared_ptr<const CyclePlan> plan;  // null: requests go one behind the other
};

class RingSlotLearner {
 public:
  // `initial_bytes`: what every slot has from the start, the lower bound of what is learned.
  // `alignment` is that of requests, which the device may have raised.
  RingSlotLearner(const WorkspaceConfig& config, size_t alignment, size_t initial_bytes);

  // When it says so, a plan of this batch is wanted: Adopt(it, MakePlan(it, batch.record)) comes
  // next, with null where MakePlan threw. Until then no other one is wanted.
  std::optional<WantedPlan> Observe(const RingBatch& batch) noexcept;
  // Throws std::bad_alloc.
  static std::shared_ptr<const CyclePlan> MakePlan(const WantedPlan& wanted,
                                                   absl::Span<const LifetimeBuffer> record);
  void Adopt(const WantedPlan& wanted, std::shared_ptr<const CyclePlan> cycle) noexcept;
  // kOverTime: learns now from the batches seen.
  void Initialize();
  // Slots of what the recent batches need, at once.
  void Trim();
  void Forget();
  // What was learned and is given up: freeing a large plan takes a while.
  std::shared_ptr<const CyclePlan> TakeGivenUp() noexcept { return std::move(given_up_); }

  // Slots follow when they are opened.
  SlotLesson lesson() const { return {version_, slot_bytes_, learned_}; }
  size_t slot_bytes() const { return slot_bytes_; }
  std::shared_ptr<const CyclePlan> learned() const { return learned_; }
  uint64_t version() const { return version_; }
  // Batches must record their lifetimes.
  bool wants_record() const { return mode_ == Mode::kFirst || mode_ == Mode::kTotals; }

  uint64_t plans() const { return plans_; }
  size_t planned_peak_bytes() const { return planned_peak_; }
  size_t live_lower_bound_bytes() const { return lower_bound_; }

 private:
  enum class Mode : uint8_t { kOff, kTotalsOnly, kFirst, kPlanned, kTotals };

  Mode FirstMode() const;
  size_t SizeFor(size_t needed) const;
  bool may_change() const {
    return slot_bytes_ == 0 || config_.policy_spill == SpillPolicy::kReallocate;
  }
  void FollowTotals(bool may_shrink);
  // What may not become pages is planned outside of them.
  size_t PlanLimit() const;
  std::optional<WantedPlan> WantPlan();
  std::optional<WantedPlan> ObserveShape(uint64_t shape);

  WorkspaceConfig config_;
  size_t alignment_;
  size_t initial_bytes_;
  Mode mode_;
  uint64_t version_ = 1;
  uint64_t learning_ = 0;     // raised by Forget()
  bool making_plan_ = false;  // one is wanted and not adopted
  size_t slot_bytes_;
  std::shared_ptr<const CyclePlan> learned_;
  std::shared_ptr<const CyclePlan> given_up_;
  RecentPeak totals_;
  uint64_t batches_ = 0;
  int missed_running_ = 0;
  uint64_t last_shape_ = 0;
  int same_shape_running_ = 0;
  uint64_t plans_ = 0;
  size_t planned_peak_ = 0;
  size_t lower_bound_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_SLOT_LEARNER_H_
