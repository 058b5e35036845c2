// How work begins behind the work in other queues that it needs: looks at who uses what it uses, makes its queue wait
// for those, and notes it, in one turn (queue_turn.h) that ends when the work is queued.
#ifndef TIDEPOOL_MEMORY_SYNC_QUEUE_ORDER_H_
#define TIDEPOOL_MEMORY_SYNC_QUEUE_ORDER_H_

#include <atomic>
#include <bit>

#include "tidepool/memory/sync/queue_users.h"

namespace tidepool {

// Uses: a range of {Item* buffer (null: none), bool writes}. order(queues) makes what is queued in `queue` from here on
// begin behind the ends of those in the set; what it throws is passed on, and nothing is noted then.
template <typename Item, typename Uses, typename Order>
void OrderUsesInTurnAlone(int queue, const Uses& uses, const Order& order) {
  using Users = QueueUsers<Item>;
  uint32_t others = 0;
  for (const auto& use : uses) {
    if (use.buffer == nullptr) continue;
    const QueueSet users = Users::Of(*use.buffer);
    if (Users::MustWait(users, use.writes, queue)) others |= users;
  }
  if (others != 0) order(others & ~uint32_t{SetOfQueue(queue)});
  for (const auto& use : uses) {
    if (use.buffer == nullptr) continue;
    // Anew: it may be one that an earlier use of these has noted.
    const QueueSet users = Users::Of(*use.buffer);
    if (Users::MustWait(users, use.writes, queue))
      Users::Note(*use.buffer, users, use.writes, queue);
  }
}

// In `turn`, which has begun, not alone, and is alone when anything had to be noted.
template <typename Item, typename Turn, typename Uses, typename Order>
void OrderUsesInTurn(Turn& turn, int queue, const Uses& uses, const Order& order) {
  for (const auto& use : uses) {
    if (use.buffer == nullptr) continue;
    if (!QueueUsers<Item>::MustWait(QueueUsers<Item>::Of(*use.buffer), use.writes, queue)) continue;
    turn.BeginAlone();
    return OrderUsesInTurnAlone<Item>(queue, uses, order);
  }
}

// The end of one queue that is behind all uses of an item, of one that is the only one that uses it or of `here()`, the
// thread's, which order(here, queues) makes wait for the others.
template <typename Item, typename EndOf, typename Here, typename Order>
auto PointAfterUsesOf(const Item& item, const EndOf& end_of, const Here& here, const Order& order) {
  const QueueSet users = QueueUsers<Item>::Of(item);
  if (std::has_single_bit(users)) return end_of(std::countr_zero(users));
  // The thread's is open; others may have ended.
  const int queue = here();
  order(queue, users & ~uint32_t{SetOfQueue(queue)});
  return end_of(queue);
}

// Whether an item that is written, of which its `version` tells already, had been used before. Where it had not, its
// memory may have been, by whatever had it earlier.
template <typename Item>
bool WasUsedBeforeThisWrite(const Item& item) {
  return item.attached || item.version.load(std::memory_order_relaxed) > 1 ||
         (item.care.load(std::memory_order_relaxed) & Item::kOnQueues) != 0;
}

// How a copy from one device to another comes behind what it needs on either, and what comes later on either behind it:
// in three turns alone, one after the other and never one within another, as threads that copy crosswise would wait for
// each other. What is queued is noted in the turn that it is queued in: whoever looks at the bytes in between reads the
// source, as the copy does. The caller keeps the source from going meanwhile.
//
// Copy has
//   TurnAtSource(), TurnAtTarget()  turns alone, of both devices
//   FindUsesOfSource()              finds the point behind what uses the source's bytes,
//   FindUsesOfTarget()              and behind what used those that it writes
//   Queue(turn)                     queues it behind both; the thread's queue at the target continues behind it
//   NoteAtTarget(turn)              notes that it writes there
//   ContinueSource()                the thread's queue at the source continues behind it
//   NoteAtSource(turn)              notes that it reads there
//   GiveUp() noexcept               waits for it where it was queued: something threw, which is passed on
template <typename Copy>
void QueueInTurns(Copy& copy) {
  {
    [[maybe_unused]] const auto turn = copy.TurnAtSource();
    copy.FindUsesOfSource();
  }
  try {
    {
      auto turn = copy.TurnAtTarget();
      copy.FindUsesOfTarget();
      copy.Queue(turn);
      copy.NoteAtTarget(turn);
    }
    auto turn = copy.TurnAtSource();
    copy.ContinueSource();
    copy.NoteAtSource(turn);
  } catch (...) {
    copy.GiveUp();
    throw;
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_QUEUE_ORDER_H_
