#include <cstdio>
#include <memory_resource>
#include <string>

#include "tidepool/examples/containers/documents.h"
#include "tidepool/examples/containers/json.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/workspace_scope.h"
using namespace tidepool;

int main() {
  SetCycleFindingSink([](const CycleFinding& found) { std::printf("%s\n", found.text.c_str()); });
  Workspace workspace("requests", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);

  double sold = 0;
  auto request = [&](const std::string& text) {
    WorkspaceScope scope(workspace);  // one cycle: what the parser makes lives here
    const json::Value document = json::Parse(text, &resource);
    for (const json::Value& order : document["orders"].array()) {
      for (const json::Value& item : order["items"].array()) sold += item["price"].number();
    }
  };
  MemoryTracker& tracker = MemoryTracker::Global();
  request(MakeOrders(2000, 1));
  const int64_t first = tracker.system_allocations();
  for (int i = 2; i < 1000; ++i) request(MakeOrders(i % 100, i));  // no two are alike
  const WorkspaceStats stats = workspace.stats();
  std::printf("sold %.0f in %d documents; memory asked of the system after the first: %d times\n",
              sold, static_cast<int>(stats.cycles),
              static_cast<int>(tracker.system_allocations() - first));
  std::printf("kept for the next ones: %.1f MiB\n%s", stats.block_bytes / 1048576.0,
              tracker.Snapshot().OwnersToString().c_str());

  std::pmr::vector<std::pmr::string> kept(&resource);  // the process's, as no cycle is open
  {
    WorkspaceScope scope(workspace);
    kept.emplace_back("a name that is too long for a string's own bytes");
  }
  std::printf("%s\n", kept[0].c_str());  // told, and still there
}
