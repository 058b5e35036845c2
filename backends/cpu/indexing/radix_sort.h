// Stable sorting of unsigned keys, alone or with places: by insertion when there are few, otherwise
// by bytes from the least significant (LSD radix sort), leaving out bytes that are all the same.
#ifndef TIDEPOOL_BACKENDS_CPU_INDEXING_RADIX_SORT_H_
#define TIDEPOOL_BACKENDS_CPU_INDEXING_RADIX_SORT_H_

#include <cstdint>
#include <cstring>
#include <utility>

namespace tidepool::cpu {

struct NoPlace {};

template <typename Key, typename Place>
struct KeyedPlace {
  Key key;
  [[no_unique_address]] Place place;
};

inline constexpr int64_t kFewItems = 40;

template <typename Item>
void InsertionSort(Item* items, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const Item item = items[i];
    int64_t at = i;
    for (; at > 0 && items[at - 1].key > item.key; --at) items[at] = items[at - 1];
    items[at] = item;
  }
}

// `other`: room for as many items. Returns where the sorted ones are, items or other.
template <typename Item>
Item* RadixSort(Item* items, Item* other, int64_t n) {
  if (n <= kFewItems) {
    InsertionSort(items, n);
    return items;
  }
  constexpr int kBytes = sizeof(items->key);
  int64_t counts[kBytes][256];
  std::memset(counts, 0, sizeof(counts));
  for (int64_t i = 0; i < n; ++i) {
    for (int byte = 0; byte < kBytes; ++byte) {
      ++counts[byte][static_cast<uint64_t>(items[i].key) >> (8 * byte) & 255];
    }
  }
  for (int byte = 0; byte < kBytes; ++byte) {
    int64_t* begin = counts[byte];
    const int shift = 8 * byte;
    if (begin[static_cast<uint64_t>(items[0].key) >> shift & 255] == n) continue;
    int64_t total = 0;
    for (int digit = 0; digit < 256; ++digit) total += std::exchange(begin[digit], total);
    for (int64_t i = 0; i < n; ++i) {
      other[begin[static_cast<uint64_t>(items[i].key) >> shift & 255]++] = items[i];
    }
    std::swap(items, other);
  }
  return items;
}

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_INDEXING_RADIX_SORT_H_
