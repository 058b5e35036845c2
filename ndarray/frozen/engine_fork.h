// What fork() does to the locks of inference engines and of what is frozen for them: they are taken before and given back after,
// in parent and child, so that a child finds what they guard whole and the locks free, whatever other threads were doing. That is
// before those of memory/ (memory/provider/fork_handlers.h), which engines need under theirs.
//
// Threads: any. Cost: none but at fork(), which waits until each is free.
#ifndef TIDEPOOL_NDARRAY_FROZEN_ENGINE_FORK_H_
#define TIDEPOOL_NDARRAY_FROZEN_ENGINE_FORK_H_

#include <mutex>

namespace tidepool {

// In the order in which the locks are taken: who holds one may wait for later ones only.
enum class EngineLock {
  kFrozenNames,     // nn/inference: who shares what,
  kSharedFrozen,    // a copy that many share,
  kFrozenNetworks,  // its runtimes
  kStart,           // of an engine: its start,
  kOperators,       // what it keeps,
  kMemory,          // its allocator
  kPages
};
inline constexpr int kEngineLocks = 7;

struct EngineForkHandlers {
  void (*before)();     // takes the locks
  void (*in_parent)();  // gives them back
  void (*in_child)();   // likewise, where no other thread exists
};

// `handlers` must stay. One for each lock; later calls for the same do nothing.
void HandleEngineFork(EngineLock lock, const EngineForkHandlers* handlers);

// A mutex of objects that come and go; fork() takes those of all. Who holds one may not wait for another of the same kind, nor
// make or destroy one. Cost: a std::mutex; two links and a lock when it is made and destroyed.
template <EngineLock kLock>
class EngineMutex {
 public:
  EngineMutex() {
    static constinit const EngineForkHandlers handlers{&LockAll, &UnlockAll, &UnlockAll};
    HandleEngineFork(kLock, &handlers);
    const std::lock_guard<std::mutex> lock(list_mutex);
    next_ = first;
    if (next_ != nullptr) next_->previous_ = this;
    first = this;
  }
  ~EngineMutex() {
    const std::lock_guard<std::mutex> lock(list_mutex);
    (previous_ != nullptr ? previous_->next_ : first) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
  }
  EngineMutex(const EngineMutex&) = delete;
  EngineMutex& operator=(const EngineMutex&) = delete;

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static void LockAll() {
    list_mutex.lock();
    for (EngineMutex* each = first; each != nullptr; each = each->next_) each->mutex_.lock();
  }
  static void UnlockAll() {
    for (EngineMutex* each = first; each != nullptr; each = each->next_) each->mutex_.unlock();
    list_mutex.unlock();
  }

  static constinit inline std::mutex list_mutex;
  static constinit inline EngineMutex* first = nullptr;

  std::mutex mutex_;
  EngineMutex* next_ = nullptr;
  EngineMutex* previous_ = nullptr;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_FROZEN_ENGINE_FORK_H_
