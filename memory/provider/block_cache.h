// The process's small blocks, with a few of each size kept by each thread, so that taking and freeing one
// needs no lock (magazines: Bonwick and Adams 2001, "Magazines and Vmem"). What a thread keeps goes back
// when it ends.
//
// Threads: any; a block may be released on another thread than it was taken on. A child of fork() goes
// on with what its thread kept; what the other threads kept is lost to it. Cost: some nanoseconds;
// once in 16 calls a lock. Kept: at most 32 blocks of each of the eight sizes and thread, 72 KiB.
#ifndef TIDEPOOL_MEMORY_PROVIDER_BLOCK_CACHE_H_
#define TIDEPOOL_MEMORY_PROVIDER_BLOCK_CACHE_H_

#include <cstddef>
#include <cstdint>

#include "tidepool/memory/provider/small_blocks.h"

namespace tidepool {

// AddressSanitizer watches the bytes around a block only when they are malloc's: nothing is cut then.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSmallBlocksInUse = false;
#else
inline constexpr bool kSmallBlocksInUse = true;
#endif

// As SmallBlocks' own.
std::byte* AllocateSmallBlock(size_t bytes) noexcept;
void ReleaseSmallBlock(std::byte* data, size_t bytes) noexcept;
// Of one size; see SmallBlocks::ReleaseStrided. Many go past what the thread keeps.
void ReleaseSmallBlocks(size_t bytes, const void* addresses, size_t stride, int count) noexcept;
// Of the whole process.
int64_t SmallBlockSpans();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_BLOCK_CACHE_H_
