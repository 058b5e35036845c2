// Keeps oneDNN on the calling thread.
//
// Debian builds oneDNN for OpenMP, whose threads would spin beside ours. While a OneThread lives,
// parallel regions that its thread starts have one thread, and OpenMP starts none. Builds without
// threads need nothing.
//
// Threads: each its own. Cost: some ten nanoseconds.
#ifndef TIDEPOOL_BACKENDS_ONEDNN_ONE_THREAD_H_
#define TIDEPOOL_BACKENDS_ONEDNN_ONE_THREAD_H_

#include <dnnl_config.h>

#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
// OpenMP's standard interface; <omp.h> comes with some compilers only.
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_max_threads(void);
}
#endif

namespace tidepool::onednn {

class OneThread {
 public:
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
#else
  OneThread() : before_(1) {}
  ~OneThread() {}
#endif
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

}  // namespace tidepool::onednn

#endif  // TIDEPOOL_BACKENDS_ONEDNN_ONE_THREAD_H_
