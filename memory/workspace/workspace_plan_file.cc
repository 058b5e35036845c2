// Saving and loading a workspace's plans. Part of WorkspaceCore.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/workspace/plan_file.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

// Far more than kMostPlans plans of a large network.
constexpr uint64_t kMostFileBytes = uint64_t{1} << 28;

void RequirePlans(bool has_plans, const std::string& id, const char* operation) {
  if (has_plans) return;
  ThrowFailedPrecondition(absl::StrCat(
      "workspace [", id, "]: ", operation,
      " needs plans: policy_learning kOptimized or kTraining, with debug_mode and workspace_mode on"));
}

}  // namespace

void WorkspaceCore::SavePlans(const std::string& path) const {
  RequireClosed("SavePlans");
  RequirePlans(learns_lifetimes() && serves_from_pages() && !passes_through(), id, "SavePlans");
  AtomicFile file(path);
  file.Append(FormatPlans(plans_.cycles(), alignment_));
  file.Commit();
}

PlansLoaded WorkspaceCore::LoadPlans(const std::string& path) {
  const Maintenance maintenance(*this, "LoadPlans");
  RequirePlans(learns_lifetimes() && serves_from_pages() && !passes_through(), id, "LoadPlans");
  PlansLoaded result;
  std::string bytes;
  try {
    FileReader file(path);
    if (!file.is_regular() || file.size() > kMostFileBytes) {
      result.ignored = absl::StrCat(file.name(), ": found ", file.size(), " bytes in a ",
                                    file.is_regular() ? "file" : "device or pipe",
                                    ", expected a file of at most ", kMostFileBytes);
      return result;
    }
    bytes.resize(file.size());
    file.ReadExactly(absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()),
                     "plans");
  } catch (const Error& error) {
    result.ignored = error.message();
    return result;
  }
  ParsedPlans parsed = ParsePlans(bytes, alignment_);
  if (!parsed.ignored.empty()) {
    result.ignored = absl::StrCat(OneLine(path), ": ", parsed.ignored);
    return result;
  }
  TakePagesAgain();
  size_t most_plans = config.policy_learning == LearningPolicy::kTraining ? PlanSet::kMostPlans : 1;
  size_t pages = 0;
  for (auto cycle = parsed.cycles.begin(); cycle != parsed.cycles.end();) {
    if (cycle->get()->peak_bytes > PlanLimit() || most_plans == 0) {
      result.ignored = most_plans == 0
                           ? absl::StrCat(OneLine(path), ": more plans than are kept")
                           : absl::StrCat(OneLine(path), ": a plan of ", cycle->get()->peak_bytes,
                                          " bytes, expected at most ", PlanLimit());
      cycle = parsed.cycles.erase(cycle);
      continue;
    }
    --most_plans;
    pages = std::max(pages, cycle->get()->peak_bytes);
    ++cycle;
  }
  if (parsed.cycles.empty()) return result;
  if (pages > capacity_) Grow(pages);
  search_ = nullptr;
  // The last used one last, so that it is the next cycle's.
  for (auto cycle = parsed.cycles.rbegin(); cycle != parsed.cycles.rend(); ++cycle) {
    (*cycle)->learned_at = (*cycle)->used_at = stats.cycles;
    InstallPlan(std::move(*cycle));
    ++result.plans;
  }
  return result;
}

}  // namespace tidepool
