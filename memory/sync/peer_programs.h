// What the threads of peer_copies_exploration_test.cc do.
#ifndef TIDEPOOL_MEMORY_SYNC_PEER_PROGRAMS_H_
#define TIDEPOOL_MEMORY_SYNC_PEER_PROGRAMS_H_

#include "tidepool/memory/sync/explored_queues.h"

namespace tidepool::explored {

using explorer::Execution;

// Two devices that copy to each other, two items on each, and threads that have a queue of both.
struct TwoDevices {
  struct Thread {
    Thread(TwoDevices& s, int queue_here, int queue_there)
        : here(s.one, queue_here), there(s.other, queue_there) {
      there.IsTheThreadOf(here);
    }
    void Copy(Item& x, Item& u, uint32_t part = kWhole, Works before = 0) {
      here.CopyToPeer(x, there, u, part, before);
    }
    void CopyBack(Item& u, Item& x, uint32_t part = kWhole) { there.CopyToPeer(u, here, x, part); }
    Host<> here, there;
  };

  explicit TwoDevices(int queues = 2, bool whole_items = true) : one(queues), other(queues, one) {
    one.device.whole_items = other.device.whole_items = whole_items;
  }
  Owner owner, owner_there;
  Item x{owner, 0}, y{owner, 1}, u{owner_there, 2}, v{owner_there, 3};
  World<> one, other;
  Thread first{*this, 0, 0}, second{*this, 1, 1}, third{*this, 2, 2};
};

// Each to where the other one copies from: neither waits for the other's turn.
inline void CopiesCrosswise(Execution& execution) {
  auto& s = execution.Make<TwoDevices>();
  s.first.here.Write(s.x);
  s.second.there.Write(s.v);
  execution.Thread([&s] { s.first.Copy(s.x, s.u); });
  execution.Thread([&s] { s.second.CopyBack(s.v, s.y); });
  execution.AtEnd([&s] {
    s.third.there.Read(s.u);
    s.third.here.Read(s.y);
    s.third.here.Write(s.x);
    s.third.there.Write(s.v);
    s.second.here.Release(s.y);
    s.first.there.Release(s.u);
  });
}

inline void HalvesOfOneArray(Execution& execution) {
  auto& s = execution.Make<TwoDevices>();
  s.third.here.Write(s.x);
  execution.Thread([&s] { s.first.Copy(s.x, s.u, kLeft); });
  execution.Thread([&s] { s.second.Copy(s.x, s.u, kRight); });
  execution.AtEnd([&s] {
    s.third.there.Read(s.u);
    s.third.here.Write(s.x);
    s.second.there.Write(s.u);
    s.third.here.Release(s.x);
    s.third.there.Release(s.u);
  });
}

// The source is written beside the copy, elsewhere than it reads, and then there.
inline void TheOtherHalfIsWritten(Execution& execution) {
  auto& s = execution.Make<TwoDevices>(2, /*whole_items=*/false);
  s.third.here.Write(s.x);
  execution.Thread([&s] {
    s.first.Copy(s.x, s.u, kLeft);
    s.first.here.Write(s.x, kLeft);
  });
  execution.Thread([&s] { s.second.here.Write(s.x, kRight); });
  execution.AtEnd([&s] {
    s.third.there.Read(s.u);
    s.third.here.Write(s.x);
    s.second.here.Release(s.x);
  });
}

// By another queue, once the copy is queued.
inline void TheSourceIsWrittenAfterwards(Execution& execution) {
  auto& s = execution.Make<TwoDevices>();
  auto& copied = execution.Make<Sync::Atomic<bool>>(false);
  s.first.here.Write(s.x);
  execution.Thread([&] {
    s.first.Copy(s.x, s.u);
    copied.store(true, std::memory_order_release);
    s.first.there.Read(s.u);
  });
  execution.Thread([&] {
    s.second.here.Write(s.y);
    if (copied.load(std::memory_order_acquire)) s.second.here.Write(s.x);
  });
  execution.AtEnd([&s] {
    s.third.here.Release(s.x);
    s.third.there.Release(s.u);
  });
}

// What the copy writes to is used in another queue of its device.
inline void TheOtherHalfOfTheTarget(Execution& execution) {
  auto& s = execution.Make<TwoDevices>();
  s.first.here.Write(s.x);
  s.third.there.Write(s.u);
  execution.Thread([&s] {
    s.first.Copy(s.x, s.u, kLeft);
    s.first.there.Read(s.u, kLeft);
  });
  execution.Thread([&s] {
    s.second.there.Write(s.u, kRight);
    s.second.there.Write(s.u, kRight);
  });
  execution.AtEnd([&s] {
    s.third.there.Read(s.u);
    s.first.there.Release(s.u);
  });
}

// Whoever drops the last handle of the source gives its memory back.
inline void TheLastHandleOfTheSource(Execution& execution) {
  auto& s = execution.Make<TwoDevices>();
  s.x.handles.store(2, kRelaxed);
  s.third.here.Write(s.x);
  execution.Thread([&s] {
    s.first.Copy(s.x, s.u);
    s.first.here.DropAndRelease(s.x);
  });
  execution.Thread([&s] {
    s.second.here.Read(s.x);
    s.second.here.DropAndRelease(s.x);
  });
  execution.AtEnd([&s] { s.second.there.Read(s.u); });
}

// Arrays of cycles on both, which end: the next ones use all of their memory elsewhere.
inline void CyclesOfBoth(Execution& execution) {
  auto& s = execution.Make<TwoDevices>();
  s.x.attached = s.u.attached = true;
  execution.Thread([&s] {
    s.first.here.Write(s.x);
    s.first.Copy(s.x, s.u);
  });
  execution.Thread([&s] { s.second.Copy(s.y, s.v); });
  execution.AtEnd([&s] {
    s.third.here.BeginCycle(s.owner, {0, 1});
    s.third.there.BeginCycle(s.owner_there, {2, 3});
  });
}

inline void ThereAndBack(Execution& execution) {
  auto& s = execution.Make<TwoDevices>();
  s.third.here.Write(s.x);
  execution.Thread([&s] {
    s.first.Copy(s.x, s.u);
    s.first.CopyBack(s.u, s.y);
  });
  execution.Thread([&s] { s.second.here.Read(s.x); });
  execution.AtEnd([&s] {
    s.second.here.Read(s.y);
    s.second.here.Write(s.x);
    s.second.there.Write(s.u);
  });
}

// Of memory that another array had before, in the order of the first queue there.
inline void ToAFreshBlock(Execution& execution) {
  auto& s = execution.Make<TwoDevices>();
  Item& before = execution.Make<Item>(s.owner_there, 2);
  s.first.there.Write(before);
  const Works earlier = s.other.EndOf(0);
  s.u.version.store(0, kRelaxed);
  s.second.here.Write(s.x);
  execution.Thread([&s, earlier] {
    s.second.Copy(s.x, s.u, kWhole, earlier);
    s.second.there.Read(s.u);
  });
  execution.Thread([&s] { s.first.there.Write(s.v); });
  execution.AtEnd([&s] {
    s.third.there.Read(s.u);
    s.third.there.Release(s.u);
  });
}

// A queue of either device comes while a program of one each is copying.
inline void TheSecondQueueComesWhileACopyIsQueued(Execution& execution) {
  auto& s = execution.Make<TwoDevices>(0, /*whole_items=*/false);
  const bool of_target = explorer::Choose(2) == 1;
  s.second.here.queue = s.second.there.queue = s.third.here.queue = s.third.there.queue = 0;
  execution.Thread([&s] { s.first.Copy(s.x, s.u, kLeft); });
  execution.Thread([&s, of_target] {
    World<>& world = of_target ? s.other : s.one;
    Host<>& host = of_target ? s.second.there : s.second.here;
    host.queue = world.Open();
    host.Write(of_target ? s.u : s.x, kRight);
  });
  execution.AtEnd([&s] {
    s.second.there.Read(s.u);
    s.second.here.Write(s.x);
    s.third.there.Release(s.u);
    s.third.here.Release(s.x);
  });
}

// The queue that a copy was made in ends, and the next one has its number.
inline void TheQueueOfACopyEnds(Execution& execution) {
  auto& s = execution.Make<TwoDevices>(1);
  s.third.here.queue = s.third.there.queue = 0;
  execution.Thread([&s] {
    s.second.Copy(s.x, s.u);
    s.one.Close(1);
    s.other.Close(1);
  });
  execution.Thread([&s] { s.first.here.Read(s.x); });
  execution.AtEnd([&s] {
    s.second.here.queue = s.one.Open();
    s.second.here.Write(s.x);
    s.third.there.Write(s.u);
  });
}

}  // namespace tidepool::explored

#endif  // TIDEPOOL_MEMORY_SYNC_PEER_PROGRAMS_H_
