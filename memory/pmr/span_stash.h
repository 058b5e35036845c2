// Spans between a pool that is used under a lock and a source that may not be asked under it.
//
// What the pool asks for is served from spans that were put here before, or refused and noted; what
// it gives back stays here. So nothing is taken from the source or given to it, which may call
// anybody back, while the lock is held: its holder looks afterwards what was wanted and what came.
//
// Threads: one at a time. Nothing here allocates or fails.
#ifndef TIDEPOOL_MEMORY_PMR_SPAN_STASH_H_
#define TIDEPOOL_MEMORY_PMR_SPAN_STASH_H_

#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool::internal {

class SpanStash final : public MemoryResource {
 public:
  // Within its own memory. Spans are the host's.
  struct Span {
    Span* next;
    void* token;
    size_t bytes;
    size_t alignment;
  };

  // `source` serves what is put here; it is only asked for sizes.
  explicit SpanStash(const MemoryResource& source) : source_(source) {}

  void Put(const Allocation& memory, size_t bytes, size_t alignment) noexcept {
    spans_ = new (memory.data) Span{spans_, memory.token, bytes, alignment};
  }
  // All there are; null when there are none.
  Span* TakeAll() noexcept { return std::exchange(spans_, nullptr); }
  // The most and the least that was refused since the last call, of `alignment`; 0: nothing was.
  struct Wanted {
    size_t most = 0, least = 0, alignment = 0;
  };
  Wanted TakeWanted() noexcept { return std::exchange(wanted_, {}); }

  Allocation Allocate(size_t bytes, size_t alignment) override {
    for (Span** at = &spans_; *at != nullptr; at = &(*at)->next) {
      Span* const span = *at;
      if (span->bytes != bytes || span->alignment != alignment) continue;
      *at = span->next;
      return {reinterpret_cast<std::byte*>(span), span->token};
    }
    if (bytes > wanted_.most) wanted_.most = bytes;
    if (wanted_.least == 0 || bytes < wanted_.least) wanted_.least = bytes;
    wanted_.alignment = alignment;
    return Allocation::Refused(Refusal::kExhausted, this, bytes);
  }
  // The token is where the span begins (page_blocks.h).
  void Release(void* token, size_t bytes, size_t alignment) noexcept override {
    Put({static_cast<std::byte*>(token), token}, bytes, alignment);
  }
  Device device() const override { return source_.device(); }
  std::string Describe() const override { return source_.Describe(); }
  size_t FootprintBytes(size_t bytes, size_t alignment) const override {
    return source_.FootprintBytes(bytes, alignment);
  }

 private:
  const MemoryResource& source_;
  Span* spans_ = nullptr;
  Wanted wanted_;
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PMR_SPAN_STASH_H_
