// Tells AddressSanitizer which bytes of pages are nobody's. Nothing in other builds.
//
// Blocks have kPoisonTailBytes readable bytes behind them, so the first bytes of a released range,
// which may be the tail of a live neighbour, stay readable: arrays of up to 16 bytes are not
// watched. Threads: as the memory itself.
#ifndef TIDEPOOL_MEMORY_PROVIDER_POISON_H_
#define TIDEPOOL_MEMORY_PROVIDER_POISON_H_

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define TIDEPOOL_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TIDEPOOL_POISON 1
#endif
#endif

#ifdef TIDEPOOL_POISON
#include <sanitizer/asan_interface.h>
#endif

namespace tidepool {

inline constexpr size_t kPoisonTailBytes = 16;

#ifdef TIDEPOOL_POISON
constexpr bool PoisonsBlocks() { return true; }
// A block was released, or pages that hold no block were taken.
inline void PoisonBlock(const void* data, size_t bytes) {
  if (bytes <= kPoisonTailBytes) return;
  ASAN_POISON_MEMORY_REGION(static_cast<const std::byte*>(data) + kPoisonTailBytes,
                            bytes - kPoisonTailBytes);
}
// A block is handed out.
inline void UnpoisonBlock(const void* data, size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(data, bytes + kPoisonTailBytes);
}
#else
constexpr bool PoisonsBlocks() { return false; }
inline void PoisonBlock(const void*, size_t) {}
inline void UnpoisonBlock(const void*, size_t) {}
#endif

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_POISON_H_
