// An atomic variable in the explorer's memory: all stores to it in modification order.
//
// Each store carries what a load that acquires it sees (the release view). A load may read any
// store that is not older than what its thread has seen of the variable; what is read raises that.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_ATOMIC_CELL_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_ATOMIC_CELL_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "tidepool/memory/testing/explorer/view.h"
#include "tidepool/memory/testing/explorer/where.h"

namespace tidepool::explorer::internal {

class Engine;

// The bytes of a value of at most 16, zeros behind.
struct Bits {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Bits&, const Bits&) = default;
};

// How traces print a value.
enum class ValueKind : uint8_t { kUnsigned, kSigned, kPointer, kBytes };

// What every thread did last to an object, to see whether that happened before something else.
class AccessClocks {
 public:
  void Note(int slot, uint32_t clock, const Where& where) {
    clocks_[slot] = clock;
    where_[slot] = where;
  }
  // A thread whose last access did not happen before what the calling thread does now; -1: none.
  int Concurrent(Engine& engine) const;
  const Where& where(int slot) const { return where_[slot]; }

 private:
  uint32_t clocks_[kMaxSlots] = {};
  Where where_[kMaxSlots];
};

class AtomicCell {
 public:
  AtomicCell(Bits initial, ValueKind kind, const Where& where);
  ~AtomicCell();
  AtomicCell(const AtomicCell&) = delete;
  AtomicCell& operator=(const AtomicCell&) = delete;

  Bits Load(std::memory_order order, const Where& where, const char* operation = "load");
  void Store(Bits value, std::memory_order order, const Where& where);

  // A read-modify-write in two halves with nothing in between: what is read, then what is written.
  Bits BeginUpdate(const char* operation, std::memory_order order, const Where& where);
  void EndUpdate(Bits value);

  // `failure` is null where only one order is given.
  bool CompareExchange(Bits& expected, Bits desired, bool weak, std::memory_order success,
                       const std::memory_order* failure, const Where& where);

  void Wait(Bits old, std::memory_order order, const Where& where);
  void Notify(bool all, const Where& where);

 private:
  struct Entry {
    Bits value;
    Time time;             // grows along the modification order
    bool updated;          // the next one is a read-modify-write that read this one
    const Snapshot* view;  // what who acquires it sees; null: nothing
  };
  // What a thread read that was not the last store, and how often it had yielded then.
  struct Stale {
    Time time = 0;
    uint32_t yields = 0;
  };

  Engine& Use(const Where& where, bool writes, bool sequential);
  void CheckAlive(Engine& engine, const Where& where);
  // The oldest store that the running thread may read or write behind.
  uint32_t Floor(Engine& engine, bool sequential) const;
  void Read(Engine& engine, uint32_t entry, std::memory_order order);
  void Insert(Engine& engine, uint32_t behind, Bits value, const Snapshot* view, bool sequential);
  bool HasRoomBehind(Engine& engine, uint32_t entry) const;
  uint32_t ChooseUpdated(Engine& engine, bool sequential);
  void Write(Engine& engine, uint32_t behind, Bits value, std::memory_order order,
             const Snapshot* continued);
  std::string Show(Engine& engine, Bits value) const;
  std::string Name() const;

  uint32_t index_;  // in views
  uint32_t count_ = 0;
  uint32_t capacity_ = 0;
  uint32_t id_;  // in Engine::lifetimes()
  ValueKind kind_;
  uint8_t made_by_;
  uint32_t made_at_;
  Entry* entries_ = nullptr;
  // The newest store that a notification is sure to have followed: no wait blocks on an older one.
  Time notified_ = 0;
  // What each thread that is blocked here saw; 0: not blocked.
  Time blocked_on_[kMaxSlots] = {};
  Stale stale_[kMaxSlots];
  AccessClocks accesses_;

  // Between the halves of a read-modify-write.
  uint32_t update_entry_ = 0;
  std::memory_order update_order_ = std::memory_order_relaxed;
  const char* update_operation_ = nullptr;
  Where update_where_;
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_ATOMIC_CELL_H_
