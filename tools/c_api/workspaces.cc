// Workspaces of the C API.
#include <cstddef>
#include <string>
#include <utility>

#include "tidepool/memory/io/json_writer.h"
#include "tidepool/tools/c_api/attributes.h"
#include "tidepool/tools/c_api/calls.h"
#include "tidepool/tools/c_api/objects.h"

namespace tidepool::c_api {

constinit WorkspaceTable workspaces;

WorkspaceConfig WorkspaceConfigOf(const char* function, const char* json) {
  WorkspaceConfig config;
  Attributes a(std::string(function) + ": config", json);
  const auto size = [&a](const char* name, size_t& member) { member = a.Size(name, member); };
  size("initial_size", config.initial_size);
  size("min_size", config.min_size);
  size("max_size", config.max_size);
  config.overallocation_limit = Overallocation::Ratio(a.Number("overallocation_limit", 0.3));
  config.policy_allocation = a.Choice("policy_allocation", {"kStrict", "kOverallocate", "kAlways"},
                                      config.policy_allocation);
  config.policy_learning =
      a.Choice("policy_learning", {"kNone", "kFirstLoop", "kOverTime", "kOptimized", "kTraining"},
               config.policy_learning);
  config.cycles_before_initialization =
      a.Axis("cycles_before_initialization", config.cycles_before_initialization);
  config.policy_mirroring =
      a.Choice("policy_mirroring", {"kEnabled", "kDisabled", "kHostOnly"}, config.policy_mirroring);
  config.policy_spill =
      a.Choice("policy_spill", {"kFail", "kReallocate", "kExternal"}, config.policy_spill);
  config.policy_location = a.Choice("policy_location", {"kRam", "kMmap"}, config.policy_location);
  config.temp_file_path = a.Text("temp_file_path", config.temp_file_path);
  size("temp_block_size", config.temp_block_size);
  config.use_cycle_detector = a.Flag("use_cycle_detector", config.use_cycle_detector);
  config.workspace_mode = a.Choice("workspace_mode", {"kEnabled", "kSingle", "kSeparate", "kNone"},
                                   config.workspace_mode);
  config.helper_allow_fallback = a.Flag("helper_allow_fallback", config.helper_allow_fallback);
  size("helper_min_size", config.helper_min_size);
  size("alignment", config.alignment);
  config.debug_mode =
      a.Choice("debug_mode", {"kDisabled", "kSpillEverything", "kBypassEverything", "kGuard"},
               config.debug_mode);
  config.plan_search_seconds = a.Number("plan_search_seconds", config.plan_search_seconds);
  config.huge_pages = a.Flag("huge_pages", config.huge_pages);
  config.prefault = a.Flag("prefault", config.prefault);
  a.CheckAllRead();
  return config;
}

std::string WorkspaceStatsJson(const Workspace& workspace) {
  const WorkspaceStats stats = workspace.stats();
  JsonWriter json;
  json.BeginObject();
  json.Member("id", workspace.id());
  json.Key("is_open");
  json.Literal(workspace.is_open() ? "true" : "false");
#define TIDEPOOL_MEMBER(name) json.Member(#name, stats.name)
  TIDEPOOL_MEMBER(cycles);
  TIDEPOOL_MEMBER(plans);
  TIDEPOOL_MEMBER(plans_kept);
  TIDEPOOL_MEMBER(plans_improved);
  TIDEPOOL_MEMBER(cycles_not_planned);
  TIDEPOOL_MEMBER(plans_given_up);
  TIDEPOOL_MEMBER(plan_switches);
  TIDEPOOL_MEMBER(size_bytes);
  TIDEPOOL_MEMBER(planned_peak_bytes);
  TIDEPOOL_MEMBER(live_lower_bound_bytes);
  TIDEPOOL_MEMBER(requested_bytes);
  TIDEPOOL_MEMBER(planned_requests);
  TIDEPOOL_MEMBER(hits);
  TIDEPOOL_MEMBER(misses);
  TIDEPOOL_MEMBER(spills);
  TIDEPOOL_MEMBER(spilled_bytes);
  TIDEPOOL_MEMBER(leaked_arrays);
  TIDEPOOL_MEMBER(leaked_blocks);
  TIDEPOOL_MEMBER(block_bytes);
  TIDEPOOL_MEMBER(failed_cycles);
  TIDEPOOL_MEMBER(findings);
  TIDEPOOL_MEMBER(host_fallbacks);
  TIDEPOOL_MEMBER(mirror_copies_to_host);
  TIDEPOOL_MEMBER(mirror_bytes_to_host);
  TIDEPOOL_MEMBER(mirror_copies_to_device);
  TIDEPOOL_MEMBER(mirror_bytes_to_device);
  TIDEPOOL_MEMBER(relocations);
#undef TIDEPOOL_MEMBER
  json.EndObject();
  return std::move(json).Take();
}

}  // namespace tidepool::c_api

using namespace tidepool;         // NOLINT: the functions of C have no namespace
using namespace tidepool::c_api;  // NOLINT

tidepool_status tidepool_workspace_new(const char* name, const char* config, const char* device,
                                       tidepool_workspace* workspace) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "workspace", workspace);
    CheckGiven(function, "name", name);
    *workspace = static_cast<tidepool_workspace>(workspaces.Add(
        std::string(name), WorkspaceConfigOf(function, config), DeviceOfText(device)));
  });
}

tidepool_status tidepool_workspace_release(tidepool_workspace workspace) {
  return Call(__func__, [&](const char* function) { workspaces.Release(function, workspace); });
}

tidepool_status tidepool_workspace_begin(tidepool_workspace workspace) {
  return Call(__func__, [&](const char* function) {
    EnterWorkspace(workspaces.Pin(function, workspace), workspace);
  });
}

tidepool_status tidepool_workspace_end(tidepool_workspace workspace) {
  return Call(__func__, [&](const char* function) {
    LeaveWorkspace(function, workspace, /*has_failed=*/false);
  });
}

tidepool_status tidepool_workspace_abandon(tidepool_workspace workspace) {
  return Call(__func__, [&](const char* function) {
    LeaveWorkspace(function, workspace, /*has_failed=*/true);
  });
}

tidepool_status tidepool_workspace_stats(tidepool_workspace workspace, char** json) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "json", json);
    *json = NewText(WorkspaceStatsJson(*workspaces.Pin(function, workspace)));
  });
}

tidepool_status tidepool_workspace_trim(tidepool_workspace workspace) {
  return Call(__func__, [&](const char* function) { workspaces.Pin(function, workspace)->Trim(); });
}

tidepool_status tidepool_workspace_reset(tidepool_workspace workspace) {
  return Call(__func__,
              [&](const char* function) { workspaces.Pin(function, workspace)->Destroy(); });
}
