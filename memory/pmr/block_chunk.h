// A chunk of 64 KiB, cut into small blocks of one class, and the header that says whose it is.
//
// Blocks have no headers: a block's chunk is where its address is rounded down to, and who releases
// a block tells its size. Blocks are handed out one behind the other, then those that came back.
// Headers begin at one of 16 places of their chunks, by the chunk's address, so that those of many
// chunks do not fall on the same lines of a cache.
//
// Threads: the chunk's holder's, but for `thread` and `heap`, which any thread that has one of its
// blocks reads.
#ifndef TIDEPOOL_MEMORY_PMR_BLOCK_CHUNK_H_
#define TIDEPOOL_MEMORY_PMR_BLOCK_CHUNK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tidepool/memory/pmr/size_classes.h"
#include "tidepool/memory/provider/poison.h"

namespace tidepool::internal {

class CycleHeap;
struct OutsideArena;

// Ends the program: `bytes` are released at `block`, where `found` is, for what that says: a sentence.
[[noreturn]] void ReportWrongRelease(const void* block, size_t bytes, const char* found) noexcept;

inline constexpr size_t kBlockChunkBytes = size_t{64} << 10;

// What a block that is free holds.
struct FreeBlock {
  FreeBlock* next;
};

struct alignas(64) BlockChunk {
  enum State : uint8_t {
    kCurrent,    // its class takes blocks from it next
    kAvailable,  // has free blocks, on the list of its class
    kFull,       // all of its blocks are out
    kLate,  // of a cycle that has ended: nothing is taken from it until its last block came back
  };
  static constexpr uint32_t kNever = UINT32_MAX;

  // The thread in whose open cycle it serves: that one releases without further ado. Null: none.
  std::atomic<const void*> thread{nullptr};
  CycleHeap* heap;            // null: blocks outside of cycles
  FreeBlock* free = nullptr;  // came back
  std::byte* fresh;           // never handed out, from here
  std::byte* end;             // to here
  uint32_t out = 0;           // blocks that are handed out
  uint32_t tell_at = kNever;  // a release that leaves so many out tells the list
  uint16_t block_bytes;
  uint8_t size_class;
  State state = kCurrent;
  uint32_t idle_cycles = 0;    // running, that took no block from it
  BlockChunk* next = nullptr;  // in its holder's list of all, or of late ones
  BlockChunk* previous = nullptr;
  BlockChunk* next_available = nullptr;  // of its class
  BlockChunk* previous_available = nullptr;
  void* token;                    // names it to the resource it is of
  OutsideArena* arena = nullptr;  // outside of cycles: whose it is

  std::byte* first() { return reinterpret_cast<std::byte*>(this) + sizeof(BlockChunk); }
  bool is_fresh() { return fresh == first(); }

  // A block, or null when none is left.
  void* Take() {
    if (FreeBlock* const block = free; block != nullptr) {
      free = block->next;
      ++out;
      UnpoisonBlock(block, block_bytes);
      return block;
    }
    if (fresh == end) return nullptr;
    std::byte* const block = fresh;
    fresh += block_bytes;
    ++out;
    UnpoisonBlock(block, block_bytes);
    return block;
  }
  // True when the list is to be told.
  bool Put(void* data) {
    if (out == 0) [[unlikely]]
      ReportWrongRelease(data, block_bytes, "that block was released before");
    auto* const block = static_cast<FreeBlock*>(data);
    block->next = free;
    free = block;
    PoisonBlock(block, block_bytes);
    return --out == tell_at;
  }
  // As it was at first; no block is out.
  void Reset() {
    free = nullptr;
    fresh = first();
    PoisonBlock(first(), static_cast<size_t>(end - first()));
  }
};
static_assert(sizeof(BlockChunk) == 128);

// `base` is a multiple of kBlockChunkBytes.
inline BlockChunk* ChunkAt(uintptr_t base) {
  return reinterpret_cast<BlockChunk*>(base + (base / kBlockChunkBytes % 16) * sizeof(BlockChunk));
}
inline BlockChunk* ChunkOf(const void* block) {
  return ChunkAt(reinterpret_cast<uintptr_t>(block) & ~uintptr_t{kBlockChunkBytes - 1});
}

// In front of a block that no class serves.
struct alignas(64) LargeBlock {
  CycleHeap* heap;  // null: outside of cycles
  void* token;      // names the memory to the resource it is of
  size_t bytes;     // as the resource was asked for
  size_t asked;     // as the caller asked
  uint64_t cycle;   // of the heap's that made it
  uint64_t mark = kOut;

  static constexpr uint64_t kOut = 0x7469646570006f75, kReleased = 0x7469646570007265;

  void* data() { return this + 1; }
};
static_assert(sizeof(LargeBlock) == 64);

inline LargeBlock* LargeBlockOf(void* data) { return static_cast<LargeBlock*>(data) - 1; }

// Bytes to ask for so that a header and `bytes` at that alignment are within; 0 when there are not
// so many.
inline size_t LargeBytes(size_t bytes, size_t alignment) {
  constexpr size_t kMost = size_t{1} << 46;
  if (bytes > kMost || alignment > kMost) return 0;
  return bytes + sizeof(LargeBlock) + (alignment > alignof(LargeBlock) ? alignment : 0);
}
// That of a block of `bytes` that no class serves. Ends the program where there is none, as far as that can be seen: what
// was released before may be others' by now, and what is no block's may not be readable.
inline LargeBlock* TakeLarge(void* data, size_t bytes) noexcept {
  LargeBlock* const block = LargeBlockOf(data);
  if (block->mark != LargeBlock::kOut || block->asked != bytes) [[unlikely]] {
    ReportWrongRelease(data, bytes,
                       block->mark == LargeBlock::kReleased
                           ? "that block was released before"
                           : "no block of that size was allocated there");
  }
  block->mark = LargeBlock::kReleased;
  return block;
}

// Where the header is in memory at `memory`, a multiple of its own alignment.
inline LargeBlock* PlaceLarge(std::byte* memory, size_t alignment) {
  auto at = reinterpret_cast<uintptr_t>(memory) + sizeof(LargeBlock);
  if (alignment > alignof(LargeBlock)) at = (at + alignment - 1) & ~(alignment - 1);
  return reinterpret_cast<LargeBlock*>(at) - 1;
}

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PMR_BLOCK_CHUNK_H_
