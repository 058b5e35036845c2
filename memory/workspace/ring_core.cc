#include "tidepool/memory/workspace/ring_core.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/workspace/scope_token.h"

namespace tidepool {
namespace {

// What is remembered of recent batches, in turns of the ring, and at least so many batches.
constexpr int kTurnsRemembered = 8;
constexpr int kBatchesRemembered = 64;
// Slots that stay idle are looked at so often: what they keep for batches that spill may go.
constexpr int kBatchesBetweenLooks = 64;
int TotalsWindow(const WorkspaceConfig& config) {
  return std::max(kBatchesRemembered, kTurnsRemembered * config.ring_slots);
}

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

}  // namespace

RingCore* RingCore::New(std::string id, WorkspaceConfig config, Device device) {
  return new RingCore(std::move(id), std::move(config), device);
}

RingCore::RingCore(std::string id_, WorkspaceConfig config_, Device device_)
    : id(std::move(id_)),
      config(Checked(id, std::move(config_), device_)),
      device(device_),
      holders_(1 + config.ring_slots),
      ring_{this, id, config, device},
      table_(id, config) {
  RingSlot* chain = nullptr;  // the first slot comes last on it, and is the first to be used
  for (int i = 0; i < config.ring_slots; ++i) {
    const int number = table_.Announce(/*temporary=*/false);
    RingSlot* slot = table_.Add(std::make_unique<RingSlot>(ring_, number, /*temporary=*/false));
    slot->next_on_shelf.set(std::exchange(chain, slot));
  }
  learner_.emplace(config, chain->alignment(), TotalsWindow(config));
  learner_->SetInitialBytes(chain->size());
  for (RingSlot* slot = chain; slot != nullptr; slot = slot->next_on_shelf.get()) {
    slot->SetFollows(learner_->version());
  }
  table_.PutBack(chain, nullptr);
}

// ---- opening --------------------------------------------------------------------------------

RingSlot* RingCore::Acquire(Full full, const std::stop_token& stop) {
  internal::EndLeftScopes();  // one of them may have a slot
  std::unique_lock<std::mutex> lock(mutex_);
  while (table_.is_full()) {
    if (full == Full::kRefuse) {
      ++stats_.refused;
      return nullptr;
    }
    if (internal::InCallback()) {
      ThrowFailedPrecondition(
          absl::StrCat("ring [", id, "]: every slot is in use; a callback may not wait"));
    }
    ThrowIfOnlyWhoWaitsCouldRelease();
    if (!Wait(lock, stop)) return nullptr;
  }
  RingSlot* slot = table_.TakeIdle();
  if (slot == nullptr) slot = MakeTemporary(lock);
  table_.Open(slot);
  ++openings_;
  WakeAllWhenStuck();  // one more may be passed by N later ones
  RingSlot* outdated = nullptr;
  const bool looks_at_idle = openings_ % kBatchesBetweenLooks == 0;
  if (!looks_at_idle && !idle_outdated_ && slot->Follows(learner_->version())) {
    const LearnedCycle* const next = learner_->next();
    lock.unlock();
    slot->Expect(next);
    return slot;
  }
  const Lesson lesson = learner_->lesson();
  const uint64_t newest = table_.generation();
  if (looks_at_idle) {
    outdated = table_.TakeAllUsed();
  } else if (std::exchange(idle_outdated_, false)) {
    outdated = table_.TakeOutdated(lesson);
  }
  lock.unlock();
  slot->Follow(lesson);
  for (RingSlot* idle = looks_at_idle ? outdated : nullptr; idle != nullptr;
       idle = idle->next_on_shelf.get()) {
    idle->StayedIdle(kBatchesBetweenLooks);
  }
  if (outdated != nullptr) FollowAndPutBack(outdated, lesson, newest);
  return slot;
}

RingSlot* RingCore::MakeTemporary(std::unique_lock<std::mutex>& lock) {
  const int number = table_.Announce(/*temporary=*/true);
  holders_.Add();  // the slot, from here on
  lock.unlock();
  std::unique_ptr<RingSlot> made;
  std::exception_ptr error;
  try {
    made = std::make_unique<RingSlot>(ring_, number, /*temporary=*/true);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error != nullptr) {
    table_.CannotAdd(/*temporary=*/true);
    if (waiters_ > 0) changed_.notify_one();
    lock.unlock();
    Leave();
    std::rethrow_exception(error);
  }
  return table_.Add(std::move(made));
}

void RingCore::Enter(RingSlot* slot, internal::ScopeToken* token) {
  try {
    slot->Enter(token);
    token->TellWhenEndedByThread(
        [](void* ended) {
          static_cast<RingSlot*>(ended)->ring().Return(static_cast<RingSlot*>(ended));
        },
        slot);
  } catch (...) {
    Return(slot);
    throw;
  }
}

// ---- commits, leases and returns --------------------------------------------------------------

void RingCore::Commit(RingSlot* slot, std::string_view tag, internal::ScopeToken* token) {
  EndedCycle batch = slot->HandOver(token, wants_lifetimes_.load(std::memory_order_relaxed));
  std::optional<WantedPlan> wanted;
  std::shared_ptr<const PlanList> before;  // what is forgotten goes after the lock
  {
    std::lock_guard<std::mutex> lock(mutex_);
    table_.Lease(slot, tag);
    ++stats_.committed;
    stats_.temporary += slot->temporary;
    slot->CountInto(&stats_);
    const uint64_t version = learner_->version();
    batch.current = slot->Follows(version) && !slot->temporary;
    if (learner_->ObserveSteady(batch)) return;
    before = learner_->plans().list();
    try {
      wanted = learner_->Observe(batch);
    } catch (const std::bad_alloc&) {
      // It teaches nothing.
    }
    if (learner_->version() != version) idle_outdated_ = true;
    wants_lifetimes_.store(learner_->wants_lifetimes(), std::memory_order_relaxed);
  }
  // The slot is leased by the caller, so the batch stays as it is.
  if (wanted.has_value()) MakePlan(*wanted, batch);
}

void RingCore::MakePlan(const WantedPlan& wanted, const EndedCycle& batch) noexcept {
  MadePlans plan;
  try {
    plan = PlanLearner::MakePlan(wanted, batch);
  } catch (const std::bad_alloc&) {
    // Without memory for it the batch teaches nothing.
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tidepool: ring [%s] cannot learn: %s\n", id.c_str(), error.what());
  }
  std::shared_ptr<const PlanList> before;
  std::lock_guard<std::mutex> lock(mutex_);
  before = learner_->plans().list();
  try {
    learner_->Adopt(wanted, plan);
  } catch (const std::bad_alloc&) {
    // Likewise.
  }
  idle_outdated_ = true;
}

void RingCore::EndLease(RingSlot* slot) noexcept {
  slot->EndLease();
  Return(slot);
}

void RingCore::Return(RingSlot* slot) noexcept {
  RingSlot* removed = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (slot->standing.state != RingSlot::State::kOpen) {
      slot->CountLeakedInto(&stats_);
    } else if (slot->has_begun()) {
      ++stats_.discarded;
      stats_.temporary += slot->temporary;
      slot->CountInto(&stats_);
    } else {
      table_.Unopen(slot);
    }
    if (!slot->Follows(learner_->version())) idle_outdated_ = true;
    table_.TakeBack(slot, &removed);
    ++returned_;
    if (waiters_ > 0) {
      ++stats_.wake_ups;
      // Fewer kept slots may let in more than one.
      config.ring_max_kept > 0 ? changed_.notify_all() : changed_.notify_one();
    }
  }
  if (removed != nullptr) Free(removed);
}

void RingCore::Keep(RingSlot* slot, std::string_view tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  table_.Keep(slot, tag);
  WakeAllWhenStuck();
}

void RingCore::Take(RingSlot* slot, const void* channel) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  table_.SetReader(slot, channel);
}

void RingCore::ComeBack(const void* channel) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!table_.KeepReadersSlots(channel)) return;
  WakeAllWhenStuck();
  if (table_.too_many_kept()) table_.ThrowTooManyKept();
}

void RingCore::FollowAndPutBack(RingSlot* chain, const Lesson& lesson, uint64_t newest) noexcept {
  // Where one finds no memory the others would not either, and each would ask the Reclaimer: they try when
  // they are opened.
  bool has_memory = true;
  for (RingSlot* slot = chain; slot != nullptr; slot = slot->next_on_shelf.get()) {
    if (!slot->Follows(lesson.version) && !slot->FollowsIdle(lesson, newest)) {
      slot->GiveBackOldBlocks();
    } else if (has_memory) {
      has_memory = slot->Follow(lesson);
    }
  }
  RingSlot* removed = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    table_.PutBack(chain, &removed);
    if (waiters_ > 0) changed_.notify_all();
  }
  Free(removed);
}

void RingCore::Free(RingSlot* chain) noexcept {
  while (chain != nullptr) {
    delete std::exchange(chain, chain->next_on_shelf.get());
    Leave();  // those still in the chain are holders as well
  }
}

void RingCore::Abandon() noexcept {
  RingSlot* removed = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (table_.open() > 0) {
      std::fprintf(stderr, "tidepool: ring [%s] is destroyed while %d of its slots are open\n",
                   id.c_str(), table_.open());
    }
    table_.Close(&removed);
    changed_.notify_all();
  }
  Free(removed);
  Leave();
}

// ---- between batches ------------------------------------------------------------------------

void RingCore::Initialize() {
  std::lock_guard<std::mutex> lock(mutex_);
  learner_->Initialize();
  idle_outdated_ = true;
}

void RingCore::Trim() {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::shared_ptr<const PlanList> before = learner_->plans().list();
  learner_->Trim(0);
  RingSlot* const chain = table_.TakeAllIdle();
  const Lesson lesson = learner_->lesson();
  const uint64_t newest = table_.generation();
  lock.unlock();
  for (RingSlot* slot = chain; slot != nullptr; slot = slot->next_on_shelf.get()) {
    try {
      slot->GiveBackBlocks();
      if (!slot->IsRecent(newest)) slot->GiveBackLearned();
    } catch (const Error&) {
      // In a callback, where it is just being reclaimed.
    }
  }
  FollowAndPutBack(chain, lesson, newest);
}

void RingCore::Destroy() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (table_.open() + table_.leased() > 0) {
    ThrowFailedPrecondition(
        absl::StrCat("ring [", id, "]: Destroy needs every slot idle: ", table_.DescribeTaken()));
  }
  const std::shared_ptr<const PlanList> before = learner_->plans().list();
  learner_->Forget();
  const Lesson lesson = learner_->lesson();
  const uint64_t newest = table_.generation();
  RingSlot* const chain = table_.TakeAllIdle();
  lock.unlock();
  std::exception_ptr refused;  // in a callback, a slot that is just being reclaimed
  for (RingSlot* slot = chain; slot != nullptr; slot = slot->next_on_shelf.get()) {
    try {
      slot->GiveBackPages();
      slot->SetFollows(lesson.version);  // the initial pages come with the next cycle
    } catch (const Error&) {
      refused = std::current_exception();
    }
  }
  FollowAndPutBack(chain, lesson, newest);
  if (refused != nullptr) std::rethrow_exception(refused);
}

RingStats RingCore::stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  RingStats stats = stats_;
  stats.plans = learner_->plans_made();
  if (const LearnedCycle* const next = learner_->next(); next != nullptr) {
    stats.planned_peak_bytes = next->plan->peak_bytes;
    stats.live_lower_bound_bytes = next->plan->most_alive_bytes();
  }
  stats.slot_bytes = learner_->bytes();
  // A slot that is just being opened is idle until its batch has begun, which may be refused.
  for (size_t i = 0; i < table_.size(); ++i) {
    const RingSlot& slot = table_[i];
    if (slot.standing.state != RingSlot::State::kOpen || !slot.has_begun()) continue;
    ++stats.open;
    stats.temporary += slot.temporary;
  }
  stats.opened = stats.committed + stats.discarded + static_cast<uint64_t>(stats.open);
  stats.leased = table_.leased();
  stats.idle = table_.idle() + table_.open() - stats.open;
  stats.kept = table_.CountKept();
  return stats;
}

std::string RingCore::Dump() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string out =
      absl::StrCat("ring [", OneLine(id), "] ", config.ring_slots, " slots of ", learner_->bytes(),
                   " bytes, generation ", table_.generation(), "\n");
  for (size_t i = 0; i < table_.size(); ++i) {
    absl::StrAppend(&out, table_.Describe(table_[i]), "\n");
  }
  return out;
}

uint64_t RingCore::generation() {
  std::lock_guard<std::mutex> lock(mutex_);
  return table_.generation();
}

}  // namespace tidepool
