// The device that a test which several backends run is of: that whose kernels its program links.
#ifndef TIDEPOOL_NDARRAY_TESTING_LINKED_DEVICE_H_
#define TIDEPOOL_NDARRAY_TESTING_LINKED_DEVICE_H_

#include "tidepool/memory/device.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {

// CUDA's first one, there or not, where its kernels are linked; else the host. Not before main().
inline Device LinkedDevice() {
  const bool cuda = !KernelRegistry::Find(OpCode::kAdd, DeviceType::kCuda, DType::kFloat32).empty();
  return cuda ? Device{DeviceType::kCuda, 0} : Host();
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_LINKED_DEVICE_H_
