// Devices that callers name, before anything is looked up by them. A Device is a number of a type; there
// may be kMaxDevicesPerType of a type and one host.
#ifndef TIDEPOOL_MEMORY_DEVICE_CHECK_H_
#define TIDEPOOL_MEMORY_DEVICE_CHECK_H_

#include "tidepool/memory/device.h"

namespace tidepool {

inline constexpr int kDevicePlaces = kDeviceTypes * kMaxDevicesPerType;

// Throws kInvalidArgument: `who` found this device, and which there may be.
[[noreturn]] void ThrowNoSuchDevice(const char* who, Device device);

// Whether or not its backend is linked or it is there.
inline void CheckDevice(const char* who, Device device) {
  const int most = device.type == DeviceType::kHost ? 1 : kMaxDevicesPerType;
  if (static_cast<int>(device.type) >= kDeviceTypes || device.index >= most) [[unlikely]] {
    ThrowNoSuchDevice(who, device);
  }
}

// Its place in a table of kDevicePlaces. Throws as ThrowNoSuchDevice where it has none.
inline int DevicePlace(const char* who, Device device) {
  if (static_cast<int>(device.type) >= kDeviceTypes || device.index >= kMaxDevicesPerType)
    [[unlikely]] {
    ThrowNoSuchDevice(who, device);
  }
  return static_cast<int>(device.type) * kMaxDevicesPerType + device.index;
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_DEVICE_CHECK_H_
