// Blocks of any size out of retained chunks: constant time, neighbours merged when free.
//
// A two-level segregated fit (Masmano, Ripoll, Crespo, Real: "TLSF", 2004): free blocks are kept in
// lists by power of two and 16 subdivisions of it, found through two bitmaps. All bookkeeping is
// outside the memory it manages, so the memory may be of any device. Workspaces serve spills from
// a Pool; its chunks are kept between cycles.
//
// Every block has kReadableTailBytes readable bytes behind it (the last one of a chunk too); in
// AddressSanitizer builds, where released bytes are poisoned, the first 16 of them.
// Threads: one at a time. Cost: about 20 ns per allocate and release once chunks exist.
#ifndef TIDEPOOL_MEMORY_RESOURCE_POOL_H_
#define TIDEPOOL_MEMORY_RESOURCE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tidepool/memory/provider/pages.h"

namespace tidepool {

class Pool {
 public:
  struct Block {
    std::byte* data;
    size_t bytes;  // rounded up to the granule
    // Below: the pool's own.
    Block* previous_in_chunk;
    Block* next_in_chunk;
    Block* previous_free;
    Block* next_free;
    uint32_t chunk;
    bool free;
  };

  // Chunks are of `chunk_bytes`; larger for larger requests, smaller where that much is refused. `alignment` (a power of
  // two, at least 16) is that of every block and the granule of sizes. The bytes are never touched.
  Pool(size_t chunk_bytes, size_t alignment, PagesOptions pages = {},
       DeviceProvider& provider = HostProvider());
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Throws OutOfMemoryError when a new chunk is needed and refused; the pool is unchanged then.
  Block* Allocate(size_t bytes);
  void Release(Block* block) noexcept;

  // Gives chunks without live blocks back to the system.
  void Trim();

  size_t owned_bytes() const { return owned_bytes_; }  // committed chunk pages
  size_t used_bytes() const { return used_bytes_; }    // live blocks
  size_t block_count() const { return block_count_; }  // live blocks

 private:
  static constexpr int kSubdivisionBits = 4;
  static constexpr int kSubdivisions = 1 << kSubdivisionBits;
  static constexpr int kLevels = 48;

  struct Chunk {
    std::unique_ptr<Pages> pages;
    Block* first = nullptr;
  };

  void Map(size_t granules, int* level, int* subdivision) const;
  Block* FindFree(size_t bytes);
  void InsertFree(Block* block);
  void RemoveFree(Block* block);
  void ReserveNodes();
  Block* NewNode();
  void RecycleNode(Block* node);
  Block* AddChunk(size_t bytes);
  void Poison(const std::byte* data, size_t bytes) const;
  size_t ChunkBytes(const Chunk& chunk) const;  // what blocks are made of

  size_t chunk_bytes_;
  size_t alignment_;
  PagesOptions pages_options_;
  DeviceProvider* provider_;
  bool host_readable_;
  std::vector<Chunk> chunks_;
  uint64_t level_bits_ = 0;
  uint32_t subdivision_bits_[kLevels] = {};
  Block* lists_[kLevels][kSubdivisions] = {};
  std::vector<std::unique_ptr<Block[]>> slabs_;
  Block* recycled_ = nullptr;
  size_t owned_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t block_count_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_POOL_H_
