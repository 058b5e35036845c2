// CycleHeap: blocks of any size without records that live in the cycles of one workspace, or until
// they are released.
//
// What all of memory/pmr is made of. Blocks of up to 4096 bytes are cut from chunks of their size
// class (chunk_lists.h), larger ones are blocks of a pool, which has the chunks too: of pages within
// the budgets of the workspace, on the ledger as its own (docs/containers.md).
//
// A cycle's end frees everything at once, without looking at blocks: chunks without live blocks are
// as new. What is still out is counted, told as a finding, and stays as it is until it comes back:
// nothing else is ever served from there. So a late release, on whatever thread and whether the
// workspace still exists or not, finds its own block.
//
// Threads: the thread that has the cycle open allocates, and releases without a locked instruction;
// what any other thread releases, and what is released after its cycle, waits (returned_records.h)
// until the workspace's thread needs memory or ends the cycle. Elsewhere, and for whoever has no
// cycle open, Allocate() serves from the process's blocks (outside_blocks.h).
//
// Ownership: counted: the workspace, resources that refer to it, and its blocks keep it.
#ifndef TIDEPOOL_MEMORY_PMR_CYCLE_HEAP_H_
#define TIDEPOOL_MEMORY_PMR_CYCLE_HEAP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/pmr/chunk_lists.h"
#include "tidepool/memory/pmr/size_classes.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/workspace/cycle_memory.h"
#include "tidepool/memory/workspace/owned_bytes.h"
#include "tidepool/memory/workspace/returned_records.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_ref.h"

namespace tidepool::internal {

class CycleHeap final : public CycleMemory {
 public:
  // That of `core`, made when there is none yet, which keeps it. Throws kInvalidArgument where the
  // workspace's memory is not the host's, and std::bad_alloc.
  static CycleHeap& Of(WorkspaceCore& core);
  void Refer() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unrefer() noexcept;

  // `bytes`, 0 included, at `alignment`, a power of two. Any thread. Throws OutOfMemoryError,
  // nothing changed.
  void* Allocate(size_t bytes, size_t alignment) {
    if (thread_.load(std::memory_order_relaxed) == CurrentThreadToken()) [[likely]] {
      const int size_class = SizeClassOf(bytes, alignment);
      if (size_class >= 0) [[likely]] {
        if (void* const block = chunks_.Take(size_class)) [[likely]]
          return block;
      } else if (returned_.empty()) {
        return AllocateLarge(bytes, alignment);
      }
    }
    return AllocateSlowly(bytes, alignment);
  }
  // From wherever the calling thread is: the workspace whose scope is the innermost one, or
  // outside.
  static void* AllocateHere(size_t bytes, size_t alignment) {
    WorkspaceCore* const place = CurrentPlace();
    return place != nullptr ? AllocateAt(*place, bytes, alignment)
                            : AllocateOutside(bytes, alignment);
  }
  // Any block of any heap, or of none, with the arguments it was allocated with; nothing for null. Any thread, any
  // time.
  static void Release(void* block, size_t bytes, size_t alignment) noexcept {
    if (block == nullptr) [[unlikely]]
      return;
    const int size_class = SizeClassOf(bytes, alignment);
    if (size_class < 0) return ReleaseLarge(TakeLarge(block, bytes));
    BlockChunk* const chunk = ChunkOf(block);
    if (chunk->size_class != size_class) [[unlikely]]
      ReportWrongRelease(block, bytes, "no block of that size was allocated there");
    if (chunk->thread.load(std::memory_order_relaxed) != CurrentThreadToken()) [[unlikely]] {
      return ReleaseElsewhere(chunk, block);
    }
    if (chunk->Put(block)) [[unlikely]]
      chunk->heap->Told(chunk);
  }

  Left EndCycle() noexcept override;
  void GiveUnused() noexcept override;
  size_t GiveBackUnused() noexcept override;
  bool AsksForItself() noexcept override;
  void Age() noexcept override;
  void Trim() noexcept override;
  void Abandon() noexcept override;

  // Whether large blocks come from one chunk (memory/resource/pool.h). Within the gate, for tests.
  bool has_arena() const { return storage_->spans.has_arena(); }

 private:
  // In records that other threads give back: small blocks as they are, large ones by their headers
  // with the lowest bit set.
  struct Links {
    static void SetNext(FreeBlock* block, FreeBlock* next) { Untagged(block)->next = next; }
  };
  using Returned = BasicReturnedRecords<StdSync, FreeBlock, Links>;

  explicit CycleHeap(WorkspaceCore& core);
  ~CycleHeap() = default;

  static bool IsTagged(const FreeBlock* block) {
    return (reinterpret_cast<uintptr_t>(block) & 1) != 0;
  }
  static FreeBlock* Untagged(FreeBlock* block) {
    return reinterpret_cast<FreeBlock*>(reinterpret_cast<uintptr_t>(block) & ~uintptr_t{1});
  }

  static void* AllocateAt(WorkspaceCore& place, size_t bytes, size_t alignment);
  static void* AllocateOutside(size_t bytes, size_t alignment);
  void* AllocateSlowly(size_t bytes, size_t alignment);
  void* AllocateInCycle(size_t bytes, size_t alignment);
  void* AllocateLarge(size_t bytes, size_t alignment);
  Allocation TakeWithinLimits(size_t bytes, size_t alignment);
  Allocation TakeFromSpans(size_t bytes, size_t alignment);
  static void ReleaseElsewhere(BlockChunk* chunk, void* block) noexcept;
  static void ReleaseLarge(LargeBlock* block) noexcept;
  void Told(BlockChunk* chunk) noexcept;
  void PutHere(BlockChunk* chunk, void* block) noexcept;
  void PutLargeHere(LargeBlock* block) noexcept;
  void Give(FreeBlock* block) noexcept;
  void DrainReturned() noexcept;
  bool is_open_here() const {
    return thread_.load(std::memory_order_relaxed) == CurrentThreadToken();
  }
  void AddUsed(int64_t bytes) noexcept;
  void CountOwned() noexcept;
  void DropStorage() noexcept;

  // What serves chunks and large blocks; gone with the last block.
  struct Storage {
    explicit Storage(MemoryOwner& owner);
    PagesResource pages;
    Pool spans;
  };

  const OwnerLease owner_;
  std::atomic<const void*> thread_{nullptr};  // that has a cycle with blocks of this open
  std::optional<Storage> storage_;
  ChunkLists chunks_;
  // Of the open cycle.
  uint64_t cycle_ = 1;
  int64_t used_ = 0;
  int64_t large_blocks_ = 0;
  int64_t large_bytes_ = 0;

  int64_t late_large_blocks_ = 0;
  const void* chunks_thread_ = nullptr;  // whose releases current chunks take
  bool had_blocks_ = false;              // in the cycle that has just ended
  bool asks_ = false;                    // for memory for a block
  bool is_short_ = false;                // in this cycle everybody was asked for memory for that
  int tight_cycles_ = 0;                 // left, of those behind such a cycle
  int ages_ = 0;                         // since it was looked whether spans are of another time

  WorkspaceCore* core_;  // until Abandon(); only from within its gate
  const WorkspaceRef workspace_;
  const bool serves_;  // else all of its blocks are outside ones
  std::optional<OwnedBytes::Part> owned_;
  int64_t orphaned_bytes_ = 0;  // on the ledger since the workspace is gone
  Returned returned_;
  std::atomic<int64_t> references_{2};  // the workspace and the blocks
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PMR_CYCLE_HEAP_H_
