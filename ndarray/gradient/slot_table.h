// The buffers that a tape knows, by their numbers, which no other buffer of the process gets. One that has arrays of several types
// (NDArray::FromStrides) has a slot for each: they lie apart, as elements of two types are at no place the same.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_SLOT_TABLE_H_
#define TIDEPOOL_NDARRAY_GRADIENT_SLOT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/ndarray/gradient/taped_view.h"

namespace tidepool {

struct TapeRecord;
struct WatchedArray;

struct TapeSlot {
  uint64_t key = 0;  // of buffer and type
  int64_t bytes = 0;
  int part = -1;          // where a call wrote to it first; below 0: none did
  bool computed = false;  // a recorded call wrote to it: gradients flow from all of it
  const TapeRecord* ends_with_relu = nullptr;  // the call that wrote to it last, if it does
  std::vector<WatchedArray*> watched;          // by where they begin; none overlaps another
  bool interleaves = false;                    // some of them lie between elements of others

  void Clear() {
    part = -1;
    computed = false;
    ends_with_relu = nullptr;
    watched.clear();
    interleaves = false;
  }
};

class SlotTable {
 public:
  TapeSlot& operator[](uint32_t slot) { return slots_[slot]; }
  const TapeSlot& operator[](uint32_t slot) const { return slots_[slot]; }
  uint32_t Find(uint64_t buffer_id, DType dtype) const {
    if (places_.empty()) return TapedView::kNoSlot;
    const uint64_t key = KeyOf(buffer_id, dtype);
    for (size_t at = Hash(key);; ++at) {
      const uint32_t slot = places_[at & mask_];
      if (slot == TapedView::kNoSlot || slots_[slot].key == key) return slot;
    }
  }
  // So that so many more Adds take no memory.
  void Reserve(size_t more) {
    if ((used_ + more) * 2 > places_.size()) Grow(more);
  }
  uint32_t FindOrAdd(const Buffer& buffer, DType dtype) {
    const uint32_t found = Find(buffer.id, dtype);
    if (found != TapedView::kNoSlot) return found;
    Reserve(1);
    const auto slot = static_cast<uint32_t>(used_);
    if (used_ == slots_.size()) slots_.emplace_back();
    ++used_;
    slots_[slot].key = KeyOf(buffer.id, dtype);
    slots_[slot].bytes = static_cast<int64_t>(buffer.bytes);
    size_t at = Hash(slots_[slot].key);
    while (places_[at & mask_] != TapedView::kNoSlot) ++at;
    places_[at & mask_] = slot;
    return slot;
  }
  size_t size() const { return used_; }
  // Keeps the memory.
  void Clear() {
    if (used_ == 0) return;
    for (size_t slot = 0; slot < used_; ++slot) slots_[slot].Clear();
    used_ = 0;
    std::fill(places_.begin(), places_.end(), TapedView::kNoSlot);
  }

 private:
  static uint64_t KeyOf(uint64_t buffer_id, DType dtype) {
    return buffer_id << 5 | static_cast<uint64_t>(dtype);
  }
  static size_t Hash(uint64_t key) {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32);
  }
  void Grow(size_t more);

  std::vector<TapeSlot> slots_;  // of which the first `used_` are some buffer's
  size_t used_ = 0;
  std::vector<uint32_t> places_;  // of a power of two
  size_t mask_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_SLOT_TABLE_H_
