// StreamCapture: while it lives, what the calling thread queues in one compute queue of a device is captured instead of done.
//
// It is captured in a stream of its own: what other threads queue there meanwhile goes its way, memory that they ask for
// is had, and they may wait. The capturing thread gets that stream from CudaDevice::compute() and DeviceQueue::native(),
// which work of the program's own is queued in. A queue that was adopted is captured itself, because its owner's work
// goes there without asking; no other thread may queue in it meanwhile.
//
// Of the capturing thread blocks are refused, as they would become a part of the graph, and those that it gives back are
// kept until the end. Captures of several threads are nothing to each other; those of one thread nest.
//
// Threads: begun and ended by one.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_STREAM_CAPTURE_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_STREAM_CAPTURE_H_

#include <vector>

#include "cuda_runtime_api.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool::cuda {

class CudaDevice;

class StreamCapture {
 public:
  // Begins it. Throws kInternal when the runtime refuses.
  StreamCapture(CudaDevice& device, int queue);
  // What was captured goes unless End() was called.
  ~StreamCapture();
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  // What was captured; the caller destroys it. Null with an error.
  cudaError_t End(cudaGraph_t* graph) noexcept;

  // The calling thread's newest of that device; null: it captures nothing there.
  static StreamCapture* Of(const CudaDevice& device) noexcept;
  int queue() const { return queue_; }
  cudaStream_t stream() const { return stream_; }
  // Of blocks that are given back meanwhile. Where there is no memory to remember them by they stay in use.
  void Keep(const DeviceProvider::Block* blocks, int count) noexcept;

 private:
  CudaDevice& device_;
  const int queue_;
  const bool is_adopted_;
  cudaStream_t stream_ = nullptr;
  bool is_open_ = false;
  std::vector<DeviceProvider::Block> kept_;
  StreamCapture* outer_ = nullptr;
};

// The calling thread's, of whichever device.
extern thread_local constinit StreamCapture* newest_capture;

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_STREAM_CAPTURE_H_
