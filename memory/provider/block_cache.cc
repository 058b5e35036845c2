#include "tidepool/memory/provider/block_cache.h"

#include <algorithm>
#include <cstdlib>

#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {
namespace {

constexpr int kMostKept = 32;
constexpr int kAtOnce = 16;  // half, so that neither end is met at every call

void* TakeSpan(size_t alignment, size_t bytes) {
  void* span = nullptr;
  return posix_memalign(&span, alignment, bytes) == 0 ? span : nullptr;
}
void GiveSpan(void* span) { std::free(span); }
constinit SmallBlocks small_blocks(&TakeSpan, &GiveSpan);

struct Magazine {
  int count = 0;
  int limit = 0;  // 0 before the thread's first use, and again when it ends
  std::byte* blocks[kMostKept] = {};
};

struct ThreadCache {
  bool ended = false;
  Magazine magazines[SmallBlocks::kClasses];
};
// No destructor of its own: what other thread-local objects release after it has been emptied still
// finds it, empty.
constinit thread_local ThreadCache cache;

size_t MostBytesOf(const Magazine& magazine) {
  return static_cast<size_t>(&magazine - cache.magazines + 1) * SmallBlocks::kAlignment;
}

struct EmptiedAtThreadEnd {
  ~EmptiedAtThreadEnd() {
    cache.ended = true;
    for (Magazine& magazine : cache.magazines) {
      magazine.limit = 0;
      small_blocks.ReleaseMany(MostBytesOf(magazine), magazine.blocks, magazine.count);
      magazine.count = 0;
    }
  }
};

[[maybe_unused]] const bool handles_forks = [] {
  static constinit const ForkHandlers handlers{[] { small_blocks.LockAll(); },
                                               [] { small_blocks.UnlockAll(); },
                                               [] { small_blocks.UnlockAll(); }};
  HandleFork(ForkLevel::kSmallBlocks, &handlers);
  return true;
}();

// False when the thread is ending: nothing may be kept any more.
bool Keeps(Magazine& magazine) noexcept {
  if (magazine.limit > 0) return true;
  if (cache.ended) return false;
  static thread_local EmptiedAtThreadEnd emptied;
  static_cast<void>(&emptied);
  magazine.limit = kMostKept;
  return true;
}

std::byte* AllocateSlowly(Magazine& magazine, size_t bytes) noexcept {
  if (!Keeps(magazine)) return small_blocks.Allocate(bytes);
  magazine.count = small_blocks.AllocateMany(bytes, magazine.blocks, kAtOnce);
  if (magazine.count == 0) return nullptr;
  // Taken from the end, in the order of their addresses.
  std::reverse(magazine.blocks, magazine.blocks + magazine.count);
  return magazine.blocks[--magazine.count];
}

void ReleaseSlowly(Magazine& magazine, std::byte* data, size_t bytes) noexcept {
  if (!Keeps(magazine)) return small_blocks.Release(data, bytes);
  if (magazine.count == kMostKept) {
    // Those that are cold.
    small_blocks.ReleaseMany(bytes, magazine.blocks, kAtOnce);
    std::copy(magazine.blocks + kAtOnce, magazine.blocks + kMostKept, magazine.blocks);
    magazine.count -= kAtOnce;
  }
  magazine.blocks[magazine.count++] = data;
}

}  // namespace

std::byte* AllocateSmallBlock(size_t bytes) noexcept {
  Magazine& magazine = cache.magazines[SmallBlocks::ClassOf(bytes)];
  if (magazine.count == 0) [[unlikely]]
    return AllocateSlowly(magazine, bytes);
  return magazine.blocks[--magazine.count];
}

void ReleaseSmallBlock(std::byte* data, size_t bytes) noexcept {
  Magazine& magazine = cache.magazines[SmallBlocks::ClassOf(bytes)];
  if (magazine.count >= magazine.limit) [[unlikely]]
    return ReleaseSlowly(magazine, data, bytes);
  magazine.blocks[magazine.count++] = data;
}

void ReleaseSmallBlocks(size_t bytes, const void* addresses, size_t stride, int count) noexcept {
  if (count >= kAtOnce) return small_blocks.ReleaseStrided(bytes, addresses, stride, count);
  const auto* at = static_cast<const std::byte*>(addresses);
  for (int i = 0; i < count; ++i, at += stride) {
    ReleaseSmallBlock(*reinterpret_cast<std::byte* const*>(at), bytes);
  }
}

int64_t SmallBlockSpans() { return small_blocks.spans(); }

}  // namespace tidepool
