// Holders: how many still need something that the last one frees; for rings.
//
// A slot's leases are counted so (the last one to go ends the batch), and who needs the ring's
// state (the RingWorkspace, each slot, each producer that waits). A template over a policy of
// memory/sync, so that memory/testing/explorer can run it under every interleaving
// (ring_holders_test.cc).
//
// Threads: any. What a holder did before it left has happened for the last one.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_HOLDERS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_HOLDERS_H_

#include <atomic>
#include <cstdint>

namespace tidepool {

template <typename Sync>
class Holders {
 public:
  Holders() = default;
  explicit Holders(int32_t count) : count_(count) {}

  // There was none; now there is one, who makes itself known to others by other means.
  void Begin() noexcept { count_.store(1, std::memory_order_relaxed); }
  // By a holder, or for one by somebody who knows that another one stays until then.
  void Add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  // True for the last one, who has it alone.
  [[nodiscard]] bool Leave() noexcept {
    return count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

 private:
  typename Sync::template Atomic<int32_t> count_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_HOLDERS_H_
