#include "tidepool/memory/device_check.h"

#include <string>

#include "tidepool/memory/error.h"

namespace tidepool {

std::string DescribeNoSuchDevice(Device device) {
  const int type = static_cast<int>(device.type);
  std::string message = std::string("found device ") + DeviceTypeName(device.type);
  if (type >= kDeviceTypes) {
    message += " (type " + std::to_string(type) + "), expected types 0 to " +
               std::to_string(kDeviceTypes - 1);
  } else {
    message += ":" + std::to_string(device.index) + ", expected index 0" +
               (device.type == DeviceType::kHost
                    ? std::string(": there is one host")
                    : " to " + std::to_string(kMaxDevicesPerType - 1));
  }
  return message;
}

void ThrowNoSuchDevice(const char* who, Device device) {
  ThrowInvalidArgument(std::string(who) + ": " + DescribeNoSuchDevice(device));
}

}  // namespace tidepool
