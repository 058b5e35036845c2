#include "tidepool/memory/workspace/ring_slot.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

// Blocks for spills are kept over so many batches of a slot that do not spill.
constexpr int kBatchesKeepingBlocks = 8;

WorkspaceConfig SlotConfig(WorkspaceConfig config, bool temporary) {
  config.policy_reset = ResetPolicy::kBlockLeft;
  // What is the ring's own.
  config.ring_slots = config.ring_max_temporary = config.ring_max_kept = 0;
  config.policy_ring_full = RingFullPolicy::kWait;
  if (temporary) {
    config.initial_size = 0;
    config.policy_learning = LearningPolicy::kNone;
    config.cycles_before_initialization = 0;
  }
  return config;
}

// Of a counter that only grows, what has not been counted yet.
void AddNew(uint64_t now, uint64_t* counted, uint64_t* sum) {
  *sum += now - *counted;
  *counted = now;
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
  core_ = WorkspaceCore::NewRingSlot(ring.id, SlotConfig(ring.config, temporary), ring.device,
                                     absl::StrCat("ring ", ring.id, " slot ", number), [&ring] {
                                       return ring.growing.load(std::memory_order_relaxed) == 0;
                                     });
  core_->detector().ShareFirst(ring.first_finding);
  if (LimitsLive(ring.config))
    core_->LimitLive();  // a temporary one learns nothing, but is limited as others are
}

RingSlot::~RingSlot() { core_->Abandon(); }

size_t RingSlot::size() const { return core_->counters.size; }
size_t RingSlot::alignment() const { return core_->alignment(); }
bool RingSlot::is_open() const { return core_->is_open(); }

void RingSlot::Enter(internal::ScopeToken* token) {
  core_->SetGeneration(generation_);
  try {
    token->Push(core_, core_->passes_through() ? nullptr : core_);
  } catch (...) {
    core_->SetGeneration(generation_before_ + 1);  // it is free after that one, as it was
    throw;
  }
  has_begun_.store(true, std::memory_order_relaxed);
}

EndedCycle RingSlot::HandOver(internal::ScopeToken* token, bool with_lifetimes) noexcept {
  core_->HandOverAtEnd(true, with_lifetimes);
  token->CloseChecked();
  leases.Begin();
  batches_without_spill_ = core_->counters.cycle_spills > 0 ? 0 : batches_without_spill_ + 1;
  EndedCycle batch = core_->Ended();
  batch.knows_lifetimes = false;
  return batch;
}

void RingSlot::EndLease() noexcept { core_->EndLease(); }

void RingSlot::CountLeakedInto(RingStats* stats) {
  AddNew(core_->counters.leaked_arrays, &counted_.leaked_arrays, &stats->leaked_arrays);
}

void RingSlot::CountInto(RingStats* stats) {
  const auto& now = core_->counters;
  if (now.spills != counted_.spills) may_have_blocks_ = true;
  AddNew(core_->CurrentHits(), &counted_.hits, &stats->hits);
  AddNew(now.misses, &counted_.misses, &stats->misses);
  AddNew(now.spills, &counted_.spills, &stats->spills);
  AddNew(now.spilled_bytes, &counted_.spilled_bytes, &stats->spilled_bytes);
  CountLeakedInto(stats);
}

void RingSlot::Expect(const LearnedCycle* next) noexcept {
  if (temporary) return;
  core_->Expect(next);
  GiveBackOldBlocks();
}

bool RingSlot::Follow(const Lesson& lesson) noexcept {
  if (temporary) return true;
  if (followed_ == lesson.version) {
    Expect(lesson.next);
    return true;
  }
  try {
    const Growing growing(ring_);
    // An idle slot may be the Reclaimer's at this moment.
    const WorkspaceCore::Maintenance maintenance(*core_, "following the ring");
    core_->Follow(lesson);
    followed_ = lesson.version;
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void RingSlot::GiveBackOldBlocks() noexcept {
  if (!may_have_blocks_ || batches_without_spill_ < kBatchesKeepingBlocks) return;
  try {
    const WorkspaceCore::Maintenance maintenance(*core_, "following the ring");
    core_->TrimSpills();
    may_have_blocks_ = false;
  } catch (const std::exception&) {
    // At the next look.
  }
}

void RingSlot::GiveBackBlocks() {
  const WorkspaceCore::Maintenance maintenance(*core_, "Trim");
  core_->TrimSpills();
}

void RingSlot::GiveBackLearned() {
  if (generation_ == 0 || followed_ == 0) return;
  core_->GiveBackLearned();
  followed_ = 0;
}

void RingSlot::GiveBackPages() { core_->Destroy(); }

}  // namespace tidepool
