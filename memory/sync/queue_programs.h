// What the threads of queue_users_exploration_test.cc do.
#ifndef TIDEPOOL_MEMORY_SYNC_QUEUE_PROGRAMS_H_
#define TIDEPOOL_MEMORY_SYNC_QUEUE_PROGRAMS_H_

#include "tidepool/memory/sync/explored_queues.h"
#include "tidepool/memory/sync/pin_registry.h"

namespace tidepool::explored {

using explorer::Execution;

// Two items of an owner, three queues, a thread in each.
template <typename Policy = Sync>
struct Three {
  explicit Three(int queues = 2, int home = 0) : owner(home), world(queues) {}
  Owner owner;
  Item x{owner, 0}, y{owner, 1};
  World<Policy> world;
  Host<Policy> first{world, 0}, second{world, 1}, third{world, 2};
};

// ---- several queues from the beginning ----

// Two halves of one array; who comes later comes behind both.
inline void WritersOfHalves(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  execution.Thread([&s] {
    s.first.Write(s.x, kLeft);
    s.first.Write(s.x, kLeft);
  });
  execution.Thread([&s] {
    s.second.Write(s.x, kRight);
    s.second.Write(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.third.Read(s.x);
    s.second.Read(s.x);
    s.first.Write(s.x);
    s.third.Release(s.x);
  });
}

inline void ReadersThenAWriter(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] { s.second.Read(s.x); });
  execution.Thread([&s] {
    s.third.Read(s.x);
    s.third.Read(s.x);
  });
  execution.AtEnd([&s] {
    s.first.Write(s.x);
    s.second.Release(s.x);
  });
}

inline void ReaderMeetsWriterOfAnotherHalf(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] {
    s.second.Read(s.x, kLeft);
    s.second.Write(s.x, kLeft);
  });
  execution.Thread([&s] {
    s.third.Write(s.x, kRight);
    s.third.Read(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.first.Read(s.x);
    s.first.Release(s.x);
  });
}

// Each writes a half of one array from a half of another.
inline void TwoArraysCrosswise(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] { s.first.Call({{&s.x, false, kLeft}, {&s.y, true, kLeft}}); });
  execution.Thread([&s] { s.second.Call({{&s.y, false, kRight}, {&s.x, true, kRight}}); });
  execution.AtEnd([&s] {
    s.third.Call({{&s.x, true}, {&s.y, true}});
    s.first.Release(s.x);
    s.first.Release(s.y);
  });
}

// Into and out of the same array, and one that stands there twice.
inline void InPlace(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] { s.first.Call({{&s.x, false, kLeft}, {&s.x, true, kLeft}}); });
  execution.Thread([&s] {
    s.second.Call({{&s.x, false, kRight}, {&s.x, false, kRight}, {&s.x, true, kRight}});
  });
  execution.AtEnd([&s] { s.third.Read(s.x); });
}

inline void ThreeThreads(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  execution.Thread([&s] { s.first.Write(s.x, kLeft); });
  execution.Thread([&s] { s.second.Write(s.x, kRight); });
  execution.Thread([&s] { s.third.Call({{&s.y, true}}); });
  execution.AtEnd([&s] {
    s.third.Call({{&s.x, false}, {&s.y, true}});
    s.second.Release(s.x);
  });
}

// Two threads in one queue, one in another.
inline void ThreadsOfOneQueue(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  auto& beside = execution.Make<Host<>>(s.world, 1);
  s.second.Write(s.x);
  execution.Thread([&s] { s.second.Write(s.x, kLeft); });
  execution.Thread([&beside] { beside.Call({}); });
  execution.Thread([&s] { s.first.Write(s.x, kRight); });
  execution.AtEnd([&] {
    beside.Read(s.x);
    s.third.Release(s.x);
  });
}

// ---- memory that goes ----

// Whoever drops the last handle gives it back, in its own order.
inline void TheLastHandle(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.x.handles.store(2, kRelaxed);
  s.third.Write(s.x);
  execution.Thread([&s] {
    s.first.Read(s.x);
    s.first.DropAndRelease(s.x);
  });
  execution.Thread([&s] {
    s.second.Write(s.x, kRight);
    s.second.DropAndRelease(s.x);
  });
}

// Arrays of a workspace go before its cycle ends; the record is the next array's, of memory that another had in the
// order of the home.
inline void ArraysLeaveACycle(Execution& execution) {
  auto& s = execution.Make<Three<>>(2, 2);
  auto& before = execution.Make<Item>(s.owner, 3);
  s.x.attached = s.y.attached = true;
  s.x.handles.store(2, kRelaxed);
  s.third.Write(s.y);
  const auto drop = [&](Host<>& host) {
    if (!host.Drop(s.x)) return;
    s.third.Write(before);
    host.LeaveCycle(s.x, /*next_memory=*/3);
    host.Write(s.x);
  };
  execution.Thread([&s, drop] {
    s.first.Write(s.x, kLeft);
    drop(s.first);
  });
  execution.Thread([&s, drop] {
    s.second.Write(s.x, kRight);
    drop(s.second);
  });
  execution.AtEnd([&s] { s.first.BeginCycle(s.owner, {0, 1, 3}); });
}

// Someone closes an array while another uses it: the bytes go when that is done (pin_registry.h).
inline void CloseMeetsALateReader(Execution& execution) {
  struct Closing {
    explicit Closing(Three<>& its) : s(its) { pins.Add(&record); }
    Three<>& s;
    PinRegistry<Sync, Item, 2> pins;
    PinRegistry<Sync, Item, 2>::Record record;
    Sync::Atomic<bool> dead{false};
  };
  auto& s = execution.Make<Three<>>();
  auto& c = execution.Make<Closing>(s);
  s.first.Write(s.x);
  execution.Thread([&s, &c] {
    c.pins.Pin(c.record, &s.x);
    c.pins.Publish();
    if (!c.dead.load(kRelaxed)) s.second.Read(s.x);
    c.pins.Unpin(c.record, 0, [&s](Item* item) { s.second.Release(*item); });
  });
  execution.Thread([&s, &c] {
    c.dead.store(true, kRelaxed);
    if (c.pins.AnyPinned() && c.pins.Postpone(&s.x)) return;
    s.third.Release(s.x);
  });
}

// ---- queues that end ----

template <typename Policy = Sync>
void AQueueEndsWhileAnotherComesBehindIt(Execution& execution) {
  auto& s = execution.Make<Three<Policy>>();
  execution.Thread([&s] {
    s.second.Write(s.x, kLeft);
    s.world.Close(1);
  });
  execution.Thread([&s] { s.third.Write(s.x, kRight); });
  execution.AtEnd([&s] {
    s.first.Read(s.x);
    s.third.Release(s.x);
  });
}

// The number is another queue's then, which begins behind what stands in sets for the one before.
inline void ANumberIsUsedAgain(Execution& execution) {
  auto& s = execution.Make<Three<>>(1);
  execution.Thread([&s] {
    s.second.Write(s.x, kLeft);
    s.world.Close(1);
  });
  execution.Thread([&s] {
    s.third.queue = s.world.Open();  // 1 or 2
    s.third.Write(s.y);
    s.third.Write(s.x, kRight);
    s.world.Close(s.third.queue);
  });
  execution.AtEnd([&s] {
    s.first.Read(s.x);
    s.first.Release(s.x);
    s.first.Release(s.y);
  });
}

// ---- the host ----

// It waits for one half, which was written before, without a turn.
inline void TheHostWaits(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.world.device.whole_items = false;
  s.first.Write(s.x);
  s.third.Read(s.x);
  execution.Thread([&s] {
    s.second.Write(s.x, kLeft);
    s.second.ReadOnHost(s.x, kLeft);
    s.second.Write(s.x, kLeft);
  });
  execution.Thread([&s] {
    s.third.ReadOnHost(s.x, kRight);
    s.third.Write(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.first.ReadOnHost(s.x);
    s.third.Release(s.x);
  });
}

inline void TheHostSends(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.first.Write(s.x);
  execution.Thread([&s] {
    s.second.Upload(s.x, kLeft);
    s.second.Read(s.x, kLeft);
  });
  execution.Thread([&s] { s.first.Write(s.x, kRight); });
  execution.AtEnd([&s] {
    s.third.Upload(s.x);
    s.first.Release(s.x);
  });
}

// Memory of a block that was somebody else's before; what reads it first is not written yet.
inline void FirstUsesOfABlock(Execution& execution) {
  auto& s = execution.Make<Three<>>(explorer::Choose(2) * 2);
  const bool several = s.world.several.load(kRelaxed);
  Item& before = execution.Make<Item>(s.owner, 0);
  s.first.Write(before);
  const Works earlier = s.world.EndOf(0);
  s.x.version.store(0, kRelaxed);
  auto& handed_over = execution.Make<Sync::Atomic<bool>>(false);
  execution.Thread([&] {
    s.first.Read(s.x);
    handed_over.store(true, std::memory_order_release);
  });
  execution.Thread([&, several] {
    if (!handed_over.load(std::memory_order_acquire)) return;
    (several ? s.second : s.first).Upload(s.x, kWhole, earlier);
  });
}

// ---- the second queue comes while a program of one is under way ----

// A call that began with one queue, and work of a queue that has come since.
inline void TheSecondQueueComes(Execution& execution) {
  auto& s = execution.Make<Three<>>(0);
  s.world.device.whole_items = false;
  execution.Thread([&s] { s.first.Write(s.x, kLeft); });
  execution.Thread([&s] {
    s.second.queue = s.world.Open();
    s.second.Write(s.x, kRight);
    s.second.Write(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.second.Read(s.x);
    s.first.Read(s.x);
    s.second.Release(s.x);
  });
}

inline void TheSecondQueueComesWhileTheHostSends(Execution& execution) {
  auto& s = execution.Make<Three<>>(0);
  s.world.device.whole_items = false;
  execution.Thread([&s] {
    s.first.Upload(s.x, kLeft);
    s.first.Read(s.x, kLeft);
  });
  execution.Thread([&s] {
    s.second.queue = s.world.Open();
    s.second.Write(s.x, kRight);
    s.second.Write(s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.first.ReadOnHost(s.x);
    s.second.Read(s.x);
    s.first.Read(s.x);
    s.second.Release(s.x);
  });
}

// It has ended before the call that began without it has.
inline void TheSecondQueueComesAndGoes(Execution& execution) {
  auto& s = execution.Make<Three<>>(0);
  s.world.device.whole_items = false;
  execution.Thread([&s] { s.first.Call({{&s.x, false, kLeft}, {&s.y, true, kLeft}}); });
  execution.Thread([&s] {
    s.second.queue = s.world.Open();
    s.second.Call({{&s.x, true, kRight}, {&s.y, true, kRight}});
    s.world.Close(s.second.queue);
  });
  execution.AtEnd([&s] {
    s.third.queue = s.world.Open();
    s.third.Call({{&s.x, true}, {&s.y, true}});
    s.third.Release(s.x);
    s.first.Release(s.y);
  });
}

// Whoever is last gives the memory back, and one of them may not know yet that there are several queues.
inline void TheSecondQueueComesBeforeTheLastHandle(Execution& execution) {
  auto& s = execution.Make<Three<>>(0);
  s.world.device.whole_items = false;
  s.x.handles.store(2, kRelaxed);
  execution.Thread([&s] {
    s.first.Write(s.x, kLeft);
    s.first.DropAndRelease(s.x);
  });
  execution.Thread([&s] {
    s.second.queue = s.world.Open();
    s.second.Write(s.x, kRight);
    s.second.DropAndRelease(s.x);
  });
}

// ---- what must not be ----

// A turn that is alone begins within one that is not, as if a kernel called an operator: it keeps nobody out.
inline void AloneWithinOneThatIsNot(Execution& execution) {
  auto& s = execution.Make<Three<>>();
  s.second.Write(s.y);
  execution.Thread([&s] { s.first.CallThatSends({{&s.x, false}}, &s.y, kLeft); });
  execution.Thread([&s] { s.second.Write(s.y, kRight); });
  execution.AtEnd([&s] { s.third.Read(s.y); });
}

}  // namespace tidepool::explored

#endif  // TIDEPOOL_MEMORY_SYNC_QUEUE_PROGRAMS_H_
