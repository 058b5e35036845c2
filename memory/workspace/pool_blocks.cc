// The blocks of a pool's memory, and what their chunks are taken from.
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "tidepool/memory/workspace/pool_memory.h"

namespace tidepool {

Allocation PoolMemory::Blocks::Allocate(size_t bytes, size_t alignment) {
  Lock lock(memory_.mutex_);
  // Also where it throws: chunks may have gone before.
  const absl::Cleanup reports = [this] { memory_.Report(); };
  for (;;) {
    const Allocation block = memory_.chunks_.Allocate(bytes, alignment);
    if (memory_.taken_chunks_->WasBusy(block)) {
      memory_.taken_chunks_->AwaitOther();
      continue;
    }
    memory_.taken_chunks_->GiveBack();  // what has made room
    return block;
  }
}

void PoolMemory::Blocks::Release(void* token, size_t bytes, size_t alignment) noexcept {
  Lock lock(memory_.mutex_);
  memory_.chunks_.Release(token, bytes, alignment);
}

// ---- chunks -----------------------------------------------------------------------------------

struct PoolMemory::Chunks::Chunk {
  Range range;  // none: the next is of what is wrapped
  void* token = nullptr;
};

Allocation PoolMemory::Chunks::Allocate(size_t bytes, size_t alignment) {
  auto chunk = std::make_unique<Chunk>();
  // Ranges have memory between them that does not go back.
  const bool by_itself = memory_.pool_->takes_chunks_of_one();
  if (bytes <= kMostBytes && alignment <= memory_.unit_ && !by_itself) {
    const size_t unit = memory_.unit_;
    chunk->range = memory_.TakeFromAny((bytes + kReadableTailBytes + unit - 1) & ~(unit - 1));
  }
  Allocation taken = {};
  if (chunk->range.is_taken()) {
    taken.data = chunk->range.data;
    memory_.chunk_range_bytes_ += chunk->range.bytes;
  } else {
    taken = upstream().Allocate(bytes, alignment);
    if (!taken) return taken;
    chunk->token = taken.token;
  }
  taken.token = chunk.release();
  return taken;
}

void PoolMemory::Chunks::Release(void* token, size_t bytes, size_t alignment) noexcept {
  const std::unique_ptr<Chunk> chunk(static_cast<Chunk*>(token));
  if (chunk->range.is_taken()) {
    memory_.spans_[chunk->range.span]->ranges.Give(chunk->range.range, chunk->range.bytes);
    memory_.chunk_range_bytes_ -= chunk->range.bytes;
  } else {
    upstream().Release(chunk->token, bytes, alignment);
  }
}

bool PoolMemory::Chunks::IsRange(void* token) noexcept {
  return static_cast<Chunk*>(token)->range.is_taken();
}

// Before more is taken for ranges: what blocks have in ranges without using it, and then all of it.
PoolMemory::Range PoolMemory::TakeFromBlocks(size_t bytes) {
  if (pool_->TrimIf(&Chunks::IsRange) > 0) {
    if (const Range range = TakeFromAny(bytes); range.is_taken()) return range;
  }
  chunks_.Trim();
  if (taken_chunks_->GiveBack() == 0) return {};
  Report();                   // it may be that nothing grows then
  return TakeFromAny(bytes);  // the lock was given up
}

void PoolMemory::TakeChunksOfOne() noexcept {
  Lock lock(mutex_);
  pool_->TakeChunksOfOne();
}

void PoolMemory::EndUseOfBlocks() noexcept {
  const uint64_t taken = taken_chunks_->taken();
  const bool asked = std::exchange(chunks_before_, taken) != taken;
  chunks_.TrimIdle(keeps_blocks_.uses());
  const bool gave_back = taken_chunks_->GiveBack() > 0;
  keeps_blocks_.EndUse(asked, gave_back);
  if (gave_back) Report();
}

}  // namespace tidepool
