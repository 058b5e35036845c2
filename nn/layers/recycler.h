// Objects that are used again with the memory of their members, so that a steady step calls no malloc for them.
#ifndef TIDEPOOL_NN_LAYERS_RECYCLER_H_
#define TIDEPOOL_NN_LAYERS_RECYCLER_H_

#include <cstddef>
#include <mutex>
#include <vector>

namespace tidepool::nn {

// At most kMost wait, for the whole process. It is never destroyed: New(). Threads: any. No thread waits for another, nor a
// child of fork() for a thread that it does not have: whoever is not first takes a new one, or lets go of its own.
template <typename T>
class Recycler {
 public:
  static constexpr size_t kMost = 64;

  static Recycler& New() { return *new Recycler(); }
  Recycler(const Recycler&) = delete;
  Recycler& operator=(const Recycler&) = delete;

  T* Take() {
    if (const std::unique_lock lock(mutex_, std::try_to_lock);
        lock.owns_lock() && !waiting_.empty()) {
      T* const object = waiting_.back();
      waiting_.pop_back();
      return object;
    }
    return new T();
  }
  // One that holds no arrays any more.
  void Give(T* object) noexcept {
    if (const std::unique_lock lock(mutex_, std::try_to_lock);
        lock.owns_lock() && waiting_.size() < kMost) {
      waiting_.push_back(object);
      return;
    }
    delete object;
  }

 private:
  Recycler() { waiting_.reserve(kMost); }
  std::mutex mutex_;
  std::vector<T*> waiting_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_RECYCLER_H_
