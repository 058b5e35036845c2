// Kernels that look at the values they are given (memory/provider/value_faults.h). A kernel takes a ValueCheck by value:
//
//   Launch(GatherRows, ..., ValueCheckOf(call, size));
//   ...
//   if (static_cast<uint64_t>(index) >= size) check.Report(position, index);   // and goes on without
//
// Nothing is read or written by it as long as all is well. Of several faults of a launch the one at the first position
// is kept, of several launches in a queue the first one's, so that what is told is the same in every run.
#ifndef TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_VALUE_FAULT_H_
#define TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_VALUE_FAULT_H_

#include <cstdint>

#include "cuda_runtime.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cuda {

inline constexpr unsigned long long kNoFault = ~0ull;
inline constexpr unsigned kFree = ~0u;  // of a lock
inline constexpr int kPositionBits = 40;

// Of a compute queue, in device memory. All bits are set where there is none.
struct FaultRecord {
  unsigned long long key;  // the launch's ticket, and the position
  int64_t found, limit;
  int op;
  unsigned lock;
};
// The same where the host sees it, in page-locked memory.
struct ToldFault {
  volatile unsigned raised;  // not 0: there is a record
  int op;
  int64_t position, found, limit;
};

struct ValueCheck {
  FaultRecord* record;
  volatile unsigned* raised;
  unsigned long long ticket;  // of the launch, in the upper bits
  int64_t limit;              // what indices must be below
  int op;

#if defined(__CUDACC__) || defined(TIDEPOOL_CUDA_EMULATED)
  __device__ bool IsInside(int64_t index) const {
    return static_cast<uint64_t>(index) < static_cast<uint64_t>(limit);  // a negative one is large
  }
  __device__ void Report(int64_t position, int64_t found) const {
    const unsigned long long key = ticket | static_cast<unsigned long long>(position);
    for (;;) {
      const unsigned long long now = *static_cast<volatile unsigned long long*>(&record->key);
      const bool is_earlier_launch = now >> kPositionBits != ticket >> kPositionBits;
      if (now != kNoFault && (is_earlier_launch || now <= key)) return;
      if (atomicCAS(&record->key, now, key) == now) break;
    }
    // Few come here, each with an earlier position than those before; the last of them stays.
    while (atomicCAS(&record->lock, kFree, 0u) != kFree) {
    }
    __threadfence();
    if (*static_cast<volatile unsigned long long*>(&record->key) == key) {
      record->found = found;
      record->limit = limit;
      record->op = op;
    }
    __threadfence();
    atomicExch(&record->lock, kFree);
    *raised = 1;
  }
#endif
};

// Of one launch for `call`. The first one of a device waits for it; throws kFailedPrecondition where that would be
// while a graph is captured, OutOfMemoryError and kResourceExhausted when there is no memory for the records.
ValueCheck ValueCheckOf(const KernelCall& call, int64_t limit);

// Queues that *told becomes the record's contents, which is empty then.
void QueueTakeFault(FaultRecord* record, ToldFault* told, cudaStream_t stream);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_VALUE_FAULT_H_
