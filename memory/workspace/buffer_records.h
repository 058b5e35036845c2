// The Buffer records of one workspace: made in slabs, reused, and never freed before the last handle.
//
// A record of no handle has one reference, no spill and is not closed. Records that other threads
// release, and those that are released while the workspace is closed, wait in `returned()`.
//
// Threads: the workspace's; returned() from any.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_BUFFER_RECORDS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_BUFFER_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/returned_records.h"

namespace tidepool {

class BufferRecords {
 public:
  struct Links {
    static Buffer* Next(const Buffer* record) { return record->link.next_free; }
    static void SetNext(Buffer* record, Buffer* next) { record->link.next_free = next; }
  };
  using Returned = BasicReturnedRecords<StdSync, Buffer, Links>;

  // What all records have in common.
  BufferRecords(BufferOwner* owner, const std::atomic<uint64_t>* stamp_cell, Device device)
      : owner_(owner), stamp_cell_(stamp_cell), device_(device) {}

  // The record that Take() would give; null when there is none.
  Buffer* next_free() const { return free_; }
  // Of which there is one.
  Buffer* Take() {
    Buffer* const record = free_;
    free_ = record->link.next_free;
    return record;
  }
  // The same of next_free(), which the caller has.
  void Take(Buffer* next) { free_ = next->link.next_free; }
  // The same, and the one behind the next is on its way to the cache: for who takes many that were not used of late, of which
  // each would be waited for, as only the one before tells where it is.
  void TakeOfMany(Buffer* next) {
    __builtin_prefetch(Ahead(next), 1);
    __builtin_prefetch(reinterpret_cast<const std::byte*>(Ahead(next)) + 64, 1);
    free_ = next->link.next_free;
  }
  void Put(Buffer* record) {
    record->link.next_free = free_;
    record->request.bytes = 0;
    free_ = record;
  }
  // The same, for TakeOfMany(): with where the second one behind it is now, which is no more than a hint.
  void PutOfMany(Buffer* record) {
    const Buffer* const ahead = free_ != nullptr ? free_->link.next_free : nullptr;
    Put(record);
    record->request.bytes = reinterpret_cast<size_t>(ahead);
  }
  // Makes more. Throws std::bad_alloc, nothing changed.
  void Add();

  // Calls `visit` with each, free or not.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& slab : slabs_) {
      for (int i = 0; i < kPerSlab; ++i) visit(&slab[i]);
    }
  }
  // Keeps about so many, where all are free.
  void Trim(size_t records) noexcept;
  // Records that are not free, those in returned() included. O(free records).
  int64_t CountOut() const;
  size_t state_bytes() const { return slabs_.size() * kPerSlab * sizeof(Buffer); }
  Returned& returned() { return returned_; }

 private:
  static constexpr int kPerSlab = 64;
  static const Buffer* Ahead(const Buffer* record) {
    return reinterpret_cast<const Buffer*>(record->request.bytes);
  }

  BufferOwner* const owner_;
  const std::atomic<uint64_t>* const stamp_cell_;
  const Device device_;
  std::vector<std::unique_ptr<Buffer[]>> slabs_;
  Returned returned_;
  Buffer* free_ = nullptr;  // the last: beside what else a request writes (workspace_core.h)
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_BUFFER_RECORDS_H_
