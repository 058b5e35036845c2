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

int64_t BufferRecords::CountOut() const {
  int64_t count = kPerSlab * static_cast<int64_t>(slabs_.size());
  for (const Buffer* free = free_; free != nullptr; free = free->link.next_free) --count;
  return count;
}

}  // namespace tidepool
