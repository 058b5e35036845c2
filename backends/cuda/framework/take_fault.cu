#include "tidepool/backends/cuda/framework/value_fault.h"
#include "tidepool/backends/cuda/runtime/launch.h"

namespace tidepool::cuda {
namespace {

// In the order of the queue, so that no fault of what is queued meanwhile is lost.
__global__ void TakeFault(FaultRecord* record, ToldFault* told) {
  told->op = record->op;
  told->position = static_cast<int64_t>(record->key & ((1ull << kPositionBits) - 1));
  told->found = record->found;
  told->limit = record->limit;
  record->key = kNoFault;
  told->raised = 0;
}

}  // namespace

void QueueTakeFault(FaultRecord* record, ToldFault* told, cudaStream_t stream) {
  Launch(TakeFault, 1, 1, 0, stream, record, told);
}

}  // namespace tidepool::cuda
