// Compute queues, copies and points. Part of CudaDevice.
#include <algorithm>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"

namespace tidepool::cuda {
namespace {

// Streams do not say whose they are, and one of another device would refuse each point that is asked of it: no read of
// an array could wait for it. So it is asked for one before it is taken. The current device is `device`.
void CheckIsOfDevice(cudaStream_t stream, Device device) {
  cudaEvent_t event;
  Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  const cudaError_t error = cudaEventRecord(event, stream);
  cudaEventDestroy(event);
  if (error == cudaErrorInvalidResourceHandle || error == cudaErrorInvalidValue) {
    ForgetLastError(error);
    ThrowInvalidArgument(
        absl::StrCat("DeviceQueue: found stream 0x", absl::Hex(reinterpret_cast<uintptr_t>(stream)),
                     ", whose device is another (cudaEventRecord: ", cudaGetErrorName(error),
                     "), expected one of ", DeviceName(device)));
  }
  Check(error, "cudaEventRecord");
}

}  // namespace

void CudaDevice::OpenQueue(int queue, void* native) {
  auto* stream = static_cast<cudaStream_t>(native);
  Activate();
  if (native == nullptr) {
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  } else {
    CheckIsOfDevice(stream, device_);
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
  return capture != nullptr && capture->queue() == queue
             ? capture->stream()
             : streams_[queue].load(std::memory_order_acquire);
}

bool CudaDevice::IsCapturing(int queue) const {
  if ((adopted_captured_ >> queue & 1) != 0) return true;
  const StreamCapture* const capture =
      newest_capture != nullptr ? StreamCapture::Of(*this) : nullptr;
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

QueuePoint CudaDevice::PointBehindCopy(cudaStream_t stream, Last& last) {
  try {
    return last.Note([&] { return points_.Record(stream); });
  } catch (...) {
    // The copy is queued already: without a point it must be over.
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  return {};
}

QueuePoint CudaDevice::QueueCopy(cudaStream_t stream, Last& last, void* to, const void* from,
                                 size_t bytes, cudaMemcpyKind kind, QueuePoint after) {
  if (bytes == 0) return after;
  Activate();
  points_.StreamWait(stream, after);
  Check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
  const QueuePoint point = PointBehindCopy(stream, last);
  blocks_->NoteCopy(static_cast<const std::byte*>(kind == cudaMemcpyHostToDevice ? to : from),
                    point);
  return point;
}

QueuePoint CudaDevice::QueueCopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes,
                                         QueuePoint after) {
  return QueueCopy(from_host_, last_from_host_, to, from_host, bytes, cudaMemcpyHostToDevice,
                   after);
}
void CudaDevice::CopyTogether(absl::Span<const Copy> copies) {
#if CUDART_VERSION >= 13000
  if (copies.size() > 1) {
    std::vector<void*> to;
    std::vector<const void*> from;
    std::vector<size_t> bytes;
    for (const Copy& copy : copies) {
      to.push_back(copy.to);
      from.push_back(copy.from_host);
      bytes.push_back(copy.bytes);
    }
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t first = 0;
    const cudaError_t error = cudaMemcpyBatchAsync(
        to.data(), from.data(), bytes.data(), copies.size(), &attributes, &first, 1, from_host_);
    if (error != cudaErrorNotSupported && error != cudaErrorCallRequiresNewerDriver)
      return Check(error, "cudaMemcpyBatchAsync");
    cudaGetLastError();  // it is nobody's
  }
#endif
  for (const Copy& copy : copies) {
    Check(cudaMemcpyAsync(copy.to, copy.from_host, copy.bytes, cudaMemcpyHostToDevice, from_host_),
          "cudaMemcpyAsync");
  }
}

QueuePoint CudaDevice::QueueCopiesFromHost(absl::Span<const Copy> copies,
                                           absl::Span<const QueuePoint> after) {
  Activate();
  for (size_t i = 0; i < after.size(); ++i) {
    const bool again = std::any_of(after.begin(), after.begin() + i, [&](QueuePoint earlier) {
      return earlier.value == after[i].value;
    });
    if (!again) points_.StreamWait(from_host_, after[i]);
  }
  try {
    CopyTogether(copies);
  } catch (...) {
    // Those before the one that failed are queued: without a point they must be over.
    cudaStreamSynchronize(from_host_);
    throw;
  }
  const QueuePoint point = PointBehindCopy(from_host_, last_from_host_);
  for (const Copy& copy : copies) blocks_->NoteCopy(copy.to, point);
  return point;
}

QueuePoint CudaDevice::QueueCopyToHost(std::byte* to_host, const std::byte* from, size_t bytes,
                                       QueuePoint after) {
  return QueueCopy(to_host_, last_to_host_, to_host, from, bytes, cudaMemcpyDeviceToHost, after);
}

QueuePoint CudaDevice::ComputePoint(int queue) {
  if (IsCapturing(queue)) {
    ThrowFailedPrecondition(absl::StrCat(name(),
                                         ": a graph is being captured; what is queued now has "
                                         "no place in the device's work"));
  }
  cudaStream_t const stream = compute(queue);
  // Null would be the default stream.
  if (stream == nullptr) {
    ThrowInvalidArgument(absl::StrCat(name(), ": found queue ", queue,
                                      ", which is not open, where a point of it was asked for"));
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
