// The buffers that a tape knows, by their numbers, which no other buffer of the process gets. One that has arrays of several types
// (NDArray::FromStrides) has a slot for each: they lie apart, as elements of two types are at no place the same.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_SLOT_TABLE_H_
#define TIDEPOOL_NDARRAY_GRADIENT_SLOT_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tidepool/ndarray/gradient/place_index.h"
#include "tidepool/ndarray/gradient/taped_view.h"

namespace tidepool {

struct TapeRecord;
struct WatchedArray;

// What is watched of one buffer; none overlaps another.
using WatchedInSlot = PlaceIndex<WatchedArray>;

// Small, without memory of its own, and written where it is taken: each recorded call takes one for its result.
struct TapeSlot {
  uint64_t key;  // of buffer and type
  int64_t bytes;
  const TapeRecord* ends_with_relu;  // the call that wrote to it last, if it does
  int part;                          // where a call wrote to it first; below 0: none did
  uint32_t watched : 31;             // the number of its WatchedInSlot, from 1; 0: nothing of it is
  uint32_t computed : 1;             // a recorded call wrote to it: gradients flow from all of it
};

class SlotTable {
 public:
  TapeSlot& operator[](uint32_t slot) { return slots_[slot]; }
  const TapeSlot& operator[](uint32_t slot) const { return slots_[slot]; }
  uint32_t Find(uint64_t buffer_id, DType dtype) const {
    const uint64_t key = KeyOf(buffer_id, dtype);
    // New memory mostly has a number beyond all of these, and what a call reads is often what the call before it made.
    if (key > highest_ || key < lowest_) return TapedView::kNoSlot;
    if (slots_[used_ - 1].key == key) return static_cast<uint32_t>(used_ - 1);
    for (size_t at = Hash(key);; ++at) {
      const uint32_t slot = places_[at & mask_];
      if (slot == TapedView::kNoSlot || slots_[slot].key == key) return slot;
    }
  }
  // So that so many more Adds take no memory.
  void Reserve(size_t more) {
    if (used_ + more > capacity_) [[unlikely]]
      Grow(more);
  }
  uint32_t FindOrAdd(const Buffer& buffer, DType dtype) {
    const uint32_t found = Find(buffer.id, dtype);
    if (found != TapedView::kNoSlot) return found;
    Reserve(1);
    const auto slot = static_cast<uint32_t>(used_++);
    const uint64_t key = KeyOf(buffer.id, dtype);
    slots_[slot] = {key, static_cast<int64_t>(buffer.bytes), nullptr, -1, 0, 0};
    lowest_ = std::min(lowest_, key);
    highest_ = std::max(highest_, key);
    size_t at = Hash(key);
    while (places_[at & mask_] != TapedView::kNoSlot) ++at;
    places_[at & mask_] = slot;
    return slot;
  }
  size_t size() const { return used_; }
  // Null: nothing of it is watched.
  const WatchedInSlot* WatchedOf(uint32_t slot) const {
    const uint32_t number = slots_[slot].watched;
    return number != 0 ? &watched_[number - 1] : nullptr;
  }
  // As long as no other is added.
  WatchedInSlot& AddWatchedOf(uint32_t slot);
  // Keeps the memory.
  void Clear();

 private:
  static uint64_t KeyOf(uint64_t buffer_id, DType dtype) {
    return buffer_id << 5 | static_cast<uint64_t>(dtype);
  }
  static size_t Hash(uint64_t key) {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32);
  }
  void Grow(size_t more);

  std::unique_ptr<TapeSlot[]> slots_;  // of which the first `used_` are some buffer's
  size_t used_ = 0, capacity_ = 0;
  uint64_t lowest_ = UINT64_MAX, highest_ = 0;  // of their keys
  std::vector<uint32_t> places_;  // of a power of two, twice as many as there are slots
  size_t mask_ = 0;
  std::vector<WatchedInSlot> watched_;  // of which the first `watched_used_` are some slot's
  size_t watched_used_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_SLOT_TABLE_H_
