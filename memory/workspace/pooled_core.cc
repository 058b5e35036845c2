// What a WorkspaceCore does as one of a pool's: it has no pages of its own, and learns together
// with others. So does a workspace with plans of a file.
//
// The first request of a cycle tells which of the learned cycles it may be. Then the cycle takes a
// range of the pool's memory that holds the largest of these, and the request goes its way as in
// any workspace.
#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/pool_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

// At a time, because the pool's lock is taken for it.
constexpr uint64_t kCyclesTold = 16;

}  // namespace

WorkspaceCore* WorkspaceCore::NewPooled(std::string id, WorkspaceConfig config, Device device,
                                        std::shared_ptr<PoolState> pool) {
  return new WorkspaceCore(std::move(id), std::move(config), device, std::move(pool));
}

// A cycle begins. What it is is not known, and need not be while it requests nothing.
void WorkspaceCore::OpenUndecided() noexcept {
  EndQuickRequests();
  slots_end_ = UINT32_MAX;
  undecided_ = serves_from_pages() && learns_lifetimes();
  if (!undecided_ && findings_.tracing()) findings_.TellBegin(memory_owner, generation());
}

// Before the first request of a cycle. What cannot be had is done without.
void WorkspaceCore::DecideByFirst(size_t rounded) noexcept {
  undecided_ = false;
  if (pool_ == nullptr) {
    // What lay free in the pages may have gone back for blocks before: then no plan has its places in this cycle.
    pages_.has_holes() ? follower_.Expect(nullptr) : TakePagesForLoaded(rounded);
    return BeginFollowing();
  }
  try {
    if (pool_->learner.version() != followed_version_) {
      const Lesson lesson = pool_->learner.lesson();
      const bool recorded = follower_.records();
      follower_.Take(lesson);
      followed_version_ = lesson.version;
      // Nothing was requested yet.
      if (recorded && !lesson.records && lesson.plans->size() == 0) TrimSlots(0);
    }
    size_t bytes = 0;
    const LearnedCycle* next = follower_.BeginningWith(rounded, &bytes);
    if (next == nullptr) bytes = pool_->learner.unplanned_bytes();
    if (config.max_size > 0) bytes = std::min(bytes, config.max_size & ~(alignment_ - 1));
    if (bytes > 0) {
      range_ = pool_->memory.Take(bytes);
      pages_.Lend(range_.data, range_.bytes);
      if (memory_device_ != Host()) pool_->left.Take(range_.data, range_.bytes, queues_.home());
    }
    follower_.Expect(next);
  } catch (const std::bad_alloc&) {
    follower_.Expect(nullptr);
  } catch (const Error&) {  // out of memory; or the device is lost, as the request itself finds
    follower_.Expect(nullptr);
  }
  BeginFollowing();
}

// Plans of files have no pages until a cycle begins as one of them does: then these are for the
// largest it may be, and touched as it goes along, because only its end tells whether it followed.
void WorkspaceCore::TakePagesForLoaded(size_t rounded) noexcept {
  try {
    size_t bytes = 0;
    const LearnedCycle* const next = follower_.BeginningWith(rounded, &bytes);
    if (next == nullptr) return;
    if (bytes > pages_.capacity()) {
      spills_.Trim();
      pages_.Resize(std::max<size_t>(LearnedSize(config, bytes), pages_.size()));
    }
    follower_.Expect(next);
  } catch (const std::bad_alloc&) {
    loaded_refused_ = true;
  } catch (const Error&) {  // out of memory: the cycle learns as if there had been no file
    loaded_refused_ = true;
  }
}

// A cycle has ended, nothing of it is alive.
void WorkspaceCore::EndPooled(bool failed) noexcept {
  if (!undecided_ && serves_from_pages() && learns_lifetimes()) {
    follower_.Finish(made());
    EndedCycle ended = Ended();
    if (!failed) {
      counters.peak_cycle_bytes =
          std::max<size_t>(counters.peak_cycle_bytes, counters.bytes_this_cycle);
      pool_->learner.Observe(ended, followed_version_);
    }
    if (EndedRefused()) {
      ended.refused = &refused_request_;
      pool_->learner.Observe(ended, followed_version_);
    }
  }
  if (!failed) spills_.EndCycle();
  undecided_ = false;
  const bool has_range = range_.is_taken();
  if (has_range) pages_.TakeBack();
  if (has_range && memory_device_ != Host()) {
    pool_->left.Leave(range_.data, range_.bytes, queues_.used());
  }
  if (has_range || counters.cycle_spills > 0) pool_->memory.Give(std::exchange(range_, {}));
  if (++untold_cycles_ >= kCyclesTold) TellKeeper();
}

bool WorkspaceCore::BeginTrimBlocks() noexcept {
  bool open = false;
  const bool begun = gate_.TryMaintain(&open);
  if (open && !AsksForItself()) reclaim_requested_.store(true, std::memory_order_relaxed);
  return begun;
}

void WorkspaceCore::EndTrimBlocks() noexcept {
  spills_.Trim();
  EndMaintenance();
}

// What is idle beside a lease ages by its cycles.
void WorkspaceCore::TellKeeper() noexcept {
  const std::shared_ptr<PoolKeeper> keeper = pool_->keeper.lock();
  if (keeper != nullptr) keeper->CyclesEnded(TakeUntoldCycles());
}

}  // namespace tidepool
