// Threads that use items in queues of a device (explored_device.h) as production does with buffers
// (memory/queue_use.cc, memory/device_copy.cc, memory/mirroring, memory/workspace), for tests.
#ifndef TIDEPOOL_MEMORY_SYNC_EXPLORED_QUEUES_H_
#define TIDEPOOL_MEMORY_SYNC_EXPLORED_QUEUES_H_

#include <atomic>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tidepool/memory/sync/explored_device.h"
#include "tidepool/memory/sync/queue_numbers.h"
#include "tidepool/memory/sync/queue_order.h"
#include "tidepool/memory/sync/queue_turn.h"
#include "tidepool/memory/sync/queue_users.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explored {

// ---- items ----

struct Owner {
  explicit Owner(int its_home = 0) : home(its_home) {}
  int HomeQueue() const { return home; }
  void UsedInQueue(int queue) {
    if (!Makes(Mistake::kOwnerNotTold)) used.fetch_or(SetOfQueue(queue), kRelaxed);
  }
  int home;
  Sync::Atomic<QueueSet> used{0};
};

struct Item {
  explicit Item(Owner& its_owner, int its_memory = 0) : owner(&its_owner), memory(its_memory) {}

  static constexpr uint8_t kOnQueues = 128, kClosePending = 8;
  struct Care : Sync::Atomic<uint8_t> {
    uint8_t fetch_or(uint8_t bits, std::memory_order order,
                     explorer::Where where = explorer::Where::current()) {
      if (bits == kOnQueues &&
          (Makes(Mistake::kNoCare) || (looks && Makes(Mistake::kFirstReaderNotNoted))))
        return 0;
      return Sync::Atomic<uint8_t>::fetch_or(bits, order, where);
    }
    bool looks = false;  // at whether it is the first
  };
  struct Queues : Sync::Atomic<QueueSet> {
    void store(QueueSet queues, std::memory_order order,
               explorer::Where where = explorer::Where::current()) {
      const int count = std::popcount(queues);
      if (count == 0 && Makes(Mistake::kSetIsLeft)) return;
      if (count == 1 && Makes(Mistake::kWriterNotNoted)) return;
      if (count > 1 && Makes(Mistake::kReaderNotNoted)) return;
      Sync::Atomic<QueueSet>::store(queues, order, where);
    }
  };
  Queues queues;
  Care care;
  Sync::Atomic<uint32_t> version{1};
  bool attached = false;
  Owner* owner;
  int memory;
  Sync::Atomic<int> handles{1};
};

// ---- threads ----

struct Nothing {};

template <typename Policy = Sync>
struct World {
  using Numbers = QueueNumbers<Policy, Works, Nothing, kQueues>;
  // With that many queues beside the first from the beginning.
  explicit World(int queues) {
    for (int i = 0; i < queues; ++i) Open();
  }
  // A device that copies to that one and from it.
  World(int queues, World& other) : several(other.several) {
    other.device.MakePeers(device);
    for (int i = 0; i < queues; ++i) Open();
  }
  int Open() {
    device.set_opening(true);
    const int number = numbers.Open(
        device, 0, [](int, Nothing&) { return 0; }, [](int number, Nothing&) { return number; });
    device.set_opening(false);
    return number;
  }
  void Close(int number) { numbers.Close(device, number); }
  Works EndOf(int queue) { return numbers.End(device, queue); }

  Sync::Atomic<bool> its_several{false};
  Sync::Atomic<bool>& several = its_several;  // one for all devices
  typename Policy::SharedMutex mutex;
  Device device;
  Numbers numbers{several};
};

// One that works in a queue.
template <typename Policy = Sync>
class Host {
 public:
  struct Use {
    Item* buffer;
    bool writes;
    uint32_t part = kWhole;
  };
  using Uses = std::initializer_list<Use>;
  using Users = QueueUsers<Item>;

  Host(World<Policy>& world, int its_queue) : queue(its_queue), world_(world) {}

  // As a kernel does (OrderedUses).
  void Call(Uses uses) { CallThatSends(uses, nullptr, 0); }
  // Which copies from the host while it is being queued.
  void CallThatSends(Uses uses, Item* sent, uint32_t sent_part) {
    Turn turn({this}, /*alone=*/false);
    if (HasOthers(turn)) {
      if (Makes(Mistake::kDecidesBeforeTurn)) {
        DecideBefore(turn, uses);
      } else {
        OrderUsesInTurn<Item>(turn, queue, uses,
                              [this](uint32_t others) { OrderAfter(queue, others); });
      }
    }
    for (const Use& use : uses) {
      use.buffer->care.looks = true;
      if (!use.writes) Users::NoteFirstReader(*use.buffer);
      use.buffer->care.looks = false;
    }
    if (Makes(Mistake::kTurnEndsBeforeWork)) turn.End();
    if (sent != nullptr) Upload(*sent, sent_part);
    std::vector<Device::Access> accesses;
    for (const Use& use : uses) accesses.push_back({use.buffer->memory, use.part, use.writes});
    world_.device.Run(queue, accesses);
  }
  void Write(Item& item, uint32_t part = kWhole) { Call({{&item, true, part}}); }
  void Read(Item& item, uint32_t part = kWhole) { Call({{&item, false, part}}); }

  // Copies from the host, beside the queues (BufferMirror::Send): `before` is what the memory was used
  // for before the item had it.
  void Upload(Item& item, uint32_t part = kWhole, Works before = 0) {
    Turn turn({this}, /*alone=*/true);
    const Works after = Users::IsUnused(item) ? before : PointAfter(item);
    const Use use = {&item, true, part};
    if (HasOthers(turn)) {
      OrderUsesInTurnAlone<Item>(queue, Uses{use},
                                 [this](uint32_t others) { OrderAfter(queue, others); });
    }
    if (Makes(Mistake::kTurnEndsBeforeWork)) turn.End();
    const Works copied = world_.device.Copy(after, {item.memory, part, true});
    world_.device.ComputeAfter(queue, copied);
  }
  // To an item of the other device, where `there` is the same thread, as CopyBetweenDevices does (QueueInTurns).
  // `before` is what the memory was used for before the item had it.
  void CopyToPeer(Item& source, Host& there, Item& target, uint32_t part = kWhole,
                  Works before = 0) {
    target.version.fetch_add(1, kRelaxed);
    CopyInTurns copy{*this, there, {&source, false, part}, {&target, true, part}, before};
    QueueInTurns(copy);
  }
  // Turns are the thread's, of whichever device.
  void IsTheThreadOf(Host& other) { in_turn_ = other.in_turn_; }

  // Waits for it (BufferMirror::Fetch), without a turn.
  void ReadOnHost(Item& item, uint32_t part = kWhole) {
    world_.device.WaitFor(world_.device.Copy(PointAfter(item), {item.memory, part, false}));
  }

  // The bytes go back to the heap in the thread's order, and are somebody else's (ReleaseHere).
  void Release(Item& item) {
    if (world_.several.load(kRelaxed)) {
      const QueueSet users = Users::Of(item);
      Users::Take(item);
      ContinueAfter(queue, users);
    }
    world_.device.Run(queue, {{item.memory, kWhole, true}});
  }
  // To a workspace, in the order of its home (LeaveQueues); the record is the next array's, with other memory.
  void LeaveCycle(Item& item, int next_memory) {
    const QueueSet users = Users::Take(item);
    if (users != 0) ContinueAfter(item.owner->home, users);
    world_.device.Run(item.owner->home, {{item.memory, kWhole, true}});
    item.memory = next_memory;
  }
  // A cycle ends, and the next one uses all of its memory in this thread's queue (CycleQueues).
  void BeginCycle(Owner& owner, std::initializer_list<int> memories) {
    OrderAfter(queue, uint32_t{owner.used.load(kRelaxed)} | SetOfQueue(owner.home));
    for (int memory : memories) world_.device.Run(queue, {{memory, kWhole, true}});
  }
  // True for who has the last handle.
  bool Drop(Item& item) { return item.handles.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  void DropAndRelease(Item& item) {
    if (Drop(item)) Release(item);
  }

  int queue;

 private:
  struct Turns {
    Host* host;
    const Sync::Atomic<bool>& several() const { return host->world_.several; }
    typename Policy::SharedMutex& mutex() const { return host->world_.mutex; }
    bool& in_turn() const { return *host->in_turn_; }
    void WaitForFirst() const noexcept {
      if (Makes(Mistake::kLateWorkNotWaitedFor)) return;
      host->world_.device.WaitFor(host->world_.EndOf(0));
    }
  };
  // Declared so that it can be left out.
  class Turn : public BasicQueueTurn<Policy, Turns> {
   public:
    Turn(const Turns& turns, bool alone) : BasicQueueTurn<Policy, Turns>(Entering(turns), alone) {
      if (Makes(Mistake::kNoTurn)) *turns.host->in_turn_ = false;
    }

   private:
    // As within another turn.
    static const Turns& Entering(const Turns& turns) {
      if (Makes(Mistake::kNoTurn)) *turns.host->in_turn_ = true;
      return turns;
    }
  };

  struct CopyInTurns {
    Turn TurnAtSource() { return Turn({&here}, /*alone=*/true); }
    Turn TurnAtTarget() { return Turn({&there}, /*alone=*/true); }
    void FindUsesOfSource() {
      if (!Makes(Mistake::kCopyNotBehindSource)) after = here.PointAfter(*source.buffer);
    }
    void FindUsesOfTarget() {
      if (Makes(Mistake::kCopyNotBehindTarget)) return;
      after |= WasUsedBeforeThisWrite(*target.buffer) ? there.PointAfter(*target.buffer) : before;
    }
    void Queue(Turn& turn) {
      if (Makes(Mistake::kTurnEndsBeforeWork)) turn.End();
      copied =
          here.world_.device.CopyToPeer(after, {source.buffer->memory, source.part, false},
                                        there.queue, {target.buffer->memory, target.part, true});
    }
    void NoteAtTarget(Turn& turn) {
      if (!Makes(Mistake::kTargetNotNoted)) there.NoteAlone(turn, target);
    }
    void ContinueSource() {
      if (!Makes(Mistake::kSourceQueueGoesOn)) here.world_.device.ComputeAfter(here.queue, copied);
    }
    void NoteAtSource(Turn& turn) {
      if (!Makes(Mistake::kSourceNotNoted)) here.NoteAlone(turn, source);
    }
    void GiveUp() noexcept {}

    Host& here;
    Host& there;
    Use source, target;
    Works before;
    Works after = 0, copied = 0;
  };

  bool HasOthers(const Turn& turn) {
    if (Makes(Mistake::kLooksAtFlagAgain)) return world_.several.load(kRelaxed);
    return turn.has_others();
  }
  void DecideBefore(Turn& turn, Uses uses) {
    std::vector<QueueSet> seen;
    bool waits = false;
    for (const Use& use : uses) {
      seen.push_back(Users::Of(*use.buffer));
      waits |= Users::MustWait(seen.back(), use.writes, queue);
    }
    if (!waits) return;
    turn.BeginAlone();
    for (size_t i = 0; i < uses.size(); ++i) {
      const Use& use = uses.begin()[i];
      OrderAfter(queue, seen[i] & ~uint32_t{SetOfQueue(queue)});
      if (Users::MustWait(seen[i], use.writes, queue))
        Users::Note(*use.buffer, seen[i], use.writes, queue);
    }
  }
  Works PointAfter(const Item& item) {
    if (!world_.several.load(kRelaxed)) return world_.EndOf(0);
    return PointAfterUsesOf(
        item, [this](int of) { return world_.EndOf(of); }, [this] { return queue; },
        [this](int here, uint32_t others) { OrderAfter(here, others); });
  }
  void OrderAfter(int of, uint32_t others) {
    if (Makes(Mistake::kNoWaitForOthers)) return;
    for (int other = 0; others != 0; ++other, others >>= 1) {
      if ((others & 1) == 0 || other == of) continue;
      Works end = world_.EndOf(other);
      if (Makes(Mistake::kEndIsForgotten) && (world_.numbers.Open() >> other & 1) == 0) end = 0;
      world_.device.ComputeAfter(of, end);
    }
  }
  void ContinueAfter(int of, uint32_t others) {
    if (!Makes(Mistake::kNoWaitAtRelease)) OrderAfter(of, others);
  }

  void NoteAlone(Turn& turn, const Use& use) {
    if (!HasOthers(turn)) return;
    OrderUsesInTurnAlone<Item>(queue, Uses{use},
                               [this](uint32_t others) { OrderAfter(queue, others); });
  }

  World<Policy>& world_;
  bool its_in_turn_ = false;
  bool* in_turn_ = &its_in_turn_;
};

}  // namespace tidepool::explored

#endif  // TIDEPOOL_MEMORY_SYNC_EXPLORED_QUEUES_H_
