#include "tidepool/memory/workspace/ring_learning.h"

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

}  // namespace

void RecentPeak::Add(size_t value) {
  if (added_ == window_) {
    previous_ = current_;
    current_ = 0;
    added_ = 0;
  }
  ++added_;
  current_ = std::max(current_, value);
}

RingLearning::RingLearning(const WorkspaceConfig& config, size_t alignment, size_t initial_bytes)
    : config_(config),
      alignment_(alignment),
      initial_bytes_(initial_bytes),
      mode_(FirstMode()),
      slot_bytes_(initial_bytes),
      totals_(std::max(kBatchesRemembered, kTurnsRemembered * config.ring_slots)) {}

RingLearning::Mode RingLearning::FirstMode() const {
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

size_t RingLearning::SizeFor(size_t needed) const {
  return std::max(LearnedSize(config_, needed), initial_bytes_);
}

void RingLearning::FollowTotals(bool may_shrink) {
  if (!may_change() || totals_.peak() == 0) return;
  const size_t wanted = SizeFor(totals_.peak());
  // A quarter less is worth moving every slot for.
  const bool smaller = may_shrink && wanted < slot_bytes_ - slot_bytes_ / 4;
  if (smaller || (totals_.peak() > slot_bytes_ && wanted > slot_bytes_)) {
    slot_bytes_ = wanted;
    ++version_;
  }
}

void RingLearning::MakePlan(absl::Span<const LifetimeBuffer> record) {
  // What may not become pages is planned outside of them.
  size_t limit = SIZE_MAX;
  if (!may_change()) {
    limit = slot_bytes_;
  } else if (config_.max_size > 0) {
    limit = std::max(config_.max_size, initial_bytes_);
  }
  std::shared_ptr<const CyclePlan> plan =
      MakeCyclePlan(PlaceRequests(record, {}, alignment_), limit);
  if (may_change()) slot_bytes_ = SizeFor(plan->layout.peak_bytes());
  planned_peak_ = plan->peak_bytes;
  lower_bound_ = plan->lower_bound_bytes;
  learned_ = std::move(plan);
  ++version_;
  ++plans_;
  mode_ = Mode::kPlanned;
  missed_running_ = 0;
}

void RingLearning::ObserveRecord(absl::Span<const LifetimeBuffer> record) {
  const uint64_t shape = ShapeOf(record);
  same_shape_running_ = shape == last_shape_ ? same_shape_running_ + 1 : 1;
  last_shape_ = shape;
  if (same_shape_running_ >= kRepeatsBeforePlan) {
    MakePlan(record);
    same_shape_running_ = 0;
  } else {
    FollowTotals(/*may_shrink=*/true);
  }
}

void RingLearning::Observe(const RingBatch& batch) {
  if (mode_ == Mode::kOff || batch.bytes == 0) return;
  if (mode_ == Mode::kFirst && !batch.record.empty()) MakePlan(batch.record);
  ++batches_;
  totals_.Add(batch.bytes);
  switch (mode_) {
    case Mode::kOff:
    case Mode::kFirst:
      return;
    case Mode::kTotalsOnly:
      if (config_.policy_learning == LearningPolicy::kOverTime && slot_bytes_ == 0 &&
          (config_.cycles_before_initialization == 0 ||
           batches_ < static_cast<uint64_t>(config_.cycles_before_initialization))) {
        return;
      }
      return FollowTotals(/*may_shrink=*/true);
    case Mode::kPlanned:
      if (!batch.current) return;
      missed_running_ = batch.misses > 0 ? missed_running_ + 1 : 0;
      if (missed_running_ < kMissesBeforeTotals) return;
      mode_ = Mode::kTotals;
      learned_ = nullptr;
      ++version_;
      last_shape_ = 0;
      same_shape_running_ = 0;
      return FollowTotals(/*may_shrink=*/false);
    case Mode::kTotals:
      if (!batch.record.empty()) ObserveRecord(batch.record);
      return;
  }
}

void RingLearning::Initialize() {
  if (mode_ == Mode::kTotalsOnly) FollowTotals(/*may_shrink=*/false);
}

void RingLearning::Trim() {
  if (mode_ == Mode::kOff || mode_ == Mode::kFirst || slot_bytes_ == 0) return;
  const size_t needed = learned_ != nullptr ? learned_->layout.peak_bytes() : totals_.peak();
  const size_t wanted = needed > 0 ? SizeFor(needed) : slot_bytes_;
  if (wanted >= slot_bytes_) return;
  slot_bytes_ = wanted;
  ++version_;
}

void RingLearning::Forget() {
  mode_ = FirstMode();
  ++version_;
  slot_bytes_ = initial_bytes_;
  learned_ = nullptr;
  totals_.Clear();
  batches_ = 0;
  missed_running_ = same_shape_running_ = 0;
  last_shape_ = 0;
  planned_peak_ = lower_bound_ = 0;
}

}  // namespace tidepool
