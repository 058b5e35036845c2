// The other library, for tests of arrays that go to it and come from it by DLPack on the simulated device: its
// streams, whose work is late and reordered, and its memory.
#ifndef TIDEPOOL_BACKENDS_SIMULATED_DLPACK_LIBRARY_H_
#define TIDEPOOL_BACKENDS_SIMULATED_DLPACK_LIBRARY_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/io/dlpack_devices.h"

namespace tidepool {

inline const DLPackDeviceRegistrar dlpack_registrar(kDLExtDev, SimulatedDevice::kDevice.type,
                                                    DLPackStreams::kNative);
inline constexpr int64_t kElements = 1000;

inline SimulatedDevice& TheDevice() { return SimulatedDevice::Get(); }
inline std::vector<float> All(float value) { return std::vector<float>(kElements, value); }

inline Error ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(absl::StatusCode::kOk, "nothing was thrown");
}

// A stream of the other library.
class Stream {
 public:
  int64_t number() const { return reinterpret_cast<int64_t>(&handle_); }
  // While a tensor is out or in, its queue is open.
  DeviceQueue queue() { return DeviceQueue::Adopt(SimulatedDevice::kDevice, &handle_); }

  void Add(float* data, float value) {
    Queue(data, true, [=](float* hidden) {
      for (int64_t i = 0; i < kElements; ++i) hidden[i] += value;
    });
  }
  // The elements are `out` when it has been done.
  void Read(const float* data, std::vector<float>* out) {
    Queue(const_cast<float*>(data), false,
          [=](float* hidden) { out->assign(hidden, hidden + kElements); });
  }

 private:
  void Queue(float* data, bool writes, const std::function<void(float*)>& run) {
    auto* const bytes = reinterpret_cast<std::byte*>(data);
    const size_t size = kElements * sizeof(float);
    auto* const hidden = reinterpret_cast<float*>(TheDevice().Hidden(bytes, size));
    TheDevice().QueueKernel(
        {{bytes, bytes + size, writes}}, [=] { run(hidden); }, queue().number());
  }
  int handle_ = 0;
};

// Memory of the other library on the device, given away with its deleter's calls counted.
struct Foreign {
  explicit Foreign(std::function<void()> at_deleter = nullptr) : then(std::move(at_deleter)) {
    data = reinterpret_cast<float*>(TheDevice().Allocate(kElements * sizeof(float), 256));
    tensor.version = {1, 3};
    tensor.manager_ctx = this;
    tensor.deleter = [](DLManagedTensorVersioned* self) {
      auto* const foreign = static_cast<Foreign*>(self->manager_ctx);
      ++foreign->deleted;
      if (foreign->then) foreign->then();
    };
    tensor.flags = 0;
    tensor.dl_tensor = {data, {kDLExtDev, 0}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
  }
  ~Foreign() { TheDevice().Release(reinterpret_cast<std::byte*>(data), kElements * sizeof(float)); }

  float* data;
  int64_t shape[1] = {kElements};
  DLManagedTensorVersioned tensor;
  std::function<void()> then;
  int deleted = 0;
};

class DLPackOnDeviceTest : public testing::Test {
 protected:
  void SetUp() override { TheDevice().Reset(); }
  void TearDown() override { TheDevice().Reset(); }  // dies when something was not given back
};

inline float* DataOf(const DLManagedTensorVersioned* tensor) {
  return static_cast<float*>(tensor->dl_tensor.data);
}

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_SIMULATED_DLPACK_LIBRARY_H_
