// What serves the requests of a workspace that its pages do not: guard pages in guard mode, the heap
// under kAlways, else a pool whose chunks are kept between cycles.
//
// Which of them it is, is a composition of resources (memory/resource); what is added here is how long
// chunks are kept, and that they are a part of what the workspace owns.
//
// Errors: OutOfMemoryError, nothing changed. Threads: whoever is inside the workspace's gate.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SPILLS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SPILLS_H_

#include <atomic>
#include <cstddef>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/resource/memory_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/resource_stack.h"
#include "tidepool/memory/workspace/cycle_memory.h"
#include "tidepool/memory/workspace/owned_bytes.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

class WorkspaceSpills {
 public:
  // All of these must live as long. `shared`, if not null, serves what a pool of its own would otherwise; its
  // blocks are counted by who has it.
  WorkspaceSpills(const WorkspaceConfig& config, size_t alignment, DeviceProvider& provider,
                  MemoryOwner& owner, OwnedBytes& owned, MemoryResource* shared = nullptr);

  // `bytes` as asked for; `rounded` up to the alignment is what is given.
  Allocation Allocate(size_t bytes, size_t rounded);
  // The same sizes as given to Allocate.
  void Release(void* token, size_t bytes, size_t rounded) noexcept;

  // A cycle has ended: chunks that nobody has used for some cycles are given back. Cycles that spill
  // again soon after that keep them longer.
  void EndCycle() noexcept {
    if (spilled_ || keeps_any() || beside() != nullptr) return EndSpillingCycle();
    if (idle_cycles_ < kMostIdleCycles) ++idle_cycles_;
  }
  // Gives back what is kept and not in use.
  void Trim() noexcept;
  // From now on blocks that are not small go back by themselves (Pool::TakeChunksOfOne).
  void TakeChunksOfOne() noexcept {
    if (pool_ != nullptr) pool_->TakeChunksOfOne();
  }
  bool keeps_any() const { return owned_.bytes() > 0; }
  size_t owned_bytes() const { return owned_.bytes(); }  // in use or kept

  // What serves blocks without records beside this: it ages and is trimmed as this is. Null: none.
  // Any thread; SetBeside() once, false when there is one.
  CycleMemory* beside() const { return beside_.load(std::memory_order_acquire); }
  bool SetBeside(CycleMemory* memory) noexcept {
    CycleMemory* none = nullptr;
    return beside_.compare_exchange_strong(none, memory, std::memory_order_acq_rel);
  }
  // The workspace is gone: the one there was, which is not told anything any more.
  CycleMemory* TakeBeside() noexcept { return beside_.exchange(nullptr); }

 private:
  static constexpr int kMostCyclesKept = 96;
  static constexpr int kMostIdleCycles = 4 * kMostCyclesKept + 1;

  size_t Size(size_t bytes, size_t rounded) const { return guards_ ? bytes : rounded; }
  void EndSpillingCycle() noexcept;

  const bool guards_;  // guard pages watch the very end of a block
  const size_t alignment_;
  MemoryOwner& owner_;
  ResourceStack blocks_;
  Pool* pool_ = nullptr;  // of blocks_, where there is one
  OwnedBytes::Part owned_;
  bool spilled_ = false;  // in this cycle
  int idle_cycles_ = 0;   // running, that did not spill
  int kept_cycles_ = 3;   // chunks are kept for so many without use
  std::atomic<CycleMemory*> beside_{nullptr};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SPILLS_H_
