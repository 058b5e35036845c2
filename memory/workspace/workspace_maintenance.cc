// What is done with a workspace while it is closed.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/workspace/plan_file.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

constexpr uint64_t kFewMisses = 64;

[[noreturn]] void ThrowOpen(const std::string& id, const char* operation) {
  ThrowFailedPrecondition(
      absl::StrCat("workspace [", id, "]: ", operation, " needs a closed workspace; it is open"));
}

// The other one may be the caller's own, further out on the stack, or wait for what the caller is
// in the middle of.
[[noreturn]] void ThrowMaintained(const std::string& id, const char* operation) {
  ThrowFailedPrecondition(
      absl::StrCat("workspace [", id, "]: ", operation, " in a callback may not wait until ",
                   "the workspace was trimmed, changed or reclaimed, which it is being"));
}

void RequirePlans(bool has_plans, const std::string& id, const char* operation) {
  if (has_plans) return;
  ThrowFailedPrecondition(absl::StrCat("workspace [", id, "]: ", operation,
                                       " needs plans: policy_learning kOptimized or kTraining, "
                                       "with debug_mode and workspace_mode on"));
}

std::vector<LifetimeBuffer> RequestsOf(const CyclePlan* plan) {
  if (plan == nullptr) return {};
  return {plan->requests.begin(), plan->requests.end()};
}

}  // namespace

WorkspaceCore::Maintenance::Maintenance(WorkspaceCore& core, const char* operation) : core_(core) {
  if (core.is_pooled()) {
    ThrowFailedPrecondition(
        absl::StrCat("workspace [", core.id, "]: ", operation,
                     " is not for a workspace of a pool, which has no pages and no "
                     "plans of its own; the pool has"));
  }
  if (!internal::InCallback()) {
    if (!core.gate_.Maintain()) ThrowOpen(core.id, operation);
    return;
  }
  bool open = false;
  if (core.gate_.TryMaintain(&open)) return;
  if (open) ThrowOpen(core.id, operation);
  ThrowMaintained(core.id, operation);
}

void WorkspaceCore::EndMaintenance() noexcept {
  if (!gate_.EndMaintenance()) Free();  // it was destroyed meanwhile, in a callback
}

std::string WorkspaceCore::WhyNoHostCopy() const {
  if (memory_.traits().host_readable || config.policy_mirroring != MirroringPolicy::kDisabled) {
    return "";
  }
  return absl::StrCat("workspace [", id, "] on ", DeviceName(device),
                      " is device memory only (policy_mirroring kDisabled)");
}

void WorkspaceCore::Destroy() {
  const Maintenance maintenance(*this, "Destroy");
  DrainReturned();
  // Old handles are stale already: their stamps are of cycles that have ended.
  Forget();
  counters.peak_cycle_bytes = 0;
  counters.bytes_last_cycle = 0;
  spills_.Trim();
  pages_.Destroy();
  TrimState();
}

void WorkspaceCore::KeepWithinPages() {
  const Maintenance maintenance(*this, "KeepWithinPages");
  keeps_within_pages_ = true;
  learner_.KeepWithinPages();
}

// The bookkeeping of requests, down to what the largest plan needs.
void WorkspaceCore::TrimState() noexcept {
  const size_t requests = learner_.plans().list()->most_requests();
  records_.Trim(requests);
  ranges_.Trim();
  TrimSlots(requests);
  AccountState();
}

// Memory to record more than so many requests.
void WorkspaceCore::TrimSlots(size_t requests) noexcept {
  slot_count_ = settled_ = 0;  // what the last cycle made is nobody's any more
  follower_.Trim(requests);
  if (slots_.size() > 2 * requests + 64) {
    try {
      slots_.resize(requests);
      slots_.shrink_to_fit();
    } catch (const std::bad_alloc&) {
      // It stays as large.
    }
  }
}

std::vector<LifetimeBuffer> WorkspaceCore::PlannedRequests() {
  // In a callback the thread may be in the middle of changing them.
  const bool open_here = is_open_on(CurrentThreadToken());
  if (open_here && internal::InCallback()) ThrowOpen(id, "PlannedRequests");
  if (is_pooled()) {
    return RequestsOf(follower_.plan());
  }
  std::optional<Maintenance> maintenance;
  if (!open_here) maintenance.emplace(*this, "PlannedRequests");
  const PlanSet& plans = learner_.plans();
  return RequestsOf(plans.empty() ? nullptr : plans.cycles().front()->plan.get());
}

std::string WorkspaceCore::PlanReport() {
  const Maintenance maintenance(*this, "PlanReport");
  std::string report = learner_.Report();
  // It has one plan. A few requests that leave it are what learning takes.
  const uint64_t misses = counters.misses, cycles = counters.cycles;
  if (config.policy_learning == LearningPolicy::kOptimized && misses >= kFewMisses &&
      misses >= cycles / 8) {
    absl::StrAppend(&report, misses, " requests of ", cycles,
                    " cycles have missed the one plan that policy_learning ",
                    "kOptimized keeps; kTraining keeps one for each shape\n");
  }
  if (const size_t bytes = pages_.left_untouched(); bytes > 0) {
    absl::StrAppend(
        &report, bytes,
        " bytes of the pages are touched when they are first used: the process never had ",
        "so much in memory, or little is available\n");
  }
  return report;
}

void WorkspaceCore::SavePlans(const std::string& path) {
  RequirePlans(has_plans(), id, "SavePlans");
  AtomicFile file(path);
  {
    const Maintenance maintenance(*this, "SavePlans");
    const PlanSet::Cycles& cycles = learner_.plans().cycles();
    const std::vector<std::shared_ptr<LearnedCycle>> plans(cycles.begin(), cycles.end());
    file.Append(FormatPlans(plans, alignment_));
  }
  file.Commit();
}

PlansLoaded WorkspaceCore::LoadPlans(const std::string& path) {
  const Maintenance maintenance(*this, "LoadPlans");
  RequirePlans(has_plans(), id, "LoadPlans");
  PlansLoaded result;
  ParsedPlans parsed = ReadPlans(path, alignment_);
  if (!parsed.ignored.empty()) {
    result.ignored = std::move(parsed.ignored);
    return result;
  }
  search_.Cancel();
  result.plans =
      learner_.Load(std::move(parsed.cycles), path,
                    MostBelievedPlanBytes(memory_owner, memory_device_), &result.ignored);
  loaded_refused_ = false;
  try {
    FollowLearned();
  } catch (const OutOfMemoryError&) {
    // What was learned before wants larger pages: that is tried again after the next cycle.
  } catch (const std::bad_alloc&) {
    // Likewise.
  }
  AccountState();
  return result;
}

// Nothing that is read without the gate is written here but counters.
int64_t WorkspaceCore::Reclaim(ReclaimDepth depth) noexcept {
  bool open = false;
  if (!gate_.TryMaintain(&open)) {
    if (open && !AsksForItself()) reclaim_requested_.store(true, std::memory_order_relaxed);
    return 0;
  }
  const int64_t before = owned_.bytes();
  spills_.Trim();
  const uint64_t stamp = stamp_.load(std::memory_order_relaxed);
  const bool idle = depth == ReclaimDepth::kIdle || stamp == stamp_at_periodic_reclaim_;
  if (depth == ReclaimDepth::kPeriodic) stamp_at_periodic_reclaim_ = stamp;
  // What is in a mapped file stays there.
  const bool keeps = config.policy_location == LocationPolicy::kMmap;
  if (depth != ReclaimDepth::kSpare && idle && !keeps) {
    pages_.Reclaim([this] { return gate_.wanted(); });
  }
  const int64_t reclaimed = before - owned_.bytes();
  EndMaintenance();
  return reclaimed;
}

}  // namespace tidepool
