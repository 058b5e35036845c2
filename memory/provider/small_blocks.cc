#include "tidepool/memory/provider/small_blocks.h"

#include <sched.h>

#include <new>

namespace tidepool {
namespace {

// A little less than the alignment, so that malloc can put spans side by side with its headers
// between.
constexpr size_t kUsedBytes = SmallBlocks::kSpanBytes - 64;

}  // namespace

// At the begin of its memory, and found from any of its blocks by the address.
struct alignas(SmallBlocks::kAlignment) SmallBlocks::Span {
  Span* next = nullptr;
  Span* previous = nullptr;
  uint32_t block_bytes;
  uint32_t blocks_in_64k;  // rounded up; in units of the alignment
  uint16_t capacity;
  uint16_t free;         // so many numbers of free blocks in `numbers`
  uint8_t numbers[256];  // as many as a byte can name

  std::byte* blocks() { return reinterpret_cast<std::byte*>(this + 1); }
  // A division by what is known only here takes longer than all the rest of a release.
  uint8_t NumberOf(const std::byte* block) {
    const auto unit = static_cast<uint32_t>(block - blocks()) / kAlignment;
    return static_cast<uint8_t>(unit * blocks_in_64k >> 16);
  }
  static Span* Of(std::byte* block) {
    return reinterpret_cast<Span*>(reinterpret_cast<uintptr_t>(block) & ~(kSpanBytes - 1));
  }
};

class SmallBlocks::Guard {
 public:
  explicit Guard(std::atomic<bool>& locked) : locked_(locked) { Lock(locked); }
  static void Lock(std::atomic<bool>& locked) {
    while (locked.exchange(true, std::memory_order_acquire)) {
      // Held for some instructions; who holds it may not be running.
      while (locked.load(std::memory_order_relaxed)) sched_yield();
    }
  }
  ~Guard() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& locked_;
};

void SmallBlocks::Link(SizeClass& of, Span* span) noexcept {
  span->previous = nullptr;
  span->next = of.usable;
  if (span->next != nullptr) span->next->previous = span;
  of.usable = span;
}

void SmallBlocks::Unlink(SizeClass& of, Span* span) noexcept {
  (span->previous != nullptr ? span->previous->next : of.usable) = span->next;
  if (span->next != nullptr) span->next->previous = span->previous;
}

SmallBlocks::Span* SmallBlocks::NewSpan(size_t number) noexcept {
  void* const memory = take_(kSpanBytes, kUsedBytes);
  if (memory == nullptr) return nullptr;
  auto* const span = new (memory) Span;
  span->block_bytes = static_cast<uint32_t>((number + 1) * kAlignment);
  span->blocks_in_64k = static_cast<uint32_t>(((size_t{1} << 16) + number) / (number + 1));
  const size_t capacity = (kUsedBytes - sizeof(Span) - kTailBytes) / span->block_bytes;
  static_assert((kUsedBytes - sizeof(Span) - kTailBytes) / kAlignment <= sizeof(Span::numbers));
  span->capacity = span->free = static_cast<uint16_t>(capacity);
  // The last one first, so that they are taken in the order of their addresses.
  for (size_t i = 0; i < capacity; ++i) span->numbers[i] = static_cast<uint8_t>(capacity - 1 - i);
  spans_.fetch_add(1, std::memory_order_relaxed);
  return span;
}

int SmallBlocks::AllocateMany(size_t bytes, std::byte** blocks, int count) noexcept {
  const size_t number = ClassOf(bytes);
  SizeClass& of = classes_[number];
  Guard guard(of.locked);
  for (int i = 0; i < count; ++i) {
    Span* span = of.usable;
    if (span == nullptr) [[unlikely]] {
      span = NewSpan(number);
      if (span == nullptr) return i;
      ++of.empty;
      Link(of, span);
    }
    if (span->free == span->capacity) --of.empty;
    blocks[i] =
        span->blocks() + static_cast<size_t>(span->numbers[--span->free]) * span->block_bytes;
    if (span->free == 0) [[unlikely]]
      Unlink(of, span);
  }
  return count;
}

void SmallBlocks::ReleaseStrided(size_t bytes, const void* addresses, size_t stride,
                                 int count) noexcept {
  SizeClass& of = classes_[ClassOf(bytes)];
  const auto* at = static_cast<const std::byte*>(addresses);
  const auto* const end = at + stride * static_cast<size_t>(count);
  const auto block_at = [](const std::byte* address) {
    return *reinterpret_cast<std::byte* const*>(address);
  };
  Span* surplus = nullptr;
  {
    Guard guard(of.locked);
    while (at != end) {
      Span* const span = Span::Of(block_at(at));
      uint32_t free = span->free;
      if (free == 0) [[unlikely]]
        Link(of, span);
      // As long as it is the same span.
      do {
        span->numbers[free++] = span->NumberOf(block_at(at));
        at += stride;
      } while (at != end && Span::Of(block_at(at)) == span);
      span->free = static_cast<uint16_t>(free);
      if (free < span->capacity) [[likely]]
        continue;
      if (of.empty == 0) {
        of.empty = 1;
      } else {
        Unlink(of, span);
        span->next = surplus;
        surplus = span;
      }
    }
  }
  while (surplus != nullptr) {
    Span* const next = surplus->next;
    spans_.fetch_sub(1, std::memory_order_relaxed);
    give_(surplus);
    surplus = next;
  }
}

void SmallBlocks::Trim() noexcept {
  for (SizeClass& of : classes_) {
    Span* empty = nullptr;
    {
      Guard guard(of.locked);
      if (of.empty == 0) continue;
      empty = of.usable;
      while (empty->free != empty->capacity) empty = empty->next;
      Unlink(of, empty);
      of.empty = 0;
    }
    spans_.fetch_sub(1, std::memory_order_relaxed);
    give_(empty);
  }
}

void SmallBlocks::LockAll() noexcept {
  for (SizeClass& of : classes_) Guard::Lock(of.locked);
}

void SmallBlocks::UnlockAll() noexcept {
  for (SizeClass& of : classes_) of.locked.store(false, std::memory_order_release);
}

std::byte* SmallBlocks::Allocate(size_t bytes) noexcept {
  std::byte* block;
  return AllocateMany(bytes, &block, 1) == 1 ? block : nullptr;
}

void SmallBlocks::Release(std::byte* data, size_t bytes) noexcept { ReleaseMany(bytes, &data, 1); }

}  // namespace tidepool
