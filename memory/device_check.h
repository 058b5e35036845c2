// Devices that callers name, before anything is looked up by them. There may be kMaxDevicesPerType of a
// type and one host.
#ifndef TIDEPOOL_MEMORY_DEVICE_CHECK_H_
#define TIDEPOOL_MEMORY_DEVICE_CHECK_H_

#include <cstdint>
#include <string>

#include "tidepool/memory/device.h"

namespace tidepool {

inline constexpr int kDevicePlaces = kMaxDeviceTypes * kMaxDevicesPerType;

// Whether or not its backend is linked or it is there.
constexpr bool MayBeDevice(Device device) {
  return device.index < (device.type == DeviceType::kHost ? 1 : kMaxDevicesPerType);
}
// Of one that there cannot be: what was found, and which there may be.
std::string DescribeNoSuchDevice(Device device);
// Throws kInvalidArgument with that, said by `who`.
[[noreturn]] void ThrowNoSuchDevice(const char* who, Device device);

inline void CheckDevice(const char* who, Device device) {
  // The first of its type, as nearly always, costs one comparison.
  if (device.index != 0 && !MayBeDevice(device)) [[unlikely]]
    ThrowNoSuchDevice(who, device);
}

// Its place in a table of kDevicePlaces. Throws as CheckDevice.
inline int DevicePlace(const char* who, Device device) {
  CheckDevice(who, device);
  return device.type.number() * kMaxDevicesPerType + device.index;
}

// Of one that has been there.
inline Device DeviceAt(int place) {
  return {DeviceType::Numbered(place / kMaxDevicesPerType),
          static_cast<uint8_t>(place % kMaxDevicesPerType)};
}

// function(Device) for each that there may be of the types known, in the order of their places.
template <typename Function>
void ForEachPossibleDevice(const Function& function) {
  const int places = DeviceType::count() * kMaxDevicesPerType;
  for (int place = 0; place < places; ++place) {
    if (MayBeDevice(DeviceAt(place))) function(DeviceAt(place));
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_DEVICE_CHECK_H_
