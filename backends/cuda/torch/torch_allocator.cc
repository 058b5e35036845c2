#include "tidepool/backends/cuda/torch/torch_allocator.h"

#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"

namespace tidepool::cuda {
namespace {

constexpr char kWho[] = "PyTorch's allocator";

// PyTorch gives a block back whichever device is current, and finds that one as it was.
class CurrentDeviceScope {
 public:
  CurrentDeviceScope() { known_ = cudaGetDevice(&before_) == cudaSuccess; }
  ~CurrentDeviceScope() {
    int now = 0;
    if (known_ && cudaGetDevice(&now) == cudaSuccess && now != before_) cudaSetDevice(before_);
  }
  CurrentDeviceScope(const CurrentDeviceScope&) = delete;
  CurrentDeviceScope& operator=(const CurrentDeviceScope&) = delete;

 private:
  int before_ = 0;
  bool known_;
};

// Never destroyed: tensors go in static destructors, too.
struct Blocks {
  std::mutex mutex;
  std::unordered_map<void*, MemoryCharge> charges;
};
Blocks& TheBlocks() {
  static Blocks* const blocks = new Blocks();
  return *blocks;
}

CudaDevice& DeviceOrThrow(int index) {
  // As a provider, so that the ledger, budgets and queues know it as they do without PyTorch.
  if (index >= 0 && index < kMaxDevicesPerType) {
    if (CudaDevice* const device = CudaDevice::Find(index)) return *device;
  }
  ThrowNotFound(
      absl::StrCat(kWho, ": there is no device cuda:", index, ": ", CudaDevice::WhyAbsent()));
}

void RefuseCaptures(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  Check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  if (status == cudaStreamCaptureStatusNone) return;
  ThrowFailedPrecondition(absl::StrCat(
      kWho, ": the stream is being captured: graphs of PyTorch's need its own allocator"));
}

std::byte* Allocate(CudaDevice& device, size_t bytes, cudaStream_t stream) {
  std::byte* data = device.AllocateInStream(bytes, stream);
  if (data != nullptr) return data;
  device.ThrowIfLost(kWho);
  const MemoryRequest request = {device.device(), nullptr, static_cast<int64_t>(bytes),
                                 "a block of PyTorch's"};
  Reclaimer::Global().RetryWhileReclaiming(
      static_cast<int64_t>(bytes),
      [&]() -> int64_t {
        data = device.AllocateInStream(bytes, stream);
        return data != nullptr ? 0 : static_cast<int64_t>(bytes);
      },
      request);
  if (data != nullptr) return data;
  device.ThrowIfLost(kWho);
  throw OutOfMemoryError(absl::StrCat(kWho, ": ", device.name(), " refused ", bytes, " bytes"),
                         MemoryTracker::Global().Snapshot().ToString());
}

}  // namespace
}  // namespace tidepool::cuda

using tidepool::Device;
using tidepool::DeviceType;
using tidepool::MemoryBudget;
using tidepool::MemoryCharge;
using tidepool::MemoryKind;
using tidepool::MemoryTracker;
using tidepool::cuda::CudaDevice;

void* tidepool_torch_malloc(size_t bytes, int index, cudaStream_t stream) {
  namespace cuda = tidepool::cuda;
  if (bytes == 0) return nullptr;
  const cuda::CurrentDeviceScope scope;
  CudaDevice& device = cuda::DeviceOrThrow(index);
  device.Activate();
  cuda::RefuseCaptures(stream);
  if (bytes > static_cast<size_t>(tidepool::kMostCountedBytes)) {
    tidepool::ThrowResourceExhausted(absl::StrCat(cuda::kWho, ": ", bytes, " bytes cannot exist"));
  }
  // The charge before there is a block: a budget may refuse it.
  std::unordered_map<void*, MemoryCharge> alone;
  alone.emplace(nullptr,
                MemoryCharge(MemoryKind::kAllocated, static_cast<int64_t>(bytes), device.device()));
  auto place = alone.extract(alone.begin());
  cuda::Blocks& blocks = cuda::TheBlocks();
  std::byte* const data = cuda::Allocate(device, bytes, stream);
  place.key() = data;
  try {
    std::lock_guard<std::mutex> lock(blocks.mutex);
    blocks.charges.insert(std::move(place));
  } catch (...) {
    device.ReleaseInStream(data, stream);
    throw;
  }
  return data;
}

void tidepool_torch_free(void* data, size_t, int index, cudaStream_t stream) {
  if (data == nullptr) return;
  const tidepool::cuda::CurrentDeviceScope scope;
  CudaDevice* const device = CudaDevice::Find(index);
  if (device == nullptr) return;
  device->ReleaseInStream(static_cast<std::byte*>(data), stream);
  tidepool::cuda::Blocks& blocks = tidepool::cuda::TheBlocks();
  std::unordered_map<void*, MemoryCharge>::node_type ended;  // whose charge ends without the lock
  std::lock_guard<std::mutex> lock(blocks.mutex);
  ended = blocks.charges.extract(data);
}

int64_t tidepool_device_bytes(int index) {
  if (index < 0 || index >= tidepool::kMaxDevicesPerType || CudaDevice::Find(index) == nullptr)
    return -1;
  const Device device{DeviceType::kCuda, static_cast<uint8_t>(index)};
  return MemoryTracker::Global().CurrentBytes(device, MemoryKind::kAllocated);
}

bool tidepool_set_device_limit(int index, int64_t bytes) {
  if (index < 0 || index >= tidepool::kMaxDevicesPerType) return false;
  MemoryBudget::Global().SetDeviceLimit({DeviceType::kCuda, static_cast<uint8_t>(index)},
                                        bytes < 0 ? MemoryBudget::kUnlimited : bytes);
  return CudaDevice::Find(index) != nullptr;
}

const char* tidepool_memory_report() {
  thread_local std::string text;
  text = MemoryTracker::Global().Snapshot().ToString();
  return text.c_str();
}
