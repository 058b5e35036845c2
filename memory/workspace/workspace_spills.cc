#include "tidepool/memory/workspace/workspace_spills.h"

#include <algorithm>
#include <string>

#include "tidepool/memory/resource/budgeted_resource.h"
#include "tidepool/memory/resource/guard_pages.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/reclaiming_resource.h"

namespace tidepool {
namespace {

// Of others, who keep and count what comes back.
class SharedBlocks final : public MemoryResource {
 public:
  explicit SharedBlocks(MemoryResource& blocks) : blocks_(blocks) {}
  Allocation Allocate(size_t bytes, size_t alignment) override {
    return blocks_.Allocate(bytes, alignment);
  }
  void Release(void* token, size_t bytes, size_t alignment) noexcept override {
    blocks_.Release(token, bytes, alignment);
  }
  Device device() const override { return blocks_.device(); }
  std::string Describe() const override { return blocks_.Describe(); }
  size_t FootprintBytes(size_t bytes, size_t alignment) const override {
    return blocks_.FootprintBytes(bytes, alignment);
  }

 private:
  MemoryResource& blocks_;
};

}  // namespace

WorkspaceSpills::WorkspaceSpills(const WorkspaceConfig& config, size_t alignment,
                                 DeviceProvider& provider, MemoryOwner& owner, OwnedBytes& owned,
                                 MemoryResource* shared)
    : guards_(config.debug_mode == DebugMode::kGuard),
      alignment_(alignment),
      owner_(owner),
      owned_(owned) {
  if (guards_) {
    MemoryResource& pages = blocks_.Add<GuardPages>();
    MemoryResource& budgeted = blocks_.Add<BudgetedResource>(pages, &owner, "guarded pages");
    blocks_.Add<ReclaimingResource>(budgeted);
  } else if (config.policy_allocation == AllocationPolicy::kAlways) {
    blocks_.Add<HeapResource>(provider, MemoryKind::kUnreferenced, &owner);
  } else if (shared != nullptr) {
    blocks_.Add<SharedBlocks>(*shared);
  } else {
    PagesOptions options;
    options.large_pages = config.huge_pages;
    options.prefault = false;  // spills are rare and of unknown use
    options.owner = &owner;
    MemoryResource& pages = blocks_.Add<PagesResource>(options, provider);
    pool_ = &blocks_.Add<Pool>(pages, config.temp_block_size, alignment);
  }
}

Allocation WorkspaceSpills::Allocate(size_t bytes, size_t rounded) {
  const MemoryOwnerScope who(owner_);  // whoever is told of a refusal is told whose
  try {
    const size_t size = Size(bytes, rounded);
    Allocation block = blocks_.Allocate(size, alignment_);
    // What is kept and not close enough in size to serve goes before the workspace is refused.
    if (!block && block.refusal != Refusal::kImpossible && blocks_.Trim() > 0)
      block = blocks_.Allocate(size, alignment_);
    if (!block) block.refused_by->ThrowRefused(block, size, alignment_);
    spilled_ = true;
    owned_.Set(blocks_.owned_bytes());
    return block;
  } catch (...) {
    owned_.Set(blocks_.owned_bytes());  // what was kept may have gone to make room
    throw;
  }
}

void WorkspaceSpills::Release(void* token, size_t bytes, size_t rounded) noexcept {
  blocks_.Release(token, Size(bytes, rounded), alignment_);
  if (guards_) owned_.Set(blocks_.owned_bytes());  // others keep what comes back
}

void WorkspaceSpills::EndSpillingCycle() noexcept {
  if (CycleMemory* const memory = beside(); memory != nullptr) memory->Age();
  if (spilled_) {
    if (idle_cycles_ >= kept_cycles_ && idle_cycles_ <= 4 * kept_cycles_) {
      kept_cycles_ = std::min(kMostCyclesKept, 2 * kept_cycles_);
    }
    idle_cycles_ = 0;
    spilled_ = false;
  } else {
    idle_cycles_ = std::min(idle_cycles_ + 1, kMostIdleCycles);
    if (!keeps_any()) return;
  }
  blocks_.TrimIdle(kept_cycles_);
  owned_.Set(blocks_.owned_bytes());
}

void WorkspaceSpills::Trim() noexcept {
  if (CycleMemory* const memory = beside(); memory != nullptr) memory->Trim();
  blocks_.Trim();
  owned_.Set(blocks_.owned_bytes());
}

}  // namespace tidepool
