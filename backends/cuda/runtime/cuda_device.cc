#include "tidepool/backends/cuda/runtime/cuda_device.h"

#include <algorithm>
#include <bit>
#include <new>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/device_usage.h"
#include "tidepool/backends/cuda/runtime/driver_memory.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/backends/cuda/runtime/refusal.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"

namespace tidepool::cuda {
namespace {

constexpr size_t kPiecesPerLarge = 8;  // 16 MiB of 2 MiB
// Of blocks that were released: a share of the device's memory, or this where it is little.
constexpr size_t kLeastKeptBlocks = size_t{64} << 20;
constexpr size_t kKeptBlocksShare = 16;

std::mutex making;
std::atomic<CudaDevice*> made[kMaxDevicesPerType] = {};
std::string why_absent;  // under `making`

CUmemAllocationProp PropertiesOf(Device device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device.index;
  return properties;
}

CUdeviceptr Pointer(std::byte* at) { return reinterpret_cast<CUdeviceptr>(at); }

size_t FreeBytes() {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

}  // namespace

// ---- which there are ----------------------------------------------------------------------------

int CudaDevice::Count() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return std::min(count, kMaxDevicesPerType);
  cudaGetLastError();
  return 0;
}

std::string CudaDevice::WhyAbsent() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return Describe(error, "cudaGetDeviceCount");
  }
  if (count == 0) return "there is no device";
  if (FindDriverMemory() == nullptr) return "the driver has no virtual memory functions";
  std::lock_guard<std::mutex> lock(making);
  if (!why_absent.empty()) return why_absent;
  return absl::StrCat("there are ", std::min(count, kMaxDevicesPerType), ", from cuda:0 on");
}

CudaDevice* CudaDevice::Make(int index) {
  // Before there is a context, which counts.
  const int64_t used_before = index >= 0 && index < Count() ? UsedBytesOfDevice(index) : -1;
  if (index < 0 || index >= Count() || FindDriverMemory() == nullptr) return nullptr;
  return new CudaDevice(index, used_before);
}

CudaDevice* CudaDevice::Find(int index) {
  if (index < 0 || index >= kMaxDevicesPerType) return nullptr;
  if (CudaDevice* const device = made[index].load(std::memory_order_acquire)) return device;
  std::lock_guard<std::mutex> lock(making);
  CudaDevice* device = made[index].load(std::memory_order_relaxed);
  if (device != nullptr) return device;
  try {
    device = Make(index);
  } catch (const Error& error) {
    why_absent = error.message();
    return nullptr;
  }
  made[index].store(device, std::memory_order_release);
  return device;
}

CudaDevice::CudaDevice(int index, int64_t used_before)
    : device_{DeviceType::kCuda, static_cast<uint8_t>(index)}, pinned_(device_) {
  Activate();
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  model_ = properties.name;
  multiprocessors_ = properties.multiProcessorCount;
  capability_ = properties.major * 10 + properties.minor;
  total_bytes_ = properties.totalGlobalMem;
  const CUmemAllocationProp memory = PropertiesOf(device_);
  if (FindDriverMemory()->granularity(&granularity_, &memory,
                                      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS) {
    ThrowInternal(absl::StrCat(name(), ": cuMemGetAllocationGranularity failed"));
  }
  const size_t free_before = FreeBytes();
  // The default one is everybody's: what it keeps, and who may access it, is not ours to say.
  cudaMemPoolProps of_pool = {};
  of_pool.allocType = cudaMemAllocationTypePinned;
  of_pool.handleTypes = cudaMemHandleTypeNone;
  of_pool.location.type = cudaMemLocationTypeDevice;
  of_pool.location.id = index;
  Check(cudaMemPoolCreate(&pool_, &of_pool), "cudaMemPoolCreate");
  // Keeps what it has over synchronisations; TrimPool gives it back.
  uint64_t threshold = UINT64_MAX;
  Check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold),
        "cudaMemPoolSetAttribute");
  for (cudaStream_t* stream : {&from_host_, &to_host_, &to_peers_, &of_blocks_}) {
    Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  OpenQueue(0, nullptr);
  blocks_ = std::make_unique<KeptBlocks>(
      *this, *this, kPoolAlignment, std::max(kLeastKeptBlocks, total_bytes_ / kKeptBlocksShare));
  MemoryTracker::Global().Add(device_, MemoryKind::kUnreferenced, 0);  // so that there is an entry
  reclaimer_ =
      Reclaimer::Global().Register("pool of " + name(), [this](ReclaimDepth depth) -> int64_t {
        if (depth == ReclaimDepth::kSpare) return 0;
        CountKept();
        const int64_t before = kept_bytes();
        TrimPool(/*wait=*/false);
        return before - kept_bytes();
      });
  // Where nobody tells what the context took, what came after it.
  const int64_t taken = used_before >= 0
                            ? UsedBytesOfDevice(index) - used_before
                            : static_cast<int64_t>(free_before) - static_cast<int64_t>(FreeBytes());
  if (taken > 0) charge_ = MemoryCharge::Imported(taken, device_);
}

void CudaDevice::Activate() const {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == device_.index) return;
  Check(cudaSetDevice(device_.index), "cudaSetDevice");
}

// ---- ranges -------------------------------------------------------------------------------------

MemoryTraits CudaDevice::traits() const {
  MemoryTraits traits;
  traits.alignment = kPoolAlignment;
  traits.granularity = granularity_;
  traits.large_granularity = kPiecesPerLarge * granularity_;
  traits.reserve_bytes = (total_bytes_ + traits.large_granularity - 1) / traits.large_granularity *
                         traits.large_granularity;
  traits.host_readable = false;
  return traits;
}

std::byte* CudaDevice::Reserve(size_t bytes) noexcept {
  if (bytes == 0 || bytes > SIZE_MAX / 4) return nullptr;
  const size_t unit = std::max(kMaxAlignment, kPiecesPerLarge * granularity_);
  CUdeviceptr base = 0;
  const size_t whole = (bytes + granularity_ - 1) / granularity_ * granularity_;
  ForgetRefusal();
  const CUresult result = FindDriverMemory()->reserve(&base, whole, unit, 0, 0);
  if (result != CUDA_SUCCESS) {
    NoteRefusal(device_, result, "cuMemAddressReserve");
    return nullptr;
  }
  return reinterpret_cast<std::byte*>(base);
}

void CudaDevice::Unreserve(std::byte* base, size_t bytes) noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    UnmapPieces(base, bytes);
  }
  const size_t whole = (bytes + granularity_ - 1) / granularity_ * granularity_;
  FindDriverMemory()->free(Pointer(base), whole);
}

bool CudaDevice::MapPiece(std::byte* at, size_t bytes) noexcept {
  const DriverMemory& driver = *FindDriverMemory();
  const CUmemAllocationProp properties = PropertiesOf(device_);
  CUmemGenericAllocationHandle handle;
  CUresult result = driver.create(&handle, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) {
    NoteRefusal(device_, result, "cuMemCreate");
    return false;
  }
  result = driver.map(Pointer(at), bytes, 0, handle, 0);
  driver.release(handle);  // lives on as long as it is mapped
  if (result != CUDA_SUCCESS) {
    NoteRefusal(device_, result, "cuMemMap");
    return false;
  }
  bool accessible = LetAccess(at, bytes, device_.index);
  for (uint32_t peers = peers_; accessible && peers != 0; peers &= peers - 1) {
    accessible = LetAccess(at, bytes, std::countr_zero(peers));
  }
  if (accessible) return true;
  driver.unmap(Pointer(at), bytes);
  return false;
}

bool CudaDevice::Commit(std::byte* at, size_t bytes, bool large_pages) noexcept {
  // Large pieces begin at their multiples. What is around them, as the tail behind the last one, is small.
  const size_t large = kPiecesPerLarge * granularity_;
  ForgetRefusal();
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t done = 0, unit; done < bytes; done += unit) {
    const bool whole =
        large_pages && bytes - done >= large && reinterpret_cast<uintptr_t>(at + done) % large == 0;
    unit = whole ? large : granularity_;
    if (NotePiece(at + done, unit)) {
      bool mapped = MapPiece(at + done, unit);
      if (!mapped) {
        TrimPool(/*wait=*/true);
        mapped = MapPiece(at + done, unit);
      }
      if (mapped) continue;
      pieces_.erase(at + done);
    }
    UnmapPieces(at, done);
    return false;
  }
  ForgetRefusal();
  return true;
}

// Before it is mapped: the process may have no memory to know it by.
bool CudaDevice::NotePiece(std::byte* at, size_t bytes) noexcept {
  try {
    pieces_[at] = bytes;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void CudaDevice::UnmapPieces(std::byte* at, size_t bytes) noexcept {
  auto it = pieces_.lower_bound(at);
  if (it == pieces_.end() || it->first >= at + bytes) return;
  // Kernels and copies queued so far may use it.
  FinishQueues();
  while (it != pieces_.end() && it->first < at + bytes) {
    FindDriverMemory()->unmap(Pointer(it->first), it->second);
    it = pieces_.erase(it);
  }
}

bool CudaDevice::Decommit(std::byte* at, size_t bytes) noexcept {
  if (bytes == 0) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  // Between pieces, or not at all. All of [at, at + bytes) is committed.
  const auto last = std::prev(pieces_.upper_bound(at + bytes - 1));
  if (pieces_.count(at) == 0 || last->first + last->second != at + bytes) return false;
  UnmapPieces(at, bytes);
  return true;
}

}  // namespace tidepool::cuda
