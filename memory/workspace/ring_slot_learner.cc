#include "tidepool/memory/workspace/ring_slot_learner.h"

#include <algorithm>
#include <utility>

#include "tidepool/memory/workspace/workspace_pages.h"

namespace tidepool {
namespace {

// A plan that this many batches running did not follow is given up.
constexpr int kMissesBeforeTotals = 2;
// A shape that comes so often running is worth a plan.
constexpr int kRepeatsBeforePlan = 8;
// What is remembered of recent batches, in turns of the ring, and at least so many batches.
constexpr int kTurnsRemembered = 8;
constexpr int kBatchesRemembered = 64;

}  // namespace

uint64_t ShapeOf(absl::Span<const LifetimeBuffer> record) {
  uint64_t shape = 0x9e3779b97f4a7c15u ^ record.size();
  for (const LifetimeBuffer& request : record) {
    for (int64_t value : {request.lower, request.upper, request.size}) {
      shape = (shape ^ static_cast<uint64_t>(value)) * 0xff51afd7ed558ccdu;
      shape ^= shape >> 32;
    }
  }
  return shape;
}

void RecentPeak::Add(size_t value) {
  if (added_ == window_) {
    previous_ = current_;
    current_ = 0;
    added_ = 0;
  }
  ++added_;
  current_ = std::max(current_, value);
}

RingSlotLearner::RingSlotLearner(const WorkspaceConfig& config, size_t alignment,
                                 size_t initial_bytes)
    : config_(config),
      alignment_(alignment),
      initial_bytes_(initial_bytes),
      mode_(FirstMode()),
      slot_bytes_(initial_bytes),
      totals_(std::max(kBatchesRemembered, kTurnsRemembered * config.ring_slots)) {}

RingSlotLearner::Mode RingSlotLearner::FirstMode() const {
  if (config_.debug_mode != DebugMode::kDisabled ||
      config_.workspace_mode == WorkspaceMode::kNone ||
      config_.policy_allocation == AllocationPolicy::kAlways) {
    return Mode::kOff;
  }
  switch (config_.policy_learning) {
    case LearningPolicy::kNone:
      return Mode::kOff;
    case LearningPolicy::kFirstLoop:
    case LearningPolicy::kOverTime:
      return Mode::kTotalsOnly;
    case LearningPolicy::kOptimized:
    case LearningPolicy::kTraining:
      return Mode::kFirst;
  }
  return Mode::kOff;
}

size_t RingSlotLearner::SizeFor(size_t needed) const {
  return std::max(LearnedSize(config_, needed), initial_bytes_);
}

void RingSlotLearner::FollowTotals(bool may_shrink) {
  if (!may_change() || totals_.peak() == 0) return;
  const size_t wanted = SizeFor(totals_.peak());
  // A quarter less is worth moving every slot for.
  const bool smaller = may_shrink && wanted < slot_bytes_ - slot_bytes_ / 4;
  if (smaller || (totals_.peak() > slot_bytes_ && wanted > slot_bytes_)) {
    slot_bytes_ = wanted;
    ++version_;
  }
}

size_t RingSlotLearner::PlanLimit() const {
  if (!may_change()) return slot_bytes_;
  return config_.max_size > 0 ? std::max(config_.max_size, initial_bytes_) : SIZE_MAX;
}

std::optional<WantedPlan> RingSlotLearner::WantPlan() {
  if (making_plan_) return std::nullopt;
  making_plan_ = true;
  return WantedPlan{learning_, PlanLimit(), alignment_};
}

std::shared_ptr<const CyclePlan> RingSlotLearner::MakePlan(
    const WantedPlan& wanted, absl::Span<const LifetimeBuffer> record) {
  return MakeCyclePlan(PlaceRequests(record, {}, wanted.alignment),
                       wanted.limit_bytes);
}

void RingSlotLearner::Adopt(const WantedPlan& wanted,
                            std::shared_ptr<const CyclePlan> cycle) noexcept {
  if (wanted.learning != learning_) return;
  making_plan_ = false;
  // Slots that took their first and only size meanwhile cannot hold it.
  if (cycle == nullptr || wanted.limit_bytes != PlanLimit()) return;
  if (may_change()) slot_bytes_ = SizeFor(cycle->layout.peak_bytes());
  planned_peak_ = cycle->peak_bytes;
  lower_bound_ = cycle->lower_bound_bytes;
  learned_ = std::move(cycle);
  ++version_;
  ++plans_;
  mode_ = Mode::kPlanned;
  missed_running_ = same_shape_running_ = 0;
}

std::optional<WantedPlan> RingSlotLearner::ObserveShape(uint64_t shape) {
  same_shape_running_ = shape == last_shape_ ? same_shape_running_ + 1 : 1;
  last_shape_ = shape;
  if (same_shape_running_ >= kRepeatsBeforePlan) {
    if (std::optional<WantedPlan> wanted = WantPlan()) return wanted;
  }
  FollowTotals(/*may_shrink=*/true);
  return std::nullopt;
}

std::optional<WantedPlan> RingSlotLearner::Observe(const RingBatch& batch) noexcept {
  if (mode_ == Mode::kOff || batch.bytes == 0) return std::nullopt;
  ++batches_;
  totals_.Add(batch.bytes);
  switch (mode_) {
    case Mode::kOff:
      break;
    case Mode::kFirst:
      if (!batch.record.empty()) return WantPlan();
      break;
    case Mode::kTotalsOnly:
      if (config_.policy_learning == LearningPolicy::kOverTime && slot_bytes_ == 0 &&
          (config_.cycles_before_initialization == 0 ||
           batches_ < static_cast<uint64_t>(config_.cycles_before_initialization))) {
        break;
      }
      FollowTotals(/*may_shrink=*/true);
      break;
    case Mode::kPlanned:
      if (!batch.current) break;
      missed_running_ = batch.misses > 0 ? missed_running_ + 1 : 0;
      if (missed_running_ < kMissesBeforeTotals) break;
      mode_ = Mode::kTotals;
      given_up_ = std::move(learned_);
      ++version_;
      last_shape_ = 0;
      same_shape_running_ = 0;
      FollowTotals(/*may_shrink=*/false);
      break;
    case Mode::kTotals:
      if (!batch.record.empty()) return ObserveShape(batch.shape);
      break;
  }
  return std::nullopt;
}

void RingSlotLearner::Initialize() {
  if (mode_ == Mode::kTotalsOnly) FollowTotals(/*may_shrink=*/false);
}

void RingSlotLearner::Trim() {
  if (mode_ == Mode::kOff || mode_ == Mode::kFirst || slot_bytes_ == 0) return;
  const size_t needed = learned_ != nullptr ? learned_->layout.peak_bytes() : totals_.peak();
  const size_t wanted = needed > 0 ? SizeFor(needed) : slot_bytes_;
  if (wanted >= slot_bytes_) return;
  slot_bytes_ = wanted;
  ++version_;
}

void RingSlotLearner::Forget() {
  mode_ = FirstMode();
  ++version_;
  ++learning_;
  making_plan_ = false;
  slot_bytes_ = initial_bytes_;
  given_up_ = std::move(learned_);
  totals_.Clear();
  batches_ = 0;
  missed_running_ = same_shape_running_ = 0;
  last_shape_ = 0;
  planned_peak_ = lower_bound_ = 0;
}

}  // namespace tidepool
