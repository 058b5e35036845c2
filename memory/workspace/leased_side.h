// LeasedSide: what other threads do to a workspace whose cycle nobody has open, because its leases are out
// (ring_slot_core.cc). They take turns under a lock; so does whoever ends the last lease.
//
// Invariant: while such work runs, the leases are out and no other work runs. What was done before the
// hand-over is seen by all of it, and all of it by who opens the workspace next.
//
// Threads: any. Who calls WhileLeased holds something of the workspace, which keeps that, until the work;
// the lock is not touched after whoever ends the lease has had it. Cost: a load where nothing is leased.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_LEASED_SIDE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_LEASED_SIDE_H_

#include <mutex>

namespace tidepool {

// Gate: has is_leased(), which acquires what HandOver released (cycle_gate.h).
template <typename Sync>
class LeasedSide {
 public:
  // False, and nothing done, when no lease is out.
  template <typename Gate, typename Work>
  bool WhileLeased(const Gate& gate, const Work& work) noexcept {
    if (!gate.is_leased()) return false;
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    if (!gate.is_leased()) return false;  // ended while the lock was waited for
    work();
    return true;
  }
  // With the last lease: `work` leaves the gate.
  template <typename Work>
  void End(const Work& work) noexcept {
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    work();
  }

 private:
  typename Sync::Mutex mutex_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_LEASED_SIDE_H_
