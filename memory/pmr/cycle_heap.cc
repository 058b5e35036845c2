#include "tidepool/memory/pmr/cycle_heap.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/outside_blocks.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool::internal {
namespace {

// Of pages at a time for large blocks, at first.
constexpr size_t kSpanBytes = size_t{1} << 18;
// Cycles without use after which memory goes back. Many, because what cycles need may vary widely.
constexpr int kKeptCycles = 64;

PagesOptions OptionsFor(MemoryOwner& owner) {
  PagesOptions options;
  options.large_pages = false;
  options.prefault = false;
  options.owner = &owner;
  return options;
}

}  // namespace

CycleHeap::Storage::Storage(MemoryOwner& owner)
    : pages(OptionsFor(owner), GetDeviceProvider(Host(), "blocks of workspaces")),
      spans(pages, kSpanBytes, alignof(LargeBlock),
            {.grows = true, .coarse_alignment = kBlockChunkBytes}) {}

CycleHeap::CycleHeap(WorkspaceCore& core)
    : owner_(core.owner_lease),
      storage_(std::in_place, *owner_),
      chunks_(this, storage_->spans),
      core_(&core),
      workspace_(core),
      serves_(core.may_have_blocks()),
      owned_(std::in_place, core.owned_bytes()) {}

CycleHeap& CycleHeap::Of(WorkspaceCore& core) {
  if (CycleMemory* const there = core.block_memory()) return *static_cast<CycleHeap*>(there);
  if (core.memory_device() != Host()) {
    ThrowInvalidArgument(absl::StrCat("workspace [", core.id,
                                      "]: blocks for containers are the host's; found memory of ",
                                      DeviceName(core.memory_device())));
  }
  auto* const heap = new CycleHeap(core);
  if (!core.AttachBlocks(heap)) {
    delete heap;  // another thread was first
    return *static_cast<CycleHeap*>(core.block_memory());
  }
  return *heap;
}

void CycleHeap::Unrefer() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

// ---- allocating -------------------------------------------------------------------------------

void* CycleHeap::AllocateAt(WorkspaceCore& place, size_t bytes, size_t alignment) {
  if (!place.may_have_blocks()) return AllocateOutside(bytes, alignment);
  return Of(place).Allocate(bytes, alignment);
}

void* CycleHeap::AllocateOutside(size_t bytes, size_t alignment) {
  return OutsideBlocks::Global().Allocate(bytes, alignment);
}

void* CycleHeap::AllocateSlowly(size_t bytes, size_t alignment) {
  const void* const here = CurrentThreadToken();
  if (is_open_here()) {
    const int size_class = SizeClassOf(bytes, alignment);
    if (size_class >= 0 && chunks_.waits(size_class))
      return chunks_.TakeAvailable(size_class, here);
    DrainReturned();
    return AllocateInCycle(bytes, alignment);
  }
  WorkspaceCore* const open = serves_ ? workspace_.OpenHere() : nullptr;
  if (open == nullptr || !open->serves_blocks_on(here)) return AllocateOutside(bytes, alignment);
  // The first block of the cycle, which has begun here even if this one is refused: who was asked to
  // give memory back may have taken others.
  DrainReturned();
  if (std::exchange(chunks_thread_, here) != here) chunks_.SetThread(here);
  thread_.store(here, std::memory_order_relaxed);
  AddUsed(chunks_.count() * static_cast<int64_t>(kBlockChunkBytes));
  return AllocateInCycle(bytes, alignment);
}

void* CycleHeap::AllocateInCycle(size_t bytes, size_t alignment) {
  const int size_class = SizeClassOf(bytes, alignment);
  if (size_class < 0) return AllocateLarge(bytes, alignment);
  if (void* const block = chunks_.Take(size_class)) return block;
  if (void* const block = chunks_.TakeAvailable(size_class, CurrentThreadToken())) return block;
  if (tight_cycles_ > 0) {
    // Chunks that other sizes keep would lie between what is alive until they go before a refusal, too late for large blocks.
    if (void* const block = chunks_.TakeFromOther(size_class, CurrentThreadToken())) return block;
  }
  const Allocation chunk = TakeWithinLimits(kBlockChunkBytes, kBlockChunkBytes);
  // Whoever was asked to give memory back may have released blocks.
  if (void* const block = chunks_.Take(size_class)) [[unlikely]] {
    storage_->spans.Release(chunk.token, kBlockChunkBytes, kBlockChunkBytes);
    return block;
  }
  AddUsed(kBlockChunkBytes);
  return chunks_.TakeFrom(chunk, size_class, CurrentThreadToken());
}

// Before a limit refuses, what the workspace has and nobody uses goes back: kept chunks and spans, then what serves arrays.
Allocation CycleHeap::TakeFromSpans(size_t bytes, size_t alignment) {
  for (bool asked_arrays = false, asked_here = false;;) {
    try {
      return AllocateOrThrow(storage_->spans, bytes, alignment);
    } catch (const OutOfMemoryError&) {
      is_short_ = true;
      if (!std::exchange(asked_here, true) && GiveBackUnused() > 0) continue;
      if (std::exchange(asked_arrays, true) || !core_->GaveForBlocks(bytes)) throw;
    }
  }
}

// Of the workspace. Whoever was asked to give memory back may have taken blocks, so it is looked twice.
Allocation CycleHeap::TakeWithinLimits(size_t bytes, size_t alignment) {
  core_->CheckBlockBytes(bytes);
  Allocation memory;
  // A callback of who is asked may take a block too.
  const absl::Cleanup asked = [this, before = std::exchange(asks_, true)] { asks_ = before; };
  try {
    memory = TakeFromSpans(bytes, alignment);
  } catch (...) {
    CountOwned();  // what was kept may have gone to make room
    throw;
  }
  if (storage_->spans.owned_bytes() != core_->counters.block_bytes) CountOwned();
  try {
    core_->CheckBlockBytes(bytes);
  } catch (...) {
    storage_->spans.Release(memory.token, bytes, alignment);
    throw;
  }
  return memory;
}

void* CycleHeap::AllocateLarge(size_t bytes, size_t alignment) {
  const size_t all = LargeBytes(bytes, alignment);
  if (all == 0) {
    ThrowOutOfMemory({core_->memory_device(), &core_->memory_owner, INT64_MAX, "a block"},
                     "the size of memory",
                     absl::StrCat("workspace [", core_->id, "]: a block of ", bytes,
                                  " bytes at alignment ", alignment, " cannot be served"),
                     MemoryTracker::Global().Snapshot().ToString());
  }
  const Allocation memory = TakeWithinLimits(all, alignof(LargeBlock));
  AddUsed(static_cast<int64_t>(all));
  ++large_blocks_;
  large_bytes_ += static_cast<int64_t>(bytes);
  LargeBlock* const block = PlaceLarge(memory.data, alignment);
  *block = {this, memory.token, all, bytes, cycle_};
  return block->data();
}

// ---- releasing --------------------------------------------------------------------------------

void CycleHeap::Told(BlockChunk* chunk) noexcept {
  if (chunks_.Told(chunk)) AddUsed(-static_cast<int64_t>(kBlockChunkBytes));
}

void CycleHeap::ReleaseElsewhere(BlockChunk* chunk, void* block) noexcept {
  CycleHeap* const heap = chunk->heap;
  if (heap == nullptr) return OutsideBlocks::Global().Release(chunk, block);
  if (heap->is_open_here()) return heap->PutHere(chunk, block);
  PoisonBlock(block, chunk->block_bytes);  // its first bytes are the link to the next one
  heap->Give(static_cast<FreeBlock*>(block));
}

void CycleHeap::ReleaseLarge(LargeBlock* block) noexcept {
  CycleHeap* const heap = block->heap;
  if (heap == nullptr) return OutsideBlocks::Global().ReleaseLarge(block);
  if (heap->is_open_here()) return heap->PutLargeHere(block);
  PoisonBlock(block->data(), block->asked);
  heap->Give(reinterpret_cast<FreeBlock*>(reinterpret_cast<uintptr_t>(block) | 1));
}

// Inside the gate, as all that follows but Give().
void CycleHeap::PutHere(BlockChunk* chunk, void* block) noexcept {
  if (chunk->state == BlockChunk::kLate) {
    PoisonBlock(block, chunk->block_bytes);
    chunks_.PutLate(chunk);
  } else if (chunk->Put(block)) {
    Told(chunk);
  }
}

void CycleHeap::PutLargeHere(LargeBlock* block) noexcept {
  if (block->cycle == cycle_) {
    --large_blocks_;
    large_bytes_ -= static_cast<int64_t>(block->asked);
    AddUsed(-static_cast<int64_t>(block->bytes));
  } else {
    --late_large_blocks_;
  }
  storage_->spans.Release(block->token, block->bytes, alignof(LargeBlock));
}

// After this the heap may be gone.
void CycleHeap::Give(FreeBlock* block) noexcept {
  if (returned_.Give(block)) DropStorage();
}

void CycleHeap::DrainReturned() noexcept {
  FreeBlock* block = returned_.TakeAll();
  while (block != nullptr) {
    FreeBlock* const data = Untagged(block);
    FreeBlock* const next = data->next;
    if (IsTagged(block)) {
      PutLargeHere(reinterpret_cast<LargeBlock*>(data));
    } else {
      PutHere(ChunkOf(data), data);
    }
    block = next;
  }
}

// ---- cycles -----------------------------------------------------------------------------------

void CycleHeap::AddUsed(int64_t bytes) noexcept {
  used_ += bytes;
  core_->AddBlockBytes(bytes);
}

void CycleHeap::CountOwned() noexcept {
  const size_t owned = storage_->spans.owned_bytes();
  owned_->Set(owned);
  core_->counters.block_bytes = owned;
}

CycleMemory::Left CycleHeap::EndCycle() noexcept {
  if (thread_.load(std::memory_order_relaxed) == nullptr) return {};
  DrainReturned();
  const ChunkLists::Left small = chunks_.EndCycle();
  const Left left{small.blocks + large_blocks_, small.bytes + large_bytes_};
  late_large_blocks_ += large_blocks_;
  large_blocks_ = 0;
  large_bytes_ = 0;
  ++cycle_;
  if (std::exchange(is_short_, false)) {
    storage_->spans.NoteShortage();
    tight_cycles_ = kKeptCycles;
  }
  AddUsed(-used_);
  thread_.store(nullptr, std::memory_order_relaxed);
  had_blocks_ = true;
  return left;
}

void CycleHeap::GiveUnused() noexcept {
  if (!is_open_here()) return;
  DrainReturned();
  const int64_t before = chunks_.count();
  chunks_.Age(0, false);
  AddUsed((chunks_.count() - before) * static_cast<int64_t>(kBlockChunkBytes));
}

size_t CycleHeap::GiveBackUnused() noexcept {
  const size_t before = storage_->spans.owned_bytes();
  if (is_open_here()) {
    GiveUnused();
  } else {
    if (thread_.load(std::memory_order_relaxed) != nullptr) return 0;
    DrainReturned();
    chunks_.Age(0, true);
  }
  storage_->spans.Trim();
  CountOwned();
  return before - std::min(before, storage_->spans.owned_bytes());
}

bool CycleHeap::AsksForItself() noexcept {
  is_short_ = is_short_ || asks_;
  return asks_;
}

void CycleHeap::Age() noexcept {
  if (storage_->spans.owned_bytes() == 0) return;
  DrainReturned();
  chunks_.Age(kKeptCycles, !std::exchange(had_blocks_, false));
  tight_cycles_ -= tight_cycles_ > 0;
  storage_->spans.TrimIdle(kKeptCycles);
  if (++ages_ >= kKeptCycles) {
    ages_ = 0;
    // Chunks without blocks stay where larger cycles had them, and each may keep a large span. They
    // find their places anew.
    if (storage_->spans.FitToLive()) chunks_.Age(0, false);
  }
  CountOwned();
}

void CycleHeap::Trim() noexcept {
  if (thread_.load(std::memory_order_relaxed) != nullptr) return;  // in a cycle
  DrainReturned();
  chunks_.Age(0, true);
  storage_->spans.Trim();
  CountOwned();
}

void CycleHeap::Abandon() noexcept {
  Trim();
  while (!returned_.End(chunks_.late_blocks() + late_large_blocks_)) DrainReturned();
  storage_->spans.Trim();
  owned_->Set(0);
  owned_.reset();
  core_ = nullptr;
  // From here on it is nobody's account that holds them.
  orphaned_bytes_ = static_cast<int64_t>(storage_->spans.owned_bytes());
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, orphaned_bytes_, &*owner_);
  if (returned_.DropOwner()) DropStorage();
  Unrefer();
}

// No block is out, and no other thread is here.
void CycleHeap::DropStorage() noexcept {
  storage_.reset();
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, -orphaned_bytes_, &*owner_);
  Unrefer();
}

}  // namespace tidepool::internal
