#include <cstdlib>
#include <cstring>
#include <cstdio>
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/memory/workspace/ring.h"
using namespace tidepool;
int main(int argc, char** argv) {
  const int n = std::atoi(argv[2]);
  if (!std::strcmp(argv[1], "empty")) {
    Workspace workspace("w", WorkspaceConfig::Training());
    for (int i = 0; i < 2; ++i) { WorkspaceScope scope(workspace); BufferHandle(AllocateHere(64)); }
    for (int i = 0; i < n; ++i) { WorkspaceScope scope(workspace); }
  } else if (!std::strcmp(argv[1], "req")) {
    Workspace workspace("w", WorkspaceConfig::Training());
    for (int i = 0; i < n; ++i) { WorkspaceScope scope(workspace); for (int k = 0; k < 64; ++k) BufferHandle(AllocateHere(64)); }
  } else if (!std::strcmp(argv[1], "one")) {
    auto c = WorkspaceConfig::Training(); if (argc > 3) c.policy_learning = LearningPolicy::kTraining;
    Workspace workspace("w", c);
    for (int i = 0; i < n; ++i) { WorkspaceScope scope(workspace); BufferHandle(AllocateHere(64)); }
  }
}
