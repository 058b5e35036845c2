#include <cstdio>

#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
using namespace tidepool;

int main() {
  auto try_it = [](auto&& code) {
    try {
      code();
      std::printf("no error\n");
    } catch (const Error& error) {
      std::printf("%s\n", error.message().c_str());
    }
  };
  Workspace workspace("step", WorkspaceConfig::Training());
  NDArray leaked;
  {
    WorkspaceScope scope(workspace);
    leaked = Ones({3});
  }
  try_it([&] { leaked + 1.0; });
  {
    WorkspaceScope scope(workspace);  // the next cycle
    try_it([&] { Ones({3}) * leaked; });
    NDArray closed = Ones({3});
    closed.Close();
    try_it([&] { closed + 1.0; });
    try_it([&] { workspace.Destroy(); });
  }
  WorkspaceConfig config;
  config.policy_spill = SpillPolicy::kFail;
  config.alignment = 48;
  try_it([&] { Workspace("strict", config); });
  config.alignment = 64;
  config.initial_size = 4096;
  config.policy_allocation = AllocationPolicy::kStrict;
  Workspace small("small", config);
  WorkspaceScope scope(small);
  try_it([&] { Zeros({2000}); });
  try_it([&] { Zeros({1000}); });
}
