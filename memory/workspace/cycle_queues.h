// Which compute queues of a device a workspace's cycles are done in: each in the one its thread was in when it
// began (QueueScope), its home, and where arrays of it were used in others as well, in those too. Memory is
// used again by the next cycle in its own home's order, behind what the cycle before has left in the others.
//
// Threads: Begin and End by whoever is inside the workspace's gate; Used and home by any. Cost: a load where the
// program has no second queue; a point for each queue of a cycle.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_QUEUES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_QUEUES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/device_queue.h"

namespace tidepool {

// Where the work of some queues had come to when they were looked at.
struct QueueEnds {
  uint16_t queues = 0;  // a bit each
  QueuePoint points[kMostQueues];

  // Never fails: one whose point cannot be had stands for all that is ever queued there.
  void Note(Device device, uint16_t its_queues) noexcept;
  // What is queued in `queue` from here on begins behind them. Throws kInternal.
  void OrderAfter(Device device, int queue) const;
  // False where that cannot be told.
  bool HavePassed(Device device) const noexcept;
};

class CycleQueues {
 public:
  explicit CycleQueues(Device device) : device_(device) {}

  int home() const { return home_.load(std::memory_order_relaxed); }
  void Used(int queue) noexcept {
    used_.fetch_or(static_cast<uint16_t>(1u << queue), std::memory_order_relaxed);
  }

  // A cycle begins in the thread's queue. Throws kInternal when the device refuses; nothing has begun then.
  void Begin();
  // The cycle goes on, and nobody queues anything for it in its home any more: that may end.
  void HandOver() noexcept { open_.reset(); }
  void End() noexcept;
  // Of the cycle that has ended.
  uint16_t used() const {
    return static_cast<uint16_t>(used_.load(std::memory_order_relaxed) | 1u << home());
  }

 private:
  const Device device_;
  std::atomic<uint8_t> home_{0};
  std::atomic<uint16_t> used_{0};  // beside the home
  std::optional<QueueOfCycle>
      open_;          // keeps the home open until the cycle has ended, or is handed over
  bool ran_ = false;  // a cycle
  QueueEnds ends_;    // of the cycle before; of its home alone where there were no other queues yet
};

// Memory that several workspaces share and give back in different queues: what is still under way in it.
// Threads: any.
class LeftInQueues {
 public:
  explicit LeftInQueues(Device device) : device_(device) {}

  // Before the memory is anybody's to take.
  void Leave(const std::byte* data, size_t bytes, uint16_t queues) noexcept;
  // After it was taken: what is queued in `queue` from here on begins behind it.
  void Take(const std::byte* data, size_t bytes, int queue) noexcept;

 private:
  struct Left {
    const std::byte* begin;
    const std::byte* end;
    QueueEnds ends;
  };
  const Device device_;
  std::mutex mutex_;
  std::vector<Left> left_;
  QueueEnds all_;  // without memory for the list: of anything that was ever left
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_QUEUES_H_
