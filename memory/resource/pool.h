// Blocks of any size out of retained chunks of another resource: cut from the smallest free block
// that is large enough, neighbours merged when free. All bookkeeping is outside the memory, so it
// may be of any device. Workspaces serve spills from a Pool; its chunks are kept between cycles.
//
//   PagesResource pages({.owner = &owner});
//   Pool pool(pages, size_t{1} << 20, 64);
//   const Allocation block = pool.Allocate(1000, 64);
//
// Requests of up to chunk_bytes share chunks of that size. A larger one gets a chunk of its own,
// rounded up as what it wraps rounds up; small blocks never keep a large chunk from going back.
//
// Footprint. A use (a cycle, a request) ends with TrimIdle; "live" is the most bytes of blocks that
// were alive at once, in this use or the one before.
//
// A size that was released is served again from what is owned: nothing more is taken as long as a
// free block will do.
//
// Large blocks take at most 1.1 times what was live and chunk_bytes: a free chunk serves requests
// of at least 10/11 of it, and before another is taken, chunks without live blocks go, those used
// longest ago first, until the bound is kept. A pool that did so in two uses and still owns
// something pays in memory from then on rather than in system calls, so that a cycle that repeats
// settles: a large chunk is cut up by requests of at least a quarter of it, and up to twice what
// was live is kept.
//
// Small blocks: as in every allocator that moves nothing, one block left in each chunk can hold all
// of them (Robson 1974: 1 + log2(chunk_bytes / alignment) / 2 times what was live); sizes drawn at
// random stay below 1.25 times and two chunks (pool_test).
//
// TrimIdle(n) gives back the chunks in which no block was alive during the last n uses, also while
// other blocks are.
//
// Every block has the readable tail of what it wraps behind it (that of the last one of a chunk);
// in AddressSanitizer builds, where released bytes are poisoned, the first 16 bytes of it. The
// alignment is the pool's own for every block; requests for more are refused as impossible
// (align_resource.h).
//
// Threads: one at a time (locked_resource.h). Cost: some tens of nanoseconds once chunks exist;
// beyond chunk_bytes also a look at each large chunk.
#ifndef TIDEPOOL_MEMORY_RESOURCE_POOL_H_
#define TIDEPOOL_MEMORY_RESOURCE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/resource/fit_tree.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class Pool final : public MemoryResource {
 public:
  // `chunk_bytes` is at least 4096; smaller chunks are taken where that much is refused.
  // `alignment` (a power of two, at least 16) is that of every block and the granule of sizes.
  Pool(MemoryResource& upstream, size_t chunk_bytes, size_t alignment);
  // Gives everything back, blocks in use too.
  ~Pool() override;

  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  Device device() const override { return upstream_.device(); }
  std::string Describe() const override { return "pool of " + upstream_.Describe(); }
  size_t FootprintBytes(size_t bytes, size_t alignment) const override;

  size_t owned_bytes() const override { return owned_bytes_; }  // footprints of chunks
  size_t used_bytes() const { return used_bytes_; }             // live blocks
  size_t block_count() const { return block_count_; }           // live blocks
  size_t chunk_count() const { return chunks_.size(); }

  size_t Trim() noexcept override;
  size_t TrimIdle(int uses) noexcept override;

 private:
  struct Chunk;
  struct Block : FitNode {  // size: rounded up to the granule
    std::byte* data;
    Block* previous_in_chunk;
    Block* next_in_chunk;  // of unused records: the next one
    Chunk* chunk;
    bool free;
  };
  struct Chunk {
    void* token;
    size_t bytes;  // asked for
    size_t footprint;
    Block* first;
    bool large;        // of one request beyond chunk_bytes; else its free blocks are in tree_
    uint64_t used_in;  // the last use that cut a block from it

    bool idle() const { return first->free && first->next_in_chunk == nullptr; }
  };

  Block* FindLarge(size_t bytes) const;
  Allocation AddChunk(size_t bytes, Block** whole);
  Allocation TakeChunk(size_t bytes, size_t* asked);
  bool MayHold(size_t bytes, const Chunk& chunk) const;
  size_t Slack(size_t peak) const;
  void MakeRoom(size_t footprint) noexcept;
  size_t GiveBack(Chunk& chunk) noexcept;
  template <typename Predicate>
  size_t GiveBackWhere(const Predicate& goes) noexcept;
  void SetFree(Block* block, bool free) noexcept;
  void ReserveNodes();
  Block* NewNode() noexcept;
  void RecycleNode(Block* node) noexcept;
  void Poison(const std::byte* data, size_t bytes) const;

  MemoryResource& upstream_;
  const size_t chunk_bytes_;
  const size_t alignment_;
  const bool on_host_;  // only its addresses have an AddressSanitizer shadow
  std::vector<std::unique_ptr<Chunk>> chunks_;
  FitTree tree_;
  std::vector<std::unique_ptr<Block[]>> slabs_;
  Block* recycled_ = nullptr;
  size_t owned_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t block_count_ = 0;
  uint64_t use_ = 0;                 // number of calls of TrimIdle
  size_t peak_used_bytes_ = 0;       // in this use
  size_t last_peak_used_bytes_ = 0;  // in the one before
  bool makes_room_ = false;          // chunks went in this use because another came
  int looseness_ = 0;                // uses that did so since the pool was empty
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_POOL_H_
