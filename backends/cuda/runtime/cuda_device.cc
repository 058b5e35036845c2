#include "tidepool/backends/cuda/runtime/cuda_device.h"

#include <algorithm>
#include <bit>
#include <shared_mutex>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/driver_memory.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/backends/cuda/runtime/refusal.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"

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
  return why_absent;
}

CudaDevice* CudaDevice::Make(int index) {
  if (index < 0 || index >= Count() || FindDriverMemory() == nullptr) return nullptr;
  return new CudaDevice(index);
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

CudaDevice::CudaDevice(int index)
    : device_{DeviceType::kCuda, static_cast<uint8_t>(index)}, pinned_(device_) {
  Activate();
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  model_ = properties.name;
  multiprocessors_ = properties.multiProcessorCount;
  capability_ = properties.major * 10 + properties.minor;
  total_bytes_ = properties.totalGlobalMem;
  const CUmemAllocationProp memory = PropertiesOf(device_);
  if (FindDriverMemory()->granularity(&granularity_, &memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) !=
      CUDA_SUCCESS) {
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
  blocks_ = std::make_unique<KeptBlocks>(*this, *this, kPoolAlignment,
                                         std::max(kLeastKeptBlocks, total_bytes_ / kKeptBlocksShare));
  MemoryTracker::Global().Add(device_, MemoryKind::kUnreferenced, 0);  // so that there is an entry
  reclaimer_ = Reclaimer::Global().Register("pool of " + name(), [this](ReclaimDepth depth) -> int64_t {
    if (depth == ReclaimDepth::kSpare) return 0;
    CountKept();
    const int64_t before = kept_bytes();
    TrimPool(/*wait=*/false);
    return before - kept_bytes();
  });
  const size_t free_after = FreeBytes();
  if (free_before > free_after) {
    charge_ = MemoryCharge::Imported(static_cast<int64_t>(free_before - free_after), device_);
  }
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
    const bool whole = large_pages && bytes - done >= large && reinterpret_cast<uintptr_t>(at + done) % large == 0;
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

// ---- queues -------------------------------------------------------------------------------------

void CudaDevice::OpenQueue(int queue, void* native) {
  auto* stream = static_cast<cudaStream_t>(native);
  if (native == nullptr) {
    Activate();
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  is_ours_[queue] = native == nullptr;
  streams_[queue].store(stream, std::memory_order_release);
}

void CudaDevice::CloseQueue(int queue) noexcept {
  std::lock_guard<std::mutex> lock(streams_mutex_);
  cudaStream_t const stream = streams_[queue].exchange(nullptr, std::memory_order_acq_rel);
  try {
    std::erase_if(ended_, [this](QueuePoint point) { return points_.HasPassed(point); });
    Activate();
    ended_.push_back(points_.Record(stream));
  } catch (...) {
    cudaStreamSynchronize(stream);
  }
  if (is_ours_[queue]) cudaStreamDestroy(stream);  // when its work is done
}

void CudaDevice::ComputeAfterCopies(int queue) {
  for (const Last* last : {&last_from_host_, &last_to_host_, &last_to_peers_}) {
    points_.StreamWait(compute(queue), last->point());
  }
}

bool CudaDevice::IsOurs(int queue) {
  std::lock_guard<std::mutex> lock(streams_mutex_);
  return is_ours_[queue];
}

// Kept for the next capture: libraries know streams by their addresses.
cudaStream_t CudaDevice::TakeCaptureStream() {
  std::lock_guard<std::mutex> lock(streams_mutex_);
  if (!capture_streams_.empty()) {
    cudaStream_t const kept = capture_streams_.back();
    capture_streams_.pop_back();
    return kept;
  }
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

void CudaDevice::GiveCaptureStream(cudaStream_t stream) noexcept {
  try {
    std::lock_guard<std::mutex> lock(streams_mutex_);
    capture_streams_.push_back(stream);
  } catch (const std::bad_alloc&) {
    cudaStreamDestroy(stream);
  }
}

void CudaDevice::SetAdoptedCaptured(int queue, bool captured) noexcept {
  captured ? adopted_captured_ |= 1u << queue : adopted_captured_ &= ~(1u << queue);
}

cudaStream_t CudaDevice::ComputeWhileCapturing(int queue) const noexcept {
  const StreamCapture* const capture = StreamCapture::Of(*this);
  return capture != nullptr && capture->queue() == queue ? capture->stream()
                                                         : streams_[queue].load(std::memory_order_acquire);
}

bool CudaDevice::IsCapturing(int queue) const {
  if ((adopted_captured_ >> queue & 1) != 0) return true;
  const StreamCapture* const capture = newest_capture != nullptr ? StreamCapture::Of(*this) : nullptr;
  return capture != nullptr && capture->queue() == queue;
}

template <typename Work>
void CudaDevice::DoNow(const char* call, const Work& work) {
  Activate();
  const int queue = QueueHere(device_);
  ComputeAfterCopies(queue);
  {
    std::lock_guard<std::mutex> lock(streams_mutex_);
    for (const auto& other : streams_) {
      cudaStream_t const stream = other.load(std::memory_order_acquire);
      if (stream == nullptr || stream == compute(queue)) continue;
      points_.StreamWait(compute(queue), points_.Record(stream));
    }
    for (const QueuePoint point : ended_) points_.StreamWait(compute(queue), point);
  }
  Check(work(compute(queue)), call);
  Check(cudaStreamSynchronize(compute(queue)), "cudaStreamSynchronize");
}

void CudaDevice::FinishQueues() noexcept {
  try {
    Activate();  // a queue may be a default stream, which is the current device's
  } catch (...) {
  }
  {
    std::lock_guard<std::mutex> lock(streams_mutex_);
    for (const auto& stream : streams_) {
      if (stream != nullptr) cudaStreamSynchronize(stream);
    }
    for (const QueuePoint point : ended_) {
      try {
        points_.Wait(point);
      } catch (...) {  // the device is lost
      }
    }
    ended_.clear();
  }
  cudaStreamSynchronize(from_host_);
  cudaStreamSynchronize(to_host_);
  cudaStreamSynchronize(to_peers_);
}

void CudaDevice::CopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes) {
  if (bytes == 0) return;
  DoNow("cudaMemcpyAsync", [&](cudaStream_t stream) {
    return cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, stream);
  });
}
void CudaDevice::CopyToHost(std::byte* to_host, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
  DoNow("cudaMemcpyAsync", [&](cudaStream_t stream) {
    return cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, stream);
  });
}
void CudaDevice::CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
  DoNow("cudaMemcpyAsync", [&](cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  });
}
void CudaDevice::Fill(std::byte* to, std::byte value, size_t bytes) {
  if (bytes == 0) return;
  DoNow("cudaMemsetAsync", [&](cudaStream_t stream) {
    return cudaMemsetAsync(to, static_cast<int>(value), bytes, stream);
  });
}

QueuePoint CudaDevice::QueueCopy(cudaStream_t stream, Last& last, void* to,
                                 const void* from, size_t bytes, cudaMemcpyKind kind,
                                 QueuePoint after) {
  if (bytes == 0) return after;
  Activate();
  points_.StreamWait(stream, after);
  Check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
  QueuePoint point;
  try {
    point = last.Note([&] { return points_.Record(stream); });
  } catch (...) {
    // The copy is queued already: without a point it must be over.
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  blocks_->NoteCopy(static_cast<const std::byte*>(kind == cudaMemcpyHostToDevice ? to : from), point);
  return point;
}

QueuePoint CudaDevice::QueueCopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes,
                                         QueuePoint after) {
  return QueueCopy(from_host_, last_from_host_, to, from_host, bytes, cudaMemcpyHostToDevice, after);
}
QueuePoint CudaDevice::QueueCopyToHost(std::byte* to_host, const std::byte* from, size_t bytes,
                                       QueuePoint after) {
  return QueueCopy(to_host_, last_to_host_, to_host, from, bytes, cudaMemcpyDeviceToHost, after);
}

QueuePoint CudaDevice::ComputePoint(int queue) {
  if (IsCapturing(queue)) {
    ThrowFailedPrecondition(absl::StrCat(name(), ": a graph is being captured; what is queued now has "
                                         "no place in the device's work"));
  }
  cudaStream_t const stream = compute(queue);
  // Null would be the default stream.
  if (stream == nullptr) {
    ThrowInvalidArgument(absl::StrCat(name(), ": found queue ", queue, ", which is not open, where a point of it was asked for"));
  }
  Activate();
  return points_.Record(stream);
}
void CudaDevice::ComputeAfter(int queue, QueuePoint point) {
  Activate();
  points_.StreamWait(compute(queue), point);
}
bool CudaDevice::HasPassed(QueuePoint point) { return points_.HasPassed(point); }
void CudaDevice::WaitFor(QueuePoint point) { points_.Wait(point); }

}  // namespace tidepool::cuda
