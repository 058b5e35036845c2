// Counts memory that is taken by other means: a std::vector of pixels, a library's buffer.
//
//   struct Images {
//     std::vector<uint8_t> pixels;
//     MemoryCharge charge;          // Images copied: charged again; moved: moved
//   };
//   images.charge = MemoryCharge(MemoryKind::kAllocated, images.pixels.capacity());
//
// The bytes are on the ledger, for the owner current when the charge was made, and in the budget,
// as long as the charge lives. Imported memory (kExternal by Imported()) is on the ledger only.
// Threads: a value.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_CHARGE_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_CHARGE_H_

#include <cstdint>
#include <utility>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/device.h"

namespace tidepool {

class MemoryCharge {
 public:
  MemoryCharge() = default;
  // Throws OutOfMemoryError when a budget refuses; both, and copies, kInvalidArgument for bytes below 0 or
  // above kMostCountedBytes, or that bring the device beyond kMostCountedBytesInAll, and for a kind or device
  // that there cannot be.
  MemoryCharge(MemoryKind kind, int64_t bytes, Device device = Host());
  // Memory that others took from the system.
  static MemoryCharge Imported(int64_t bytes, Device device = Host());

  MemoryCharge(const MemoryCharge& other);
  MemoryCharge(MemoryCharge&& other) noexcept { Swap(other); }
  MemoryCharge& operator=(MemoryCharge other) noexcept {
    Swap(other);
    return *this;
  }
  ~MemoryCharge();

  int64_t bytes() const { return bytes_; }

 private:
  void Take();
  void Swap(MemoryCharge& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    std::swap(kind_, other.kind_);
    std::swap(imported_, other.imported_);
  }

  MemoryOwner* owner_ = nullptr;
  int64_t bytes_ = 0;
  Device device_;
  MemoryKind kind_ = MemoryKind::kAllocated;
  bool imported_ = false;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_CHARGE_H_
