#include <cstdio>

#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
using namespace tidepool;

int main() {
  Workspace workspace("step");
  NDArray total = Zeros({256}, DType::kFloat32, Place::Heap());  // outlives the steps
  for (int step = 0; step < 1000; ++step) {
    WorkspaceScope scope(workspace);  // one cycle: what is made here lives here
    NDArray x = Full({1024, 256}, step);
    NDArray y = Relu(x * 2.0 + Ones({256}));
    total += Sum(y, 0);
  }  // gone, exception or not; the pages stay
  WorkspaceStats s = workspace.stats();
  std::printf("sum %.0f\n", total.At<float>({0}) / 1024);
  std::printf("a step requests %zu bytes, at most %zu live at once, planned into %zu\n",
              s.requested_bytes, s.live_lower_bound_bytes, s.planned_peak_bytes);
  std::printf("%zu requests from the pages, %zu outside, all of them in the first step\n", s.hits,
              s.spills);
}
