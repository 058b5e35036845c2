// For tests: buffers of every kind of memory that can be owned.
#ifndef TIDEPOOL_MEMORY_OWNERSHIP_TEST_BUFFERS_H_
#define TIDEPOOL_MEMORY_OWNERSHIP_TEST_BUFFERS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {

enum class BufferKind { kHeap, kImported, kWorkspace, kPool, kMapped, kRingSlot, kMixed };

// Buffers of one kind of memory, or of all in turn.
class BufferSource {
 public:
  explicit BufferSource(BufferKind kind) : kind_(kind) {
    if (Uses(BufferKind::kWorkspace)) OpenWorkspace(WorkspaceConfig::Training(), "model");
    // Nothing but spills: every block is the pool's.
    if (Uses(BufferKind::kPool)) {
      WorkspaceConfig config;
      config.debug_mode = DebugMode::kSpillEverything;
      config.policy_spill = SpillPolicy::kReallocate;
      OpenWorkspace(config, "pool");
    }
    if (Uses(BufferKind::kMapped)) {
      WorkspaceConfig config = WorkspaceConfig::MappedFile(
          ::testing::TempDir() + "/ownership_" + std::to_string(reinterpret_cast<uintptr_t>(this)));
      config.initial_size = 1 << 20;
      OpenWorkspace(config, "mapped");
    }
    if (Uses(BufferKind::kRingSlot)) {
      ring_ = std::make_unique<RingWorkspace>("ring", WorkspaceConfig::Ring(2));
      slot_.emplace(*ring_);
    }
  }
  ~BufferSource() {
    slot_.reset();
    while (!scopes_.empty()) scopes_.pop_back();
  }

  BufferHandle New(size_t bytes) {
    const BufferKind kind =
        kind_ == BufferKind::kMixed ? static_cast<BufferKind>(next_++ % 5) : kind_;
    switch (kind) {
      case BufferKind::kHeap:
        return BufferHandle(NewHeapBuffer(bytes));
      case BufferKind::kImported:
        return BufferHandle(NewImportedBuffer(imported_, bytes, &CountRelease, &releases_));
      case BufferKind::kRingSlot:
        return BufferHandle(AllocateHere(bytes));
      case BufferKind::kPool:
        return BufferHandle(Find("pool")->core()->Allocate(bytes));
      case BufferKind::kMapped:
        return BufferHandle(Find("mapped")->core()->Allocate(bytes));
      default:
        return BufferHandle(Find("model")->core()->Allocate(bytes));
    }
  }
  int64_t releases() const { return releases_; }

 private:
  static void CountRelease(void* count) { ++*static_cast<int64_t*>(count); }
  bool Uses(BufferKind kind) const {
    return kind_ == kind || (kind_ == BufferKind::kMixed && kind != BufferKind::kRingSlot);
  }
  void OpenWorkspace(const WorkspaceConfig& config, const char* name) {
    workspaces_.push_back(std::make_unique<Workspace>(name, config));
    scopes_.push_back(std::make_unique<WorkspaceScope>(*workspaces_.back()));
  }
  Workspace* Find(const std::string& name) {
    for (auto& workspace : workspaces_) {
      if (workspace->id() == name) return workspace.get();
    }
    return nullptr;
  }

  BufferKind kind_;
  int next_ = 0;
  int64_t releases_ = 0;
  char imported_[512];
  std::vector<std::unique_ptr<Workspace>> workspaces_;
  std::vector<std::unique_ptr<WorkspaceScope>> scopes_;
  std::unique_ptr<RingWorkspace> ring_;
  std::optional<RingSlotScope> slot_;
};

inline std::string NameOf(BufferKind kind) {
  static const char* const kNames[] = {"Heap",   "Imported", "Workspace", "Pool",
                                       "Mapped", "RingSlot", "Mixed"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_OWNERSHIP_TEST_BUFFERS_H_
