// Families of streams: what allocators find hard, each with a seed that says how many requests, how large, how many alive.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_STREAM_FAMILIES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_STREAM_FAMILIES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tidepool/memory/workspace/streams.h"

namespace tidepool {

// The next cycle. `random` goes on from cycle to cycle. A cycle has at most 256 requests.
using FamilyStream = std::function<std::vector<Step>(std::mt19937_64& random, int cycle)>;

struct StreamFamily {
  std::string name;
  std::string what;  // in a few words
  std::function<FamilyStream(uint64_t seed)> stream;
};

// All of them. Sizes of those named x10 are ten times as large.
std::vector<StreamFamily> StreamFamilies();

// What a stream took, as counted in some of its cycles.
struct StreamBytes {
  size_t alive = 0;  // the most that was alive at once, requests rounded up to 64
  size_t held = 0;   // the most that the allocator had from the system
  double asked = 0;  // how often the ledger's owners asked the system, a cycle; 0 of malloc
};

enum class StreamPlayer {
  kArrays,  // buffers of a workspace
  kRaw,     // raw bytes of a workspace
  kMalloc,  // glibc's, as mallinfo2() counts: its arenas and what it has mapped
};

// Of cycles [from, cycles). Pages, kept blocks and what lies outside are the ledger's, without its books. No byte is
// written. What others of this process take meanwhile counts too.
StreamBytes CountStream(StreamPlayer player, const FamilyStream& stream, uint64_t seed, int from,
                        int cycles);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_STREAM_FAMILIES_H_
