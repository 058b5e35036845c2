#include <cstdio>
#include <vector>

#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
using namespace tidepool;

// A sequence of `length` steps; every state waits for its backward step.
void Train(Workspace& workspace, int length) {
  WorkspaceScope scope(workspace);
  std::vector<NDArray> states = {Zeros({64, 32})};
  for (int t = 0; t < length; ++t) states.push_back(Relu(states.back() + 1.0));
  while (!states.empty()) states.pop_back();
}

int main() {
  Workspace workspace("lstm");  // keeps a plan for each kind of cycle
  for (int epoch = 0; epoch < 3; ++epoch) {
    const WorkspaceStats before = workspace.stats();
    for (int length : {10, 40, 20, 30}) Train(workspace, length);
    const WorkspaceStats s = workspace.stats();
    std::printf("epoch %d: %zu plans, %zu new; %zu requests outside of the pages\n", epoch,
                s.plans_kept, static_cast<size_t>(s.plans - before.plans),
                static_cast<size_t>(s.spills - before.spills));
  }
  Train(workspace, 400);  // an outlier: its own cycle is served, and learned
  std::printf("pages after an outlier:  %zu bytes\n", workspace.size());
  for (int i = 0; i < 3; ++i) Train(workspace, 40);
  std::printf("three cycles afterwards: %zu bytes\n", workspace.size());
}
