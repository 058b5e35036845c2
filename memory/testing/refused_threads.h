// A system that refuses threads, for tests.
#ifndef TIDEPOOL_MEMORY_TESTING_REFUSED_THREADS_H_
#define TIDEPOOL_MEMORY_TESTING_REFUSED_THREADS_H_

#include <pthread.h>

#include <cstddef>

namespace tidepool {

// As long as it lives, threads of this process with stacks of the default size are refused
// (std::thread: "Resource temporarily unavailable"), as under a limit on their number, which root has
// none of: the default is more than there are addresses.
class RefusedThreads {
 public:
  RefusedThreads() {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&before_);
    pthread_getattr_default_np(&attributes);
    pthread_attr_setstacksize(&attributes, size_t{1} << 48);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  ~RefusedThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_REFUSED_THREADS_H_
