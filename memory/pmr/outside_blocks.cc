#include "tidepool/memory/pmr/outside_blocks.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/provider/host_provider.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/resource/reclaiming_resource.h"

namespace tidepool::internal {
namespace {

constexpr size_t kSpanBytes = size_t{1} << 20;

}  // namespace

OutsideBlocks& OutsideBlocks::Global() {
  static OutsideBlocks* const blocks = [] {
    static constinit const ForkHandlers handlers{[] { Global().mutex_.lock(); },
                                                 [] { Global().mutex_.unlock(); },
                                                 [] { Global().mutex_.unlock(); }};
    HandleFork(ForkLevel::kOutsideBlocks, &handlers);
    return new OutsideBlocks;
  }();
  return *blocks;
}

OutsideBlocks::OutsideBlocks()
    : pages_(HostProvider(), {.large_pages = false, .prefault = false}),
      charged_(pages_, MemoryKind::kAllocated, nullptr, "blocks outside of workspaces"),
      pool_(charged_, kSpanBytes, kBlockChunkBytes),
      chunks_(nullptr, pool_) {}

void* OutsideBlocks::Allocate(size_t bytes, size_t alignment) {
  const int size_class = SizeClassOf(bytes, alignment);
  if (size_class < 0) {
    const size_t all = LargeBytes(bytes, alignment);
    if (all == 0) {
      ThrowOutOfMemory({Host(), nullptr, INT64_MAX, "a block"}, "the size of memory",
                       absl::StrCat("a block of ", bytes, " bytes at alignment ", alignment,
                                    " outside of workspaces cannot be served"),
                       MemoryTracker::Global().Snapshot().ToString());
    }
    auto* const memory = static_cast<std::byte*>(
        HeapAllocate(all, alignof(LargeBlock), MemoryKind::kAllocated, Host()));
    LargeBlock* const block = PlaceLarge(memory, alignment);
    *block = {nullptr, memory, all, bytes, 0};
    return block->data();
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (void* const block = chunks_.Take(size_class)) return block;
    if (void* const block = chunks_.TakeAvailable(size_class)) return block;
  }
  // Not under the lock: whoever is asked to give memory back may release blocks.
  Spans spans(pool_, mutex_);
  ReclaimingResource reclaiming(spans);
  const Allocation chunk = AllocateOrThrow(reclaiming, kBlockChunkBytes, kBlockChunkBytes);
  std::lock_guard<std::mutex> lock(mutex_);
  if (void* const block = chunks_.Take(size_class)) {  // others have come and gone meanwhile
    pool_.Release(chunk.token, kBlockChunkBytes, kBlockChunkBytes);
    return block;
  }
  return chunks_.TakeFrom(chunk, size_class, nullptr);
}

void OutsideBlocks::Release(BlockChunk* chunk, void* block) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!chunk->Put(block) || !chunks_.Told(chunk)) return;
  if (pool_.owned_bytes() - pool_.used_bytes() >= 2 * kSpanBytes) pool_.Trim();
}

void OutsideBlocks::ReleaseLarge(LargeBlock* block) noexcept {
  HeapRelease(block->token, block->bytes, MemoryKind::kAllocated, Host());
}

}  // namespace tidepool::internal
