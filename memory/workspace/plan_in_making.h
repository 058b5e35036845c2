// PlanInMaking: that one plan is made at a time, and that one which was begun before all was forgotten is of
// no use when it comes.
//
// Making takes long and nobody waits for it: who begins one says with End() that it is there, or that it
// could not be made. Until then no other one is begun, so an End() that never comes ends all planning.
//
// Threads: one at a time (shared_teacher.h). Explored with that (shared_teacher_exploration_test.cc).
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_IN_MAKING_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_IN_MAKING_H_

#include <cstdint>

namespace tidepool {

template <typename Sync>
class PlanInMaking {
 public:
  // False: one is being made.
  bool Begin() noexcept {
    if (making_.get()) return false;
    making_.set(true);
    return true;
  }
  // Of which learning the one that was begun last is: for its End().
  uint64_t learning() const noexcept { return learning_.get(); }
  // Whether it may be used, where it was made.
  bool End(uint64_t learning) noexcept {
    if (learning != learning_.get()) return false;
    making_.set(false);
    return true;
  }
  // Another one may be begun at once.
  void Forget() noexcept {
    learning_.set(learning_.get() + 1);
    making_.set(false);
  }

 private:
  typename Sync::template Plain<uint64_t> learning_{0};  // raised with each Forget()
  typename Sync::template Plain<bool> making_{false};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_IN_MAKING_H_
