#include <cstdio>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/profile/memory_profile.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
using namespace tidepool;

int main(int argc, char** argv) {
  NDArray total = Zeros({256}, DType::kFloat32, Place::Heap());
  Workspace workspace("step");
  MemoryProfile profile({.title = "Profiled steps"});  // records from here on
  for (int step = 0; step < 100; ++step) {
    WorkspaceScope scope(workspace);
    MemoryTagScope tag("forward");
    NDArray x = Full({1024, 256}, step);
    NDArray y = Relu(x * 2.0 + Ones({256}));
    total += Sum(y, 0);
  }
  if (argc > 1) profile.WriteHtml(argv[1]);
  const ProfileData& data = profile.data();
  const ProfileCycleKind& last = data.cycle_kinds.back();
  std::printf(
      "%zu cycles of %zu kinds; the last of %zu requests, %lld bytes alive at once, in %lld\n",
      data.cycles.size(), data.cycle_kinds.size(), last.requests.size(),
      static_cast<long long>(last.bound), static_cast<long long>(last.peak));
  for (const ProfileArray& request : last.requests) {
    std::printf("%s\n", data.strings[request.name].c_str());
  }
}
