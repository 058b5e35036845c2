// LastCopy: the point behind the copy that was queued last in a stream, whichever thread notes its own first.
//
// Two threads that copy in one stream each take a point behind theirs. One that was taken earlier must not be noted later:
// what comes behind "the copies queued so far" would come before the other one, and memory would be given back under it.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_LAST_COPY_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_LAST_COPY_H_

#include <atomic>
#include <cstdint>
#include <mutex>

namespace tidepool::cuda {

// Sync: memory/sync/std_sync.h. Point: a struct of one uint64_t, `value`.
template <typename Sync, typename Point>
class LastCopy {
 public:
  // record() takes the point behind all that is queued in the stream, the caller's copy in it. What it throws is passed on,
  // and the last point stays.
  template <typename Record>
  Point Note(const Record& record) {
    const std::lock_guard<typename Sync::Mutex> lock(mutex_);
    const Point point = record();
    last_.store(point.value, std::memory_order_release);
    return point;
  }
  Point point() const { return {last_.load(std::memory_order_acquire)}; }

 private:
  typename Sync::Mutex mutex_;
  typename Sync::template Atomic<uint64_t> last_{0};
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_LAST_COPY_H_
