#include "tidepool/memory/workspace/workspace.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_census.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

Workspace::Workspace(std::string id, WorkspaceConfig config, Device device) {
  if (config.policy_reset == ResetPolicy::kEndOfBufferReached) {
    std::vector<std::string> reasons = config.Reasons(device);
    reasons.insert(reasons.begin(),
                   "policy_reset kEndOfBufferReached is a ring, whose slots live as long as their "
                   "leases and not as long as a scope: use RingWorkspace");
    ThrowInvalidArgument(absl::StrCat("workspace [", id,
                                      "]: illegal configuration: ", absl::StrJoin(reasons, "; ")));
  }
  core_ = WorkspaceCore::New(std::move(id), std::move(config), device);
  try {
    internal::JoinCensus(core_);
  } catch (...) {
    core_->Abandon();
    throw;
  }
}

Workspace::Workspace(WorkspaceCore* core) : core_(core) { internal::JoinCensus(core_); }

std::unique_ptr<Workspace> Workspace::OfPool(const std::string& id, const WorkspaceConfig& config,
                                             Device device, std::shared_ptr<PoolState> pool) {
  WorkspaceCore* const core = WorkspaceCore::NewPooled(id, config, device, std::move(pool));
  try {
    return std::unique_ptr<Workspace>(new Workspace(core));
  } catch (...) {
    core->Abandon();
    throw;
  }
}

Workspace::~Workspace() {
  if (core_->is_open()) {
    std::fprintf(stderr, "tidepool: workspace [%s] is destroyed while open\n", core_->id.c_str());
    core_->detector().OnNeverLeft(core_->generation());
  }
  internal::LeaveCensus(core_);
  core_->Abandon();
}

const std::string& Workspace::id() const { return core_->id; }
const WorkspaceConfig& Workspace::config() const { return core_->config; }
Device Workspace::device() const { return core_->device; }
bool Workspace::is_open() const { return core_->is_open(); }
uint64_t Workspace::generation() const { return core_->generation(); }
uint64_t Workspace::cycles() const { return core_->counters.cycles; }
size_t Workspace::size() const { return core_->counters.size; }
size_t Workspace::offset() const { return core_->CurrentCursor(); }
size_t Workspace::bytes_this_cycle() const { return core_->CurrentBytesThisCycle(); }
size_t Workspace::bytes_last_cycle() const { return core_->counters.bytes_last_cycle; }
size_t Workspace::peak_cycle_bytes() const { return core_->counters.peak_cycle_bytes; }
size_t Workspace::spilled_bytes() const { return core_->counters.cycle_spilled_bytes; }
size_t Workspace::spilled_count() const { return core_->counters.cycle_spills; }

WorkspaceStats Workspace::stats() const { return core_->Stats(); }

void Workspace::Initialize() { core_->Initialize(); }
void Workspace::Destroy() { core_->Destroy(); }
void Workspace::Trim() { core_->Trim(); }
std::vector<LifetimeBuffer> Workspace::PlannedRequests() const { return core_->PlannedRequests(); }
std::string Workspace::PlanReport() const { return core_->PlanReport(); }
void Workspace::FinishPlanSearch() { core_->FinishPlanSearch(); }
void Workspace::SavePlans(const std::string& path) const { core_->SavePlans(path); }
PlansLoaded Workspace::LoadPlans(const std::string& path) { return core_->LoadPlans(path); }

}  // namespace tidepool
