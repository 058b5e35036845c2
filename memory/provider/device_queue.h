// DeviceQueue: one of several compute queues of a device. The work in a queue runs in its order, that of
// two queues side by side.
//
//   DeviceQueue side = DeviceQueue::New(DeviceNamed("cuda:0"));       // or Adopt(device, stream)
//   {
//     QueueScope scope(side);
//     NDArray y = MatMul(x, w);      // runs in `side`
//   }
//   NDArray z = Relu(y);             // in the first queue, after what made y
//
// Nobody has to order queues: each buffer knows which of them have used it (memory/queue_use.h), and work
// that comes to it in another queue begins behind a point of theirs. Nor does memory have to be held for
// them: it is used again in the order of one queue, behind the others that it was used in.
//
// A device has its first queue always, number 0, which threads use that have no QueueScope of the device
// open. The host has that one only. Programs that make no other pay nothing for these: two loads where a
// device's kernel is queued. Where one makes its second queue while threads queue work, these wait once for what
// they have queued.
//
// Threads: any; a QueueScope is its thread's. Several threads may use one queue.
#ifndef TIDEPOOL_MEMORY_PROVIDER_DEVICE_QUEUE_H_
#define TIDEPOOL_MEMORY_PROVIDER_DEVICE_QUEUE_H_

#include <atomic>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/sync/queue_turn.h"
#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

// Throws kInvalidArgument unless it is from 0 to kMostQueues - 1; whether there is such a queue is not looked at.
[[noreturn]] void ThrowNoSuchQueue(Device device, int queue);
// The same where it is not.
inline void CheckQueueNumber(Device device, int queue) {
  if (static_cast<unsigned>(queue) >= unsigned{kMostQueues}) [[unlikely]]
    ThrowNoSuchQueue(device, queue);
}

class DeviceQueue {
 public:
  // Handles of one queue. There is none without.
  DeviceQueue(const DeviceQueue&) = default;
  DeviceQueue& operator=(const DeviceQueue&) = default;

  // Of any device.
  static DeviceQueue First(Device device);
  // The calling thread's: that of its QueueScope, else the first.
  static DeviceQueue Here(Device device);
  // One more, until its last handle goes; the work that is in it then is still done, and waited for as that of others
  // is. One whose end the device refuses to tell stays open until it does, which is asked again by whoever next opens or
  // closes a queue there, or waits for that one. Throws
  // kUnimplemented where the device has one queue only, kResourceExhausted beyond kMostQueues, kInternal
  // when the device refuses, and as GetDeviceProvider.
  static DeviceQueue New(Device device);
  // The caller's own, for work between theirs: a cudaStream_t of CUDA devices. They keep it until the last
  // handle has gone, and cycles of workspaces that began in it have ended; it is theirs alone then, whatever was made in
  // it: arrays, and batches of a ring that are leased still. The same one adopted again is the same queue, and native()
  // of one of ours is ours. Throws as New(), and kInvalidArgument for null and for native() of another device's.
  static DeviceQueue Adopt(Device device, void* native);

  // Of which device it is and which of its queues; whether it is the caller's own (Adopt).
  Device device() const { return state_->device; }
  int number() const { return state_->number; }  // from 0, below kMostQueues
  bool is_adopted() const { return state_->native != nullptr; }
  // What the device's own interface calls it (cudaStream_t); null where there is none.
  void* native() const;

  // The host waits for all that is queued in it. Throws kInternal when that failed.
  void Wait() const;
  // What is queued in it from here on begins when all that is queued in `other` by now is done. Needed only
  // for work that Tidepool does not know of. Of one device, else kInvalidArgument.
  void After(const DeviceQueue& other) const;

  // Handles of one queue are equal.
  friend bool operator==(const DeviceQueue& a, const DeviceQueue& b) {
    return a.device() == b.device() && a.number() == b.number();
  }

 private:
  struct State {
    State(Device its_device, int its_number, void* its_native)
        : device(its_device), number(its_number), native(its_native) {}
    ~State();
    const Device device;
    const int number;
    void* const native;  // an adopted one
  };
  friend class DeviceQueues;
  explicit DeviceQueue(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

// While it lives, what the thread does on the queue's device goes there: kernels, copies, memory, cycles of
// workspaces that begin. Scopes of one device hide each other, those of two devices do not. One that ends on another thread
// ends the program.
class [[nodiscard]] QueueScope {
 public:
  explicit QueueScope(DeviceQueue queue);
  ~QueueScope();
  QueueScope(const QueueScope&) = delete;
  QueueScope& operator=(const QueueScope&) = delete;

 private:
  friend class DeviceQueue;
  friend int QueueHereSlowly(Device device) noexcept;
  const DeviceQueue queue_;
  const QueueScope* outer_;
};

// Somebody has made a second queue of some device. Never false again.
extern std::atomic<bool> queues_in_use;

// For QueueHere.
int QueueHereSlowly(Device device) noexcept;
// A cycle of a workspace is in the thread's queue, which stays open meanwhile. Of the first one nothing.
class QueueOfCycle {
 public:
  explicit QueueOfCycle(Device device);
  QueueOfCycle(QueueOfCycle&& other) noexcept : queue_(std::exchange(other.queue_, std::nullopt)) {}
  // Both change places.
  QueueOfCycle& operator=(QueueOfCycle&& other) noexcept {
    std::swap(queue_, other.queue_);
    return *this;
  }
  ~QueueOfCycle();

 private:
  std::optional<DeviceQueue> queue_;
};

// The number of the calling thread's queue of that device.
inline int QueueHere(Device device) noexcept {
  return queues_in_use.load(std::memory_order_relaxed) ? QueueHereSlowly(device) : 0;
}

// Behind what is queued there by now, also of a queue that has ended. Throws kInternal; this and what follows, where it is
// not noexcept, kInvalidArgument for devices and numbers of queues that there cannot be.
QueuePoint EndOfQueue(Device device, int queue);

// The calling thread's turns on a device, for BasicQueueTurn.
struct DeviceTurns {
  // What BasicQueueTurn asks of it (queue_turn.h): whether turns are taken at all, whether this
  // thread is in one, the device's lock, and a wait for the first queue.
  Device device;
  static const std::atomic<bool>& several() noexcept { return queues_in_use; }
  static bool& in_turn() noexcept;
  std::shared_mutex& mutex() const;
  void WaitForFirst() const noexcept;
};
extern template class BasicQueueTurn<StdSync, DeviceTurns>;
// From looking at who uses some bytes until the work that was decided on is queued (memory/sync/queue_turn.h). Cost:
// two loads where the program has no second queue, else a shared mutex of the device.
class [[nodiscard]] QueueTurn : public BasicQueueTurn<StdSync, DeviceTurns> {
 public:
  QueueTurn(Device device, bool alone) : BasicQueueTurn({device}, alone) {}
};
// What is queued in `queue` from here on begins behind the ends of those in the set (a bit each). Throws
// kInternal; some may be waited for then.
void OrderQueueAfter(Device device, int queue, uint32_t others);
// The same, whatever the device says: where it refuses, the host waits.
void ContinueQueueAfter(Device device, int queue, uint32_t others) noexcept;
// What is queued in the thread's queue from here on begins behind all that is queued on the device: before
// memory is given back of which nobody knows where it was used.
void ContinueHereAfterAll(Device device) noexcept;
// Those of the device that are open, a bit each; none of one that there cannot be.
uint32_t OpenQueues(Device device) noexcept;
// Those that have ended as well, whose work may be under way.
uint32_t AllQueues(Device device) noexcept;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_DEVICE_QUEUE_H_
