// How a request is served that is not quick: by the plan, one behind the other, or outside the pages.
#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/workspace/pool_state.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

// So much may lie outside of the pages, whatever they could hold if the cycle left its plan.
constexpr size_t kMostBesidePlan = size_t{1} << 20;

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }

}  // namespace

// Counts what quick requests left to be derived from the plan or from the free ranges.
void WorkspaceCore::SettleSlowly() noexcept {
  const uint32_t made = slot_count_, settled = settled_;
  if (settles_ranges()) {
    counters.cursor = std::max<size_t>(counters.cursor, ranges_.reached());
  } else {
    const PlanLayout& layout = follower_.placed().layout();
    counters.cursor = std::max<size_t>(counters.cursor, layout.top_of(settled, made));
    counters.bytes_this_cycle += layout.bytes_of(settled, made);
  }
  counters.hits += made - settled;
  settled_ = made;
}

// Another thread than the one inside may not look at its plan.
size_t WorkspaceCore::CurrentCursor() const {
  if (settled_ == slot_count_ || !is_open_on(CurrentThreadToken())) return counters.cursor;
  if (settles_ranges()) return std::max<size_t>(counters.cursor, ranges_.reached());
  return std::max<size_t>(counters.cursor,
                          follower_.placed().layout().top_of(settled_, slot_count_));
}

size_t WorkspaceCore::CurrentBytesThisCycle() const {
  if (settled_ == slot_count_ || !is_open_on(CurrentThreadToken()) || settles_ranges()) {
    return counters.bytes_this_cycle;
  }
  return counters.bytes_this_cycle + follower_.placed().layout().bytes_of(settled_, slot_count_);
}

uint64_t WorkspaceCore::CurrentHits() const {
  if (settled_ == slot_count_ || !is_open_on(CurrentThreadToken())) return counters.hits;
  return counters.hits + (slot_count_ - settled_);
}

Buffer* WorkspaceCore::AllocateSlowly(size_t bytes) {
  Settle();
  // What other threads have released is free for this request: tenants of its place, ranges, blocks.
  DrainReturned();
  const size_t rounded = RoundUp(bytes + (bytes == 0), alignment_);
  if (rounded == 0) {
    ThrowOutOfMemory(
        {memory_device_, &memory_owner, INT64_MAX, "an array"}, "the size of memory",
        absl::StrCat("workspace [", id, "]: a request of ", bytes, " bytes cannot be served"),
        MemoryTracker::Global().Snapshot().ToString());
  }
  // What is refused in any case changes nothing.
  if (watches_limit_ || limits_live_) CheckTogether(rounded, "an array");
  if (undecided_) DecideByFirst(rounded);
  ReserveForRequest();
  const uint32_t slot = slot_count_;
  void* token = nullptr;
  size_t offset = counters.cursor;
  bool misses = false;
  std::byte* data;
  if (PlaceInPages(rounded, &offset, &misses) ||
      (token = PlaceInFreeRange(rounded, &offset)) != nullptr ||
      (LeavesFor(rounded, &misses) && (token = PlaceInFreeRange(rounded, &offset)) != nullptr)) {
    data = pages_.base() + offset;
    pages_.Unpoison(data, rounded);
    counters.cursor =
        std::max<size_t>(counters.cursor, token != nullptr ? ranges_.reached() : offset + rounded);
    ++counters.hits;
  } else {
    ++refused_;
    const Allocation spill = AllocateOutside(bytes, rounded);
    --refused_;
    data = spill.data;
    token = spill.token;
    if (pool_ != nullptr && memory_device_ != Host())
      pool_->left.Take(data, rounded, queues_.home());
    most_alive_at_spills_ =
        std::max(most_alive_at_spills_, static_cast<size_t>(account_.used_bytes()) + rounded);
    spilled_bytes_alive_ += rounded;
    most_spilled_bytes_alive_ = std::max(most_spilled_bytes_alive_, spilled_bytes_alive_);
    if (limits_together_) WatchLimit();
    ++counters.cycle_spills;
    counters.cycle_spilled_bytes += rounded;
    ++counters.spills;
    counters.spilled_bytes += rounded;
  }
  if (misses) {
    ++counters.misses;
    ++misses_;
  }
  Buffer* const buffer = records_.Take();
  buffer->data = data;
  buffer->stamp.store(stamp_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  buffer->bytes = bytes;
  buffer->id = NextBufferId();
  buffer->request.slot = slot;
  buffer->request.bytes = rounded;
  buffer->request.spill = token;
  if (slot < slots_end_) slots_[slot] = RequestSlot(buffer);
  settled_ = slot + 1;
  slot_count_ = slot + 1;
  counters.bytes_this_cycle += rounded;
  account_.AddUsed(static_cast<int64_t>(rounded));
  follower_.Made(slot, rounded);
  if (findings_.tracing()) {
    findings_.Trace(slot);
    const bool in_pages = token == nullptr || IsRange(token);
    findings_.TellRequest({number(), generation(), slot, buffer, rounded,
                           in_pages ? data - pages_.base() : int64_t{-1}, misses});
  }
  if (follower_.plan() == nullptr) {
    if (slot_count_ >= free_slots_) ExpectInRanges();
  } else if (slot_count_ >= quick_slots_) {
    ExpectQuick();
  }
  return buffer;
}

// Whatever a request needs beside its bytes, so that nothing fails after they are taken.
void WorkspaceCore::ReserveMore() {
  if (slot_count_ < slots_end_ && slot_count_ == slots_.size()) {
    slots_.resize(std::max<size_t>(64, slots_.size() * 2));
  }
  follower_.Reserve();
  if (uses_ranges_) ranges_.Reserve();
  if (findings_.tracing()) findings_.Reserve(slot_count_, slots_.size());
  if (records_.next_free() != nullptr) return;
  records_.Add();
  AccountState();
}

// By the plan, or one behind the other where none is ever made. `misses`: a plan existed for it.
bool WorkspaceCore::PlaceInPages(size_t rounded, size_t* offset, bool* misses) {
  const uint32_t slot = slot_count_;
  const CyclePlan* plan = follower_.plan();
  if (plan == nullptr) {
    if (uses_ranges_ || !serves_from_pages()) return false;
    *offset = counters.cursor;
    return rounded <= pages_.capacity() - counters.cursor;
  }
  if (follower_.placed().TryPlace(slot, rounded, offset)) return true;
  if (plan->IsOutside(slot, rounded)) return false;
  // What is refused in any case changes nothing.
  if (config.policy_spill == SpillPolicy::kFail && rounded > pages_.capacity()) return false;
  EndQuickRequests();  // until it is known which plan the next ones follow
  if (follower_.PlaceOffPlan(made(), rounded, offset)) {
    if (ranges_.begun()) ranges_.RaiseBegin(follower_.planned_end());
    return true;
  }
  // Also where it follows none from here on.
  plan = follower_.plan();
  if (plan == nullptr) slot > 0 ? LeavePlan() : StopRecording();
  *misses = plan == nullptr || !plan->IsOutside(slot, rounded);
  return false;
}

// Where what does not fit is refused all are free at first, as what was kept by its size would lie here and there.
void WorkspaceCore::BeginRanges() noexcept {
  const size_t begin = follower_.planned_end(), end = pages_.capacity();
  const bool fits_tightly = config.policy_spill == SpillPolicy::kFail || keeps_within_pages_;
  fits_tightly ? ranges_.Begin(begin, end) : ranges_.BeginAgain(begin, end);
}

// What the plan had becomes free ranges, so that the rest of the cycle is not beside it.
void WorkspaceCore::LeavePlan() noexcept {
  if (!ranges_.begun()) BeginRanges();
  const RequestView view = made();
  try {
    std::vector<std::pair<TwoEndedRanges::Taken, Buffer*>> placed;
    for (uint32_t slot = 0; slot < view.slots.size(); ++slot) {
      if (!view.IsInPlan(slot)) continue;
      Buffer* const buffer = view.slots[slot].buffer();
      placed.push_back({{static_cast<size_t>(view.offset(slot)), buffer->request.bytes}, buffer});
    }
    std::sort(placed.begin(), placed.end(),
              [](const auto& a, const auto& b) { return a.first.offset < b.first.offset; });
    std::vector<TwoEndedRanges::Taken> taken;
    taken.reserve(placed.size());
    for (const auto& [range, buffer] : placed) taken.push_back(range);
    ranges_.GiveBelow(absl::MakeSpan(taken));
    for (size_t i = 0; i < placed.size(); ++i) {
      placed[i].second->request.spill = TokenOf(taken[i].range);
    }
    follower_.LeftNothing();
    StopRecording();
  } catch (const std::bad_alloc&) {
    // The rest of the cycle is beside it.
  }
}

// Whether the cycle has left its plan now, because so much would lie outside beside pages that the plan keeps free:
// large requests, of which a cycle need not make many. Under kFail any that would be refused for that.
bool WorkspaceCore::LeavesFor(size_t rounded, bool* misses) {
  if (!uses_ranges_) return false;
  if (config.policy_spill == SpillPolicy::kFail) return LeavesToFit(rounded, misses);
  // Limits would refuse what lies outside, where the cycle need not have it there.
  const auto is_refused = [&] {
    return RoomUnderLimits() < std::max(rounded, config.temp_block_size);
  };
  if (*misses && (keeps_within_pages_ || is_refused()) && LeavesToFit(rounded, misses)) return true;
  const CyclePlan* const plan = follower_.plan();
  if (!*misses || plan == nullptr) return false;
  const size_t outside = spilled_bytes_alive_ + rounded;
  const size_t most = std::min<size_t>(plan->layout.peak_bytes() / 8, kWorthHoles);
  if (outside < std::max(most, kMostBesidePlan)) return false;
  const size_t used = static_cast<size_t>(account_.used_bytes()) - spilled_bytes_alive_;
  const bool fits = used <= pages_.capacity() && rounded <= pages_.capacity() - used;
  if (!fits && HeldTooMuch(rounded) == 0) return false;
  follower_.LeaveForGood(made());
  LeavePlan();
  return true;
}

// Bytes that would be held beyond what is needed, if so many were taken from outside: what serves all that is alive,
// or the pages, which are what cycles needed lately, and a little that is not worth giving pages back.
size_t WorkspaceCore::HeldTooMuch(size_t rounded) const {
  // What was alive at once in this cycle may be so again.
  const size_t alive =
      std::max(static_cast<size_t>(account_.used_bytes()) + rounded, most_alive_at_spills_);
  const size_t needed = std::max(pages_.capacity() + WorthHoles(alive), WithGaps(alive));
  // Blocks have memory of their own, whose bounds are its own.
  const size_t held = static_cast<size_t>(owned_.bytes()) - counters.block_bytes;
  // What is kept has room for it, or it is taken beside that.
  const size_t taken = spills_.owned_bytes() >= spilled_bytes_alive_ + rounded ? 0 : rounded;
  return held + taken > needed ? held + taken - needed : 0;
}

// Large requests that are ever different leave gaps in the pages that the next one does not fit: the gaps go, so that
// they are not held beside it. Not while a plan is followed, as another one may be changed to, which uses all.
void WorkspaceCore::MakeHolesFor(size_t rounded) noexcept {
  if (!ranges_.begun() || follower_.plan() != nullptr || pool_ != nullptr || is_ring_slot_) return;
  // Small requests share chunks, of which the last one is not used up.
  const size_t chunk = rounded <= config.temp_block_size ? config.temp_block_size : 0;
  if (HeldTooMuch(rounded) <= chunk) return;
  spills_.Trim();
  if (const size_t bytes = HeldTooMuch(rounded); bytes > chunk) pages_.MakeHoles(ranges_, bytes);
}

// Under kFail, before a request is refused: whether it fits beside what is alive. What the plan keeps free is free then.
bool WorkspaceCore::LeavesToFit(size_t rounded, bool* misses) {
  const bool follows = follower_.plan() != nullptr;
  if (!follows && ranges_.begun() && ranges_.begin() == 0)
    return false;  // all that is free was free
  if (rounded > LargestGap()) return false;
  if (follows) follower_.LeaveFromHere(made());
  EndQuickRequests();
  *misses |= follows;
  LeavePlan();
  return true;
}

// Of the pages, beside what is alive in them. Throws std::bad_alloc.
size_t WorkspaceCore::LargestGap() {
  if (slot_count_ > slots_end_) {
    ranges_.Merge();
    return std::max(ranges_.largest_free(), ranges_.end() - ranges_.top());
  }
  const RequestView view = made();
  std::vector<std::pair<size_t, size_t>> alive;
  for (uint32_t slot = 0; slot < view.count(); ++slot) {
    if (!view.IsInPlan(slot) && !view.IsBesidePlans(slot)) continue;
    alive.emplace_back(view.offset(slot), view.slots[slot].buffer()->request.bytes);
  }
  std::sort(alive.begin(), alive.end());
  size_t end = 0, largest = 0;
  for (const auto& [offset, bytes] : alive) {
    largest = std::max(largest, offset - end);
    end = offset + bytes;
  }
  return std::max(largest, pages_.capacity() - end);
}

// Beside what the plan has, if any. Null: there is no room; what the plan sends outside has none.
void* WorkspaceCore::PlaceInFreeRange(size_t rounded, size_t* offset) noexcept {
  if (!uses_ranges_) return nullptr;
  const CyclePlan* const plan = follower_.plan();
  if (plan != nullptr && plan->IsOutside(slot_count_, rounded)) return nullptr;
  if (!ranges_.begun()) {
    BeginRanges();
  } else if (follower_.planned_end() > ranges_.begin()) {
    ranges_.RaiseBegin(follower_.planned_end());
  }
  const TwoEndedRanges::Range range = ranges_.Take(rounded, offset);
  return range != TwoEndedRanges::Range::kNone ? TokenOf(range) : nullptr;
}

}  // namespace tidepool
