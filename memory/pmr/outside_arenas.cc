#include "tidepool/memory/pmr/outside_arenas.h"

#include <algorithm>
#include <new>
#include <thread>

#include "tidepool/memory/pmr/outside_blocks.h"

namespace tidepool::internal {
namespace {

// More threads than processors do not run at once.
int MostArenas(int most) {
  static const int processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(2 * processors, 4, most);
}

struct AtThreadEnd {
  ~AtThreadEnd() { OutsideBlocks::Global().ThreadEnds(); }
};

}  // namespace

thread_local constinit OutsideThread outside_thread;

LargeBlock* KeptLarge::Take(size_t bytes) noexcept {
  for (int i = 0; i < count_; ++i) {
    LargeBlock* const block = blocks_[i];
    if (!Serves(block->bytes, bytes)) continue;
    std::copy(blocks_ + i + 1, blocks_ + count_--, blocks_ + i);
    gone_in_vain_ = 0;
    return block;
  }
  for (size_t& gone : gone_) {
    if (!Serves(gone, bytes)) continue;
    gone = 0;
    most_ = std::min(most_ + 1, kMost);
    gone_in_vain_ = 0;
    break;
  }
  return nullptr;
}

LargeBlock* KeptLarge::Keep(LargeBlock* block) noexcept {
  constexpr int kInVain = 8;
  if (block != nullptr && most_ > 0) {
    LargeBlock* const last = count_ == kMost ? blocks_[--count_] : nullptr;
    std::copy_backward(blocks_, blocks_ + count_, blocks_ + count_ + 1);
    blocks_[0] = block;
    ++count_;
    block = last;
  }
  if (block == nullptr && count_ > most_) block = blocks_[--count_];
  if (block == nullptr) return nullptr;
  gone_[next_gone_++ % kMost] = block->bytes;
  if (++gone_in_vain_ >= kInVain) {
    gone_in_vain_ = 0;
    most_ = std::max(most_ - 1, 0);
  }
  return block;
}

LargeBlock* KeptLarge::TakeAny() noexcept {
  most_ = 0;
  return count_ == 0 ? nullptr : blocks_[--count_];
}

bool OutsideArena::Leave(BlockChunk* chunk, FreeBlock* block) noexcept {
  FreeBlock* before = left.load(std::memory_order_relaxed);
  do {
    // Addresses say it: blocks that are waiting are not read here.
    if (before != nullptr && ChunkOf(before) != chunk) return false;
    block->next = before;
  } while (!left.compare_exchange_weak(before, block, std::memory_order_release,
                                       std::memory_order_relaxed));
  return true;
}

size_t OutsideArena::TakeLeft() noexcept {
  if (left.load(std::memory_order_relaxed) == nullptr) return 0;
  size_t came = 0;
  FreeBlock* block = left.exchange(nullptr, std::memory_order_acquire);
  while (block != nullptr) {
    FreeBlock* const next = block->next;
    BlockChunk* const chunk = ChunkOf(block);
    if (chunk->Put(block)) came += chunks.ToldCounted(chunk);
    block = next;
  }
  return came;
}

void OutsideArenas::LockShared(OutsideArena& arena) noexcept {
  OutsideThread& thread = outside_thread;
  // Another thread's arena gives it no bias: at its end it is forgotten by its own alone.
  if (thread.ended || &arena != &Here()) return arena.lock.Lock(nullptr);
  if (!thread.entered) {
    static thread_local AtThreadEnd at_end;
    static_cast<void>(at_end);
    thread.entered = true;
  }
  thread.shared_turns += thread.arena == nullptr;
  arena.lock.Lock(&thread.biased);
}

// The arena with the fewest threads, or a new one.
void OutsideArenas::TakeOwn() noexcept {
  OutsideThread& thread = outside_thread;
  thread.shared_turns = 0;
  if (thread.ended) return;
  common_.lock.Forget(thread.biased);
  std::lock_guard<std::mutex> lock(mutex_);
  const int count = count_.load(std::memory_order_relaxed);
  OutsideArena** const end = own_ + count;
  OutsideArena** least =
      std::min_element(own_, end, [](auto* a, auto* b) { return a->threads < b->threads; });
  if ((least == end || (*least)->threads > 0) && count < MostArenas(kMost)) {
    auto* const made = new (std::nothrow) OutsideArena(chunks_);
    if (made != nullptr) {
      *(least = end) = made;
      count_.store(count + 1, std::memory_order_release);
    }
  }
  if (least == own_ + count_.load(std::memory_order_relaxed)) return;  // without memory for it
  ++(*least)->threads;
  thread.arena = *least;
}

OutsideArena* OutsideArenas::ThreadEnds() noexcept {
  OutsideThread& thread = outside_thread;
  thread.ended = true;
  OutsideArena* const own = thread.arena;
  thread.arena = nullptr;
  common_.lock.Forget(thread.biased);
  if (own == nullptr) return nullptr;
  own->lock.Forget(thread.biased);
  std::lock_guard<std::mutex> lock(mutex_);
  return --own->threads == 0 ? own : nullptr;
}

void OutsideArenas::LockAll() noexcept {
  mutex_.lock();
  for (int i = 0; i < count(); ++i) at(i).lock.Lock(nullptr);
}

void OutsideArenas::UnlockAll() noexcept {
  for (int i = count(); i-- > 0;) at(i).lock.Unlock();
  mutex_.unlock();
}

void OutsideArenas::UnlockAllInChild() noexcept {
  for (int i = 1; i < count(); ++i) at(i).threads = &at(i) == outside_thread.arena;
  UnlockAll();
}

}  // namespace tidepool::internal
