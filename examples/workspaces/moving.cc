#include <cstdio>

#include "tidepool/memory/workspace/workspace_registry.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
using namespace tidepool;

int main() {
  // The thread's registry knows workspaces by name; movers look there.
  Workspace& step = WorkspaceRegistry::ForCurrentThread().Get("step", WorkspaceConfig::Training());
  Workspace& layer =
      WorkspaceRegistry::ForCurrentThread().Get("layer", WorkspaceConfig::Training());
  NDArray kept;
  {
    WorkspaceScope outer(step);
    NDArray activation;
    {
      WorkspaceScope inner(layer);
      NDArray scratch = Full({2, 2}, 3.0);
      activation = (scratch * 2.0).LeverageTo("step");  // a copy that lives as long as the step
    }                                                   // scratch is gone
    NDArray loss = activation + 1.0;                    // legal: its workspace is still open
    kept = loss.Detach();                               // a copy on the heap
    ScopeOutOfWorkspaces out;
    NDArray also_kept = loss * 10.0;  // made on the heap in the first place
    std::printf("attached: %d %d %d\n", loss.IsAttached(), kept.IsAttached(),
                also_kept.IsAttached());
  }
  std::printf("kept %.0f\n", kept.At<float>({1, 1}));
}
