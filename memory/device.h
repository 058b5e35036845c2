// Where memory lives and kernels run. Devices of one type are addressed by index everywhere, also
// where only one exists.
#ifndef TIDEPOOL_MEMORY_DEVICE_H_
#define TIDEPOOL_MEMORY_DEVICE_H_

#include <cstdint>
#include <string>

namespace tidepool {

enum class DeviceType : uint8_t { kHost = 0, kCuda = 1, kSimulated = 2 };
inline constexpr int kDeviceTypes = 3;
inline constexpr int kMaxDevicesPerType = 16;

struct Device {
  DeviceType type = DeviceType::kHost;
  uint8_t index = 0;

  friend constexpr bool operator==(Device, Device) = default;
};

constexpr Device Host() { return Device{}; }

inline std::string DeviceTypeName(DeviceType type) {
  switch (type) {
    case DeviceType::kHost: return "host";
    case DeviceType::kCuda: return "cuda";
    case DeviceType::kSimulated: return "simulated";
  }
  return "unknown";
}

// "host", "cuda:1", ...
inline std::string DeviceName(Device device) {
  std::string name = DeviceTypeName(device.type);
  return device.type == DeviceType::kHost ? name : name + ":" + std::to_string(device.index);
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_DEVICE_H_
