// CudaGraph: work of a device that is queued once and replayed with one call.
//
//   CudaGraph graph;
//   while (training) {
//     graph.Run(workspace.stats().plans, [&] {
//       WorkspaceScope scope(workspace);
//       Step(network, batch);          // kernels only: nothing that waits
//     });
//   }
//
// The first call with a key runs `step` while the thread's compute queue captures what it queues, and
// then launches that, behind all that is queued anywhere on the device; later calls with the same key
// launch it again and do not call `step`. Another key (a new plan: addresses may have moved) and another
// queue capture anew. Results are those of the step run as it is, to the bit: the same kernels with the
// same arguments.
//
// What a captured step must keep to:
//   - its workspace has learned: blocks of the heap are refused while capturing, ranges may not grow;
//   - it does not wait: no copies to or from ordinary host memory, no reading of values;
//   - its arguments stay: an attribute that changes from step to step, such as a learning rate of a
//     schedule, is replayed as it was. Random numbers, dropout, updates by Adam without an array of
//     numbers, operators that run on the host and reads of the host are refused (kFailedPrecondition);
//   - arrays it reads and writes stay where they are until the graph is captured anew or ends.
// Memory that the workspace has behind its addresses must stay mapped: do not trim or destroy it first.
//
// Errors: what `step` throws, with nothing captured and the device usable; kFailedPrecondition when it
// waited or asked for memory; kInternal when the runtime refuses. Threads: one at a time, the same one
// for a capture. Other threads go on meanwhile: what they queue is done as ever, and is no part of the step
// (backends/cuda/runtime/stream_capture.h). Work of the program's own within `step` goes to
// DeviceQueue::Here(device).native(), asked for there; a queue that was adopted is captured itself, and is the step's alone.
// Cost: a launch of a few microseconds for any number of kernels.
#ifndef TIDEPOOL_BACKENDS_CUDA_GRAPHS_CUDA_GRAPH_H_
#define TIDEPOOL_BACKENDS_CUDA_GRAPHS_CUDA_GRAPH_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "cuda_runtime_api.h"
#include "tidepool/memory/provider/device_queue.h"

namespace tidepool {

namespace cuda {
class CudaDevice;
}

class CudaGraph {
 public:
  // Throws kNotFound when there is no such device.
  explicit CudaGraph(int device = 0);
  // Waits for replays under way.
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void Run(uint64_t key, absl::FunctionRef<void()> step);
  // The two halves of it: `step` captured, and what was captured launched. Launch needs a capture.
  void Capture(absl::FunctionRef<void()> step);
  void Launch();
  // The next Run captures again.
  void Forget();

  int64_t captures() const { return captures_; }
  int64_t replays() const { return replays_; }  // launches, the first after a capture among them
  size_t nodes() const { return nodes_; }       // kernels, copies and fills of the captured work

 private:
  void JoinQueues();

  cuda::CudaDevice& device_;
  DeviceQueue queue_;  // that it was captured in
  QueuePoint launched_;
  cudaGraphExec_t executable_ = nullptr;
  uint64_t key_ = 0;
  int64_t captures_ = 0, replays_ = 0;
  size_t nodes_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_CUDA_GRAPHS_CUDA_GRAPH_H_
