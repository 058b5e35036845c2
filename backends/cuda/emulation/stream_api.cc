// Devices, streams, events and graphs of the emulated runtime.
#include <cstdio>
#include <cstring>
#include <set>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/emulation/emulation.h"

using tidepool::EmulatedCuda;
using tidepool::cuda_emulation::Capture;
using tidepool::cuda_emulation::current_device;
using tidepool::cuda_emulation::Die;
using tidepool::cuda_emulation::Emulation;
using tidepool::cuda_emulation::Fail;
using tidepool::cuda_emulation::last_error;

namespace {

using Lock = tidepool::cuda_emulation::CallLock;

// Whether work may be queued: the device is there and the fault plan does not say no.
cudaError_t MayWork(Emulation& emulation) {
  if (emulation.lost) return cudaErrorIllegalAddress;
  return EmulatedCuda::Get().call_faults().Next() ? cudaErrorUnknown : cudaSuccess;
}

// What was waited for has run: it may have been lost by that.
cudaError_t Ran(const Emulation& emulation) {
  return emulation.lost ? Fail(cudaErrorIllegalAddress) : cudaSuccess;
}

}  // namespace

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaDriverGetVersion(int* version) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  *version = emulation.devices > 0 ? CUDART_VERSION : 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  *count = emulation.devices;
  return emulation.devices > 0 ? cudaSuccess : Fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (device < 0 || device >= emulation.devices) return Fail(cudaErrorInvalidDevice);
  current_device = device;
  emulation.has_context[device] = true;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (device < 0 || device >= emulation.devices) return Fail(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(device));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (device < 0 || device >= emulation.devices) return Fail(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 << 10;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;
      return cudaSuccess;
    // Few, so that loops of kernels over what is left are seen too.
    case cudaDevAttrMultiProcessorCount:
      *value = 2;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = 4 << 20;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
  }
  return Fail(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (device < 0 || device >= emulation.devices) return Fail(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated device %d", device);
  properties->totalGlobalMem = emulation.memory.capacity(device);
  properties->sharedMemPerBlock = 48 << 10;
  properties->major = 9;
  properties->multiProcessorCount = 2;
  properties->l2CacheSize = 4 << 20;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (emulation.UnsafeWhileCapturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  ++emulation.counters.device_synchronizations;
  emulation.RunAll();
  return Ran(emulation);
}

// ---- streams ------------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.devices == 0) return Fail(cudaErrorNoDevice);
  if (const cudaError_t error = MayWork(emulation)) return Fail(error);
  ++emulation.counters.streams;
  *stream = emulation.NewStream(flags);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  emulation.EndStream(emulation.Stream(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  CUstream_st* const queue = emulation.Stream(stream);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (queue->capture != nullptr) {
    queue->capture->invalid = true;
    return Fail(cudaErrorStreamCaptureUnsupported);
  }
  ++emulation.counters.synchronizations;
  emulation.RunUntil([&] { return queue->queue.empty(); }, "cudaStreamSynchronize");
  return Ran(emulation);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  CUstream_st* const queue = emulation.Stream(stream);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (queue->capture != nullptr) return Fail(cudaErrorStreamCaptureUnsupported);
  emulation.RunSome();
  if (emulation.lost) return Ran(emulation);
  return queue->queue.empty() ? cudaSuccess : Fail(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (const cudaError_t error = MayWork(emulation)) return Fail(error);
  return Fail(emulation.Wait(emulation.Stream(stream), event));
}

// ---- events -------------------------------------------------------------------------------------

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (const cudaError_t error = MayWork(emulation)) return Fail(error);
  ++emulation.counters.events;
  *event = new CUevent_st();
  (*event)->device = current_device;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (const cudaError_t error = MayWork(emulation)) return Fail(error);
  CUstream_st* const queue = emulation.Stream(stream);
  if (queue->device != event->device) return Fail(cudaErrorInvalidResourceHandle);
  emulation.Record(queue, event);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (event->mark == nullptr || event->mark->passed) return cudaSuccess;
  if (event->mark->capture != nullptr) return Fail(cudaErrorStreamCaptureUnsupported);
  emulation.RunSome();
  if (emulation.lost) return Ran(emulation);
  return event->mark->passed ? cudaSuccess : Fail(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (emulation.lost) return Fail(cudaErrorIllegalAddress);
  if (event->mark == nullptr) return cudaSuccess;
  if (event->mark->capture != nullptr) {
    event->mark->capture->invalid = true;
    return Fail(cudaErrorStreamCaptureUnsupported);
  }
  ++emulation.counters.synchronizations;
  const auto mark = event->mark;
  emulation.RunUntil([&] { return mark->passed; }, "cudaEventSynchronize");
  return Ran(emulation);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  Lock lock(Emulation::Get().mutex);
  if (begin->mark == nullptr || end->mark == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  if (!begin->mark->passed || !end->mark->passed) return Fail(cudaErrorNotReady);
  *milliseconds = 0;  // nothing takes time here
  return cudaSuccess;
}

// ---- graphs -------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (stream == nullptr) return Fail(cudaErrorStreamCaptureUnsupported);
  CUstream_st* const queue = emulation.Stream(stream);
  if (queue->capture != nullptr) return Fail(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t error = MayWork(emulation)) return Fail(error);
  queue->capture = std::make_shared<Capture>();
  queue->capture->origin = queue;
  queue->capture->mode = mode;
  queue->last.clear();
  if (mode != cudaStreamCaptureModeRelaxed) ++tidepool::cuda_emulation::captures_begun;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  *graph = nullptr;
  CUstream_st* const queue = emulation.Stream(stream);
  const std::shared_ptr<Capture> capture = queue->capture;
  if (capture == nullptr || capture->origin != queue) return Fail(cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed) {
    if (tidepool::cuda_emulation::captures_begun == 0)
      return Fail(cudaErrorStreamCaptureWrongThread);
    --tidepool::cuda_emulation::captures_begun;
  }
  // All work must come before where the origin is now.
  std::set<int> reached(queue->last.begin(), queue->last.end());
  for (int i = static_cast<int>(capture->nodes.size()) - 1; i >= 0; --i) {
    if (reached.count(i) == 0) continue;
    reached.insert(capture->nodes[i].after.begin(), capture->nodes[i].after.end());
  }
  emulation.EndCapture(capture);
  if (capture->invalid) return Fail(cudaErrorStreamCaptureInvalidated);
  if (reached.size() != capture->nodes.size()) return Fail(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{capture};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  const CUstream_st* const queue = emulation.Stream(stream);
  *status = queue->capture == nullptr ? cudaStreamCaptureStatusNone
            : queue->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes != nullptr) return Fail(cudaErrorNotSupported);
  *count = graph->work->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  *executable = nullptr;
  if (const cudaError_t error = MayWork(emulation)) return Fail(error);
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  Lock lock(emulation.mutex);
  if (const cudaError_t error = MayWork(emulation)) return Fail(error);
  CUstream_st* const queue = emulation.Stream(stream);
  if (queue->capture != nullptr) return Fail(cudaErrorNotSupported);
  emulation.Add(queue, [work = executable->work, &emulation] {
    ++emulation.counters.graph_launches;
    // Any order that the dependencies allow.
    std::vector<int> before(work->nodes.size());
    std::vector<std::vector<int>> next(work->nodes.size());
    std::vector<int> ready;
    for (size_t i = 0; i < work->nodes.size(); ++i) {
      before[i] = static_cast<int>(work->nodes[i].after.size());
      for (int node : work->nodes[i].after) next[node].push_back(static_cast<int>(i));
      if (before[i] == 0) ready.push_back(static_cast<int>(i));
    }
    while (!ready.empty()) {
      std::swap(ready[emulation.Random() % ready.size()], ready.back());
      const int node = ready.back();
      ready.pop_back();
      tidepool::cuda_emulation::Work run = work->nodes[node].work;
      run();
      for (int after : next[node]) {
        if (--before[after] == 0) ready.push_back(after);
      }
    }
  });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
