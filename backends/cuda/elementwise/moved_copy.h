// Copies between views of one type that do not both lie one element behind the other.
#ifndef TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_MOVED_COPY_H_
#define TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_MOVED_COPY_H_

#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cuda {

// Queues the output as a copy of the first input, which is of its type and broadcasts to its shape. Where
// the two have another fastest axis it goes through tiles in shared memory, so that both are read and
// written in whole lines of memory; where they have the same one, in pieces of up to 16 bytes.
void MoveElements(const KernelCall& call);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_MOVED_COPY_H_
