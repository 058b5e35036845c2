// Kinds of cycles, for tests of what workspaces learn of them.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_KINDS_FOR_TEST_H_
#define TIDEPOOL_MEMORY_WORKSPACE_KINDS_FOR_TEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {

// Each request's size, and before which it is released.
struct KindRequest {
  size_t bytes;
  uint32_t until;
};
using Kind = std::vector<KindRequest>;

inline void Cycle(Workspace& workspace, const Kind& kind) {
  WorkspaceScope scope(workspace);
  std::vector<BufferHandle> arrays;
  std::multimap<uint32_t, uint32_t> ends;
  for (uint32_t i = 0; i < kind.size(); ++i) {
    for (; !ends.empty() && ends.begin()->first <= i; ends.erase(ends.begin())) {
      arrays[ends.begin()->second].Reset();
    }
    arrays.push_back(BufferHandle(AllocateHere(kind[i].bytes)));
    ends.emplace(kind[i].until, i);
  }
}

// Requests of 64 * (1 + n) bytes, n below `sizes`.
inline void Extend(std::mt19937_64& random, size_t requests, size_t sizes, Kind* kind) {
  for (; requests > 0; --requests) kind->push_back({64 + 64 * (random() % sizes), 0});
}

// Each to any point until the end.
inline void DrawLives(std::mt19937_64& random, Kind* kind) {
  for (uint32_t i = 0; i < kind->size(); ++i) {
    (*kind)[i].until = static_cast<uint32_t>(i + 1 + random() % (kind->size() - i));
  }
}

inline void InTurns(Workspace& workspace, const std::vector<Kind>& kinds, int turns) {
  for (; turns > 0; --turns) {
    for (const Kind& kind : kinds) Cycle(workspace, kind);
  }
}

inline WorkspaceConfig Learning() {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  return config;
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_KINDS_FOR_TEST_H_
