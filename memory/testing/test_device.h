// The device a suite runs on: linked with :test_device_host it is the host, linked with
// :test_device_simulated it is simulated:0, whose bytes the host cannot touch.
#ifndef TIDEPOOL_MEMORY_TESTING_TEST_DEVICE_H_
#define TIDEPOOL_MEMORY_TESTING_TEST_DEVICE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

Device TestDevice();

// Where the host cannot: every byte of `buffer`, wherever it is.
inline void FillBuffer(const Buffer& buffer, unsigned char value) {
  FindDeviceProvider(buffer.device)->Fill(buffer.data, std::byte{value}, buffer.bytes);
}
inline bool BufferHolds(const Buffer& buffer, unsigned char value) {
  std::vector<std::byte> seen(buffer.bytes);
  FindDeviceProvider(buffer.device)->CopyToHost(seen.data(), buffer.data, buffer.bytes);
  return std::all_of(seen.begin(), seen.end(),
                     [=](std::byte byte) { return byte == std::byte{value}; });
}

// Of all devices together.
inline int64_t LedgerTotal() {
  int64_t total = 0;
  for (const DeviceMemory& memory : MemoryTracker::Global().Snapshot().devices) {
    total += memory.total.current_bytes;
  }
  return total;
}
inline int64_t LedgerOf(MemoryKind kind) {
  int64_t total = 0;
  for (const DeviceMemory& memory : MemoryTracker::Global().Snapshot().devices) {
    total += memory[kind].current_bytes;
  }
  return total;
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_TEST_DEVICE_H_
