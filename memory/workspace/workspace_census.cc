#include "tidepool/memory/workspace/workspace_census.h"

#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

using WorkspaceCensus = internal::Census<WorkspaceCore, WorkspaceGroup>;

constexpr size_t kEmptyRemembered = 1000;

void Add(WorkspaceCore& core, bool alive, WorkspaceGroup* group) {
  internal::AddStats(internal::kWorkspaceFields, core.Stats(), /*counters_only=*/!alive,
                     &group->stats);
  group->alive += alive;
  group->open += alive && core.is_open();
}

void AddGroups(const WorkspaceGroup& gone, WorkspaceGroup* sum) {
  internal::AddStats(internal::kWorkspaceFields, gone.stats, /*counters_only=*/true, &sum->stats);
}

WorkspaceCensus& TheCensus() {
  static WorkspaceCensus* const census = [] {
    static constinit const ForkHandlers handlers{[] { TheCensus().LockForFork(); },
                                                 [] { TheCensus().UnlockAfterFork(); },
                                                 [] { TheCensus().UnlockAfterFork(); }};
    HandleFork(ForkLevel::kWorkspaceCensus, &handlers);
    return new WorkspaceCensus(&Add, &AddGroups,
                               kEmptyRemembered);  // outlives every static workspace
  }();
  return *census;
}
// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] const WorkspaceCensus& at_start = TheCensus();

}  // namespace

std::vector<WorkspaceGroup> ReadWorkspaces() { return TheCensus().Read(); }

namespace internal {

void JoinCensus(WorkspaceCore* core) { TheCensus().Join(core, core->id, core->device); }
void LeaveCensus(WorkspaceCore* core) noexcept { TheCensus().Leave(core, core->id, core->device); }

}  // namespace internal

}  // namespace tidepool
