// QueueUsers: which of a device's queues use an item's bytes, and what that makes others wait for.
//
// An item has the set of queues that agree on its bytes: those that wrote them last or have read them since. None:
// its home, the queue in whose order its owner uses the memory again. Who reads in a queue that is not in the set, or
// writes in any, begins behind those that are; what comes behind one of the set that has been written comes behind
// whatever was before.
//
// Who may call what: Note by who has a QueueTurn alone; MustWait by who has one of either kind, until which ends what
// it answered holds; Of, IsUnused and NoteFirstReader by any thread with a handle; Take by the thread that gives
// the bytes back, when nobody uses them any more.
//
// Orders: all relaxed. What two threads do to the set they do one after the other: in turns alone, or in the order in
// which they hand the item to each other. A reader in a turn that is not alone changes nothing of the set. Who looks
// without a turn, as a host that waits for bytes written before, sees the set at least as it was then: those that
// come to it since begin behind those that it had. queue_users_exploration_test.cc runs it.
#ifndef TIDEPOOL_MEMORY_SYNC_QUEUE_USERS_H_
#define TIDEPOOL_MEMORY_SYNC_QUEUE_USERS_H_

#include <atomic>
#include <cstdint>

namespace tidepool {

// A bit for each queue.
using QueueSet = uint16_t;

// That queue alone.
constexpr QueueSet SetOfQueue(int queue) { return static_cast<QueueSet>(1u << queue); }

// Item: has an Atomic<QueueSet> `queues`, an Atomic<uint8_t> `care` and the bit Item::kOnQueues in it, an Atomic
// `version` that every write raises, `attached` (to an owner that uses its memory again itself), and an `owner` with
// HomeQueue() and UsedInQueue(queue).
template <typename Item>
struct QueueUsers {
  // The queues that agree on its bytes; never none.
  static QueueSet Of(const Item& item) {
    const QueueSet users = item.queues.load(std::memory_order_relaxed);
    return users != 0 ? users : SetOfQueue(item.owner->HomeQueue());
  }

  // Whether a read or write in `queue` has to begin behind work of others.
  static bool MustWait(QueueSet users, bool writes, int queue) {
    return writes ? users != SetOfQueue(queue) : (users & SetOfQueue(queue)) == 0;
  }

  // Of who had to wait for `users`, before its work is queued: whoever takes the bytes back sees it.
  static void Note(Item& item, QueueSet users, bool writes, int queue) {
    if ((item.care.load(std::memory_order_relaxed) & Item::kOnQueues) == 0) {
      item.care.fetch_or(Item::kOnQueues, std::memory_order_relaxed);
    }
    const QueueSet after =
        writes ? SetOfQueue(queue) : static_cast<QueueSet>(users | SetOfQueue(queue));
    item.queues.store(after, std::memory_order_relaxed);
    item.owner->UsedInQueue(queue);
  }

  // A block of a heap that no queue was told to use since it was had.
  static bool IsUnused(const Item& item) {
    return item.version.load(std::memory_order_relaxed) == 0 &&
           (item.care.load(std::memory_order_relaxed) & Item::kOnQueues) == 0;
  }
  // Of who did not have to wait. Of what nobody has written its readers alone can tell that it was used.
  static void NoteFirstReader(Item& item) {
    if (!IsUnused(item) || item.attached) return;
    item.care.fetch_or(Item::kOnQueues, std::memory_order_relaxed);
  }

  // The bytes go. What their memory is used again behind, beside its home.
  static QueueSet Take(Item& item) {
    const QueueSet users = item.queues.load(std::memory_order_relaxed);
    item.queues.store(0, std::memory_order_relaxed);
    return users;
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_QUEUE_USERS_H_
