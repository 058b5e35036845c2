#include "tidepool/tools/commands/memory_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/ndarray/host_fallback.h"

namespace tidepool::tools {

void StepCounters::Start() {
  PrefaultProgram();
  if (!StartCountingMemorySystemCalls(&why_not_)) system_calls_ = -1;
}

void StepCounters::BeginStep() {
  allocations_before_ = MemoryTracker::Global().system_allocations();
  system_calls_before_ = MemorySystemCalls();
  faults_before_ = PageFaults();
}

void StepCounters::EndStep() {
  faults_ += PageFaults() - faults_before_;
  allocations_ += MemoryTracker::Global().system_allocations() - allocations_before_;
  if (system_calls_ >= 0) system_calls_ += MemorySystemCalls() - system_calls_before_;
  ++steps_;
}

std::string StepCounters::Report(const char* which) const {
  std::string out = absl::StrFormat("per step %s (%d steps)\n", which, steps_);
  auto line = [&](const char* what, int64_t count) {
    absl::StrAppendFormat(&out, "  %-38s %10.4f  (%d in all)\n", what,
                          steps_ > 0 ? static_cast<double>(count) / steps_ : 0.0, count);
  };
  line("tensor allocations from the system", allocations_);
  line("page faults", faults_);
  if (system_calls_ >= 0) {
    line("system calls for memory", system_calls_);
  } else {
    absl::StrAppendFormat(&out, "  %-38s not counted: %s\n", "system calls for memory", why_not_);
  }
  return out;
}

std::string MemoryTable(const std::vector<const Workspace*>& workspaces) {
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  std::string out = snapshot.ToString();
  if (const std::string fallbacks = DescribeHostFallbacks(); !fallbacks.empty()) {
    absl::StrAppend(&out, "of these by operator: ", fallbacks, "\n");
  }
  absl::StrAppend(&out, "\n", snapshot.OwnersToString());
  absl::StrAppendFormat(&out, "\n%-18s %8s %12s %12s %12s %7s %12s %9s %7s %7s\n", "workspace",
                        "cycles", "size", "planned peak", "lower bound", "ratio", "requested",
                        "hits", "misses", "spills");
  for (const Workspace* workspace : workspaces) {
    const WorkspaceStats s = workspace->stats();
    const double ratio = s.live_lower_bound_bytes > 0
                             ? static_cast<double>(s.planned_peak_bytes) / s.live_lower_bound_bytes
                             : 0;
    absl::StrAppendFormat(&out, "%-18s %8d %12d %12d %12d %7.4f %12d %9d %7d %7d\n",
                          workspace->id(), s.cycles, s.size_bytes, s.planned_peak_bytes,
                          s.live_lower_bound_bytes, ratio, s.requested_bytes, s.hits, s.misses,
                          s.spills);
  }
  return out;
}

}  // namespace tidepool::tools
