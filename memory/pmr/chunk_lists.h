// The chunks of one holder of small blocks, by class: where the next block comes from, and what
// becomes of chunks whose blocks came back.
//
// A class takes from one chunk at a time. A chunk that is exhausted is found again by the first
// block that comes back to it; one without blocks goes back to the resource, unless it is its
// class's current one. The resource gives chunks; what they cost and how long they are kept is its
// affair and the holder's.
//
// Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_PMR_CHUNK_LISTS_H_
#define TIDEPOOL_MEMORY_PMR_CHUNK_LISTS_H_

#include <cstddef>
#include <cstdint>

#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/pmr/size_classes.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool::internal {

class ChunkLists {
 public:
  // `chunks` gives back what comes back here.
  ChunkLists(CycleHeap* heap, MemoryResource& chunks) : ChunkLists(heap, nullptr, chunks) {}
  // Outside of cycles.
  ChunkLists(OutsideArena* arena, MemoryResource& chunks) : ChunkLists(nullptr, arena, chunks) {}
  ChunkLists(const ChunkLists&) = delete;
  ChunkLists& operator=(const ChunkLists&) = delete;

  // A block of that class; null when its current chunk has none.
  void* Take(int size_class) { return current_[size_class]->Take(); }
  // Makes another chunk the class's current one, for `thread`, and takes from it; null when there is none with
  // room.
  void* TakeAvailable(int size_class, const void* thread) noexcept;
  // Whether one of cycles that have ended waits for the class's next block, so that its current one is none: TakeAvailable() takes it.
  bool waits(int size_class) const { return (waits_ >> size_class & 1) != 0; }
  // A chunk of another class that has had no block in this cycle becomes this one's, which has none with room: that which was not
  // used for longest of those that wait, else one that had blocks in the last cycle. Null when there is none.
  void* TakeFromOther(int size_class, const void* thread) noexcept;
  // `chunk` was had from the resource for that class, whose current one has no room: a block of it.
  void* TakeFrom(const Allocation& chunk, int size_class, const void* thread) noexcept;
  // BlockChunk::Put() said so. True when the chunk went back to the resource.
  bool Told(BlockChunk* chunk) noexcept;

  // ---- outside of cycles, where nothing ends: current chunks without blocks are counted --------
  // As Take() and Told(): kLeastKept current chunks stay without blocks, and more where as many have come again after
  // they had gone; those that were not used while thousands of blocks came and went go. Not 0 when a chunk has gone, and
  // every now and then: some bytes that have come back since that was said last.
  void* TakeCounted(int size_class) noexcept {
    BlockChunk* const chunk = current_[size_class];
    void* const block = chunk->Take();
    if (chunk->out == 1) {  // and so there was a block: what stands for none has none out
      --empty_;
      chunk->idle_cycles = 0;
    }
    return block;
  }
  size_t ToldCounted(BlockChunk* chunk) noexcept {
    released_ += chunk->block_bytes;
    if (chunk->state != BlockChunk::kCurrent || empty_ >= kept_ || ++turns_ >= kTurns) [[unlikely]]
      return ToldCountedSlowly(chunk);
    ++empty_;
    return 0;
  }
  static constexpr int kLeastKept = 4;
  // Chunks without blocks go.
  void DropEmpty() noexcept;

  // ---- cycles ---------------------------------------------------------------------------------
  struct Left {
    int64_t chunks = 0, blocks = 0, bytes = 0;
  };
  // Chunks without blocks are as new and stay current, or wait for their class's next block where they had none in this cycle;
  // those with blocks are set aside as late. Cost: as many as this cycle or the one before has used.
  Left EndCycle() noexcept;
  // A block of a late chunk came back. The last one gives the chunk back.
  void PutLate(BlockChunk* chunk) noexcept;
  // Of chunks without blocks: those that served none of the last `cycles` go. `idle`: another cycle
  // has ended, for which EndCycle was not called because it had no blocks.
  void Age(uint32_t cycles, bool idle) noexcept;
  void SetThread(const void* thread) noexcept;

  int64_t count() const { return count_; }  // chunks, late ones not among them
  int64_t late_blocks() const { return late_blocks_; }

 private:
  ChunkLists(CycleHeap* heap, OutsideArena* arena, MemoryResource& chunks);

  struct List {
    BlockChunk* head = nullptr;
    void Add(BlockChunk* chunk) noexcept;
    void Remove(BlockChunk* chunk) noexcept;
  };
  void AddAvailable(BlockChunk* chunk) noexcept;
  void RemoveAvailable(BlockChunk* chunk) noexcept;
  void RetireCurrent(int size_class) noexcept;
  void Wait(BlockChunk* chunk, uint32_t used_in) noexcept;
  void Drop(BlockChunk* chunk) noexcept;
  void GiveBack(BlockChunk* chunk) noexcept;
  size_t ToldCountedSlowly(BlockChunk* chunk) noexcept;
  void DropIdle() noexcept;
  // A current chunk is told of only where those without blocks are counted.
  uint32_t tell_current_at() const { return heap_ == nullptr ? 0 : BlockChunk::kNever; }

  CycleHeap* const heap_;
  OutsideArena* const arena_;
  MemoryResource& chunks_;
  BlockChunk* current_[kSizeClasses];
  BlockChunk* available_[kSizeClasses] = {};
  List all_;  // but for those that wait and late ones
  List late_;
  int64_t count_ = 0;
  int64_t late_blocks_ = 0;
  // A class's chunk that waits, where its bit is set, and after how many cycles it had its last block.
  BlockChunk* waiting_[kSizeClasses];
  uint32_t used_in_[kSizeClasses];
  uint64_t waits_ = 0;
  uint32_t cycle_ = 0;   // cycles that have ended
  uint32_t oldest_ = 0;  // no chunk that waits was used before it
  // Outside of cycles:
  static constexpr int kTurns = 4096;
  int empty_ = 0;          // current chunks without blocks
  int kept_ = kLeastKept;  // of them at most
  uint64_t gone_ = 0;  // classes whose chunk went lately for being one more, and has not come again
  int turns_ = 0;      // since it was looked which are not used
  size_t released_ = 0;  // bytes, of those blocks of which ToldCounted() hears
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PMR_CHUNK_LISTS_H_
