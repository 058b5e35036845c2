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

// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] static const OutsideBlocks& at_start = OutsideBlocks::Global();

OutsideBlocks::OutsideBlocks()
    : pages_(HostProvider(), {.large_pages = false, .prefault = false}),
      charged_(pages_, MemoryKind::kAllocated, nullptr, "blocks outside of workspaces"),
      stash_(charged_),
      pool_(stash_, kSpanBytes, kBlockChunkBytes),
      chunks_(nullptr, pool_) {}

OutsideBlocks::Lock::~Lock() {
  SpanStash::Span* span = blocks_.stash_.TakeAll();
  blocks_.mutex_.unlock();
  while (span != nullptr) {
    const SpanStash::Span now = *span;
    blocks_.charged_.Release(now.token, now.bytes, now.alignment);
    span = now.next;
  }
}

void* OutsideBlocks::Allocate(size_t bytes, size_t alignment) {
  const int size_class = SizeClassOf(bytes, alignment);
  if (size_class < 0) return AllocateLarge(bytes, alignment);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (void* const block = chunks_.TakeCounted(size_class)) return block;
  }
  return AllocateSlowly(size_class);
}

void* OutsideBlocks::AllocateLarge(size_t bytes, size_t alignment) {
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

void* OutsideBlocks::TryTake(int size_class) {
  if (void* const block = chunks_.TakeCounted(size_class)) return block;
  if (void* const block = chunks_.TakeAvailable(size_class)) return block;
  const Allocation chunk = pool_.Allocate(kBlockChunkBytes, kBlockChunkBytes);
  return chunk ? chunks_.TakeFrom(chunk, size_class, nullptr) : nullptr;
}

void* OutsideBlocks::AllocateSlowly(int size_class) {
  RegisterOnce();
  SpanStash::Wanted wanted;
  {
    const Lock lock(*this);
    if (void* const block = TryTake(size_class)) return block;
    wanted = stash_.TakeWanted();
  }
  for (;;) {
    // Not under the lock: whoever is asked to give memory back, or told that it runs short, may
    // make and release blocks.
    size_t bytes = 0;
    const Allocation span = TakeSpan(wanted, &bytes);
    const Lock lock(*this);
    stash_.Put(span, bytes, wanted.alignment);
    if (void* const block = TryTake(size_class)) return block;
    wanted = stash_.TakeWanted();  // it wants another size than it did
  }
}

// A span, or what one chunk needs where there is not so much.
Allocation OutsideBlocks::TakeSpan(const SpanStash::Wanted& wanted, size_t* bytes) {
  *bytes = wanted.most;
  const Allocation span = charged_.Allocate(wanted.most, wanted.alignment);
  if (span) return span;
  *bytes = wanted.least;
  ReclaimingResource reclaiming(charged_);
  return AllocateOrThrow(reclaiming, wanted.least, wanted.alignment);
}

void OutsideBlocks::Release(BlockChunk* chunk, void* block) noexcept {
  const Lock lock(*this);
  if (!chunk->Put(block) || !chunks_.ToldCounted(chunk, kKeptChunks)) return;
  if (pool_.owned_bytes() - pool_.used_bytes() >= 2 * kSpanBytes) pool_.Trim();
}

void OutsideBlocks::ReleaseLarge(LargeBlock* block) noexcept {
  HeapRelease(block->token, block->bytes, MemoryKind::kAllocated, Host());
}

// Whoever comes while another thread does it goes on without.
void OutsideBlocks::RegisterOnce() {
  if (registered_.load(std::memory_order_relaxed) || registered_.exchange(true)) return;
  try {
    reclaimer_ = Reclaimer::Global().Register(
        "blocks outside of workspaces", [this](ReclaimDepth depth) { return Reclaim(depth); });
  } catch (...) {
    registered_.store(false);
    throw;
  }
}

int64_t OutsideBlocks::Reclaim(ReclaimDepth depth) noexcept {
  // Nobody waits in a callback: whoever forks holds the lock, and waits for the Reclaimer.
  if (!mutex_.try_lock()) return 0;
  const Lock lock(*this, std::adopt_lock);
  const size_t before = pool_.owned_bytes();
  if (depth != ReclaimDepth::kSpare) chunks_.DropEmpty();
  pool_.Trim();
  return static_cast<int64_t>(before - pool_.owned_bytes());
}

}  // namespace tidepool::internal
