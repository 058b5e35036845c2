#include "tidepool/memory/accounting/memory_tracker.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {
namespace {

constexpr int kAllocatedIndex = static_cast<int>(MemoryKind::kAllocated);
constexpr int kUnreferencedIndex = static_cast<int>(MemoryKind::kUnreferenced);

[[noreturn, gnu::noinline]] void ThrowNoSuchKind(MemoryKind kind) {
  ThrowInvalidArgument(absl::StrCat("ledger: found kind ", static_cast<int>(kind),
                                    ", expected 0 to ", kMemoryKinds - 1));
}

inline int IndexOf(MemoryKind kind) {
  if (!IsMemoryKind(kind)) [[unlikely]]
    ThrowNoSuchKind(kind);
  return static_cast<int>(kind);
}

}  // namespace

MemoryTracker& MemoryTracker::Global() {
  static MemoryTracker* const tracker = [] {
    static constinit const ForkHandlers handlers{[] { Global().mutex_.lock(); },
                                                 [] { Global().mutex_.unlock(); },
                                                 [] {
                                                   Global().ForgetObserversOfOthers();
                                                   Global().mutex_.unlock();
                                                 }};
    HandleFork(ForkLevel::kLedger, &handlers);
    return new MemoryTracker;  // outlives every static array
  }();
  return *tracker;
}
[[maybe_unused]] static auto& at_start = MemoryTracker::Global();  // for children of fork()

MemoryTracker::MemoryTracker() : devices_(kDevicePlaces) {
  AddNodes(At(Host()), &MemoryOwner::Process());
}

// ---- changes --------------------------------------------------------------------------------

[[gnu::noinline]] void MemoryTracker::AddMissingNodes(DeviceLedger& at, MemoryOwner* owner) {
  // From the root: an owner with an entry has one at every level, also after a failure.
  if (owner->parent() != nullptr) AddNodes(at, owner->parent());
  if (owner->index() >= at.by_owner.size()) at.by_owner.resize(owner->index() + 1);
  std::unique_ptr<Counts>& counts = at.by_owner[owner->index()];
  counts = std::make_unique<Counts>();
  counts->owner = owner;
}

void MemoryTracker::Add(Device device, MemoryKind kind, int64_t bytes, MemoryOwner* owner) {
  std::lock_guard<std::mutex> lock(mutex_);
  AddLocked(device, kind, bytes, owner != nullptr ? owner : &MemoryOwner::Process());
}

void MemoryTracker::AddClaimed(Device device, MemoryKind kind, int64_t bytes, MemoryOwner* owner) {
  int64_t total = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const DeviceLedger& at = At(device);
    if (!at.by_owner.empty()) total = at.by_owner[0]->owned + at.by_owner[0]->added;
    if (bytes <= kMostCountedBytesInAll - total) {
      AddLocked(device, kind, bytes, owner != nullptr ? owner : &MemoryOwner::Process());
      return;
    }
  }
  ThrowInvalidArgument(absl::StrCat("ledger: ", bytes, " bytes more of ", DeviceName(device),
                                    ", beside ", total, ": expected at most ",
                                    kMostCountedBytesInAll, " in all"));
}

void MemoryTracker::ChangeKind(Device device, MemoryKind* kind, MemoryKind to, int64_t bytes,
                               MemoryOwner* owner) {
  IndexOf(to);
  std::lock_guard<std::mutex> lock(mutex_);
  if (owner == nullptr) owner = &MemoryOwner::Process();
  AddLocked(device, *kind, -bytes, owner);
  AddLocked(device, to, bytes, owner);
  *kind = to;
}

inline void MemoryTracker::TakeInbox(DeviceLedger& at) noexcept {
  MemoryAccount::TakeInbox(at.inbox, [&at](AccountCounters<StdSync>* counters) {
    auto* const account = static_cast<MemoryAccount*>(counters);
    account->quiet_folds_ = 0;
    at.listed.push_back(account);
  });
}

// Of each heap array, mostly with nothing to fold.
inline void MemoryTracker::FoldListed(Device device, DeviceLedger& at) noexcept {
  TakeInbox(at);
  if (!at.listed.empty()) [[unlikely]]
    FoldSomeListed(device, at);
}

void MemoryTracker::AddLocked(Device device, MemoryKind kind, int64_t bytes, MemoryOwner* owner) {
  const int kind_index = IndexOf(kind);
  DeviceLedger& at = At(device);
  AddNodes(at, owner);  // there already when bytes leave
  FoldListed(device, at);
  const bool quiet = observers_.empty();
  ForEachAbove(at, owner, [&](Counts& counts) {
    counts.kinds[kind_index].current_bytes += bytes;
    counts.added += bytes;
    if (quiet && bytes > 0) RaiseKind(counts, kind);
  });
  CountChange();
  if (quiet) return;
  MemoryListener::Each(
      [&](MemoryListener& listener) { listener.Added(device, kind, bytes, *owner); });
  RaiseAbove(device, at, owner);
}

void MemoryTracker::Register(MemoryAccount* account) {
  std::lock_guard<std::mutex> lock(mutex_);
  DeviceLedger& at = At(account->device_);
  AddNodes(at, account->owner_);
  at.listed.reserve(at.accounts.size() + 1);  // folds do not fail
  account->index_ = at.accounts.size();
  at.accounts.push_back(account);
  account->SetInbox(&at.inbox);
  if (account->used_bytes() != 0) account->List();
  CountChange();
}

void MemoryTracker::Unregister(MemoryAccount* account) {
  std::lock_guard<std::mutex> lock(mutex_);
  DeviceLedger& at = At(account->device_);
  account->List();
  FoldListed(account->device_, at);
  std::erase(at.listed, account);
  account->SetInbox(nullptr);
  ForEachAbove(at, account->owner_, [&](Counts& counts) {
    counts.used -= account->counted_;
    counts.owned -= account->owned_;
  });
  at.accounts[account->index_] = at.accounts.back();
  at.accounts[account->index_]->index_ = account->index_;
  at.accounts.pop_back();
  CountChange();
  if (!observers_.empty())
    MemoryListener::TellOwned(account->device_, -account->owned_, *account->owner_);
  RaiseAbove(account->device_, at, account->owner_);
}

void MemoryTracker::AddOwned(MemoryAccount* account, int64_t bytes) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  DeviceLedger& at = At(account->device_);
  FoldListed(account->device_, at);
  account->owned_ += bytes;
  ForEachAbove(at, account->owner_, [&](Counts& counts) { counts.owned += bytes; });
  CountChange();
  if (!observers_.empty()) MemoryListener::TellOwned(account->device_, bytes, *account->owner_);
  RaiseAbove(account->device_, at, account->owner_);
}

// ---- folds ----------------------------------------------------------------------------------

void MemoryTracker::FoldSlow(MemoryAccount* account) {
  std::lock_guard<std::mutex> lock(mutex_);
  account->List();
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const uint64_t change = changes_.load(kRelaxed);
  const int64_t reached = std::max(account->used_bytes(), account->window_peak());
  FoldListed(account->device_, At(account->device_));
  const bool same = account->folded_at_.load(kRelaxed) == change;
  account->folded_peak_.store(
      same ? std::max(reached, account->folded_peak_.load(kRelaxed)) : reached, kRelaxed);
  account->folded_at_.store(change, kRelaxed);
  // Whoever watches everything wants to hear of the next cycle too.
  if (all_device_observers_ > 0) CountChange();
}

void MemoryTracker::FoldEvery(Device device, DeviceLedger& at) noexcept {
  TakeInbox(at);
  FoldAccounts(device, at, at.accounts);
}

void MemoryTracker::FoldSomeListed(Device device, DeviceLedger& at) noexcept {
  FoldAccounts(device, at, at.listed);
  std::erase_if(at.listed, [](MemoryAccount* account) {
    if (account->quiet_folds_ < kQuietFolds) return false;
    if (account->TakeOffList(account->counted_)) return true;
    account->quiet_folds_ = 0;
    return false;
  });
}

void MemoryTracker::FoldAccounts(Device device, DeviceLedger& at,
                                 const std::vector<MemoryAccount*>& accounts) noexcept {
  accounts_visited_ += static_cast<int64_t>(accounts.size());
  bool moved = false;
  for (MemoryAccount* account : accounts) {
    const int64_t used = account->used_bytes();
    account->excess_ = -1;
    ++account->quiet_folds_;
    if (used == account->counted_ && account->window_peak() <= used) continue;
    moved = true;
    account->quiet_folds_ = 0;
    account->excess_ = account->TakeWindow(used) - used;
    ForEachAbove(at, account->owner_, [&](Counts& counts) {
      counts.used += used - account->counted_;
      counts.excess += account->excess_;
    });
    account->counted_ = used;
  }
  if (!moved) return;
  for (MemoryAccount* account : accounts) {
    if (account->excess_ >= 0) RaiseAbove(device, at, account->owner_);
  }
  for (MemoryAccount* account : accounts) {
    if (account->excess_ < 0) continue;
    ForEachAbove(at, account->owner_, [&](Counts& counts) { counts.excess = 0; });
  }
}

int64_t MemoryTracker::accounts_visited() {
  std::lock_guard<std::mutex> lock(mutex_);
  return accounts_visited_;
}

LedgerReading MemoryTracker::Read(Device device, const Counts& counts) const {
  LedgerReading reading{device, {}, {}, counts.owned + counts.added, 0, 0};
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    int64_t current = counts.kinds[kind].current_bytes;
    if (kind == kAllocatedIndex) current += counts.used;
    if (kind == kUnreferencedIndex) current += counts.owned - counts.used;
    reading.current[kind] = reading.highest[kind] = current;
  }
  reading.highest[kAllocatedIndex] += counts.excess;
  reading.in_use = reading.total - reading.current[kUnreferencedIndex];
  reading.in_use_highest = reading.in_use + counts.excess;
  return reading;
}

void MemoryTracker::RaiseKind(Counts& counts, MemoryKind kind) noexcept {
  MemoryUsage& usage = counts.kinds[static_cast<int>(kind)];
  int64_t now = usage.current_bytes;
  if (kind == MemoryKind::kAllocated) now += counts.used;
  if (kind == MemoryKind::kUnreferenced) now += counts.owned - counts.used;
  usage.peak_bytes = std::max(usage.peak_bytes, now);
  counts.total_peak = std::max(counts.total_peak, counts.owned + counts.added);
}

void MemoryTracker::Raise(Device device, Counts& counts) noexcept {
  const LedgerReading reading = Read(device, counts);
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    int64_t& peak = counts.kinds[kind].peak_bytes;
    peak = std::max(peak, reading.highest[kind]);
  }
  counts.total_peak = std::max(counts.total_peak, reading.total);
  for (LedgerObserver* observer : observers_) {
    const bool watches = observer->all_devices_
                             ? counts.owner->parent() == nullptr
                             : observer->owner_ == counts.owner && observer->device_ == device;
    if (watches) observer->Observe(reading);
  }
}

void MemoryTracker::RaiseAbove(Device device, DeviceLedger& at, const MemoryOwner* owner) noexcept {
  ForEachAbove(at, owner, [&](Counts& counts) { Raise(device, counts); });
}

// ---- reading --------------------------------------------------------------------------------
MemorySnapshot MemoryTracker::Snapshot() {
  MemorySnapshot snapshot;
  snapshot.mirrors = MirrorCountersByDevice();
  snapshot.host_fallbacks = TotalHostFallbacks();
  snapshot.spilled = TotalSpillCounters();
  snapshot.spill_tiers = SpillTiersByDevice();
  std::lock_guard<std::mutex> lock(mutex_);
  snapshot.system_allocations = system_allocations_.load(std::memory_order_relaxed);
  snapshot.system_releases = system_releases_.load(std::memory_order_relaxed);
  snapshot.leaked_arrays = leaked_.load(std::memory_order_relaxed);
  ForEachDevice([&](Device device, DeviceLedger& at) {
    FoldEvery(device, at);
    std::vector<std::pair<const MemoryOwner*, OwnerMemory>> owners;
    std::vector<int64_t> below(at.by_owner.size());  // of each node: bytes of its children
    for (const std::unique_ptr<Counts>& counts : at.by_owner) {
      if (counts == nullptr) continue;
      const LedgerReading reading = Read(device, *counts);
      OwnerMemory memory{device, counts->owner->Path(),  counts->owner->Tag(), counts->kinds, {},
                         0,      counts->owner->merged()};
      for (int kind = 0; kind < kMemoryKinds; ++kind)
        memory.kinds[kind].current_bytes = reading.current[kind];
      memory.total = {reading.total, counts->total_peak};
      if (counts->owner->parent() != nullptr) {
        below[counts->owner->parent()->index()] += reading.total;
      } else {
        snapshot.devices.push_back({device, memory.kinds, memory.total});
      }
      owners.emplace_back(counts->owner, std::move(memory));
    }
    for (auto& [owner, memory] : owners) {
      memory.own_bytes = memory.total.current_bytes - below[owner->index()];
    }
    // The process first, then by path: each parent stands before its children.
    std::sort(owners.begin() + 1, owners.end(), [](const auto& a, const auto& b) {
      return std::tie(a.second.owner, a.second.tag) < std::tie(b.second.owner, b.second.tag);
    });
    for (auto& [owner, memory] : owners) {
      if (owner->parent() != nullptr && memory.total.peak_bytes == 0 &&
          memory.total.current_bytes == 0) {
        continue;
      }
      snapshot.owners.push_back(std::move(memory));
    }
  });
  return snapshot;
}

int64_t MemoryTracker::CurrentBytes(Device device, MemoryKind kind) {
  const int kind_index = IndexOf(kind);
  std::lock_guard<std::mutex> lock(mutex_);
  DeviceLedger& at = At(device);
  if (at.by_owner.empty()) return 0;
  // Accounts, of which there may be thousands, have no part in others.
  if (kind_index == kAllocatedIndex || kind_index == kUnreferencedIndex) FoldEvery(device, at);
  return Read(device, *at.by_owner[0]).current[kind_index];
}

void MemoryTracker::ResetPeaks() {
  std::lock_guard<std::mutex> lock(mutex_);
  ForEachDevice([&](Device device, DeviceLedger& at) {
    FoldEvery(device, at);  // what was reached so far is the past's
    for (const std::unique_ptr<Counts>& counts : at.by_owner) {
      if (counts == nullptr) continue;
      const LedgerReading now = Read(device, *counts);
      for (int kind = 0; kind < kMemoryKinds; ++kind) {
        counts->kinds[kind].peak_bytes = now.current[kind];
      }
      counts->total_peak = now.total;
    }
  });
  CountChange();
}

}  // namespace tidepool
