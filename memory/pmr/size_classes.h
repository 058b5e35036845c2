// Sizes of small blocks: which class serves a request, and how large its blocks are.
//
// Multiples of 8 up to 128 bytes, then eight classes for each doubling up to 4096: a block has at
// most 7 bytes (8 of a request of 0) or, beyond 128, less than an eighth more than was asked for.
// Blocks of a class lie one behind the other from a multiple of 64 on, and a request of an alignment
// of 16, 32 or 64 is rounded up to a multiple of it first; the classes that serve such sizes have
// blocks that are multiples of it too (SizeClassesTest), so alignments cost nothing but that
// rounding.
#ifndef TIDEPOOL_MEMORY_PMR_SIZE_CLASSES_H_
#define TIDEPOOL_MEMORY_PMR_SIZE_CLASSES_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace tidepool::internal {

inline constexpr size_t kMostSmallBytes = 4096;
inline constexpr size_t kMostSmallAlignment = 64;
inline constexpr int kSizeClasses = 56;

constexpr std::array<uint16_t, kSizeClasses> MakeClassBytes() {
  std::array<uint16_t, kSizeClasses> bytes{};
  int i = 0;
  for (int size = 8; size <= 128; size += 8) bytes[i++] = static_cast<uint16_t>(size);
  for (int from = 128; from < 4096; from *= 2) {
    for (int step = 1; step <= 8; ++step)
      bytes[i++] = static_cast<uint16_t>(from + from / 8 * step);
  }
  return bytes;
}
inline constexpr std::array<uint16_t, kSizeClasses> kClassBytes = MakeClassBytes();

constexpr std::array<uint8_t, kMostSmallBytes / 8 + 1> MakeClassOf() {
  std::array<uint8_t, kMostSmallBytes / 8 + 1> of{};
  int i = 0;
  for (size_t eights = 0; eights < of.size(); ++eights) {
    while (kClassBytes[i] < eights * 8) ++i;
    of[eights] = static_cast<uint8_t>(i);
  }
  return of;
}
inline constexpr std::array<uint8_t, kMostSmallBytes / 8 + 1> kClassOf = MakeClassOf();

// The class of a request of `bytes`, 0 included, or -1 for what no class serves. `alignment`: a
// power of two.
inline int SizeClassOf(size_t bytes, size_t alignment) {
  if (bytes > kMostSmallBytes) return -1;  // before anything is added to it
  if (alignment > 8) {
    if (alignment > kMostSmallAlignment) return -1;
    bytes = (bytes + (bytes == 0) + alignment - 1) & ~(alignment - 1);
  }
  return kClassOf[(bytes + 7) / 8];
}

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PMR_SIZE_CLASSES_H_
