// The calling thread's stack.
#ifndef TIDEPOOL_MEMORY_STACK_H_
#define TIDEPOOL_MEMORY_STACK_H_

#include <cstddef>

namespace tidepool {

// Touches the next `bytes` of the stack, so that what runs on this thread later has no page faults
// there. Less where the stack is smaller (ulimit -s, pthread_attr_setstacksize): its last 32 KiB are
// left to who calls. Returns the bytes touched; 0 also where the system does not tell how large the
// stack is. Cost: a page fault a page; on the main thread a file of /proc is read.
size_t TouchStack(size_t bytes = size_t{256} << 10);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_STACK_H_
