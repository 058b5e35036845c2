// How a workspace learns from a cycle and follows what was learned.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

// Of so much alive pages with larger gaps than WithGaps(), where those did not serve it again and again. What is
// large has small gaps beside that: more would be held for what is ever different.
size_t WithLargeGaps(size_t alive) {
  constexpr size_t kMostBytes = size_t{10} << 20;
  return alive + std::min(alive / 4 + WorthHoles(alive) / 2, alive / 16 + kMostBytes);
}

// Pages of what no plan places have room for four times what it reached, up to so much: what is kept by its size need not be
// merged for each request then.
constexpr size_t kRoomForLittle = size_t{128} << 10;

}  // namespace

EndedCycle WorkspaceCore::Ended() const {
  EndedCycle ended;
  ended.made = made();
  ended.recorder = &follower_.recorder();
  ended.followed = follower_.followed();
  ended.misses = misses_;
  ended.changes = follower_.changes();
  ended.bytes = counters.bytes_this_cycle;
  ended.cursor = counters.cursor;
  size_t top = follower_.planned_end();
  if (ranges_.begun()) top = std::max(top, ranges_.reached());
  if (ranges_.begun() && follower_.plan() == nullptr) {
    top = std::max(top, std::min(4 * top, kRoomForLittle));
  }
  ended.reach = top + most_spilled_bytes_alive_;
  ended.roomy_reach = ended.reach;
  // Still larger pages would mostly have larger gaps.
  if (most_spilled_bytes_alive_ > 0) {
    ended.room = RoomUnderLimits();
    const size_t alive = most_alive_at_spills_;
    ended.reach = std::min(ended.reach, std::max(top, WithGaps(alive)));
    ended.roomy_reach = std::min(ended.roomy_reach, std::max(top, WithLargeGaps(alive)));
    if (keeps_within_pages_ && alive <= pages_.capacity()) {
      ended.reach = std::min(ended.reach, pages_.capacity());
      ended.roomy_reach = std::min(ended.roomy_reach, pages_.capacity());
    }
    // Larger pages than limits allow would be refused after each cycle, and everybody asked for memory each time; gaps leave
    // a sixteenth of that to others.
    if (pool_ == nullptr && ended.room != SIZE_MAX) {
      const size_t all = pages_.capacity() + spills_.owned_bytes() + ended.room;
      const size_t most = all - all / 16;
      const size_t had = std::max(pages_.capacity(), alive <= most ? alive : 0);
      if (ended.reach > most) ended.reach = std::min(ended.reach, had);
      if (ended.roomy_reach > most) ended.roomy_reach = std::max(ended.reach, had);
    }
  }
  return ended;
}

// Of the process, of the device, and of the workspace and those above it.
size_t WorkspaceCore::RoomUnderLimits() const {
  const MemoryBudget& budget = MemoryBudget::Global();
  if (!budget.limited()) return SIZE_MAX;
  int64_t room = MemoryBudget::kUnlimited;
  const auto look = [&room](const BudgetUsage& usage) {
    if (usage.limit_bytes == MemoryBudget::kUnlimited) return;
    room = std::min(room, std::max<int64_t>(usage.limit_bytes - usage.taken_bytes, 0));
  };
  look(budget.process());
  look(budget.Of(memory_device_));
  for (const MemoryOwner* owner = &memory_owner; owner != nullptr; owner = owner->parent()) {
    look(budget.Of(*owner, memory_device_));
  }
  return room == MemoryBudget::kUnlimited ? SIZE_MAX : static_cast<size_t>(room);
}

// Whoever needs memory within the next cycle could not have what pages have grown ahead of theirs.
void WorkspaceCore::GiveAhead(bool asked) noexcept {
  if (!learner_.GiveAhead(asked ? 0 : RoomUnderLimits())) return;
  try {
    FollowLearned();
  } catch (const std::exception&) {
    // It goes with the next cycle.
  }
}

void WorkspaceCore::LearnFromCycle() noexcept {
  counters.peak_cycle_bytes =
      std::max<size_t>(counters.peak_cycle_bytes, counters.bytes_this_cycle);
  if (follower_.undisturbed() && learner_.version() == followed_version_ &&
      !refused_request_.is_noted() &&
      learner_.ObserveSteady(follower_.followed(), slot_count_, misses_,
                             counters.bytes_this_cycle)) {
    return;
  }
  follower_.Finish(made());
  if (follower_.TrimUnused()) AccountState();
  Teach(/*failed=*/false);
}

// A cycle that has failed teaches what memory was refused to, if that was the last thing it wanted.
void WorkspaceCore::LearnFromFailed() noexcept {
  if (!EndedRefused()) return;
  follower_.Finish(made());
  Teach(/*failed=*/true);
}

void WorkspaceCore::Teach(bool failed) noexcept {
  try {
    // What it followed is there until the next lesson is taken.
    EndedCycle ended = Ended();
    if (!failed) LearnFrom(ended);
    if (EndedRefused()) {
      ended.refused = &refused_request_;
      LearnFrom(ended);
    }
    FollowLearned();
    if (failed) return;
    // What a file says that no cycle has followed to its end is not touched ahead, nor are the gaps that it may have
    // between buffers.
    const LearnedCycle* const followed = follower_.followed();
    const size_t planned =
        followed == nullptr || followed->loaded ? 0 : followed->plan->layout.peak_bytes();
    pages_.Prefault(
        std::min(std::max<size_t>(counters.cursor, planned), WithGaps(counters.bytes_this_cycle)));
  } catch (const std::bad_alloc&) {
    // Without the memory to learn or to grow, the next cycle spills and tries again at its end.
  } catch (const OutOfMemoryError&) {
    // Likewise.
  } catch (const DeviceLostError&) {
    // Whoever uses the device is told.
  } catch (const std::exception& error) {
    findings_.CannotLearn(error.what());
  }
}

void WorkspaceCore::LearnFrom(const EndedCycle& cycle) {
  const std::optional<WantedPlan> wanted = learner_.Observe(cycle);
  counters.cycles_not_planned = learner_.effort().put_off();
  counters.plans_given_up = learner_.plans_given_up();
  if (!wanted.has_value()) return;
  MadePlans plan;
  try {
    plan = PlanLearner::MakePlan(*wanted, cycle);
  } catch (...) {
    learner_.Adopt(*wanted, nullptr);
    throw;
  }
  const LearnedCycle* const added = learner_.Adopt(*wanted, plan);
  if (added == nullptr || wanted->kind == WantedPlan::Kind::kBeginning) return;
  search_.Cancel();
  if (!learner_.any_pinned()) {
    search_.Begin(added->plan, alignment_, config.plan_search_seconds);
  }
}

// Blocks kept from learning are given back before pages grow, so that both are never held at once.
void WorkspaceCore::Follow(const Lesson& lesson) {
  if (lesson.bytes > pages_.size()) {
    spills_.Trim();
    pages_.Resize(lesson.bytes);
    pages_.Prefault(lesson.bytes);
  } else if (lesson.bytes < pages_.size() && !pages_.is_mapped_file()) {
    // What was taken for plans of a file stays while the others of them may come.
    const size_t loaded = learner_.plans().loaded_peak_bytes();
    const size_t kept = loaded > 0 ? std::min(pages_.size(), LearnedSize(config, loaded)) : 0;
    if (std::max(lesson.bytes, kept) < pages_.size()) pages_.Shrink(std::max(lesson.bytes, kept));
  }
  const bool recorded = follower_.records();
  follower_.Take(lesson);
  if (recorded && !lesson.records) TrimSlots(lesson.plans->most_requests());
  if (is_ring_slot_) follower_.ReserveToWriteDown();  // so that a steady ring allocates nothing
}

void WorkspaceCore::FollowLearned() {
  if (learner_.version() == followed_version_)
    return follower_.Expect(learner_.next(), learner_.last());
  counters.plans = learner_.plans_made();
  counters.plans_kept = learner_.plans().size();
  counters.plans_improved = learner_.plans_improved();
  Follow(learner_.lesson());
  followed_version_ = learner_.version();
  if (!is_ring_slot_) follower_.Expect(learner_.next(), learner_.last());
}

// Between cycles: nothing lies in the pages.
void WorkspaceCore::AdoptBetterPlan() noexcept {
  try {
    std::optional<PlanSearch::Found> found = search_.Take();
    if (!found.has_value() || !learner_.Improve(*found->beaten, std::move(found->better))) return;
    FollowLearned();
  } catch (const std::bad_alloc&) {
    // The plan there was is followed.
  } catch (const OutOfMemoryError&) {
    // Likewise.
  } catch (const std::exception& error) {
    findings_.CannotLearn(error.what());
  }
}

void WorkspaceCore::Initialize() {
  const Maintenance maintenance(*this, "Initialize");
  learner_.Initialize();
  FollowLearned();
}

void WorkspaceCore::Trim() {
  const Maintenance maintenance(*this, "Trim");
  DrainReturned();
  spills_.Trim();
  const size_t before = learner_.bytes();
  learner_.Trim(counters.bytes_last_cycle);
  if (learner_.bytes() < before) {
    counters.peak_cycle_bytes = std::min<size_t>(
        counters.peak_cycle_bytes, std::max<size_t>(learner_.bytes(), counters.bytes_last_cycle));
  }
  try {
    FollowLearned();
  } catch (const OutOfMemoryError&) {
    // What was learned wants larger pages: that is tried again after the next cycle. Without memory something has
    // been given back all the same.
  } catch (const std::bad_alloc&) {
    // Likewise.
  }
  TrimState();
}

void WorkspaceCore::Forget() noexcept {
  search_.Cancel();
  learner_.Forget();
  follower_.Forget();
  followed_version_ = 0;
  counters.plans_kept = 0;
  counters.planned_peak_bytes = counters.live_lower_bound_bytes = 0;
  counters.requested_bytes = counters.planned_requests = 0;
}

void WorkspaceCore::FinishPlanSearch() {
  std::shared_ptr<PlanTicket> ticket;
  {
    const Maintenance maintenance(*this, "FinishPlanSearch");
    ticket = search_.ticket();
  }
  if (ticket == nullptr) return;
  ticket->Wait();
  const Maintenance maintenance(*this, "FinishPlanSearch");
  if (search_.ticket() != ticket) return;  // a cycle has taken it meanwhile
  pages_.TakeAgain(std::max<size_t>(learner_.plans().peak_bytes(), counters.bytes_last_cycle));
  AdoptBetterPlan();
}

}  // namespace tidepool
