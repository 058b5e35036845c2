// Arenas of blocks outside of cycles: which one a thread takes its blocks from.
//
// An arena is a set of chunks under a lock. All threads begin in the common one; a thread that comes there
// often and finds others there gets one of its own, or shares one where there are twice as many as
// processors. The lock is biased (memory/sync/biased_lock.h): a thread that is alone in its arena pays
// some nanoseconds. A small block goes back to the arena it is of, by whatever thread; a thread of another
// arena leaves it to that one's, as long as all that were left are of one chunk (so no more than that one
// chunk waits for them). Large blocks are kept by the arena of the thread that released them, as
// far as it has taken such again (KeptLarge). When the last thread of an arena ends, its chunks without blocks
// go; what is left in it serves the next thread that gets it.
//
// Threads: any. Nothing here calls anybody while a lock is held.
#ifndef TIDEPOOL_MEMORY_PMR_OUTSIDE_ARENAS_H_
#define TIDEPOOL_MEMORY_PMR_OUTSIDE_ARENAS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/pmr/chunk_lists.h"
#include "tidepool/memory/resource/memory_resource.h"
#include "tidepool/memory/sync/biased_lock.h"

namespace tidepool::internal {

// Large blocks that came back, for the next request of about their size: as many, up to kMost, as were
// asked for again soon after one like them had gone. Blocks of more than kMostBytes are not kept.
class KeptLarge {
 public:
  static constexpr int kMost = 8;
  static constexpr size_t kMostBytes = size_t{64} << 10;

  // One of at least `bytes`, its header's, or null.
  LargeBlock* Take(size_t bytes) noexcept;
  // One that is to go in its place, or itself; null: none. Once more while it returns one: there may be more.
  LargeBlock* Keep(LargeBlock* block) noexcept;
  // One after the other; null: there is none.
  LargeBlock* TakeAny() noexcept;

 private:
  static bool Serves(size_t has, size_t bytes) { return has >= bytes && has - bytes <= bytes / 8; }

  LargeBlock* blocks_[kMost] = {};  // the first count_ are there, those that came last first
  int count_ = 0;
  int most_ = 0;             // that are kept
  size_t gone_[kMost] = {};  // bytes of those that went last
  unsigned next_gone_ = 0;   // a place in it
  int gone_in_vain_ = 0;     // since one came again
};

struct alignas(64) OutsideArena {
  explicit OutsideArena(MemoryResource& resource) : chunks(this, resource) {}

  // By a thread of another arena: false, nothing changed, when what was left is of another chunk.
  bool Leave(BlockChunk* chunk, FreeBlock* block) noexcept;
  // What others left comes back. As ChunkLists::ToldCounted().
  size_t TakeLeft() noexcept;

  BiasedLock lock;
  ChunkLists chunks;  // guarded by it, as `large`
  KeptLarge large;
  int threads = 0;  // whose arena it is; guarded by OutsideArenas
  std::atomic<FreeBlock*> left{nullptr};
};

// What the calling thread knows of itself.
struct OutsideThread {
  BiasedThread biased;
  OutsideArena* arena = nullptr;  // its own; null: the common one
  uint32_t shared_turns = 0;      // in the common one, without its bias
  bool entered = false;           // its end is told of
  bool ended = false;             // and has come: it has no arena and no bias any more
};
extern thread_local constinit OutsideThread outside_thread;

class OutsideArenas {
 public:
  // `chunks` serves and takes back chunks; it may not call anybody.
  explicit OutsideArenas(MemoryResource& chunks) : chunks_(chunks), common_(chunks) {}

  // The calling thread's.
  OutsideArena& Here() noexcept {
    OutsideArena* const own = outside_thread.arena;
    return own != nullptr ? *own : common_;
  }

  // The calling thread holds `arena`.
  class Hold {
   public:
    Hold(OutsideArenas& arenas, OutsideArena& arena) noexcept
        : arena_(arena), biased_(arena.lock.TryLockBiased(outside_thread.biased)) {
      if (!biased_) [[unlikely]]
        arenas.LockShared(arena);
    }
    ~Hold() {
      if (biased_) [[likely]] {
        BiasedLock::UnlockBiased(outside_thread.biased);
      } else {
        arena_.lock.Unlock();
      }
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    OutsideArena& arena_;
    const bool biased_;
  };

  // The calling thread, which does not hold any, may get an arena of its own.
  void LookForOwn() noexcept {
    if (outside_thread.shared_turns >= kSharedTurns && outside_thread.arena == nullptr) TakeOwn();
  }
  // The calling thread ends. Its arena, if it was its last thread, else null.
  OutsideArena* ThreadEnds() noexcept;
  // Arenas there are, the common one among them; they stay.
  int count() const { return count_.load(std::memory_order_acquire) + 1; }
  OutsideArena& at(int i) { return i == 0 ? common_ : *own_[i - 1]; }

  // Around fork().
  void LockAll() noexcept;
  void UnlockAll() noexcept;
  // In the child, where the calling thread is the only one.
  void UnlockAllInChild() noexcept;

 private:
  static constexpr int kMost = 128;
  static constexpr uint32_t kSharedTurns = 256;

  void LockShared(OutsideArena& arena) noexcept;
  void TakeOwn() noexcept;

  MemoryResource& chunks_;
  OutsideArena common_;
  std::mutex mutex_;
  // Guarded by it:
  OutsideArena* own_[kMost] = {};
  std::atomic<int> count_{0};  // of own_; grows
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PMR_OUTSIDE_ARENAS_H_
