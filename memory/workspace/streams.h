// Cycles of requests that are drawn at random, and how they are played, for tests and benchmarks.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_STREAMS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/allocators.h"

namespace tidepool {

// A cycle as steps: request `number`, counted from 0, of `bytes`, or its release (bytes 0).
struct Step {
  uint32_t number;
  size_t bytes;
};

// The next cycle of a stream. Every request is released before its end.
using Draw = std::vector<Step> (*)(std::mt19937_64&);

// About 6,000 nodes of a document, most of them small, some texts and arrays that grow by copying.
std::vector<Step> ParserDocument(std::mt19937_64& random);
// An unrolled network over a sequence of 100 to 299 steps: activations live until they are passed
// again.
std::vector<Step> Sequence(std::mt19937_64& random);
// A forward pass of one of 32 batch sizes.
std::vector<Step> Batch(std::mt19937_64& random);
// One temporary of 97 MiB, 20 times, above 1 MiB that stays.
std::vector<Step> LargeTemporary(std::mt19937_64& random);
// 40 requests of 64 bytes to 300 MiB, at most 12 of them alive at once.
std::vector<Step> LargeSizes(std::mt19937_64& random);

// 30 requests of fixed sizes, 64 KiB to 8 MiB, whose lives are drawn anew.
std::vector<Step> DrawnLives(std::mt19937_64& random);
// One of seven cycles of 30 requests, 64 bytes to 60 MiB, at most 10 of them alive at once.
std::vector<Step> Alternating(std::mt19937_64& random);
// 20 requests of 1 to 20 units, at most 6 of them alive at once; a unit is 64 KiB to 2.3 MiB.
std::vector<Step> Saw(std::mt19937_64& random);
// 20 requests of 1 to 30 MiB that are always the same, but for the first one, of 1 to 200 MiB.
std::vector<Step> DrawnFirst(std::mt19937_64& random);
// 30 requests of fixed lives whose sizes, 64 bytes to 20 MiB, are up to twice as large.
std::vector<Step> Drifting(std::mt19937_64& random);

inline size_t RequestsOf(const std::vector<Step>& steps) { return steps.size() / 2; }
// Makes the requests and releases them, one byte of each page written. `blocks` has a place for
// each number.
void PlayOn(const Allocator& allocator, const std::vector<Step>& steps, std::vector<void*>& blocks);
// In the workspace that is open on this thread.
void PlayHere(const std::vector<Step>& steps, std::vector<BufferHandle>& blocks,
              bool writes = true);
// The same as raw bytes (memory/pmr/block_bytes.h), which have no records and no plans.
struct RawBlock {
  void* data;
  size_t bytes;
};
void PlayRawHere(const std::vector<Step>& steps, std::vector<RawBlock>& blocks, bool writes = true);
// The most bytes alive at once, each request rounded up to 64.
size_t MostAlive(const std::vector<Step>& steps);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_STREAMS_H_
