#include "tidepool/backends/cuda/graphs/cuda_graph.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/ndarray/capture/step_capture.h"

namespace tidepool {
namespace {

using cuda::Check;
using cuda::CudaDevice;

CudaDevice& DeviceOrThrow(int index) {
  if (CudaDevice* const device = CudaDevice::Find(index)) return *device;
  ThrowNotFound(
      absl::StrCat("CudaGraph: there is no device cuda:", index, ": ", CudaDevice::WhyAbsent()));
}

struct GraphDeleter {
  ~GraphDeleter() {
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  cudaGraph_t graph = nullptr;
};

}  // namespace

CudaGraph::CudaGraph(int device)
    : device_(DeviceOrThrow(device)), queue_(DeviceQueue::First(device_.device())) {}

CudaGraph::~CudaGraph() { Forget(); }

void CudaGraph::Forget() {
  if (executable_ == nullptr) return;
  try {
    device_.WaitFor(launched_);
  } catch (const Error&) {  // the device is lost
  }
  cudaGraphExecDestroy(executable_);
  executable_ = nullptr;
}

void CudaGraph::Capture(absl::FunctionRef<void()> step) {
  Forget();
  device_.Activate();
  // Copies under way are no part of it; what it queues comes behind them.
  queue_ = DeviceQueue::Here(device_.device());
  JoinQueues();
  GraphDeleter captured;
  {
    cuda::StreamCapture capture(device_, queue_.number());
    const CapturingThreadScope thread;
    std::exception_ptr failure;
    try {
      step();
    } catch (...) {
      failure = std::current_exception();
    }
    const cudaError_t error = capture.End(&captured.graph);
    if (error == cudaErrorStreamCaptureInvalidated) {
      ThrowFailedPrecondition(
          "CudaGraph: the step waits for the device or asks for memory, which a captured step "
          "cannot; "
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
  if (executable_ == nullptr || key != key_ || queue_.number() != QueueHere(device_.device())) {
    Capture(step);
    key_ = key;
  }
  Launch();
}

void CudaGraph::Launch() {
  if (executable_ == nullptr) ThrowFailedPrecondition("CudaGraph: Launch without a capture");
  device_.Activate();
  const QueueTurn turn(device_.device(), /*alone=*/true);
  JoinQueues();
  NoteOperation(device_.device(), queue_.number(), "a captured step");
  Check(cudaGraphLaunch(executable_, device_.compute(queue_.number())), "cudaGraphLaunch");
  ++replays_;
  // The step runs. An error from here on would have it done again, so what cannot be ordered behind it is waited for.
  try {
    launched_ = device_.ComputePoint(queue_.number());
    for (int other = 0, open = static_cast<int>(OpenQueues(device_.device())); open >> other != 0;
         ++other) {
      if ((open >> other & 1) != 0 && other != queue_.number())
        device_.ComputeAfter(other, launched_);
    }
  } catch (const Error&) {
    launched_ = {};
    Check(cudaStreamSynchronize(device_.compute(queue_.number())), "cudaStreamSynchronize");
  }
}

// What was captured does not say what it uses, so it comes after all that is queued anywhere, and all
// that is queued later after it.
void CudaGraph::JoinQueues() {
  device_.JoinCopies(queue_.number());
  OrderQueueAfter(device_.device(), queue_.number(), AllQueues(device_.device()));
}

}  // namespace tidepool
