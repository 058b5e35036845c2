// How a stream of a family is played and counted.
#include <malloc.h>

#include <algorithm>
#include <cstdlib>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/stream_families.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kMostRequests = 256;

size_t LedgerBytes() {
  int64_t bytes = 0;
  for (const MemoryKind kind : {MemoryKind::kUnreferenced, MemoryKind::kAllocated}) {
    bytes += MemoryTracker::Global().CurrentBytes(Host(), kind);
  }
  return static_cast<size_t>(bytes);
}

size_t MallocBytes() {
  const struct mallinfo2 found = mallinfo2();
  return found.arena + found.hblkhd;
}

}  // namespace

StreamBytes CountStream(StreamPlayer player, const FamilyStream& stream, uint64_t seed, int from,
                        int cycles) {
  WorkspaceConfig config;  // kTraining, as everybody gets it
  config.plan_search_seconds = 0;
  config.huge_pages = config.prefault = false;  // ends of large pages are not what is counted
  Workspace workspace("stream", config);
  std::vector<BufferHandle> buffers(kMostRequests);
  std::vector<RawBlock> blocks(kMostRequests);
  std::mt19937_64 random(seed * 31 + 7);
  std::vector<std::vector<Step>> all;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    all.push_back(stream(random, cycle));
    if (RequestsOf(all.back()) > kMostRequests)
      ThrowInvalidArgument("a cycle of too many requests");
  }
  const bool is_malloc = player == StreamPlayer::kMalloc;
  const auto bytes = [&] { return is_malloc ? MallocBytes() : LedgerBytes(); };
  const size_t before = bytes();
  int64_t asked = 0;
  StreamBytes found;
  const auto play = [&](const std::vector<Step>& steps, bool counts) {
    for (const Step& step : steps) {
      RawBlock& block = blocks[step.number];
      if (player == StreamPlayer::kArrays) {
        PlayHere({step}, buffers, /*writes=*/false);
      } else if (player == StreamPlayer::kRaw) {
        PlayRawHere({step}, blocks, /*writes=*/false);
      } else if (step.bytes == 0) {
        std::free(block.data);
      } else if (block.data = std::malloc(step.bytes); block.data == nullptr) {
        std::abort();
      }
      // In the middle of cycles: some of what they take goes back when they end.
      if (counts && step.bytes > 0) {
        const size_t now = bytes();
        found.held = std::max(found.held, now - std::min(now, before));
      }
    }
  };
  for (int cycle = 0; cycle < cycles; ++cycle) {
    if (cycle == from) asked = MemoryTracker::Global().system_allocations();
    if (cycle >= from) found.alive = std::max(found.alive, MostAlive(all[cycle]));
    if (is_malloc) {
      play(all[cycle], cycle >= from);
      continue;
    }
    WorkspaceScope scope(workspace);
    play(all[cycle], cycle >= from);
  }
  found.asked = static_cast<double>(MemoryTracker::Global().system_allocations() - asked) /
                std::max(cycles - from, 1);
  return found;
}

}  // namespace tidepool
