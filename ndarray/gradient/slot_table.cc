#include "tidepool/ndarray/gradient/slot_table.h"

#include <algorithm>

namespace tidepool {

WatchedInSlot& SlotTable::AddWatchedOf(uint32_t slot) {
  if (slots_[slot].watched == 0) {
    if (watched_used_ == watched_.size()) watched_.emplace_back();
    slots_[slot].watched = static_cast<uint32_t>(++watched_used_);
  }
  return watched_[slots_[slot].watched - 1];
}

void SlotTable::Clear() {
  if (used_ > 0) std::fill(places_.begin(), places_.end(), TapedView::kNoSlot);
  used_ = 0;
  lowest_ = UINT64_MAX;
  highest_ = 0;
  for (; watched_used_ > 0; --watched_used_) watched_[watched_used_ - 1].Clear();
}

void SlotTable::Grow(size_t more) {
  size_t size = std::max<size_t>(64, places_.size());
  while ((used_ + more) * 2 > size) size *= 2;
  std::vector<uint32_t> places(size, TapedView::kNoSlot);
  auto slots = std::make_unique_for_overwrite<TapeSlot[]>(size / 2);
  std::copy_n(slots_.get(), used_, slots.get());
  for (size_t slot = 0; slot < used_; ++slot) {
    size_t at = Hash(slots_[slot].key);
    while (places[at & (size - 1)] != TapedView::kNoSlot) ++at;
    places[at & (size - 1)] = static_cast<uint32_t>(slot);
  }
  slots_ = std::move(slots);
  capacity_ = size / 2;
  places_ = std::move(places);
  mask_ = size - 1;
}

}  // namespace tidepool
