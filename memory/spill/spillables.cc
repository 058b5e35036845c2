#include "tidepool/memory/spill/spillables.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

constexpr size_t kPinnedNamed = 3;

using Found = SpillState<StdSync>::Found;

bool IsBelow(const MemoryOwner& owner, const MemoryOwner& node) {
  for (const MemoryOwner* at = &owner; at != nullptr; at = at->parent()) {
    if (at == &node) return true;
  }
  return false;
}

bool HasNoRoom(const BudgetUsage& usage, int64_t bytes) {
  const int64_t limit = std::min(usage.limit_bytes, usage.soft_limit_bytes);
  return limit != MemoryBudget::kUnlimited && bytes > limit - usage.taken_bytes;
}

// The lowest node whose limit is in the way: what goes below it makes room at those above as well. Null: none is, of that device.
const MemoryOwner* InTheWay(const MemoryRequest& request) {
  const MemoryBudget& budget = MemoryBudget::Global();
  for (const MemoryOwner* node = request.owner; node != nullptr; node = node->parent()) {
    if (HasNoRoom(budget.Of(*node, request.device), request.bytes)) return node;
  }
  return nullptr;
}

}  // namespace

Spillables::Spillables(SpillFile& file, std::string name)
    : file_(file),
      process_(getpid()),
      registration_(Reclaimer::Global().Register(std::move(name), static_cast<Spiller&>(*this))) {}

Spillables::~Spillables() { registration_.Reset(); }

bool Spillables::IsChild() const { return getpid() != process_; }

void Spillables::Add(const std::shared_ptr<Item>& item) {
  const std::lock_guard lock(mutex_);
  item->place_ = items_.insert(items_.end(), item);
  item->listed_ = true;
}

void Spillables::Remove(Item& item) noexcept {
  const std::lock_guard lock(mutex_);
  if (!item.listed_) return;
  item.listed_ = false;
  items_.erase(item.place_);
}

std::vector<std::shared_ptr<Spillables::Item>> Spillables::Items() const {
  std::vector<std::shared_ptr<Item>> items;
  const std::lock_guard lock(mutex_);
  items.reserve(items_.size());
  for (const std::weak_ptr<Item>& item : items_) {
    if (std::shared_ptr<Item> there = item.lock()) items.push_back(std::move(there));
  }
  return items;
}

// ---- one item -------------------------------------------------------------------------------------

void Spillables::Pin(Item& item) {
  Found found = Found::kHere;
  if (!item.state.Pin(&found, !internal::InCallback())) {
    ThrowFailedPrecondition(
        absl::StrCat("spillable \"", item.name,
                     "\": it is being moved, and a callback of the runtime may not wait for that"));
  }
  if (found != Found::kHere) {
    try {
      item.Bring(found == Found::kComing);
    } catch (...) {
      item.state.StaysAway();
      throw;
    }
    item.state.Brought();
    const std::lock_guard lock(mutex_);
    ++stats_.returns;
    stats_.returned_bytes += item.bytes;
  }
  item.pinned_by_.store(&MemoryOwner::Current(), std::memory_order_relaxed);
}

void Spillables::Unpin(Item& item) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (item.listed_) items_.splice(items_.end(), items_, item.place_);
  }
  item.state.Unpin();
}

void Spillables::Prefetch(Item& item) {
  if (!item.state.BeginComing()) return;
  try {
    item.BeginToBring();
  } catch (...) {
    item.state.StaysAway();
    throw;
  }
  item.state.Comes();
}

bool Spillables::SpillOne(Item& item) { return LetGo(item); }

bool Spillables::LetGo(Item& item) {
  Found found = Found::kHere;
  if (!item.state.BeginSpill(&found)) return false;
  const bool coming = found == Found::kComing;
  const char* const stays = coming ? nullptr : item.WhyItStays();
  item.stays_.store(stays, std::memory_order_relaxed);
  if (stays != nullptr) {
    item.state.StaysHere();
    return false;
  }
  int64_t written = 0;
  try {
    written = item.LetGo(coming);
  } catch (...) {
    item.state.StaysHere();
    const std::lock_guard lock(mutex_);
    ++stats_.failures;
    throw;
  }
  item.state.Spilled();
  const std::lock_guard lock(mutex_);
  ++stats_.spills;
  stats_.spilled_bytes += item.bytes;
  stats_.rewritten_bytes += written;
  return true;
}

// ---- under pressure ---------------------------------------------------------------------------------

template <typename Serves>
int64_t Spillables::SpillWhere(int64_t wanted, const Serves& serves) {
  int64_t gone = 0;
  const std::vector<std::shared_ptr<Item>> items = Items();
  for (const bool recomputed : {false, true}) {
    for (const std::shared_ptr<Item>& item : items) {
      if (gone >= wanted) return gone;
      if (item->recomputed != recomputed || !serves(*item)) continue;
      try {
        if (LetGo(*item)) gone += item->bytes;
      } catch (const Error&) {
        // A full disk, or one that fails: it stays, as do others perhaps, and what can be computed again may go still.
      } catch (const std::bad_alloc&) {
      }
    }
  }
  return gone;
}

int64_t Spillables::Spill(int64_t wanted, const MemoryRequest& request) {
  if (IsChild()) return 0;
  const MemoryOwner* const node = request.owner != nullptr ? InTheWay(request) : nullptr;
  // Without one it is the process's limit, which counts all devices, or the system or the device that refuses.
  const bool any_device =
      node == nullptr && HasNoRoom(MemoryBudget::Global().process(), request.bytes);
  return SpillWhere(wanted, [&](const Item& item) {
    return (any_device || item.device == request.device) &&
           (node == nullptr || IsBelow(item.owner, *node));
  });
}

int64_t Spillables::SpillNow(int64_t wanted) {
  return SpillWhere(wanted, [](const Item&) { return true; });
}

// ---- words --------------------------------------------------------------------------------------------

std::string Spillables::DescribePinned() const {
  if (IsChild()) return "";
  int64_t bytes = 0;
  std::vector<std::string> named;
  size_t count = 0;
  for (const std::shared_ptr<Item>& item : Items()) {
    if (!item->state.is_here()) continue;
    const char* const stays = item->stays_.load(std::memory_order_relaxed);
    const bool pinned = item->state.pins() > 0;
    if (!pinned && stays == nullptr) continue;
    bytes += item->bytes;
    if (++count > kPinnedNamed) continue;
    const MemoryOwner* const by = item->pinned_by_.load(std::memory_order_relaxed);
    named.push_back(absl::StrCat(
        "\"", OneLine(item->name), "\" ", item->bytes, " (",
        pinned ? absl::StrCat("pinned by ", by != nullptr ? OneLine(by->Path()) : "somebody")
               : stays,
        ")"));
  }
  if (count == 0) return "";
  std::string out = absl::StrCat(bytes, " bytes could be spilled but for their use: ");
  for (size_t i = 0; i < named.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ", ", named[i]);
  if (count > named.size()) absl::StrAppend(&out, " and ", count - named.size(), " more");
  return out;
}

SpillablesStats Spillables::stats() const {
  SpillablesStats stats;
  const std::vector<std::shared_ptr<Item>> items = Items();
  {
    const std::lock_guard lock(mutex_);
    stats = stats_;
  }
  stats.items = static_cast<int64_t>(items.size());
  for (const std::shared_ptr<Item>& item : items) {
    if (item->recomputed) stats.recomputed_bytes += item->bytes;
    if (!item->state.has_memory()) {
      stats.away_bytes += item->bytes;
      continue;
    }
    stats.here_bytes += item->bytes;
    if (item->state.pins() > 0)
      stats.pinned_bytes += item->bytes;
    else if (item->stays_.load(std::memory_order_relaxed) != nullptr)
      stats.elsewhere_bytes += item->bytes;
  }
  return stats;
}

std::string SpillablesStats::ToString() const {
  return absl::StrCat(items, " spillable: ", here_bytes, " bytes in memory (", pinned_bytes,
                      " pinned, ", elsewhere_bytes, " with others as well), ", away_bytes,
                      " away, ", recomputed_bytes, " of all are computed again; ", spills,
                      " went (", spilled_bytes, " bytes, ", rewritten_bytes, " of them written), ",
                      returns, " came back (", returned_bytes, " bytes), ", failures,
                      " failures\n");
}

}  // namespace tidepool
