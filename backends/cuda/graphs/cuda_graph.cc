#include "tidepool/backends/cuda/graphs/cuda_graph.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/capture/step_capture.h"

namespace tidepool {
namespace {

using cuda::Check;
using cuda::CudaDevice;

CudaDevice& DeviceOrThrow(int index) {
  if (CudaDevice* const device = CudaDevice::Find(index)) return *device;
  ThrowNotFound(absl::StrCat("CudaGraph: there is no device cuda:", index, ": ", CudaDevice::WhyAbsent()));
}

// Blocks given back meanwhile are kept; freed when it ends.
class CapturingScope {
 public:
  explicit CapturingScope(CudaDevice& device) : device_(device) { device_.set_capturing(true); }
  ~CapturingScope() { device_.set_capturing(false); }

 private:
  CudaDevice& device_;
};

struct GraphDeleter {
  ~GraphDeleter() {
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  cudaGraph_t graph = nullptr;
};

}  // namespace

CudaGraph::CudaGraph(int device) : device_(DeviceOrThrow(device)) {}

CudaGraph::~CudaGraph() { Forget(); }

void CudaGraph::Forget() {
  if (executable_ == nullptr) return;
  cudaStreamSynchronize(device_.compute());
  cudaGraphExecDestroy(executable_);
  executable_ = nullptr;
}

void CudaGraph::Capture(absl::FunctionRef<void()> step) {
  Forget();
  device_.Activate();
  // Copies under way are no part of it; what it queues comes behind them.
  device_.JoinCopies();
  GraphDeleter captured;
  {
    CapturingScope scope(device_);
    const CapturingThreadScope thread;
    Check(cudaStreamBeginCapture(device_.compute(), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    std::exception_ptr failure;
    try {
      step();
    } catch (...) {
      failure = std::current_exception();
    }
    const cudaError_t error = cudaStreamEndCapture(device_.compute(), &captured.graph);
    if (error != cudaSuccess && cudaPeekAtLastError() == error) cudaGetLastError();
    if (error == cudaErrorStreamCaptureInvalidated) {
      cudaGetLastError();
      ThrowFailedPrecondition(
          "CudaGraph: the step waits for the device or asks for memory, which a captured step cannot; "
          "let its workspace learn first, and read results after Run");
    }
    if (failure != nullptr) std::rethrow_exception(failure);
    Check(error, "cudaStreamEndCapture");
  }
  Check(cudaGraphGetNodes(captured.graph, nullptr, &nodes_), "cudaGraphGetNodes");
  Check(cudaGraphInstantiate(&executable_, captured.graph, 0), "cudaGraphInstantiate");
  ++captures_;
}

void CudaGraph::Run(uint64_t key, absl::FunctionRef<void()> step) {
  if (executable_ == nullptr || key != key_) {
    Capture(step);
    key_ = key;
  }
  Launch();
}

void CudaGraph::Launch() {
  if (executable_ == nullptr) ThrowFailedPrecondition("CudaGraph: Launch without a capture");
  device_.Activate();
  device_.JoinCopies();
  Check(cudaGraphLaunch(executable_, device_.compute()), "cudaGraphLaunch");
  ++replays_;
}

}  // namespace tidepool
