// Blocks outside of workspaces' cycles: of globals, and of whatever outlives a cycle on purpose.
//
// One set of chunks for the process, under a lock, on the ledger as kAllocated of the process
// (whole chunks of 64 KiB; larger blocks one by one, from the heap). A size class that was used
// keeps a chunk.
//
// Threads: any. Cost: a lock; beyond 4096 bytes a block of the heap (memory/resource/heap.h).
#ifndef TIDEPOOL_MEMORY_PMR_OUTSIDE_BLOCKS_H_
#define TIDEPOOL_MEMORY_PMR_OUTSIDE_BLOCKS_H_

#include <cstddef>
#include <mutex>

#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/pmr/chunk_lists.h"
#include "tidepool/memory/resource/charged_resource.h"
#include "tidepool/memory/resource/page_blocks.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool::internal {

class OutsideBlocks {
 public:
  // The process's. Never destroyed.
  static OutsideBlocks& Global();

  // Throws OutOfMemoryError, nothing changed.
  void* Allocate(size_t bytes, size_t alignment);
  void Release(BlockChunk* chunk, void* block) noexcept;
  static void ReleaseLarge(LargeBlock* block) noexcept;

 private:
  // The spans, one thread at a time and each time anew: what is reclaimed when there are no more
  // may well be blocks of these.
  class Spans final : public ResourceWrapper {
   public:
    Spans(MemoryResource& upstream, std::mutex& mutex) : ResourceWrapper(upstream), mutex_(mutex) {}
    Allocation Allocate(size_t bytes, size_t alignment) override {
      std::lock_guard<std::mutex> lock(mutex_);
      return upstream().Allocate(bytes, alignment);
    }
    void Release(void* token, size_t bytes, size_t alignment) noexcept override {
      std::lock_guard<std::mutex> lock(mutex_);
      upstream().Release(token, bytes, alignment);
    }
    std::string Describe() const override { return upstream().Describe(); }

   private:
    std::mutex& mutex_;
  };

  OutsideBlocks();

  std::mutex mutex_;
  // Guarded by it:
  PageBlocks pages_;
  ChargedResource charged_;
  Pool pool_;
  ChunkLists chunks_;
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PMR_OUTSIDE_BLOCKS_H_
