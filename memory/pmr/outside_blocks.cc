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

// In LargeBlock::cycle, as outside there are none: the header is where its memory begins.
constexpr uint64_t kMayBeKept = 1;
bool MayBeKept(size_t bytes, size_t alignment) {
  return bytes <= KeptLarge::kMostBytes && alignment <= alignof(LargeBlock);
}

}  // namespace

OutsideBlocks& OutsideBlocks::MakeGlobal() {
  static OutsideBlocks* const blocks = [] {
    static constinit const ForkHandlers handlers{[] {
                                                   Global().arenas_.LockAll();
                                                   Global().mutex_.lock();
                                                 },
                                                 [] {
                                                   Global().mutex_.unlock();
                                                   Global().arenas_.UnlockAll();
                                                 },
                                                 [] {
                                                   Global().mutex_.unlock();
                                                   Global().arenas_.UnlockAllInChild();
                                                 }};
    HandleFork(ForkLevel::kOutsideBlocks, &handlers);
    return new OutsideBlocks;
  }();
  global_ = blocks;
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
      chunks_(*this),
      arenas_(chunks_) {}

// Whoever wants a chunk has no lock while it takes one (AllocateSmallSlowly).
Allocation OutsideBlocks::Chunks::Allocate(size_t bytes, size_t) {
  return Allocation::Refused(Refusal::kExhausted, this, bytes);
}

// Under an arena's lock. The span that it may be the last chunk of goes when that has been let go.
void OutsideBlocks::Chunks::Release(void* token, size_t bytes, size_t alignment) noexcept {
  std::lock_guard<std::mutex> lock(blocks_.mutex_);
  blocks_.used_ -= bytes;
  blocks_.pool_.Release(token, bytes, alignment);
}

void OutsideBlocks::KeptBytes::Took(size_t bytes) noexcept {
  const size_t again = std::min(gone_, bytes);
  gone_ -= again;
  bytes_ += again;
}

bool OutsideBlocks::KeptBytes::Released(size_t bytes, size_t owned) noexcept {
  constexpr size_t kTurns = 8;
  released_ += bytes;
  return released_ / kTurns >= owned;
}

void OutsideBlocks::KeptBytes::Decide(size_t idle, size_t used, size_t owned) noexcept {
  // Half of it, as what comes may vary.
  bytes_ = std::max(
      kLeast, bytes_ - std::min(bytes_, std::min(idle, owned - std::min(owned, most_used_)) / 2));
  gone_ /= 2;
  released_ = 0;
  most_used_ = used;
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

void* OutsideBlocks::AllocateSmallSlowly(int size_class) {
  arenas_.LookForOwn();
  OutsideArena& arena = arenas_.Here();
  const auto take = [&]() -> void* {
    if (void* const block = arena.chunks.TakeCounted(size_class)) return block;
    arena.TakeLeft();
    if (void* const block = arena.chunks.TakeCounted(size_class)) return block;
    return arena.chunks.TakeAvailable(size_class, nullptr);
  };
  {
    const OutsideArenas::Hold hold(arenas_, arena);
    if (void* const block = take()) return block;
  }
  const Allocation chunk = AllocateSlowly([this] { return TryTakeChunk(); });
  {
    const OutsideArenas::Hold hold(arenas_, arena);
    void* const block = take();
    if (block == nullptr) return arena.chunks.TakeFrom(chunk, size_class, nullptr);
    chunks_.Release(chunk.token, kBlockChunkBytes, kBlockChunkBytes);  // others made room meanwhile
    return block;
  }
}

void* OutsideBlocks::AllocateLarge(size_t bytes, size_t alignment) {
  const size_t all = LargeBytes(bytes, alignment);
  if (all == 0) {
    ThrowOutOfMemory({Host(), nullptr, INT64_MAX, "a block"}, "the size of memory",
                     absl::StrCat("a block of ", bytes, " bytes at alignment ", alignment,
                                  " outside of workspaces cannot be served"),
                     MemoryTracker::Global().Snapshot().ToString());
  }
  const bool may_be_kept = MayBeKept(all, alignment);
  if (may_be_kept) {
    OutsideArena& arena = arenas_.Here();
    LargeBlock* block = nullptr;
    {
      const OutsideArenas::Hold hold(arenas_, arena);
      block = arena.large.Take(all);
    }
    if (block != nullptr) {
      *block = {nullptr, block->token, block->bytes, bytes, kMayBeKept};
      UnpoisonBlock(block->data(), bytes);
      return block->data();
    }
    arenas_.LookForOwn();
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
  *block = {nullptr, memory.token, all, bytes, may_be_kept ? kMayBeKept : 0};
  return block->data();
}

Allocation OutsideBlocks::TryTakeLarge(size_t bytes) {
  const Allocation memory = large_.Allocate(bytes, alignof(LargeBlock));
  if (memory) {
    used_ += bytes;
    kept_.Uses(used_);
  }
  return memory;
}

Allocation OutsideBlocks::TryTakeChunk() {
  const Allocation chunk = pool_.Allocate(kBlockChunkBytes, kBlockChunkBytes);
  if (chunk) {
    used_ += kBlockChunkBytes;
    kept_.Uses(used_);
  }
  return chunk;
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

void OutsideBlocks::ReleaseSlowly(BlockChunk* chunk, void* block) noexcept {
  OutsideArena& arena = *chunk->arena;
  if (&arena != &arenas_.Here()) {
    PoisonBlock(block, chunk->block_bytes);  // its first bytes are the link to the next one
    if (arena.Leave(chunk, static_cast<FreeBlock*>(block))) return;
  }
  size_t came = 0;
  {
    const OutsideArenas::Hold hold(arenas_, arena);
    if (chunk->Put(block)) came = arena.chunks.ToldCounted(chunk);
    came += arena.TakeLeft();
  }
  if (came > 0) GiveWhatIsTooMuch(came);
}

void OutsideBlocks::ReleaseLarge(LargeBlock* block) noexcept {
  if (block->bytes > kMostOfSpan)
    return HeapRelease(block->token, block->bytes, MemoryKind::kAllocated, Host());
  if (block->cycle != kMayBeKept) return GiveLarge(block);
  OutsideArena& arena = arenas_.Here();
  PoisonBlock(block->data(), block->asked);
  for (;;) {
    {
      const OutsideArenas::Hold hold(arenas_, arena);
      block = arena.large.Keep(block);
    }
    if (block == nullptr) return;
    GiveLarge(block);
    block = nullptr;
  }
}

void OutsideBlocks::GiveLarge(LargeBlock* block) noexcept {
  const size_t bytes = block->bytes;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ReleaseLargeMemory(block);
  }
  GiveWhatIsTooMuch(bytes);
}

// Under the mutex.
void OutsideBlocks::ReleaseLargeMemory(LargeBlock* block) noexcept {
  used_ -= block->bytes;
  large_.Release(block->token, block->bytes, alignof(LargeBlock));
}

void OutsideBlocks::ThreadEnds() noexcept {
  OutsideArena* const arena = arenas_.ThreadEnds();
  if (arena == nullptr) return;
  arena->lock.Lock(nullptr);
  Empty(*arena);
  arena->lock.Unlock();
  GiveWhatIsTooMuch(kBlockChunkBytes);
}

// Under its lock.
void OutsideBlocks::Empty(OutsideArena& arena) noexcept {
  arena.TakeLeft();
  arena.chunks.DropEmpty();
  std::lock_guard<std::mutex> lock(mutex_);
  while (LargeBlock* const block = arena.large.TakeAny()) ReleaseLargeMemory(block);
}

// Spans without blocks. Looking for them takes a look at each, so it is done for a part of them. `released`: so much has
// come back to the pools.
void OutsideBlocks::GiveWhatIsTooMuch(size_t released) noexcept {
  constexpr size_t kPart = 16, kFewSpans = 32 * kSpanBytes;
  bool are_held = false;
  {
    const Lock lock(*this);
    if (kept_.Released(released, owned_bytes())) kept_.Decide(IdleBytes(), used_, owned_bytes());
    released_ += released;
    released_in_all_ += released;
    const size_t least = owned_bytes() <= kFewSpans ? kBlockChunkBytes : owned_bytes() / kPart;
    if (owned_bytes() <= kept_.bytes() || released_ < least) return;
    GiveIdleSpans();
    // Or as good as all are idle but for a chunk each, which may be one without blocks.
    are_held = owned_bytes() > kept_.bytes() + 2 * used_ + kFewSpans / 8 &&
               released_in_all_ >= owned_bytes();
    if (are_held) released_in_all_ = 0;
  }
  if (!are_held) return;
  EmptyArenas();
  const Lock lock(*this);
  GiveIdleSpans();
}

// Of spans.
size_t OutsideBlocks::IdleBytes() noexcept {
  size_t idle = 0;
  const auto count = [&](void*) {
    idle += kSpanBytes;
    return false;
  };
  pool_.TrimIf(count);
  large_.TrimIf(count);
  return idle;
}

void OutsideBlocks::GiveIdleSpans() noexcept {
  released_ = 0;
  size_t idle = IdleBytes();
  const auto goes = [&](void*) {
    if (idle <= kept_.bytes()) return false;
    idle -= kSpanBytes;
    return true;
  };
  kept_.Gave(pool_.TrimIf(goes));
  kept_.Gave(large_.TrimIf(goes));
}

// But those that another thread holds by a mutex: nobody waits in a callback, as who forks holds the locks and waits for the
// Reclaimer.
void OutsideBlocks::EmptyArenas() noexcept {
  for (int i = 0; i < arenas_.count(); ++i) {
    OutsideArena& arena = arenas_.at(i);
    if (!arena.lock.TryLock()) continue;
    Empty(arena);
    arena.lock.Unlock();
  }
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
  if (depth != ReclaimDepth::kSpare) EmptyArenas();
  if (!mutex_.try_lock()) return 0;
  const Lock lock(*this, std::adopt_lock);
  const size_t before = owned_bytes();
  pool_.Trim();
  large_.Trim();
  kept_.Reset();
  return static_cast<int64_t>(before - owned_bytes());
}

}  // namespace tidepool::internal
