#include "tidepool/memory/pmr/chunk_lists.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>
#include <utility>

namespace tidepool::internal {
namespace {

// Stands for "none": nothing is ever taken from it or written to it.
constinit BlockChunk no_chunk{.heap = nullptr,
                              .fresh = nullptr,
                              .end = nullptr,
                              .block_bytes = 0,
                              .size_class = 0,
                              .token = nullptr};

static_assert(kSizeClasses <= 64, "a bit for each");
constexpr uint64_t BitOf(int size_class) { return uint64_t{1} << size_class; }

}  // namespace

ChunkLists::ChunkLists(CycleHeap* heap, OutsideArena* arena, MemoryResource& chunks)
    : heap_(heap), arena_(arena), chunks_(chunks) {
  std::fill(std::begin(current_), std::end(current_), &no_chunk);
}

void ChunkLists::List::Add(BlockChunk* chunk) noexcept {
  chunk->previous = nullptr;
  chunk->next = head;
  if (head != nullptr) head->previous = chunk;
  head = chunk;
}

void ChunkLists::List::Remove(BlockChunk* chunk) noexcept {
  (chunk->previous != nullptr ? chunk->previous->next : head) = chunk->next;
  if (chunk->next != nullptr) chunk->next->previous = chunk->previous;
}

void ChunkLists::AddAvailable(BlockChunk* chunk) noexcept {
  BlockChunk*& head = available_[chunk->size_class];
  chunk->state = BlockChunk::kAvailable;
  chunk->tell_at = 0;
  chunk->previous_available = nullptr;
  chunk->next_available = head;
  if (head != nullptr) head->previous_available = chunk;
  head = chunk;
}

void ChunkLists::RemoveAvailable(BlockChunk* chunk) noexcept {
  (chunk->previous_available != nullptr ? chunk->previous_available->next_available
                                        : available_[chunk->size_class]) = chunk->next_available;
  if (chunk->next_available != nullptr) {
    chunk->next_available->previous_available = chunk->previous_available;
  }
}

// All blocks of it are out.
void ChunkLists::RetireCurrent(int size_class) noexcept {
  BlockChunk* const chunk = current_[size_class];
  if (chunk == &no_chunk) return;
  chunk->state = BlockChunk::kFull;
  chunk->tell_at = chunk->out - 1;
}

void* ChunkLists::TakeAvailable(int size_class, const void* thread) noexcept {
  BlockChunk* chunk = available_[size_class];
  if (chunk != nullptr) {
    RemoveAvailable(chunk);
  } else if (waits(size_class)) {
    waits_ &= ~BitOf(size_class);
    chunk = waiting_[size_class];
    chunk->thread.store(thread, std::memory_order_relaxed);
    all_.Add(chunk);
  } else {
    return nullptr;
  }
  RetireCurrent(size_class);
  chunk->state = BlockChunk::kCurrent;
  chunk->tell_at = tell_current_at();
  current_[size_class] = chunk;
  return chunk->Take();
}

void* ChunkLists::TakeFrom(const Allocation& memory, int size_class, const void* thread) noexcept {
  RetireCurrent(size_class);
  auto* const chunk = new (ChunkAt(reinterpret_cast<uintptr_t>(memory.data))) BlockChunk{
      .heap = heap_,
      .fresh = nullptr,
      .end = nullptr,
      .tell_at = tell_current_at(),
      .block_bytes = kClassBytes[size_class],
      .size_class = static_cast<uint8_t>(size_class),
      .token = memory.token,
      .arena = arena_,
  };
  chunk->thread.store(thread, std::memory_order_relaxed);
  const auto room = static_cast<size_t>(memory.data + kBlockChunkBytes - chunk->first());
  chunk->end = chunk->first() + room / chunk->block_bytes * chunk->block_bytes;
  chunk->Reset();
  all_.Add(chunk);
  ++count_;
  current_[size_class] = chunk;
  const uint64_t bit = BitOf(size_class);
  kept_ += (gone_ & bit) != 0;
  gone_ &= ~bit;
  return chunk->Take();
}

void* ChunkLists::TakeFromOther(int size_class, const void* thread) noexcept {
  if (waits_ == 0) {
    for (BlockChunk* chunk = all_.head; chunk != nullptr; chunk = chunk->next) {
      if (chunk->out > 0 || !chunk->is_fresh()) continue;
      Wait(chunk, cycle_);
      break;
    }
  }
  if (waits_ == 0) return nullptr;
  int other = std::countr_zero(waits_);
  for (uint64_t left = waits_ & (waits_ - 1); left != 0; left &= left - 1) {
    const int candidate = std::countr_zero(left);
    if (cycle_ - used_in_[candidate] > cycle_ - used_in_[other]) other = candidate;
  }
  waits_ &= ~BitOf(other);
  --count_;  // TakeFrom() counts it
  BlockChunk* const chunk = waiting_[other];
  const auto memory = reinterpret_cast<uintptr_t>(chunk) & ~uintptr_t{kBlockChunkBytes - 1};
  return TakeFrom({reinterpret_cast<std::byte*>(memory), chunk->token}, size_class, thread);
}

bool ChunkLists::Told(BlockChunk* chunk) noexcept {
  if (chunk->state == BlockChunk::kFull) {
    AddAvailable(chunk);
    return false;
  }
  RemoveAvailable(chunk);
  all_.Remove(chunk);
  --count_;
  GiveBack(chunk);
  return true;
}

size_t ChunkLists::ToldCountedSlowly(BlockChunk* chunk) noexcept {
  bool went = false;
  if (chunk->state != BlockChunk::kCurrent) {
    went = Told(chunk);
  } else if (empty_ >= kept_) {
    gone_ |= BitOf(chunk->size_class);
    Drop(chunk);
    went = true;
  } else {
    ++empty_;
  }
  const bool looks = ++turns_ >= kTurns;
  if (looks) DropIdle();
  if (!went && !looks) return 0;
  return std::exchange(released_, 0) + (went ? kBlockChunkBytes : 0);
}

void ChunkLists::DropIdle() noexcept {
  turns_ = 0;
  gone_ = 0;
  for (BlockChunk *chunk = all_.head, *next; chunk != nullptr; chunk = next) {
    next = chunk->next;
    if (chunk->state != BlockChunk::kCurrent || chunk->out > 0) continue;
    if (++chunk->idle_cycles < 2 || empty_ <= kLeastKept) continue;
    Drop(chunk);
    --empty_;
    kept_ = std::max(kept_ - 1, kLeastKept);
  }
}

void ChunkLists::DropEmpty() noexcept {
  Age(0, false);
  empty_ = 0;
  gone_ = 0;
  kept_ = kLeastKept;
}

// Its class's current one, without blocks.
void ChunkLists::Drop(BlockChunk* chunk) noexcept {
  current_[chunk->size_class] = &no_chunk;
  all_.Remove(chunk);
  --count_;
  GiveBack(chunk);
}

void ChunkLists::GiveBack(BlockChunk* chunk) noexcept {
  chunks_.Release(chunk->token, kBlockChunkBytes, kBlockChunkBytes);
}

// Its class's current one, without blocks.
void ChunkLists::Wait(BlockChunk* chunk, uint32_t used_in) noexcept {
  const int size_class = chunk->size_class;
  current_[size_class] = &no_chunk;
  all_.Remove(chunk);
  waiting_[size_class] = chunk;
  used_in_[size_class] = used_in;
  if (waits_ == 0 || cycle_ - used_in > cycle_ - oldest_) oldest_ = used_in;
  waits_ |= BitOf(size_class);
}

ChunkLists::Left ChunkLists::EndCycle() noexcept {
  Left left;
  ++cycle_;
  for (BlockChunk *chunk = all_.head, *next; chunk != nullptr; chunk = next) {
    next = chunk->next;
    if (chunk->out == 0) {  // its class's current one: others went when their last block came back
      chunk->is_fresh() ? Wait(chunk, cycle_ - 1) : chunk->Reset();
      continue;
    }
    if (chunk->state == BlockChunk::kCurrent) current_[chunk->size_class] = &no_chunk;
    all_.Remove(chunk);
    --count_;
    chunk->state = BlockChunk::kLate;
    chunk->thread.store(nullptr, std::memory_order_relaxed);
    late_.Add(chunk);
    ++left.chunks;
    left.blocks += chunk->out;
    left.bytes += int64_t{chunk->out} * chunk->block_bytes;
  }
  if (left.chunks > 0) std::fill(std::begin(available_), std::end(available_), nullptr);
  late_blocks_ += left.blocks;
  return left;
}

void ChunkLists::PutLate(BlockChunk* chunk) noexcept {
  // What was released twice is in the list of what came back twice, whose end is never reached.
  if (chunk->out == 0) [[unlikely]]
    ReportWrongRelease(chunk, chunk->block_bytes, "a block of that chunk was released before");
  --late_blocks_;
  if (--chunk->out > 0) return;
  late_.Remove(chunk);
  GiveBack(chunk);
}

void ChunkLists::Age(uint32_t cycles, bool idle) noexcept {
  if (idle || cycles == 0) {
    for (BlockChunk *chunk = all_.head, *next; chunk != nullptr; chunk = next) {
      next = chunk->next;
      if (chunk->out == 0) Wait(chunk, cycle_);
    }
  }
  cycle_ += idle;
  if (waits_ == 0 || cycle_ - oldest_ < cycles) return;
  uint32_t longest = 0;
  for (uint64_t left = waits_; left != 0; left &= left - 1) {
    const int size_class = std::countr_zero(left);
    const uint32_t idle_cycles = cycle_ - used_in_[size_class];
    if (idle_cycles < cycles) {
      longest = std::max(longest, idle_cycles);
      continue;
    }
    waits_ &= ~BitOf(size_class);
    --count_;
    GiveBack(waiting_[size_class]);
  }
  oldest_ = cycle_ - longest;
}

// Those that wait learn it when they are taken from.
void ChunkLists::SetThread(const void* thread) noexcept {
  for (BlockChunk* chunk = all_.head; chunk != nullptr; chunk = chunk->next) {
    chunk->thread.store(thread, std::memory_order_relaxed);
  }
}

}  // namespace tidepool::internal
