// What tapes that end leave to those to come, so that a program which makes one for each step takes nothing from the system for it.
//
// Of the process, and of memory that is charged to the process itself. Threads: any; nobody waits. On the ledger it is what it was,
// a gradient tape's; the Reclaimer gives it back.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_SPARE_CHUNKS_H_
#define TIDEPOOL_NDARRAY_GRADIENT_SPARE_CHUNKS_H_

#include <cstddef>

#include "tidepool/memory/buffer.h"

namespace tidepool {

// Sizes that tapes take one after the other; no others wait, and of each at most kMostOfASize: 4 MB in all.
inline constexpr size_t kFirstChunk = 8 << 10, kLargestChunk = 256 << 10, kMostOfASize = 8;

// One of exactly that size; null: none waits.
BufferHandle TakeSpareChunk(size_t bytes) noexcept;
// Which nobody else has. It goes where enough wait.
void LeaveSpareChunk(BufferHandle chunk) noexcept;

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_SPARE_CHUNKS_H_
