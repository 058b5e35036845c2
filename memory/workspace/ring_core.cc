// Who has which slot: opening, leases, waiting. The rest of RingCore is in ring_between.cc.
#include "tidepool/memory/workspace/ring_core.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/thread_state.h"

namespace tidepool {
namespace {

using Clock = std::chrono::steady_clock;

// True only when certain.
bool IsTheOnlyThread() {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded;
#else
  return false;
#endif
}

}  // namespace

// ---- opening --------------------------------------------------------------------------------

RingSlot* RingCore::Acquire(Full full, const std::stop_token& stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  RingSlot* slot = nullptr;
  while (slot == nullptr) {
    ThrowIfTooManyKept();
    if (idle_ != nullptr) {
      slot = idle_;
      idle_ = slot->next_idle;
    } else if (may_take_temporary()) {
      slots_.reserve(slots_.size() + 1);
      SlotPointer made = NewSlot(static_cast<int>(slots_.size()), /*temporary=*/true);
      slot = made.get();
      slots_.push_back(std::move(made));
      ++temporary_;
      ++stats_.temporary;
    } else if (full == Full::kRefuse) {
      ++stats_.refused;
      return nullptr;
    } else {
      ThrowIfOnlyThisThreadCouldRelease();
      if (!Wait(lock, stop)) return nullptr;
    }
  }
  slot->state = RingSlot::State::kOpen;
  slot->thread = CurrentThreadToken();
  slot->generation = ++generation_;
  slot->record = learning_.wants_record();
  ++stats_.opened;
  ++open_;
  RingSlot* outdated = TakeOutdated();
  const uint64_t version = learning_.version();
  if (slot->adopted == version && outdated == nullptr) {
    lock.unlock();
    Follow(slot, 0, nullptr, version);
    return slot;
  }
  const size_t bytes = learning_.slot_bytes();
  const std::shared_ptr<const LearnedCycle> learned = learning_.learned();
  lock.unlock();
  Follow(slot, bytes, learned.get(), version);
  FollowAll(outdated, bytes, learned.get(), version);
  return slot;
}

void RingCore::Enter(RingSlot* slot, internal::ScopeToken* token) {
  WorkspaceCore* core = slot->core;
  core->PrepareSlot(slot->generation);
  try {
    token->Push(core, core->passes_through() ? nullptr : core);
    token->TellWhenEndedByThread(
        [](void* ended) {
          static_cast<RingSlot*>(ended)->ring->Return(static_cast<RingSlot*>(ended));
        },
        slot);
  } catch (...) {
    Return(slot);
    throw;
  }
  core->recording_ = slot->record;
}

// False when stopped. Throws when waiting would not help; nothing is changed then.
bool RingCore::Wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
  const auto limit = std::chrono::milliseconds(config.ring_stall_limit_ms);
  const Clock::time_point start = Clock::now();
  Clock::time_point kept_since = start;
  auto freed = [&] { return gone_ || idle_ != nullptr || may_take_temporary(); };
  bool stalled = false;
  ++waiters_;
  ++stats_.waits;
  while (!freed() && !stop.stop_requested() && !stalled) {
    if (all_kept() && config.ring_stall_limit_ms > 0) {
      changed_.wait_until(lock, stop, kept_since + limit, [&] { return freed() || !all_kept(); });
      stalled = !freed() && all_kept() && Clock::now() >= kept_since + limit;
    } else {
      changed_.wait(lock, stop, [&] { return freed() || (all_kept() && limit.count() > 0); });
      kept_since = Clock::now();
    }
  }
  --waiters_;
  stats_.wait_nanoseconds +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  if (gone_) {
    const std::string message =
        absl::StrCat("ring [", id, "] was destroyed while a producer waited for a slot");
    const bool last = unneeded();
    lock.unlock();
    if (last) delete this;
    ThrowFailedPrecondition(message);
  }
  if (freed()) return true;
  if (stop.stop_requested()) return false;
  ThrowResourceExhausted(absl::StrCat(
      "ring [", id, "]: every slot is kept and none was released in ", config.ring_stall_limit_ms,
      " ms: ", DescribeTaken(), "; release or Detach what is kept, or use more slots"));
}

void RingCore::ThrowIfTooManyKept() const {
  if (config.ring_max_kept == 0 || leased_ <= config.ring_max_kept) return;
  const int kept = CountKept();
  if (kept <= config.ring_max_kept) return;
  ThrowResourceExhausted(absl::StrCat("ring [", id, "]: ", kept, " slots are kept, ring_max_kept is ",
                                      config.ring_max_kept, ": ", DescribeTaken(),
                                      "; release or Detach what is kept, or use more slots"));
}

void RingCore::ThrowIfOnlyThisThreadCouldRelease() const {
  const void* me = CurrentThreadToken();
  if (!IsTheOnlyThread()) {
    for (const SlotPointer& slot : slots_) {
      if (slot->state == RingSlot::State::kIdle || slot->thread != me) return;
    }
  }
  ThrowResourceExhausted(absl::StrCat("ring [", id, "] is full and would wait for ever: only this "
                                      "thread could release a slot: ", DescribeTaken()));
}

// ---- leases ---------------------------------------------------------------------------------

void RingCore::Commit(RingSlot* slot, std::string_view tag, internal::ScopeToken* token) {
  WorkspaceCore* core = slot->core;
  const bool mine = core->is_open_on(CurrentThreadToken());
  if (mine) core->handing_over_ = true;
  try {
    token->Close();
  } catch (...) {
    if (mine) core->handing_over_ = false;
    throw;
  }
  slot->leases.store(1, std::memory_order_relaxed);
  slot->batches_without_spill = core->spilled_count > 0 ? 0 : slot->batches_without_spill + 1;
  std::lock_guard<std::mutex> lock(mutex_);
  slot->state = RingSlot::State::kLeased;
  slot->thread = nullptr;
  --open_;
  ++leased_;
  ++stats_.committed;
  CountStatistics(slot);
  const uint64_t version = learning_.version();
  RingBatch batch;
  batch.bytes = core->bytes_this_cycle;
  batch.current = slot->adopted == version && !slot->temporary;
  batch.misses = core->misses_this_cycle_;
  batch.record = core->record_;
  try {
    slot->tag.assign(tag);
    learning_.Observe(batch);
  } catch (const std::exception&) {
    // Without memory for it the batch teaches nothing, or has no name.
  }
  if (learning_.version() != version) idle_outdated_ = true;
}

void RingCore::EndLease(RingSlot* slot) noexcept {
  slot->core->EndLease();
  Return(slot);
}

void RingCore::Return(RingSlot* slot) noexcept {
  SlotPointer removed;
  bool last;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    CountStatistics(slot);
    if (slot->state == RingSlot::State::kOpen) {
      --open_;
      ++stats_.discarded;
    } else {
      --leased_;
    }
    if (slot->kept) --kept_;
    slot->kept = false;
    slot->thread = nullptr;
    slot->tag.clear();
    slot->state = RingSlot::State::kIdle;
    if (slot->adopted != learning_.version()) idle_outdated_ = true;
    if (slot->temporary || gone_) {
      removed = Remove(slot);
    } else {
      PushIdle(slot);
    }
    if (waiters_ > 0) {
      ++stats_.wake_ups;
      changed_.notify_one();
    }
    last = unneeded();
  }
  removed.reset();
  if (last) delete this;
}

bool RingCore::IsKept(const RingSlot& slot) const {
  if (slot.state != RingSlot::State::kLeased) return false;
  return slot.kept || generation_ - slot.generation >= static_cast<uint64_t>(config.ring_slots);
}

int RingCore::CountKept() const {
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(),
                                        [&](const SlotPointer& slot) { return IsKept(*slot); }));
}

void RingCore::Mark(RingSlot* slot, const void* thread) {
  slot->kept = true;
  slot->thread = thread;
  ++kept_;
  if (waiters_ > 0) changed_.notify_all();  // a wait may have become hopeless
}

void RingCore::Keep(RingSlot* slot, std::string_view tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string new_tag(tag.empty() ? std::string_view(slot->tag) : tag);
  if (!IsKept(*slot)) {
    const int kept = CountKept() + 1;
    const bool too_many =
        config.ring_max_kept > 0
            ? kept > config.ring_max_kept
            : config.policy_ring_full == RingFullPolicy::kWait && kept >= config.ring_slots;
    if (too_many) {
      ThrowResourceExhausted(absl::StrCat(
          "ring [", id, "]: generation ", slot->generation, " would be kept slot number ", kept,
          " of ", config.ring_slots,
          config.ring_max_kept > 0 ? absl::StrCat(", ring_max_kept is ", config.ring_max_kept)
                                   : std::string(", none would be left"),
          ": ", DescribeTaken(), "; Detach what is kept, or use more slots"));
    }
  }
  slot->tag.swap(new_tag);
  if (!slot->kept) {
    Mark(slot, CurrentThreadToken());
  } else {
    slot->thread = CurrentThreadToken();
  }
}

void RingCore::MarkKept(std::vector<uint64_t>* generations) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto gone = [&](uint64_t generation) {
    for (const SlotPointer& slot : slots_) {
      if (slot->generation != generation || slot->state != RingSlot::State::kLeased) continue;
      if (!slot->kept) Mark(slot.get(), nullptr);
      return false;
    }
    return true;
  };
  generations->erase(std::remove_if(generations->begin(), generations->end(), gone),
                     generations->end());
  if (!generations->empty()) ThrowIfTooManyKept();
}

// ---- bookkeeping ----------------------------------------------------------------------------

void RingCore::CountStatistics(RingSlot* slot) {
  const WorkspaceStats& now = slot->core->stats;
  WorkspaceStats& before = slot->counted;
  stats_.hits += now.hits - before.hits;
  stats_.misses += now.misses - before.misses;
  stats_.spills += now.spills - before.spills;
  stats_.spilled_bytes += now.spilled_bytes - before.spilled_bytes;
  stats_.leaked_arrays += now.leaked_arrays - before.leaked_arrays;
  before = now;
}

RingSlot* RingCore::TakeOutdated() {
  if (!idle_outdated_) return nullptr;
  idle_outdated_ = false;
  RingSlot* chain = nullptr;
  for (RingSlot** link = &idle_; *link != nullptr;) {
    RingSlot* slot = *link;
    if (slot->adopted == learning_.version()) {
      link = &slot->next_idle;
      continue;
    }
    *link = slot->next_idle;
    slot->next_idle = chain;
    chain = slot;
  }
  return chain;
}

void RingCore::PushIdle(RingSlot* slot) {
  slot->next_idle = idle_;
  idle_ = slot;
}

RingCore::SlotPointer RingCore::Remove(RingSlot* slot) {
  auto at = std::find_if(slots_.begin(), slots_.end(),
                         [&](const SlotPointer& other) { return other.get() == slot; });
  SlotPointer removed = std::move(*at);
  slots_.erase(at);
  if (slot->temporary) --temporary_;
  return removed;
}

std::string RingCore::Describe(const RingSlot& slot) const {
  std::string out = absl::StrCat(slot.temporary ? "temporary slot " : "slot ", slot.number);
  if (slot.state == RingSlot::State::kIdle) return absl::StrCat(out, " idle");
  const bool mine = slot.thread == CurrentThreadToken();
  absl::StrAppend(&out, " generation ", slot.generation,
                  slot.state == RingSlot::State::kOpen ? " open" : " leased");
  if (IsKept(slot)) absl::StrAppend(&out, " and kept");
  if (slot.thread != nullptr) absl::StrAppend(&out, mine ? " by this thread" : " by another thread");
  if (!slot.tag.empty()) absl::StrAppend(&out, " [", slot.tag, "]");
  return out;
}

std::string RingCore::DescribeTaken() const {
  std::string out;
  for (const SlotPointer& slot : slots_) {
    if (slot->state == RingSlot::State::kIdle) continue;
    absl::StrAppend(&out, out.empty() ? "" : ", ", Describe(*slot));
  }
  return out;
}

}  // namespace tidepool
