// Requests that the pages do not serve: what is refused, and what is learned of that.
#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/pool_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

// Whether blocks without records had anything that nobody uses, which is gone now.
bool GaveBlocks(CycleMemory* blocks) noexcept {
  return blocks != nullptr && blocks->GiveBackUnused() > 0;
}

}  // namespace

Allocation WorkspaceCore::AllocateOutside(size_t bytes, size_t rounded) {
  LieByThemselvesWhereTight(rounded);
  // Whoever is refused memory has the Reclaimer ask everybody for theirs: what is known to be refused is not asked for.
  const bool is_kept = spills_.owned_bytes() >= spilled_bytes_alive_ + rounded;
  const bool is_tight = !is_kept && RoomUnderLimits() < rounded;
  if (is_tight && pool_ != nullptr) pool_->memory.Trim();
  if (is_tight) GaveBlocks(block_memory());
  bool asked_gaps = is_tight && GaveGaps(rounded);
  for (;;) {
    try {
      CheckMaySpill(rounded);
      MakeHolesFor(rounded);
      const Allocation spill = [&] {
        try {
          return spills_.Allocate(bytes, rounded);
        } catch (OutOfMemoryError& error) {
          // A budget's error names the workspace among owners.
          if (!error.message().starts_with("memory budget: "))
            error.AddContext(absl::StrCat("workspace [", id, "]: a request of ", bytes, " bytes"));
          throw;
        }
      }();
      CheckSpilled(spill, bytes, rounded);
      return spill;
    } catch (const OutOfMemoryError&) {
      if (GaveBlocks(block_memory()) || (!std::exchange(asked_gaps, true) && GaveGaps(rounded)))
        continue;
      NoteRefused(rounded);
      if (slot_count_ == 0) BeginAgain();
      throw;
    }
  }
}

// Blocks without records (cycle_memory.h) lack so many bytes, and what serves arrays gives back what it keeps.
bool WorkspaceCore::GaveForBlocks(size_t bytes) noexcept {
  const int64_t before = owned_.bytes();
  spills_.Trim();
  if (pool_ != nullptr) pool_->memory.Trim();
  if (owned_.bytes() < before) return true;
  try {
    Settle();  // as before a request that leaves its plan
    ReserveMore();
    return GaveGaps(bytes);
  } catch (const std::bad_alloc&) {
    return false;  // the block is refused with the error of who refused it
  }
}

// Blocks outside share chunks, and what is released of them is of use for others of their size only. Where limits leave less
// than there is, or little more than what lies outside, they lie by themselves, so that all that is released goes back.
void WorkspaceCore::LieByThemselvesWhereTight(size_t rounded) noexcept {
  constexpr size_t kRoom = 16;
  const size_t room = RoomUnderLimits();
  if (room == SIZE_MAX) return;
  const size_t outside = std::max(spills_.owned_bytes() + rounded, config.temp_block_size);
  const size_t has = pool_ != nullptr ? pool_->memory.usage_in_passing().held_bytes
                                      : static_cast<size_t>(owned_.bytes());
  if (room / kRoom < outside || room < has + rounded) LieByThemselves();
}

void WorkspaceCore::LieByThemselves() noexcept {
  pool_ != nullptr ? pool_->memory.TakeChunksOfOne() : spills_.TakeChunksOfOne();
}

// A request is refused. Whether it may be served when it asks again, as what it lacks lay free between arrays, in the pages,
// and went back. What lies between blocks outside cannot: those of later cycles will lie by themselves. Not of a step budget,
// whose follower is to know of steps that take more than their plan. Throws std::bad_alloc.
bool WorkspaceCore::GaveGaps(size_t rounded) {
  if (!uses_ranges_ || pool_ != nullptr || is_ring_slot_ || limits_live_ || keeps_within_pages_ ||
      config.policy_spill == SpillPolicy::kFail || pages_.is_mapped_file()) {
    return false;
  }
  const size_t left = RoomUnderLimits();
  const size_t missing = left == SIZE_MAX ? rounded : rounded - std::min(left, rounded);
  const auto used = static_cast<size_t>(account_.used_bytes()) - spilled_bytes_alive_;
  const size_t in_pages = pages_.capacity() - std::min(used, pages_.capacity());
  const size_t outside =
      spills_.owned_bytes() - std::min(spilled_bytes_alive_, spills_.owned_bytes());
  if (missing > in_pages + outside) return false;  // it would not fit
  if (outside > 0) LieByThemselves();
  if (missing > in_pages) return false;
  if (follower_.plan() != nullptr) follower_.LeaveFromHere(made());
  EndQuickRequests();
  if (!ranges_.begun() || ranges_.begin() > 0) LeavePlan();
  if (!ranges_.begun() || ranges_.begin() > 0) return false;  // without memory to leave it
  // The block has whole pages and a readable tail; of a piece the first and the last page may stay.
  constexpr size_t kPage = 4096;
  const auto before = owned_.bytes();
  pages_.MakeHoles(ranges_, missing + 2 * kPage, 4 * kPage);
  return owned_.bytes() < before;
}

// The first request was refused, and nothing was made: what comes next is the first one. It would follow no plan, as the one
// that was refused was in none. Not where gaps have gone back for it, in which a plan would place arrays.
void WorkspaceCore::BeginAgain() noexcept {
  if (findings_.tracing() || pages_.has_holes()) return;
  ranges_.End();
  if (pool_ == nullptr) return BeginFollowing();
  if (range_.is_taken()) {
    pages_.TakeBack();
    if (memory_device_ != Host()) pool_->left.Leave(range_.data, range_.bytes, queues_.used());
    pool_->memory.Give(std::exchange(range_, {}));
  }
  OpenUndecided();
}

void WorkspaceCore::NoteRefused(size_t rounded) noexcept {
  if (!uses_ranges_ || is_ring_slot_ || keeps_within_pages_ || findings_.tracing()) return;
  // What it may own in all: what it has, and what limits leave, where there are any.
  size_t room = pages_.capacity();
  if (config.policy_spill != SpillPolicy::kFail) {
    room = pool_ != nullptr ? pool_->memory.usage_in_passing().held_bytes
                            : static_cast<size_t>(owned_.bytes()) - counters.block_bytes;
    if (const size_t left = RoomUnderLimits(); left != SIZE_MAX) room += left;
  }
  refused_request_.Note(made(), rounded, room);
}

// Under kReallocate a cycle may not need more than max_size: what is alive at once was looked at where
// lifetimes are learned, else it is the sum of its requests.
void WorkspaceCore::CheckMaySpill(size_t bytes) {
  if (config.policy_spill == SpillPolicy::kFail && config.debug_mode == DebugMode::kDisabled) {
    const size_t capacity = pages_.capacity();
    // Requests one behind the other take what was released in the cycle as well.
    const auto arrays = static_cast<size_t>(account_.used_bytes() - block_bytes_);
    const size_t free = capacity - (uses_ranges_ ? arrays : counters.cursor.get());
    ThrowOutOfMemory(
        {memory_device_, &memory_owner, static_cast<int64_t>(bytes), "an array"},
        "policy_spill kFail",
        absl::StrCat("workspace [", id, "] is full: request of ", bytes, " bytes, ", free, " of ",
                     capacity, " bytes free",
                     uses_ranges_ ? absl::StrCat(", ", LargestGap(), " of them in one piece")
                                  : std::string(),
                     ", policy_spill kFail"),
        MemoryTracker::Global().Snapshot().ToString());
  }
  if (config.policy_spill != SpillPolicy::kReallocate || config.max_size == 0 || limits_live_)
    return;
  const size_t before = counters.bytes_this_cycle + static_cast<size_t>(block_bytes_);
  if (bytes <= config.max_size && before <= config.max_size - bytes) return;
  ThrowOutOfMemory({memory_device_, &memory_owner, static_cast<int64_t>(bytes), "an array"},
                   "max_size",
                   absl::StrCat("workspace [", id, "]: a request of ", bytes,
                                " bytes: the cycle needs ", before + bytes, " bytes, max_size is ",
                                config.max_size, ", policy_spill kReallocate"),
                   MemoryTracker::Global().Snapshot().ToString());
}

}  // namespace tidepool
