#include "tidepool/memory/testing/explorer/atomic_cell.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/testing/explorer/engine.h"

namespace tidepool::explorer::internal {
namespace {

// Between the times of stores that are placed one behind the other: room for what comes in between.
constexpr Time kGap = 1 << 12;

bool Acquires(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_release;
}
bool Releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}
bool IsSequential(std::memory_order order) { return order == std::memory_order_seq_cst; }

void Allow(Engine& engine, bool allowed, const char* operation, std::memory_order order,
           const Where& where) {
  if (allowed) return;
  engine.Fail(FailureKind::kMisuse, [&] {
    return absl::StrCat(operation, " at ", ToText(where), " with memory order ", ToText(order));
  });
}

std::memory_order OrderAt(Engine& engine, SiteKind kind, const char* operation,
                          std::memory_order order, const Where& where) {
  return engine.sites() == nullptr ? order : engine.sites()->OrderAt(kind, operation, order, where);
}

}  // namespace

int AccessClocks::Concurrent(Engine& engine) const {
  for (int i = 0; i < kMaxSlots; ++i) {
    if (clocks_[i] != 0 && !engine.HappenedBefore(i, clocks_[i])) return i;
  }
  return -1;
}

AtomicCell::AtomicCell(Bits initial, ValueKind kind, const Where& where) : kind_(kind) {
  Engine& engine = Engine::Get();
  id_ = engine.lifetimes().Begin(this, sizeof(*this), where);
  index_ = engine.NewIndex();
  made_by_ = static_cast<uint8_t>(engine.slot());
  made_at_ = engine.Clock();
  capacity_ = 4;
  entries_ = engine.arena().AllocateArray<Entry>(capacity_);
  entries_[0] = {initial, kGap, false, nullptr};
  count_ = 1;
  engine.memory().view.Raise(index_, kGap);
  engine.memory().wrote = true;
  if (engine.trace() != nullptr) engine.trace()->AddName(Name(), where);
}

AtomicCell::~AtomicCell() {
  Engine* engine = Engine::Running();
  if (engine == nullptr) return;
  engine->CheckAlive(id_, this, "an atomic variable", "destroyed", engine->deleting_at());
  const int other = accesses_.Concurrent(*engine);
  if (other >= 0) {
    engine->Fail(FailureKind::kDataRace, [&] {
      return absl::StrCat(Name(), " (made at ", ToText(engine->lifetimes().made(id_)),
                          ") is destroyed by ", ThreadName(engine->slot()), " and used by ",
                          ThreadName(other), " at ", ToText(accesses_.where(other)),
                          ", neither before the other");
    });
  }
  engine->memory().wrote = true;
  engine->lifetimes().End(id_, engine->deleting_at());
}

Engine& AtomicCell::Use(const Where& where, bool writes, bool sequential) {
  Engine& engine = Engine::Get();
  if (engine.inspecting()) {
    if (writes) {
      engine.Fail(FailureKind::kMisuse, [&] {
        return absl::StrCat("an invariant changes ", Name(), " at ", ToText(where));
      });
    }
    return engine;
  }
  engine.Announce({.object = this, .writes = writes, .sequential = sequential});
  CheckAlive(engine, where);
  accesses_.Note(engine.slot(), engine.Clock(), where);
  return engine;
}

void AtomicCell::CheckAlive(Engine& engine, const Where& where) {
  engine.CheckAlive(id_, this, "an atomic variable", "used", where);
  if (!engine.HappenedBefore(made_by_, made_at_)) {
    engine.Fail(FailureKind::kDataRace, [&] {
      return absl::StrCat(Name(), " is made by ", ThreadName(made_by_), " at ",
                          ToText(engine.lifetimes().made(id_)), " and used by ",
                          ThreadName(engine.slot()), " at ", ToText(where),
                          ", which need not see it made");
    });
  }
}

uint32_t AtomicCell::Floor(Engine& engine, bool sequential) const {
  const ThreadMemory& mine = engine.memory();
  Time time = mine.view.at(index_);
  if (sequential) time = std::max(time, engine.sequential().at(index_));
  // Stores become visible in finite time: a thread that read an old one and yielded reads another.
  const Stale& stale = stale_[engine.slot()];
  if (stale.time != 0 && mine.yields > stale.yields && stale.time + 1 > time) {
    time = stale.time + 1;
    engine.NoteNoOldStore();
  }
  uint32_t floor = count_ - 1;
  while (floor > 0 && entries_[floor - 1].time >= time) --floor;
  return floor;
}

void AtomicCell::Read(Engine& engine, uint32_t entry, std::memory_order order) {
  const Entry& store = entries_[entry];
  ThreadMemory& mine = engine.memory();
  mine.view.Raise(index_, store.time);
  if (Acquires(order)) {
    mine.view.Join(store.view);
  } else {
    mine.pending.Join(store.view);
  }
  if (IsSequential(order)) {
    engine.sequential().Raise(index_, store.time);
    mine.read_newest = true;
  }
  if (entry + 1 < count_) {
    stale_[engine.slot()] = {store.time, mine.yields};
    mine.read_old = true;
  }
}

bool AtomicCell::HasRoomBehind(Engine& engine, uint32_t entry) const {
  if (entry + 1 == count_) return true;
  const bool room =
      !entries_[entry].updated && entries_[entry + 1].time - entries_[entry].time >= 2;
  if (!room || !engine.options().stores_in_order) return room;
  engine.NoteStoreInOrder();
  return false;
}

void AtomicCell::Insert(Engine& engine, uint32_t behind, Bits value, const Snapshot* view,
                        bool sequential) {
  if (count_ == capacity_) {
    Entry* larger = engine.arena().AllocateArray<Entry>(2 * capacity_);
    std::copy(entries_, entries_ + count_, larger);
    entries_ = larger;
    capacity_ *= 2;
  }
  const uint32_t at = behind + 1;
  const Time before = entries_[behind].time;
  const Time time = at == count_ ? before + kGap : before + (entries_[at].time - before) / 2;
  std::copy_backward(entries_ + at, entries_ + count_, entries_ + count_ + 1);
  entries_[at] = {value, time, false, view};
  ++count_;
  engine.memory().view.Raise(index_, time);
  if (sequential) engine.sequential().Raise(index_, time);
}

// `continued` is the view of the store that a read-modify-write read: it continues that one's
// release sequence.
void AtomicCell::Write(Engine& engine, uint32_t behind, Bits value, std::memory_order order,
                       const Snapshot* continued) {
  const bool releases = Releases(order);
  engine.memory().wrote = true;
  Insert(engine, behind, value, nullptr, IsSequential(order));
  const Snapshot* view = releases ? engine.Release() : engine.memory().released;
  if (continued != nullptr && view != nullptr) {
    View& both = engine.scratch();
    both.Clear();
    both.Join(view);
    both.Join(continued);
    view = both.Freeze(engine.arena());
  } else if (view == nullptr) {
    view = continued;
  }
  entries_[behind + 1].view = view;
}

Bits AtomicCell::Load(std::memory_order order, const Where& where, const char* operation) {
  Engine* running = Engine::Running();
  if (running != nullptr) order = OrderAt(*running, SiteKind::kLoad, operation, order, where);
  Engine& engine = Use(where, false, IsSequential(order));
  if (engine.inspecting()) return entries_[count_ - 1].value;
  Allow(engine, order != std::memory_order_release && order != std::memory_order_acq_rel, operation,
        order, where);
  const uint32_t floor = Floor(engine, IsSequential(order));
  const uint32_t entry = count_ - 1 - engine.Choose(count_ - floor);
  Read(engine, entry, order);
  const Bits value = entries_[entry].value;
  if (engine.trace() != nullptr) {
    engine.Record(
        absl::StrCat(Name(), ".", operation, " ", ToText(order), " = ", Show(engine, value),
                     entry + 1 < count_ ? absl::StrCat(" (", count_ - 1 - entry, " newer)") : ""),
        where);
  }
  return value;
}

void AtomicCell::Store(Bits value, std::memory_order order, const Where& where) {
  Engine* running = Engine::Running();
  if (running != nullptr) order = OrderAt(*running, SiteKind::kStore, "store", order, where);
  Engine& engine = Use(where, true, IsSequential(order));
  Allow(engine,
        order == std::memory_order_relaxed || order == std::memory_order_release ||
            IsSequential(order),
        "store", order, where);
  // The ways to place it: behind the last store, or before stores that this thread has not seen.
  const uint32_t floor = Floor(engine, IsSequential(order));
  uint32_t ways = 0;
  for (uint32_t i = floor; i < count_; ++i) ways += HasRoomBehind(engine, i);
  uint32_t way = engine.Choose(ways);
  uint32_t behind = count_ - 1;
  while (!HasRoomBehind(engine, behind) || way-- > 0) --behind;
  if (engine.trace() != nullptr) {
    engine.Record(
        absl::StrCat(
            Name(), ".store ", ToText(order), " ", Show(engine, value),
            behind + 1 < count_ ? absl::StrCat(" (before ", count_ - 1 - behind, " others)") : ""),
        where);
  }
  Write(engine, behind, value, order, nullptr);
}

uint32_t AtomicCell::ChooseUpdated(Engine& engine, bool sequential) {
  const uint32_t floor = Floor(engine, sequential);
  uint32_t ways = 0;
  for (uint32_t i = floor; i < count_; ++i) ways += HasRoomBehind(engine, i);
  uint32_t way = engine.Choose(ways);
  uint32_t entry = count_ - 1;
  while (!HasRoomBehind(engine, entry) || way-- > 0) --entry;
  return entry;
}

Bits AtomicCell::BeginUpdate(const char* operation, std::memory_order order, const Where& where) {
  Engine* running = Engine::Running();
  if (running != nullptr) order = OrderAt(*running, SiteKind::kUpdate, operation, order, where);
  Engine& engine = Use(where, true, IsSequential(order));
  update_entry_ = ChooseUpdated(engine, IsSequential(order));
  update_order_ = order;
  update_operation_ = operation;
  update_where_ = where;
  Read(engine, update_entry_, order);
  return entries_[update_entry_].value;
}

void AtomicCell::EndUpdate(Bits value) {
  Engine& engine = Engine::Get();
  if (engine.trace() != nullptr) {
    engine.Record(
        absl::StrCat(Name(), ".", update_operation_, " ", ToText(update_order_), " ",
                     Show(engine, entries_[update_entry_].value), " -> ", Show(engine, value)),
        update_where_);
  }
  entries_[update_entry_].updated = true;
  Write(engine, update_entry_, value, update_order_, entries_[update_entry_].view);
}

}  // namespace tidepool::explorer::internal
