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
constexpr size_t kMostOfSpan = kSpanBytes / 4;  // larger blocks are the heap's

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
      large_(stash_, kSpanBytes, alignof(LargeBlock)),
      chunks_(nullptr, pool_) {}

void OutsideBlocks::KeptBytes::Took(size_t bytes) noexcept {
  const size_t again = std::min(gone_, bytes);
  gone_ -= again;
  bytes_ += again;
}

void OutsideBlocks::KeptBytes::Released(size_t bytes, size_t owned) noexcept {
  constexpr size_t kTurns = 8;
  released_ += bytes;
  if (released_ / kTurns < owned) return;
  // Half of it, as what comes may vary.
  if (least_idle_ != SIZE_MAX)
    bytes_ = std::max(kLeast, bytes_ - std::min(bytes_, least_idle_ / 2));
  gone_ /= 2;
  released_ = 0;
  least_idle_ = SIZE_MAX;
}

OutsideBlocks::Lock::~Lock() {
  SpanStash::Span* span = blocks_.stash_.TakeAll();
  blocks_.mutex_.unlock();
  while (span != nullptr) {
    const SpanStash::Span now = *span;
    blocks_.charged_.Release(now.token, now.bytes, now.alignment);
    blocks_.taken_.fetch_sub(now.bytes, std::memory_order_relaxed);
    span = now.next;
  }
}

template <typename Try>
auto OutsideBlocks::AllocateSlowly(const Try& try_take) {
  RegisterOnce();
  SpanStash::Wanted wanted;
  {
    const Lock lock(*this);
    if (auto taken = try_take()) return taken;
    wanted = stash_.TakeWanted();
  }
  for (;;) {
    // Not under the lock: whoever is asked to give memory back, or told that it runs short, may
    // make and release blocks.
    size_t bytes = 0;
    const Allocation span = TakeSpan(wanted, &bytes);
    taken_.fetch_add(bytes, std::memory_order_relaxed);
    const Lock lock(*this);
    kept_.Took(bytes);
    stash_.Put(span, bytes, wanted.alignment);
    if (auto taken = try_take()) return taken;
    wanted = stash_.TakeWanted();  // it wants another size than it did
  }
}

void* OutsideBlocks::Allocate(size_t bytes, size_t alignment) {
  const int size_class = SizeClassOf(bytes, alignment);
  if (size_class < 0) return AllocateLarge(bytes, alignment);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (void* const block = chunks_.TakeCounted(size_class)) return block;
  }
  return AllocateSlowly([&] { return TryTake(size_class); });
}

void* OutsideBlocks::AllocateLarge(size_t bytes, size_t alignment) {
  const size_t all = LargeBytes(bytes, alignment);
  if (all == 0) {
    ThrowOutOfMemory({Host(), nullptr, INT64_MAX, "a block"}, "the size of memory",
                     absl::StrCat("a block of ", bytes, " bytes at alignment ", alignment,
                                  " outside of workspaces cannot be served"),
                     MemoryTracker::Global().Snapshot().ToString());
  }
  Allocation memory;
  if (all > kMostOfSpan) {
    memory.data = static_cast<std::byte*>(
        HeapAllocate(all, alignof(LargeBlock), MemoryKind::kAllocated, Host()));
    memory.token = memory.data;
  } else {
    memory = AllocateSlowly([&] { return TryTakeLarge(all); });
  }
  LargeBlock* const block = PlaceLarge(memory.data, alignment);
  *block = {nullptr, memory.token, all, bytes, 0};
  return block->data();
}

Allocation OutsideBlocks::TryTakeLarge(size_t bytes) {
  const Allocation memory = large_.Allocate(bytes, alignof(LargeBlock));
  if (memory) kept_.Used(bytes);
  return memory;
}

void* OutsideBlocks::TryTake(int size_class) {
  if (void* const block = chunks_.TakeCounted(size_class)) return block;
  if (void* const block = chunks_.TakeAvailable(size_class)) return block;
  const Allocation chunk = pool_.Allocate(kBlockChunkBytes, kBlockChunkBytes);
  if (!chunk) return nullptr;
  kept_.Used(kBlockChunkBytes);
  return chunks_.TakeFrom(chunk, size_class, nullptr);
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
  GiveWhatIsTooMuch(kBlockChunkBytes);
}

void OutsideBlocks::ReleaseLarge(LargeBlock* block) noexcept {
  if (block->bytes > kMostOfSpan)
    return HeapRelease(block->token, block->bytes, MemoryKind::kAllocated, Host());
  const Lock lock(*this);
  const size_t bytes = block->bytes;
  large_.Release(block->token, bytes, alignof(LargeBlock));
  GiveWhatIsTooMuch(bytes);
}

// Spans without blocks. Looking for them takes a look at each, so it is done for a part of them.
void OutsideBlocks::GiveWhatIsTooMuch(size_t released) noexcept {
  constexpr size_t kPart = 16, kFewSpans = 32 * kSpanBytes;
  kept_.Released(released, owned_bytes());
  released_ += released;
  const size_t least = owned_bytes() <= kFewSpans ? kBlockChunkBytes : owned_bytes() / kPart;
  if (owned_bytes() <= kept_.bytes() || released_ < least) return;
  released_ = 0;
  size_t idle = 0;
  const auto count = [&](void*) {
    idle += kSpanBytes;
    return false;
  };
  pool_.TrimIf(count);
  large_.TrimIf(count);
  kept_.Saw(std::min(idle, kept_.bytes()));
  const auto goes = [&](void*) {
    if (idle <= kept_.bytes()) return false;
    idle -= kSpanBytes;
    return true;
  };
  kept_.Gave(pool_.TrimIf(goes));
  kept_.Gave(large_.TrimIf(goes));
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
  const size_t before = owned_bytes();
  if (depth != ReclaimDepth::kSpare) chunks_.DropEmpty();
  pool_.Trim();
  large_.Trim();
  kept_.Reset();
  return static_cast<int64_t>(before - owned_bytes());
}

}  // namespace tidepool::internal
