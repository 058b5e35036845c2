// Blocks outside of workspaces' cycles: of globals, and of whatever outlives a cycle on purpose.
//
// One set of chunks for the process, under a lock, on the ledger as kAllocated of the process
// (spans of 1 MiB that chunks of 64 KiB are cut from; larger blocks one by one, from the heap).
// Without live blocks at most kKeptChunks chunks and 2 MiB are kept, in at most kKeptChunks + 2
// spans, and nothing after the Reclaimer. A span with a live block stays.
//
// The lock is not held while memory is asked of the system or given back to it: the Reclaimer's and
// memory events' callbacks, which run then, may make and release blocks, and wait for whoever does.
//
// Threads: any. Cost: a lock; beyond 4096 bytes a block of the heap (memory/resource/heap.h).
#ifndef TIDEPOOL_MEMORY_PMR_OUTSIDE_BLOCKS_H_
#define TIDEPOOL_MEMORY_PMR_OUTSIDE_BLOCKS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/pmr/chunk_lists.h"
#include "tidepool/memory/pmr/span_stash.h"
#include "tidepool/memory/resource/charged_resource.h"
#include "tidepool/memory/resource/page_blocks.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool::internal {

class OutsideBlocks {
 public:
  // Chunks without live blocks that are kept for the next block of their size.
  static constexpr int kKeptChunks = 4;

  // The process's. Never destroyed.
  static OutsideBlocks& Global();

  // Throws OutOfMemoryError, nothing changed.
  void* Allocate(size_t bytes, size_t alignment);
  void Release(BlockChunk* chunk, void* block) noexcept;
  static void ReleaseLarge(LargeBlock* block) noexcept;

 private:
  // Holds the mutex; what is in the stash goes back when it has been let go.
  class Lock {
   public:
    explicit Lock(OutsideBlocks& blocks) : Lock(blocks, (blocks.mutex_.lock(), std::adopt_lock)) {}
    Lock(OutsideBlocks& blocks, std::adopt_lock_t) : blocks_(blocks) {}
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    OutsideBlocks& blocks_;
  };

  OutsideBlocks();
  static void* AllocateLarge(size_t bytes, size_t alignment);
  void* AllocateSlowly(int size_class);
  Allocation TakeSpan(const SpanStash::Wanted& wanted, size_t* bytes);
  void RegisterOnce();
  int64_t Reclaim(ReclaimDepth depth) noexcept;
  // Under the mutex. Null: there is none.
  void* TryTake(int size_class);

  PageBlocks pages_;
  ChargedResource charged_;
  std::mutex mutex_;
  // Guarded by it:
  SpanStash stash_;  // of charged_
  Pool pool_;        // of stash_
  ChunkLists chunks_;

  std::atomic<bool> registered_{false};
  Reclaimer::Registration reclaimer_;
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PMR_OUTSIDE_BLOCKS_H_
