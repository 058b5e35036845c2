#include "tidepool/backends/cuda/runtime/stream_capture.h"

#include <new>

#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"

namespace tidepool::cuda {

thread_local constinit StreamCapture* newest_capture = nullptr;

StreamCapture* StreamCapture::Of(const CudaDevice& device) noexcept {
  for (StreamCapture* capture = newest_capture; capture != nullptr; capture = capture->outer_) {
    if (&capture->device_ == &device) return capture;
  }
  return nullptr;
}

StreamCapture::StreamCapture(CudaDevice& device, int queue)
    : device_(device), queue_(queue), is_adopted_(!device.IsOurs(queue)) {
  device.Activate();
  stream_ = is_adopted_ ? device.compute(queue) : device.TakeCaptureStream();
  const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) {
    if (!is_adopted_) device.GiveCaptureStream(stream_);
    ThrowError(error, "cudaStreamBeginCapture");
  }
  is_open_ = true;
  if (is_adopted_) device.SetAdoptedCaptured(queue, true);
  outer_ = newest_capture;
  newest_capture = this;
}

cudaError_t StreamCapture::End(cudaGraph_t* graph) noexcept {
  is_open_ = false;
  const cudaError_t error = cudaStreamEndCapture(stream_, graph);
  ForgetLastError(error);
  return error;
}

StreamCapture::~StreamCapture() {
  if (is_open_) {
    cudaGraph_t graph = nullptr;
    End(&graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  StreamCapture** link = &newest_capture;
  while (*link != this) link = &(*link)->outer_;
  *link = outer_;
  if (is_adopted_) {
    device_.SetAdoptedCaptured(queue_, false);
  } else {
    device_.GiveCaptureStream(stream_);
  }
  device_.ReleaseMany(kept_.data(), static_cast<int>(kept_.size()));
}

void StreamCapture::Keep(const DeviceProvider::Block* blocks, int count) noexcept {
  try {
    kept_.insert(kept_.end(), blocks, blocks + count);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace tidepool::cuda
