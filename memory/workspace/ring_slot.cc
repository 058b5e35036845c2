#include "tidepool/memory/workspace/ring_slot.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

// Blocks for spills are kept over so many batches of a slot that do not spill.
constexpr int kBatchesKeepingBlocks = 8;

WorkspaceConfig SlotConfig(WorkspaceConfig config, bool temporary) {
  config.policy_reset = ResetPolicy::kBlockLeft;
  config.ring_slots = 0;
  if (config.policy_learning == LearningPolicy::kTraining) {
    config.policy_learning = LearningPolicy::kOptimized;  // a slot has the ring's one plan
  }
  if (temporary) {
    config.initial_size = 0;
    config.policy_learning = LearningPolicy::kNone;
  }
  return config;
}

class Growing {
 public:
  explicit Growing(RingSlot::Ring& ring) : ring_(ring) { ++ring_.growing; }
  ~Growing() { --ring_.growing; }

 private:
  RingSlot::Ring& ring_;
};

}  // namespace

RingSlot::RingSlot(Ring& ring, int slot_number, bool is_temporary)
    : number(slot_number), temporary(is_temporary), ring_(ring) {
  const Growing growing(ring);
  core_ = WorkspaceCore::New(ring.id, SlotConfig(ring.config, temporary), ring.device);
  core_->is_ring_slot_ = true;
  try {
    core_->reclaimer_ = Reclaimer::Global().Register(
        absl::StrCat("ring ", ring.id, " slot ", number),
        [&ring, core = core_](ReclaimDepth depth) -> int64_t {
          return ring.growing.load(std::memory_order_relaxed) > 0 ? 0 : core->Reclaim(depth);
        });
  } catch (...) {
    core_->Abandon();
    throw;
  }
}

RingSlot::~RingSlot() { core_->Abandon(); }

size_t RingSlot::size() const { return core_->size; }
size_t RingSlot::alignment() const { return core_->alignment(); }
bool RingSlot::is_open() const { return core_->is_open(); }

void RingSlot::Enter(internal::ScopeToken* token) {
  core_->PrepareSlot(generation_);
  token->Push(core_, core_->passes_through() ? nullptr : core_);
  core_->recording_ = record_;
}

RingBatch RingSlot::HandOver(internal::ScopeToken* token) {
  const bool mine = core_->is_open_on(CurrentThreadToken());
  if (mine) core_->handing_over_ = true;
  try {
    token->Close();
  } catch (...) {
    if (mine) core_->handing_over_ = false;
    throw;
  }
  leases.Begin();
  batches_without_spill_ = core_->spilled_count > 0 ? 0 : batches_without_spill_ + 1;
  RingBatch batch;
  batch.bytes = core_->bytes_this_cycle;
  batch.misses = core_->misses_this_cycle_;
  batch.record = core_->record_;
  if (!batch.record.empty()) batch.shape = ShapeOf(batch.record);
  return batch;
}

void RingSlot::EndLease() noexcept { core_->EndLease(); }

void RingSlot::CountInto(RingStats* stats) {
  const WorkspaceStats& now = core_->stats;
  if (now.spills != counted_.spills) may_have_blocks_ = true;
  stats->hits += now.hits - counted_.hits;
  stats->misses += now.misses - counted_.misses;
  stats->spills += now.spills - counted_.spills;
  stats->spilled_bytes += now.spilled_bytes - counted_.spilled_bytes;
  stats->leaked_arrays += now.leaked_arrays - counted_.leaked_arrays;
  counted_ = now;
}

void RingSlot::Follow(const SlotLesson& lesson) noexcept {
  const bool follows = followed_ == lesson.version;
  const bool keeps_blocks = !may_have_blocks_ || batches_without_spill_ < kBatchesKeepingBlocks;
  if (temporary || (follows && keeps_blocks)) return;
  try {
    const Growing growing(ring_);
    // An idle slot may be the Reclaimer's at this moment.
    const WorkspaceCore::Maintenance maintenance(*core_, "following the ring");
    if (follows) {
      core_->TrimPool();
      may_have_blocks_ = false;
    } else {
      core_->AdoptLearned(lesson.slot_bytes, lesson.plan.get());
      followed_ = lesson.version;
    }
  } catch (const std::exception&) {
  }
}

void RingSlot::GiveBackBlocks() {
  const WorkspaceCore::Maintenance maintenance(*core_, "Trim");
  core_->TrimPool();
}

void RingSlot::GiveBackPages() { core_->Destroy(); }

}  // namespace tidepool
