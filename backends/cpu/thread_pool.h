// The one thread pool of the CPU backend.
#ifndef TIDEPOOL_BACKENDS_CPU_THREAD_POOL_H_
#define TIDEPOOL_BACKENDS_CPU_THREAD_POOL_H_

#include <pthreadpool.h>

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tidepool::cpu {

// A pool of `threads` threads, the caller included; null for one thread. Made at first use, made
// anew when the number changes; calls of different sizes must not overlap in time.
pthreadpool_t PoolOf(int threads);

// Waking a pool costs microseconds, and a scheduler's quantum when the cores are taken: work of
// fewer elementary operations than this stays on the calling thread.
inline constexpr int64_t kMinParallelWork = 1 << 18;

// body(begin, end) over [0, count) in pieces of `grain`. The pieces are the same for any number of
// threads. `work`: elementary operations in all.
void ParallelFor(int threads, int64_t count, int64_t grain, int64_t work,
                 absl::FunctionRef<void(int64_t, int64_t)> body);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_THREAD_POOL_H_
