// BasicQueueTurn: from looking at which queues use some bytes until the work that was decided on is queued.
//
// What a thread has noted of its work is queued before another looks for the queue's end: two threads that write
// two halves of one array in two queues would else each miss the other's work. Many threads may be in a turn that
// changes nothing of what others have noted; one that does is alone on the device.
//
// A program with one queue takes no turns: it looks at one flag, and once more when the work is queued. A turn that
// began before the program had a second queue and ends after that has kept nobody out, so the host waits for its
// work then, once in the life of a thread: whoever looked for the end of the first queue too early finds the work
// done. Either the other's look comes after the work in the order of the device's calls, which a lock of the provider
// or of its driver makes, or this thread sees the flag.
//
// Within another turn of the same thread, as in a callback of the budget's, it is nothing. So one that is alone must
// not begin within one that is not, nor one of a device within one of another: they keep nobody out.
//
// Orders: the flag is relaxed: whoever has a second queue knows of it. The rest is the lock's.
#ifndef TIDEPOOL_MEMORY_SYNC_QUEUE_TURN_H_
#define TIDEPOOL_MEMORY_SYNC_QUEUE_TURN_H_

#include <atomic>
#include <cstdint>

namespace tidepool {

// Turns: those of a device, as the calling thread has them, copied cheaply.
//   several()      const Atomic<bool>&: there are queues beside the first of some device; never false again
//   mutex()        Sync::SharedMutex& of the device
//   in_turn()      bool& of the thread
//   WaitForFirst() noexcept: the host waits for what is queued in the first queue
template <typename Sync, typename Turns>
class BasicQueueTurn {
 public:
  BasicQueueTurn(const Turns& turns, bool alone) : turns_(turns) {
    if (turns_.several().load(std::memory_order_relaxed)) Begin(alone);
  }
  ~BasicQueueTurn() { End(); }
  BasicQueueTurn(const BasicQueueTurn&) = delete;
  BasicQueueTurn& operator=(const BasicQueueTurn&) = delete;

  // False: no other queue has to be looked at, whatever has come since.
  bool has_others() const { return held_ != Held::kOneQueue; }

  // From looking on anew, alone.
  void BeginAlone() {
    if (held_ != Held::kShared) return;
    End();
    Begin(/*alone=*/true);
  }

  // The work is queued. Once; the destructor does it else.
  void End() noexcept {
    if (held_ == Held::kOneQueue) {
      held_ = Held::kNothing;
      if (turns_.several().load(std::memory_order_relaxed)) [[unlikely]]
        turns_.WaitForFirst();
    } else if (held_ != Held::kNothing) {
      Unlock();
    }
  }

 private:
  enum class Held : uint8_t { kOneQueue, kNothing, kShared, kAlone };

  void Begin(bool alone) {
    bool& in_turn = turns_.in_turn();
    if (in_turn) {
      held_ = Held::kNothing;
      return;
    }
    mutex_ = &turns_.mutex();  // may throw: then the thread is in no turn
    if (alone) {
      mutex_->lock();
      held_ = Held::kAlone;
    } else {
      mutex_->lock_shared();
      held_ = Held::kShared;
    }
    in_turn = true;
  }

  void Unlock() noexcept {
    if (held_ == Held::kAlone) {
      mutex_->unlock();
    } else {
      mutex_->unlock_shared();
    }
    held_ = Held::kNothing;
    turns_.in_turn() = false;
  }

  const Turns turns_;
  typename Sync::SharedMutex* mutex_ = nullptr;
  Held held_ = Held::kOneQueue;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_QUEUE_TURN_H_
