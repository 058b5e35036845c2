#include "tidepool/ndarray/gradient/slot_table.h"

#include <algorithm>

namespace tidepool {

void SlotTable::Grow(size_t more) {
  size_t size = std::max<size_t>(64, places_.size());
  while ((used_ + more) * 2 > size) size *= 2;
  std::vector<uint32_t> places(size, TapedView::kNoSlot);
  slots_.reserve(size / 2);
  for (size_t slot = 0; slot < used_; ++slot) {
    size_t at = Hash(slots_[slot].key);
    while (places[at & (size - 1)] != TapedView::kNoSlot) ++at;
    places[at & (size - 1)] = static_cast<uint32_t>(slot);
  }
  places_ = std::move(places);
  mask_ = size - 1;
}

}  // namespace tidepool
