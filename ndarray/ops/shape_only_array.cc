#include "tidepool/ndarray/ops/shape_only_array.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string>

namespace tidepool {
namespace {

class NotKept final : public BufferOwner {
 public:
  // The table below has a handle of each for ever.
  void Release(Buffer*) noexcept override {}
  void Close(Buffer*) noexcept override {}
  std::string DescribeStale(uint64_t) const override {
    return "its elements were not kept (a gradient read an operand that it had not said it needs)";
  }
};

// One dead buffer of each device, made when first asked for.
class DeadBuffers {
 public:
  BufferHandle Of(Device device) {
    const auto place =
        static_cast<size_t>(device.type.number() * kMaxDevicesPerType + device.index);
    BufferHandle& handle = handles_[place];
    if (is_made_[place].load(std::memory_order_acquire)) return handle;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!handle) {
      auto* buffer = new Buffer();
      buffer->stamp_cell = &never_;
      buffer->stamp.store(1, std::memory_order_relaxed);
      buffer->data = nullptr;
      buffer->bytes = 0;
      buffer->owner = &owner_;
      buffer->id = NextBufferId();
      buffer->device = device;
      buffer->kind = MemoryKind::kUnreferenced;
      handle = BufferHandle(buffer);
      is_made_[place].store(true, std::memory_order_release);
    }
    return handle;
  }

 private:
  std::mutex mutex_;  // of who makes one
  NotKept owner_;
  std::atomic<uint64_t> never_{0};
  std::array<BufferHandle, size_t{kMaxDeviceTypes} * kMaxDevicesPerType> handles_;
  std::array<std::atomic<bool>, size_t{kMaxDeviceTypes}* kMaxDevicesPerType> is_made_ = {};
};

}  // namespace

NDArray ShapeOnlyArray(const Shape& shape, DType dtype, Device device) {
  if (shape.NumElements() == 0) return NDArray(shape, dtype, Place::On(device));
  static auto* const buffers = new DeadBuffers;
  int64_t strides[kMaxRank];
  shape.SetDenseStrides(strides);
  return NDArray::FromStrides(buffers->Of(device), 0, shape,
                              absl::MakeConstSpan(strides, static_cast<size_t>(shape.rank())),
                              dtype);
}

}  // namespace tidepool
