// AsymmetricFence: a sequentially consistent fence between two threads of which one comes by often and
// the other hardly ever. Light() costs the often one nothing; Heavy() has all running threads of the
// process pass a fence, a microsecond or a few.
//
// Of a Light and a Heavy each is as Fence(seq_cst) is to the other; two Lights are nothing to each
// other. Where the system has no such call (membarrier(2), Linux 4.14) both are fences.
//
// Register() comes before the calling thread's first Light(). Threads: any.
#ifndef TIDEPOOL_MEMORY_SYNC_ASYMMETRIC_FENCE_H_
#define TIDEPOOL_MEMORY_SYNC_ASYMMETRIC_FENCE_H_

#include <atomic>

#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

// For other policies than production's.
template <typename Sync>
struct AsymmetricFence {
  static void Register() {}
  static void Light() { Sync::Fence(std::memory_order_seq_cst); }
  static void Heavy() { Sync::Fence(std::memory_order_seq_cst); }
};

template <>
struct AsymmetricFence<StdSync> {
  static void Register() noexcept;
  static void Light() noexcept {
    if (!has_barrier.load(std::memory_order_relaxed)) {
      return StdSync::Fence(std::memory_order_seq_cst);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps the order
  }
  static void Heavy() noexcept;

 private:
  static constinit inline std::atomic<bool> has_barrier{false};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_ASYMMETRIC_FENCE_H_
