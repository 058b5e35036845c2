// SharedTeacher: many threads teach one learner and follow what it says, each a Lesson of its own that never
// changes once given.
//
// A follower looks at version() before a cycle whether there is another lesson, and is given one that is at
// least as new. A cycle that went as expected does not wait for the lock, and is not observed when others have it;
// any other always is. A plan is made by the thread whose cycle wanted it, without the lock, and is always adopted
// or given up, whatever throws. What a change leaves behind ends without the lock.
//
// A template over what synchronises and what learns, so that the coordination that runs is the one that is
// explored (shared_teacher_exploration_test.cc).
//
// Threads: any. Cost of Observe(): a lock and what the learner's costs.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_SHARED_TEACHER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_SHARED_TEACHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace tidepool {

// Learner, called with the lock where nothing else is said:
//   Cycle, Lesson, Wanted   what is observed, with a bool `current` that is set here: whether it followed what is
//                           learned now; what is followed; a plan that is to be made
//   Plan                    a pointer to one, null when made by default
//   Kept                    holds what others may follow
//   version() lesson() unplanned_bytes() kept()
//   Observe(cycle)          std::optional<Wanted>; may throw, and wants nothing then
//   Adopt(wanted, plan)     comes for each plan that was wanted, null when it could not be made; may throw
//   Failed(exception)       one of these has thrown; noexcept
//   Changed()               after anything that may change what it says; noexcept
// and without the lock:
//   AsExpected(cycle)       static, noexcept
//   MakePlan(wanted, cycle) static, may throw
template <typename Sync, typename Learner>
class SharedTeacher {
 public:
  using Cycle = typename Learner::Cycle;
  using Lesson = typename Learner::Lesson;

  template <typename... Arguments>
  explicit SharedTeacher(Arguments&&... arguments)
      : learner_(std::forward<Arguments>(arguments)...),
        version_(learner_.version()),
        unplanned_bytes_(learner_.unplanned_bytes()) {}
  SharedTeacher(const SharedTeacher&) = delete;
  SharedTeacher& operator=(const SharedTeacher&) = delete;

  // Another number when there is something new. Relaxed is enough: it is written with the lock, and who then
  // takes the lock for the lesson has it after who wrote, or would have read what was yet to be written.
  uint64_t version() const noexcept { return version_.load(std::memory_order_relaxed); }
  Lesson lesson() const {
    std::lock_guard<Mutex> lock(mutex_);
    return learner_.lesson();
  }
  size_t unplanned_bytes() const noexcept {
    return unplanned_bytes_.load(std::memory_order_relaxed);
  }

  // A cycle has ended that followed the lesson of that version. It stays as it is meanwhile.
  void Observe(Cycle cycle, uint64_t version) noexcept {
    std::optional<Wanted> wanted;
    {
      Kept before{};
      std::unique_lock<Mutex> lock(mutex_, std::defer_lock);
      if (!Learner::AsExpected(cycle)) {
        lock.lock();
      } else if (!lock.try_lock()) {
        return;
      }
      before = learner_.kept();
      cycle.current = version == learner_.version();
      wanted = ObserveWithLock(cycle);
      Changed();
    }
    if (wanted.has_value()) Make(*wanted, cycle);
  }

  // What `work` returns, which is called with the learner and the lock. Throws what it throws.
  template <typename Work>
  auto Change(const Work& work) {
    Kept before{};
    std::lock_guard<Mutex> lock(mutex_);
    before = learner_.kept();
    const ChangedAtEnd changed{*this};
    return work(learner_);
  }
  template <typename Work>
  auto Read(const Work& work) const {
    std::lock_guard<Mutex> lock(mutex_);
    return work(learner_);
  }

 private:
  using Mutex = typename Sync::Mutex;
  using Kept = typename Learner::Kept;
  using Wanted = typename Learner::Wanted;
  struct ChangedAtEnd {
    SharedTeacher& teacher;
    ~ChangedAtEnd() { teacher.Changed(); }
  };

  std::optional<Wanted> ObserveWithLock(const Cycle& cycle) noexcept {
    try {
      return learner_.Observe(cycle);
    } catch (...) {
      learner_.Failed(std::current_exception());
      return std::nullopt;
    }
  }

  void Make(const Wanted& wanted, const Cycle& cycle) noexcept {
    typename Learner::Plan plan{};
    std::exception_ptr failed;
    try {
      plan = Learner::MakePlan(wanted, cycle);
    } catch (...) {
      failed = std::current_exception();
    }
    Kept before{};
    std::lock_guard<Mutex> lock(mutex_);
    before = learner_.kept();
    if (failed != nullptr) learner_.Failed(failed);
    try {
      learner_.Adopt(wanted, plan);  // a copy: one that is not adopted ends without the lock
    } catch (...) {
      learner_.Failed(std::current_exception());
    }
    Changed();
  }

  // With the lock.
  void Changed() noexcept {
    Publish(learner_.unplanned_bytes(), &unplanned_bytes_);
    Publish(learner_.version(), &version_);
    learner_.Changed();
  }

  // All followers read these all the time, so they are written when they change only.
  template <typename T>
  static void Publish(T value, typename Sync::template Atomic<T>* to) noexcept {
    if (to->load(std::memory_order_relaxed) != value) to->store(value, std::memory_order_relaxed);
  }

  mutable Mutex mutex_;
  Learner learner_;  // guarded by it
  // Written with the lock.
  typename Sync::template Atomic<uint64_t> version_;
  typename Sync::template Atomic<size_t> unplanned_bytes_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_SHARED_TEACHER_H_
