#include "tidepool/memory/device_check.h"

#include <string>

#include "tidepool/memory/error.h"

namespace tidepool {

std::string DescribeNoSuchDevice(Device device) {
  return "found device " + DeviceTypeName(device.type) + ":" + std::to_string(device.index) +
         ", expected index 0" +
         (device.type == DeviceType::kHost ? std::string(": there is one host")
                                           : " to " + std::to_string(kMaxDevicesPerType - 1));
}

void ThrowNoSuchDevice(const char* who, Device device) {
  ThrowInvalidArgument(std::string(who) + ": " + DescribeNoSuchDevice(device));
}

}  // namespace tidepool
