#include "tidepool/memory/workspace/buffer_records.h"

namespace tidepool {

void BufferRecords::Add() {
  slabs_.push_back(std::make_unique<Buffer[]>(kPerSlab));  // all or nothing
  for (int i = 0; i < kPerSlab; ++i) {
    Buffer& record = slabs_.back()[i];
    record.stamp_cell = stamp_cell_;
    record.device = device_;
    record.kind = MemoryKind::kAllocated;
    record.owner = owner_;
    record.attached = true;
    Put(&record);
  }
}

void BufferRecords::Trim(size_t records) noexcept {
  const size_t kept = (records + kPerSlab - 1) / kPerSlab;
  if (slabs_.size() <= 2 * kept + 1 || CountOut() > 0) return;
  slabs_.resize(kept);
  slabs_.shrink_to_fit();
  free_ = nullptr;
  for (const auto& slab : slabs_) {
    for (int i = 0; i < kPerSlab; ++i) Put(&slab[i]);
  }
}

int64_t BufferRecords::CountOut() const {
  int64_t count = kPerSlab * static_cast<int64_t>(slabs_.size());
  for (const Buffer* free = free_; free != nullptr; free = free->link.next_free) --count;
  return count;
}

}  // namespace tidepool
