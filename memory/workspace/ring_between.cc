// The other half of RingCore: how slots are made, follow what was learned, and end.
#include <cstdio>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/ring_core.h"

namespace tidepool {
namespace {

// Blocks for spills are kept over so many batches of a slot that do not spill.
constexpr int kBatchesKeepingBlocks = 8;

WorkspaceConfig Checked(const std::string& id, WorkspaceConfig config, Device device) {
  if (config.policy_reset != ResetPolicy::kEndOfBufferReached) {
    ThrowInvalidArgument(
        absl::StrCat("ring [", id,
                     "]: policy_reset is kBlockLeft, expected kEndOfBufferReached; start from "
                     "WorkspaceConfig::Ring(slots)"));
  }
  config.Validate(id, device);
  return config;
}

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

}  // namespace

void RingCore::SlotDeleter::operator()(RingSlot* slot) const noexcept {
  if (slot->core != nullptr) slot->core->Abandon();
  delete slot;
}

RingCore* RingCore::New(std::string id, WorkspaceConfig config, Device device) {
  return new RingCore(std::move(id), std::move(config), device);
}

RingCore::RingCore(std::string id_, WorkspaceConfig config_, Device device_)
    : id(std::move(id_)),
      config(Checked(id, std::move(config_), device_)),
      device(device_),
      holders_(1 + config.ring_slots),
      learning_(config, config.alignment, 0) {
  slots_.reserve(config.ring_slots);
  for (int number = 0; number < config.ring_slots; ++number) {
    slots_.push_back(NewSlot(number, /*temporary=*/false));
  }
  // The slot that is reused first is the one pushed last.
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) PushIdle(slot->get());
  learning_ = RingLearning(config, slots_[0]->core->alignment(), slots_[0]->core->size);
  for (const SlotPointer& slot : slots_) slot->adopted = learning_.version();
}

RingCore::SlotPointer RingCore::NewSlot(int number, bool temporary) const {
  SlotPointer slot(new RingSlot);
  slot->ring = const_cast<RingCore*>(this);
  slot->number = number;
  slot->temporary = temporary;
  const Growing growing(*this);
  WorkspaceCore* const core = WorkspaceCore::New(id, SlotConfig(config, temporary), device);
  slot->core = core;
  core->is_ring_slot_ = true;
  core->reclaimer_ = Reclaimer::Global().Register(
      absl::StrCat("ring ", id, " slot ", number), [this, core](ReclaimDepth depth) -> int64_t {
        return growing_.load(std::memory_order_relaxed) > 0 ? 0 : core->Reclaim(depth);
      });
  return slot;
}

// Without the memory to follow, the batch spills and the slot tries again when next opened.
void RingCore::Follow(RingSlot* slot, size_t bytes, const LearnedCycle* learned,
                      uint64_t version) noexcept {
  if (slot->temporary) return;
  try {
    const Growing growing(*this);
    // An idle slot may be the Reclaimer's at this moment.
    const WorkspaceCore::Maintenance maintenance(*slot->core, "following the ring");
    if (slot->adopted != version) {
      slot->core->AdoptLearned(bytes, learned);
      slot->adopted = version;
    } else if (slot->batches_without_spill >= kBatchesKeepingBlocks &&
               slot->core->pool_.owned_bytes() > 0) {
      slot->core->TrimPool();
    }
  } catch (const std::exception&) {
  }
}

void RingCore::FollowAll(RingSlot* chain, size_t bytes, const LearnedCycle* learned,
                         uint64_t version) noexcept {
  if (chain == nullptr) return;
  for (RingSlot* slot = chain; slot != nullptr; slot = slot->next_idle) {
    Follow(slot, bytes, learned, version);
  }
  RingSlot* removed = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    while (chain != nullptr) {
      RingSlot* slot = std::exchange(chain, chain->next_idle);
      if (gone_) {
        Remove(slot, &removed);
      } else {
        PushIdle(slot);
      }
    }
    if (waiters_ > 0) changed_.notify_all();
  }
  Free(removed);
}

void RingCore::Initialize() {
  std::lock_guard<std::mutex> lock(mutex_);
  learning_.Initialize();
  idle_outdated_ = true;
}

void RingCore::Trim() {
  std::unique_lock<std::mutex> lock(mutex_);
  learning_.Trim();
  idle_outdated_ = true;
  RingSlot* chain = std::exchange(idle_, nullptr);
  const size_t bytes = learning_.slot_bytes();
  const std::shared_ptr<const LearnedCycle> learned = learning_.learned();
  const uint64_t version = learning_.version();
  lock.unlock();
  for (RingSlot* slot = chain; slot != nullptr; slot = slot->next_idle) {
    const WorkspaceCore::Maintenance maintenance(*slot->core, "Trim");
    slot->core->TrimPool();
  }
  FollowAll(chain, bytes, learned.get(), version);
}

void RingCore::Destroy() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (open_ + leased_ > 0) {
    ThrowFailedPrecondition(
        absl::StrCat("ring [", id, "]: Destroy needs every slot idle: ", DescribeTaken()));
  }
  learning_.Forget();
  const std::shared_ptr<const LearnedCycle> given_up = learning_.TakeGivenUp();
  const uint64_t version = learning_.version();
  RingSlot* chain = std::exchange(idle_, nullptr);
  lock.unlock();
  for (RingSlot* slot = chain; slot != nullptr; slot = slot->next_idle) {
    slot->core->Destroy();
    slot->adopted = version;  // the initial pages come with the next cycle
  }
  FollowAll(chain, 0, nullptr, version);
}

RingStats RingCore::stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  RingStats stats = stats_;
  stats.plans = learning_.plans();
  stats.planned_peak_bytes = learning_.planned_peak_bytes();
  stats.live_lower_bound_bytes = learning_.live_lower_bound_bytes();
  stats.slot_bytes = learning_.slot_bytes();
  stats.open = open_;
  stats.leased = leased_;
  stats.idle = static_cast<int>(slots_.size()) - open_ - leased_;
  stats.kept = CountKept();
  return stats;
}

std::string RingCore::Dump() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string out = absl::StrCat("ring [", id, "] ", config.ring_slots, " slots of ",
                                 learning_.slot_bytes(), " bytes, generation ", generation_, "\n");
  for (const SlotPointer& slot : slots_) absl::StrAppend(&out, Describe(*slot), "\n");
  return out;
}

uint64_t RingCore::generation() {
  std::lock_guard<std::mutex> lock(mutex_);
  return generation_;
}

void RingCore::Abandon() noexcept {
  RingSlot* removed = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    gone_ = true;
    if (open_ > 0) {
      std::fprintf(stderr, "tidepool: ring [%s] is destroyed while %d of its slots are open\n",
                   id.c_str(), open_);
    }
    while (idle_ != nullptr) {
      RingSlot* slot = std::exchange(idle_, idle_->next_idle);
      Remove(slot, &removed);
    }
    changed_.notify_all();
  }
  Free(removed);
  Leave();
}

}  // namespace tidepool
