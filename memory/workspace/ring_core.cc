// Who has which slot: opening, leases, waiting. The rest of RingCore is in ring_between.cc.
#include "tidepool/memory/workspace/ring_core.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
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

uint64_t ThreadNumber() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

// ---- opening --------------------------------------------------------------------------------

RingSlot* RingCore::Acquire(Full full, const std::stop_token& stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  RingSlot* slot = nullptr;
  while (slot == nullptr) {
    if (is_full()) {
      if (full == Full::kRefuse) {
        ++stats_.refused;
        return nullptr;
      }
      ThrowIfOnlyThisThreadCouldRelease();
      if (!Wait(lock, stop)) return nullptr;
    } else if (idle_ != nullptr) {
      slot = idle_;
      idle_ = slot->next_idle;
    } else {
      slot = MakeTemporary(lock);
    }
  }
  slot->state = RingSlot::State::kOpen;
  slot->thread = ThreadNumber();
  slot->generation = ++generation_;
  slot->record = learning_.wants_record();
  ++stats_.opened;
  ++open_;
  if (waiters_ > 0 && is_stuck()) changed_.notify_all();  // one more may be passed by N later ones
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

RingSlot* RingCore::MakeTemporary(std::unique_lock<std::mutex>& lock) {
  slots_.reserve(slots_.size() + being_made_ + 1);  // so that no other step can fail
  const int number = static_cast<int>(slots_.size()) + being_made_;
  ++being_made_;
  ++temporary_;
  lock.unlock();
  SlotPointer made;
  std::exception_ptr error;
  try {
    made = NewSlot(number, /*temporary=*/true);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  --being_made_;
  if (error != nullptr) {
    --temporary_;
    if (waiters_ > 0) changed_.notify_one();
    std::rethrow_exception(error);
  }
  ++stats_.temporary;
  holders_.Add();
  slots_.push_back(std::move(made));
  return slots_.back().get();
}

void RingCore::Enter(RingSlot* slot, internal::ScopeToken* token) {
  WorkspaceCore* core = slot->core;
  core->PrepareSlot(slot->generation);
  try {
    token->Push(core, core->passes_through() ? nullptr : core);
  } catch (...) {
    Return(slot);
    throw;
  }
  core->recording_ = slot->record;
}

// False when stopped. Throws when waiting would not help; nothing is changed then.
bool RingCore::Wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
  const auto limit = std::chrono::milliseconds(config.ring_stall_limit_ms);
  const bool limited = limit.count() > 0;
  const Clock::time_point start = Clock::now();
  // Since when it is stuck and no slot was released.
  Clock::time_point stuck_since = start;
  uint64_t returned = returned_;
  bool stalled = false;
  holders_.Add();
  ++waiters_;
  ++stats_.waits;
  while (!gone_ && is_full() && !stop.stop_requested() && !stalled) {
    if (limited && is_stuck()) {
      changed_.wait_until(lock, stop, stuck_since + limit, [&] {
        return gone_ || !is_full() || !is_stuck() || returned_ != returned;
      });
      stalled = is_stuck() && returned_ == returned && Clock::now() >= stuck_since + limit;
    } else {
      changed_.wait(lock, stop, [&] { return gone_ || !is_full() || (limited && is_stuck()); });
      stuck_since = Clock::now();
    }
    if (returned_ != returned) stuck_since = Clock::now();
    returned = returned_;
  }
  --waiters_;
  stats_.wait_nanoseconds +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  if (gone_) {
    const std::string message =
        absl::StrCat("ring [", id, "] was destroyed while a producer waited for a slot");
    lock.unlock();
    Leave();
    ThrowFailedPrecondition(message);
  }
  (void)holders_.Leave();  // the RingWorkspace is another one
  if (!is_full()) return true;
  if (stop.stop_requested()) return false;
  if (TooManyKept()) ThrowTooManyKept();
  ThrowResourceExhausted(absl::StrCat(
      "ring [", id, "]: every slot is kept and none was released in ", config.ring_stall_limit_ms,
      " ms: ", DescribeTaken(), "; release or Detach what is kept, or use more slots"));
}

void RingCore::ThrowTooManyKept() const {
  ThrowResourceExhausted(absl::StrCat(
      "ring [", id, "]: ", CountKept(), " slots are kept, ring_max_kept is ", config.ring_max_kept,
      ": ", DescribeTaken(), "; release or Detach what is kept, or use more slots"));
}

// Of a full ring.
void RingCore::ThrowIfOnlyThisThreadCouldRelease() const {
  const uint64_t me = ThreadNumber();
  const bool too_many_kept = TooManyKept();
  if (!IsTheOnlyThread()) {
    for (const SlotPointer& slot : slots_) {
      const bool in_the_way = !too_many_kept || IsKept(*slot);
      if (in_the_way && slot->thread != me) return;
    }
  }
  if (too_many_kept) ThrowTooManyKept();
  ThrowResourceExhausted(absl::StrCat("ring [", id,
                                      "] is full and would wait for ever: only this "
                                      "thread could release a slot: ",
                                      DescribeTaken()));
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
  slot->leases.Begin();
  slot->batches_without_spill = core->spilled_count > 0 ? 0 : slot->batches_without_spill + 1;
  RingBatch batch;
  batch.bytes = core->bytes_this_cycle;
  batch.misses = core->misses_this_cycle_;
  batch.record = core->record_;
  if (!batch.record.empty()) batch.shape = ShapeOf(batch.record);
  std::optional<WantedPlan> wanted;
  std::shared_ptr<const LearnedCycle> given_up;  // goes after the lock
  std::unique_lock<std::mutex> lock(mutex_);
  slot->state = RingSlot::State::kLeased;
  slot->thread = 0;
  --open_;
  ++leased_;
  ++stats_.committed;
  CountStatistics(slot);
  const uint64_t version = learning_.version();
  batch.current = slot->adopted == version && !slot->temporary;
  try {
    slot->tag.assign(tag);
  } catch (const std::exception&) {
    // Without memory for it the batch has no name.
  }
  wanted = learning_.Observe(batch);
  if (learning_.version() != version) {
    idle_outdated_ = true;
    given_up = learning_.TakeGivenUp();
  }
  lock.unlock();
  // The record stays as it is while the slot is leased, which it is by the caller.
  if (wanted.has_value()) MakePlan(*wanted, batch.record);
}

void RingCore::MakePlan(const WantedPlan& wanted,
                        absl::Span<const LifetimeBuffer> record) noexcept {
  std::shared_ptr<const LearnedCycle> plan;
  try {
    plan = RingLearning::MakePlan(wanted, record);
  } catch (const std::exception&) {
    // Without memory for it the batch teaches nothing.
  }
  std::lock_guard<std::mutex> lock(mutex_);
  learning_.Adopt(wanted, std::move(plan));
  idle_outdated_ = true;
}

void RingCore::EndLease(RingSlot* slot) noexcept {
  slot->core->EndLease();
  Return(slot);
}

void RingCore::Return(RingSlot* slot) noexcept {
  RingSlot* removed = nullptr;
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
    slot->thread = slot->reader = 0;
    slot->channel = nullptr;
    slot->tag.clear();
    slot->state = RingSlot::State::kIdle;
    ++returned_;
    if (slot->adopted != learning_.version()) idle_outdated_ = true;
    if (slot->temporary || gone_) {
      Remove(slot, &removed);
    } else {
      PushIdle(slot);
    }
    if (waiters_ > 0) {
      ++stats_.wake_ups;
      // Fewer kept slots may let in more than one.
      config.ring_max_kept > 0 ? changed_.notify_all() : changed_.notify_one();
    }
  }
  Free(removed);
}

bool RingCore::IsKept(const RingSlot& slot) const {
  if (slot.state != RingSlot::State::kLeased) return false;
  return slot.kept || generation_ - slot.generation >= static_cast<uint64_t>(config.ring_slots);
}

int RingCore::CountKept() const {
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(),
                                        [&](const SlotPointer& slot) { return IsKept(*slot); }));
}

void RingCore::Mark(RingSlot* slot, uint64_t thread) {
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
    Mark(slot, ThreadNumber());
  } else {
    slot->thread = ThreadNumber();
  }
}

void RingCore::Take(RingSlot* slot, const void* channel) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  slot->reader = ThreadNumber();
  slot->channel = channel;
}

void RingCore::ComeBack(const void* channel) {
  const uint64_t me = ThreadNumber();
  std::lock_guard<std::mutex> lock(mutex_);
  bool keeps = false;
  for (const SlotPointer& slot : slots_) {
    if (slot->reader != me || slot->channel != channel) continue;
    keeps = true;
    if (!slot->kept) Mark(slot.get(), 0);
  }
  if (keeps && TooManyKept()) ThrowTooManyKept();
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

void RingCore::Remove(RingSlot* slot, RingSlot** chain) {
  auto at = std::find_if(slots_.begin(), slots_.end(),
                         [&](const SlotPointer& other) { return other.get() == slot; });
  (void)at->release();
  slots_.erase(at);
  if (slot->temporary) --temporary_;
  slot->next_idle = std::exchange(*chain, slot);
}

void RingCore::Free(RingSlot* chain) noexcept {
  while (chain != nullptr) {
    SlotPointer(std::exchange(chain, chain->next_idle)).reset();
    Leave();  // those still in the chain are holders as well
  }
}

std::string RingCore::Describe(const RingSlot& slot) const {
  std::string out = absl::StrCat(slot.temporary ? "temporary slot " : "slot ", slot.number);
  if (slot.state == RingSlot::State::kIdle) return absl::StrCat(out, " idle");
  const bool mine = slot.thread == ThreadNumber();
  absl::StrAppend(&out, " generation ", slot.generation,
                  slot.state == RingSlot::State::kOpen ? " open" : " leased");
  if (IsKept(slot)) absl::StrAppend(&out, " and kept");
  if (slot.thread != 0) absl::StrAppend(&out, mine ? " by this thread" : " by another thread");
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
