// Compare-exchange, wait and notify.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/testing/explorer/atomic_cell.h"
#include "tidepool/memory/testing/explorer/engine.h"

namespace tidepool::explorer::internal {
namespace {

// The order of a failure where only one order is given.
std::memory_order FailureOrder(std::memory_order order) {
  if (order == std::memory_order_acq_rel) return std::memory_order_acquire;
  if (order == std::memory_order_release) return std::memory_order_relaxed;
  return order;
}

}  // namespace

bool AtomicCell::CompareExchange(Bits& expected, Bits desired, bool weak, std::memory_order success,
                                 const std::memory_order* failure_order, const Where& where) {
  const char* operation = weak ? "compare_exchange_weak" : "compare_exchange_strong";
  Engine* running = Engine::Running();
  Sites* sites = running != nullptr ? running->sites() : nullptr;
  if (sites != nullptr) success = sites->OrderAt(SiteKind::kUpdate, operation, success, where);
  std::memory_order failure = failure_order == nullptr ? FailureOrder(success) : *failure_order;
  if (sites != nullptr && failure_order != nullptr) {
    failure = sites->OrderAt(SiteKind::kFailure, operation, failure, where);
  }
  const bool success_sequential = success == std::memory_order_seq_cst;
  const bool failure_sequential = failure == std::memory_order_seq_cst;
  Engine& engine = Use(where, true, success_sequential || failure_sequential);
  if (failure == std::memory_order_release || failure == std::memory_order_acq_rel) {
    engine.Fail(FailureKind::kMisuse, [&] {
      return absl::StrCat(operation, " at ", ToText(where), " with memory order ", ToText(failure),
                          " for its failure");
    });
  }
  const uint32_t success_floor = Floor(engine, success_sequential);
  const uint32_t failure_floor = Floor(engine, failure_sequential);
  const bool spurious = weak && engine.may_fail_spuriously();

  // Calls visit(entry, succeeds) for each way it may go, the newest store first, until that returns
  // true.
  auto for_each_way = [&](auto visit) {
    for (uint32_t i = count_; i-- > std::min(success_floor, failure_floor);) {
      const bool equal = entries_[i].value == expected;
      if (equal && i >= success_floor && HasRoomBehind(engine, i) && visit(i, true)) return;
      if ((!equal || spurious) && i >= failure_floor && visit(i, false)) return;
    }
  };
  uint32_t ways = 0;
  for_each_way([&](uint32_t, bool) {
    ++ways;
    return false;
  });
  uint32_t way = engine.Choose(ways);
  uint32_t entry = 0;
  bool succeeds = false;
  for_each_way([&](uint32_t i, bool success_way) {
    entry = i;
    succeeds = success_way;
    return way-- == 0;
  });

  const Bits found = entries_[entry].value;
  Read(engine, entry, succeeds ? success : failure);
  if (engine.trace() != nullptr) {
    std::string text = absl::StrCat(Name(), ".", operation, " ",
                                    ToText(succeeds ? success : failure), " ", Show(engine, found));
    if (succeeds) {
      absl::StrAppend(&text, " -> ", Show(engine, desired));
    } else if (found == expected) {
      absl::StrAppend(&text, " fails for no reason");
    } else {
      absl::StrAppend(&text, " is not ", Show(engine, expected));
    }
    engine.Record(std::move(text), where);
  }
  if (!succeeds) {
    if (found == expected) engine.CountSpuriousFailure();
    expected = found;
    return false;
  }
  entries_[entry].updated = true;
  Write(engine, entry, desired, success, entries_[entry].view);
  return true;
}

void AtomicCell::Wait(Bits old, std::memory_order order, const Where& where) {
  Engine* running = Engine::Running();
  if (running != nullptr && running->sites() != nullptr) {
    order = running->sites()->OrderAt(SiteKind::kLoad, "wait", order, where);
  }
  const bool sequential = order == std::memory_order_seq_cst;
  Engine& engine = Use(where, true, sequential);
  // By [atomics.wait] a wait that saw a store is woken by a notification that a newer store
  // happened before, even one that was sent while it was about to block: it never blocks on such an
  // old store.
  Time newer_than = 0;
  while (true) {
    const uint32_t floor = Floor(engine, sequential);
    auto is_way = [&](uint32_t i) {
      if (entries_[i].time <= newer_than) return false;
      return entries_[i].value != old || entries_[i].time >= notified_;
    };
    uint32_t ways = 0;
    for (uint32_t i = floor; i < count_; ++i) ways += is_way(i);
    uint32_t way = engine.Choose(ways);
    uint32_t entry = count_ - 1;
    while (!is_way(entry) || way-- > 0) --entry;
    Read(engine, entry, order);
    const bool blocks = entries_[entry].value == old;
    if (engine.trace() != nullptr) {
      engine.Record(absl::StrCat(Name(), ".wait ", ToText(order), " ",
                                 Show(engine, entries_[entry].value), blocks ? " blocks" : ""),
                    where);
    }
    if (!blocks) return;
    if (engine.slot() == kBody) {
      engine.Fail(FailureKind::kDeadlock,
                  [&] { return absl::StrCat("the body waits for ever at ", ToText(where)); });
    }
    engine.memory().wrote = true;
    blocked_on_[engine.slot()] = newer_than = entries_[entry].time;
    engine.Block();
    blocked_on_[engine.slot()] = 0;
    CheckAlive(engine, where);
    accesses_.Note(engine.slot(), engine.Clock(), where);
  }
}

void AtomicCell::Notify(bool all, const Where& where) {
  const char* operation = all ? "notify_all" : "notify_one";
  Engine& engine = Use(where, true, false);
  if (engine.sites() != nullptr &&
      engine.sites()->DropsAt(SiteKind::kNotify, operation, std::memory_order_relaxed, where)) {
    return;
  }
  engine.memory().wrote = true;
  const Time seen = engine.memory().view.at(index_);
  int waiting[kMaxSlots];
  uint32_t count = 0;
  for (int i = 1; i < kMaxSlots; ++i) {
    if (blocked_on_[i] != 0 && blocked_on_[i] < seen) waiting[count++] = i;
  }
  std::string woken;
  if (all || count == 0) {
    notified_ = std::max(notified_, seen);
    for (uint32_t i = 0; i < count; ++i) {
      engine.Unblock(waiting[i]);
      blocked_on_[waiting[i]] = 0;
      if (engine.trace() != nullptr) absl::StrAppend(&woken, " ", ThreadName(waiting[i]));
    }
  } else {
    const int one = waiting[engine.Choose(count)];
    engine.Unblock(one);
    blocked_on_[one] = 0;
    if (engine.trace() != nullptr) absl::StrAppend(&woken, " ", ThreadName(one));
  }
  if (engine.trace() != nullptr) {
    engine.Record(absl::StrCat(Name(), ".", operation,
                               woken.empty() ? " finds nobody" : absl::StrCat(" wakes", woken)),
                  where);
  }
}

std::string AtomicCell::Name() const { return absl::StrCat("a", index_ - kMaxSlots + 1); }

std::string AtomicCell::Show(Engine& engine, Bits value) const {
  if (engine.trace() == nullptr) return "";
  switch (kind_) {
    case ValueKind::kSigned:
      return absl::StrCat(static_cast<int64_t>(value.low));
    case ValueKind::kUnsigned:
      return value.low < 1'000'000 ? absl::StrCat(value.low)
                                   : absl::StrCat("0x", absl::Hex(value.low));
    case ValueKind::kPointer:
      return engine.trace()->PointerName(value.low);
    case ValueKind::kBytes:
      return absl::StrCat("0x", absl::Hex(value.high), ":", absl::Hex(value.low));
  }
  return "";
}

}  // namespace tidepool::explorer::internal
