// Blocks outside of workspaces' cycles: of globals, and of whatever outlives a cycle on purpose.
//
// On the ledger as kAllocated of the process: spans of 1 MiB that chunks of 64 KiB are cut from, and others for blocks
// of more than 4096 bytes; those of more than 256 KiB one by one, from the heap. Threads that come often have chunks of
// their own (outside_arenas.h). Without live blocks at most ChunkLists::kLeastKept chunks and one more of each arena that
// has a thread, and 2 MiB, are kept, in as many spans and 4 more; more where as much has come again after it had gone
// back, until it is not needed any more while blocks come and go (ChunkLists, KeptLarge, KeptBytes); and nothing after
// the Reclaimer. A span with a live block stays.
//
// No lock is held while memory is asked of the system or given back to it: the Reclaimer's and
// memory events' callbacks, which run then, may make and release blocks, and wait for whoever does. Locks are taken in
// the order of the arenas' list, arenas, spans.
//
// Threads: any. Cost: some nanoseconds for a thread that is alone in its arena, else a lock; beyond 64 KiB and for sizes
// that do not come again a lock and tens of nanoseconds, beyond 256 KiB a block of the heap (memory/resource/heap.h).
#ifndef TIDEPOOL_MEMORY_PMR_OUTSIDE_BLOCKS_H_
#define TIDEPOOL_MEMORY_PMR_OUTSIDE_BLOCKS_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/pmr/outside_arenas.h"
#include "tidepool/memory/pmr/span_stash.h"
#include "tidepool/memory/resource/charged_resource.h"
#include "tidepool/memory/resource/page_blocks.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool::internal {

class OutsideBlocks {
 public:
  // The process's. Never destroyed.
  static OutsideBlocks& Global() {
    OutsideBlocks* const global = global_;
    return global != nullptr ? *global : MakeGlobal();
  }

  // Throws OutOfMemoryError, nothing changed.
  void* Allocate(size_t bytes, size_t alignment) {
    const int size_class = SizeClassOf(bytes, alignment);
    if (size_class < 0) return AllocateLarge(bytes, alignment);
    OutsideArena& arena = arenas_.Here();
    if (arena.lock.TryLockBiased(outside_thread.biased)) [[likely]] {
      void* const block = arena.chunks.TakeCounted(size_class);
      BiasedLock::UnlockBiased(outside_thread.biased);
      if (block != nullptr) [[likely]]
        return block;
    }
    return AllocateSmallSlowly(size_class);
  }
  void Release(BlockChunk* chunk, void* block) noexcept {
    OutsideArena& arena = *chunk->arena;
    if (!arena.lock.TryLockBiased(outside_thread.biased)) [[unlikely]]
      return ReleaseSlowly(chunk, block);
    const size_t came = chunk->Put(block) ? arena.chunks.ToldCounted(chunk) : 0;
    BiasedLock::UnlockBiased(outside_thread.biased);
    if (came > 0) [[unlikely]]
      GiveWhatIsTooMuch(came);
  }
  void ReleaseLarge(LargeBlock* block) noexcept;
  // The calling thread has no arena from here on.
  void ThreadEnds() noexcept;
  int arenas() const { return arenas_.count(); }
  // On the ledger, without those of more than 256 KiB.
  size_t TakenBytes() const { return taken_.load(std::memory_order_relaxed); }

 private:
  // Chunks between arenas and their pool.
  class Chunks final : public MemoryResource {
   public:
    explicit Chunks(OutsideBlocks& blocks) : blocks_(blocks) {}
    Allocation Allocate(size_t bytes, size_t alignment) override;
    void Release(void* token, size_t bytes, size_t alignment) noexcept override;
    Device device() const override { return Host(); }
    std::string Describe() const override { return "chunks of blocks outside of workspaces"; }

   private:
    OutsideBlocks& blocks_;
  };

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

  // How much of spans without blocks is kept: at first kLeast. What had gone back and comes again raises it, so that what
  // comes and goes settles in memory; what was not needed while eight times what is owned came and went lowers it.
  class KeptBytes {
   public:
    static constexpr size_t kLeast = size_t{2} << 20;
    size_t bytes() const { return bytes_; }
    // Of the system, and back.
    void Took(size_t bytes) noexcept;
    void Gave(size_t bytes) noexcept { gone_ += bytes; }
    // So much of spans is in use now.
    void Uses(size_t bytes) noexcept { most_used_ = std::max(most_used_, bytes); }
    // True when so much has come and gone that Decide() is to be called.
    bool Released(size_t bytes, size_t owned) noexcept;
    // `idle`: spans without anything in use; `used`: bytes that are, of them all.
    void Decide(size_t idle, size_t used, size_t owned) noexcept;
    void Reset() noexcept { *this = {}; }

   private:
    size_t bytes_ = kLeast;
    size_t gone_ = 0;       // went back lately, and has not come again
    size_t most_used_ = 0;  // since it was decided last
    size_t released_ = 0;   // since then
  };

  OutsideBlocks();
  static OutsideBlocks& MakeGlobal();
  void* AllocateSmallSlowly(int size_class);
  void ReleaseSlowly(BlockChunk* chunk, void* block) noexcept;
  void* AllocateLarge(size_t bytes, size_t alignment);
  // What `try_take` returns under the mutex, once it returns something; it may want spans before.
  template <typename Try>
  auto AllocateSlowly(const Try& try_take);
  Allocation TakeSpan(const SpanStash::Wanted& wanted, size_t* bytes);
  void RegisterOnce();
  int64_t Reclaim(ReclaimDepth depth) noexcept;
  // Under the mutex. Null: there is none.
  Allocation TryTakeChunk();
  Allocation TryTakeLarge(size_t bytes);
  size_t owned_bytes() const { return pool_.owned_bytes() + large_.owned_bytes(); }
  void Empty(OutsideArena& arena) noexcept;
  void GiveLarge(LargeBlock* block) noexcept;
  void ReleaseLargeMemory(LargeBlock* block) noexcept;
  void GiveWhatIsTooMuch(size_t released) noexcept;
  void GiveIdleSpans() noexcept;
  size_t IdleBytes() noexcept;
  void EmptyArenas() noexcept;

  static constinit inline OutsideBlocks* global_ = nullptr;  // since before there are threads

  PageBlocks pages_;
  ChargedResource charged_;
  std::mutex mutex_;
  // Guarded by it:
  SpanStash stash_;  // of charged_
  Pool pool_;        // of stash_
  Pool large_;       // likewise
  KeptBytes kept_;
  size_t used_ = 0;             // bytes of chunks and large blocks that were taken of spans
  size_t released_ = 0;         // since it was last looked which spans are idle
  size_t released_in_all_ = 0;  // since chunks without blocks went for the spans they hold

  Chunks chunks_;
  OutsideArenas arenas_;
  std::atomic<size_t> taken_{0};  // spans that are here or in the stash
  std::atomic<bool> registered_{false};
  Reclaimer::Registration reclaimer_;
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PMR_OUTSIDE_BLOCKS_H_
