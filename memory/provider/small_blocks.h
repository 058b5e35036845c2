// Blocks of up to 512 bytes: for single small arrays on the host's heap, and for the records of single
// arrays. The process's own, which threads share without a lock, are in block_cache.h.
//
// Spans of 16 KiB hold blocks of one size, a multiple of 64 bytes, side by side: an array of 64 bytes takes
// 64, where malloc takes 208 with its header, the alignment and the readable tail. Which blocks of a span
// are free stands in the span's first bytes, so freeing does not touch the block, and freeing a million of
// them touches few cache lines (Bonwick 1994, "The Slab Allocator"). A span without blocks in use is given
// back, but for one of each size. Ends with the process: it has no destructor (Trim).
//
// Threads: any, one lock for each size. A child of fork() may use it only when LockAll() was called
// before and UnlockAll() in it, as block_cache.h does. Cost: a locked instruction, and malloc once in
// a span.
#ifndef TIDEPOOL_MEMORY_PROVIDER_SMALL_BLOCKS_H_
#define TIDEPOOL_MEMORY_PROVIDER_SMALL_BLOCKS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tidepool {

class SmallBlocks {
 public:
  static constexpr size_t kMostBytes = 512;       // of a block
  static constexpr size_t kAlignment = 64;        // of every block; sizes are multiples of it
  static constexpr size_t kSpanBytes = 16 << 10;  // that are taken at once
  static constexpr size_t kTailBytes = 64;        // readable behind each

  // Where spans come from: null when refused, which is an answer. `bytes` is no multiple of `alignment`.
  using Take = void* (*)(size_t alignment, size_t bytes);
  using Give = void (*)(void* span);
  constexpr SmallBlocks(Take take, Give give) : take_(take), give_(give) {}
  SmallBlocks(const SmallBlocks&) = delete;
  SmallBlocks& operator=(const SmallBlocks&) = delete;

  // At most kMostBytes, with kTailBytes readable behind them. Null when there is no span.
  std::byte* Allocate(size_t bytes) noexcept;
  // `bytes` as given to Allocate.
  void Release(std::byte* data, size_t bytes) noexcept;

  // Several of one size under one lock. Returns how many there were: fewer than `count` when a span was
  // refused.
  int AllocateMany(size_t bytes, std::byte** blocks, int count) noexcept;
  // Several of one size, as given to Allocate, under one lock.
  void ReleaseMany(size_t bytes, std::byte* const* blocks, int count) noexcept {
    ReleaseStrided(bytes, blocks, sizeof(std::byte*), count);
  }
  // The address of each block `stride` bytes after that of the one before.
  void ReleaseStrided(size_t bytes, const void* addresses, size_t stride, int count) noexcept;

  // Gives back the spans without blocks in use that were kept.
  void Trim() noexcept;

  // Around fork(): no other thread is in the middle of a change.
  void LockAll() noexcept;
  void UnlockAll() noexcept;

  // How many sizes of blocks there are, and which of them serves so many bytes.
  static constexpr size_t kClasses = kMostBytes / kAlignment;
  static size_t ClassOf(size_t bytes) { return bytes == 0 ? 0 : (bytes - 1) / kAlignment; }

  // That it has now, kept ones included.
  int64_t spans() const { return spans_.load(std::memory_order_relaxed); }

 private:
  struct Span;
  struct SizeClass {
    std::atomic<bool> locked{false};
    Span* usable = nullptr;  // with free blocks; those in use for longest last
    int empty = 0;           // of them without any block in use
  };
  class Guard;

  Span* NewSpan(size_t number) noexcept;
  static void Link(SizeClass& of, Span* span) noexcept;
  static void Unlink(SizeClass& of, Span* span) noexcept;

  const Take take_;
  const Give give_;
  std::atomic<int64_t> spans_{0};
  SizeClass classes_[kClasses];
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_SMALL_BLOCKS_H_
