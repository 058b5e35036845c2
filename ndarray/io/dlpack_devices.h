// Which of DLPack's device types are which of ours: one table, to which a backend adds its own by linking a
// target that is alwayslink and holds
//
//   const DLPackDeviceRegistrar registrar(12, DeviceType::Named("mine"), DLPackStreams::kNone);   // kDLExtDev
//
// The host (1, kDLCPU) and CUDA (2, kDLCUDA) are in it. Page-locked host memory of CUDA (3, kDLCUDAHost) is imported
// as the host's. Device numbers are the same on both sides.
//
// Threads: any; registrars are static initialisers. Cost: a walk over at most kMaxDeviceTypes entries.
#ifndef TIDEPOOL_NDARRAY_IO_DLPACK_DEVICES_H_
#define TIDEPOOL_NDARRAY_IO_DLPACK_DEVICES_H_

#include <cstdint>
#include <string>

#include "tidepool/memory/device.h"

namespace tidepool {

// What a number means that names a stream of a device of that type (dlpack.h). On all of them -1 is: no
// order is wanted.
enum class DLPackStreams : uint8_t {
  kNone,    // nothing: it has none; what is given away is done, and so is what comes in
  kNative,  // DeviceQueue::native() of a queue; without a number as kNone
  kCuda,  // the same; 1, or no number: the legacy default stream, 2: the default stream of the calling
          // thread; 0 is refused, because it may be either
};

// An entry of the table.
struct DLPackDevice {
  int32_t code;           // a DLDeviceType
  DeviceType type;        // ours
  DLPackStreams streams;  // what their numbers mean
};

// Adds an entry: a static variable of a backend's.
class DLPackDeviceRegistrar {
 public:
  // A second entry of one code or of one type ends the program, and so does one of code 3.
  DLPackDeviceRegistrar(int32_t code, DeviceType type, DLPackStreams streams);
};

// Null: it is not in the table.
const DLPackDevice* FindDLPackDevice(int32_t code);
const DLPackDevice* FindDLPackDevice(DeviceType type);
// For messages: "1 (host), 2 (cuda)".
std::string DescribeDLPackDevices();

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_DLPACK_DEVICES_H_
