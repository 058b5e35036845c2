// Host copies that mirrors have given back, for the next mirrors: a step that makes the same arrays
// again asks nobody for page-locked memory. Blocks are used again for the same number of bytes; at most
// kKeptBytes are kept, none larger than a quarter of that, and the oldest go first. In the ledger they
// are unreferenced host memory of the process, which the Reclaimer may give back.
//
// Threads: any. Cost: a lock, a walk over few blocks and two entries in the ledger.
#ifndef TIDEPOOL_MEMORY_MIRRORING_HOST_COPIES_H_
#define TIDEPOOL_MEMORY_MIRRORING_HOST_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

class HostCopies {
 public:
  static constexpr size_t kKeptBytes = size_t{64} << 20;
  static constexpr size_t kMostBytesOfOne = kKeptBytes / 4;
  static constexpr size_t kMostBlocks = 64;

  // Never destroyed.
  static HostCopies& Global();

  // `memory` is never destroyed either. Throws OutOfMemoryError.
  std::byte* Take(DeviceProvider& memory, size_t bytes, MemoryOwner& owner);
  void GiveBack(DeviceProvider& memory, std::byte* data, size_t bytes, MemoryOwner& owner) noexcept;

  // Gives back what is kept; 0 while another thread is here.
  int64_t Trim() noexcept;
  size_t kept_bytes() const;

 private:
  struct Block {
    DeviceProvider* memory;
    std::byte* data;
    size_t bytes;
  };
  HostCopies();
  static void Release(const Block& block) noexcept;

  mutable std::mutex mutex_;
  std::vector<Block> kept_;  // oldest first
  size_t kept_bytes_ = 0;
  Reclaimer::Registration reclaimer_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_MIRRORING_HOST_COPIES_H_
