#include "tidepool/memory/accounting/memory_budget.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_limits.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace internal {
// Changes that are one, each told as it was; what callbacks change is told behind the last one (memory_events.cc).
void TellMemoryEvents(const MemoryEvent* events, int count) noexcept;

// Budgets above it are neither asked nor told (unbudgeted_owner.h); null until somebody asks for it.
constinit std::atomic<const MemoryOwner*> owner_beside_budgets{nullptr};
}  // namespace internal
namespace {

constexpr const char* kWho = "memory budget";
constexpr const char* kBudgetVariable = "TIDEPOOL_MEMORY_BUDGET";  // docs/memory_ledger.md

BudgetUsage UsageOf(const BudgetLine& line) {
  const auto now = [](const auto& number) { return number.load(std::memory_order_relaxed); };
  return {now(line.taken),    now(line.limit),           now(line.soft_limit),
          now(line.requests), now(line.requested_bytes), now(line.level)};
}

// Under the lock: no locked instruction.
void Raise(std::atomic<int64_t>& counter, int64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

inline void Count(BudgetLine& line, int64_t bytes) {
  Raise(line.taken, bytes);
  Raise(line.requests, 1);
  // Blocks that nobody touches cost next to nothing: hours of them are more than a number holds.
  const int64_t ever = line.requested_bytes.load(std::memory_order_relaxed);
  line.requested_bytes.store(std::min(ever, INT64_MAX - bytes) + bytes, std::memory_order_relaxed);
}

void CheckNotNegative(const MemoryOwner& owner, int64_t bytes) {
  if (bytes >= 0) return;
  ThrowInvalidArgument(absl::StrCat("memory budget: reservation for [", OneLine(owner.Path()),
                                    "]: found ", bytes, " bytes, expected at least 0"));
}

// A count below what is taken would let everybody beyond the limit, for good and in silence.
[[noreturn]] void ReportWrongRelease(Device device, const MemoryOwner& owner, int64_t bytes,
                                     int64_t taken) noexcept {
  std::fprintf(stderr,
               "tidepool: memory budget: [%s] releases %lld bytes on %s: found %lld bytes that it "
               "has reserved, expected at least as many and none below 0\n",
               OneLine(owner.Path()).c_str(), static_cast<long long>(bytes),
               DeviceName(device).c_str(), static_cast<long long>(taken));
  std::abort();
}

}  // namespace

// What the environment says holds from the first byte on. A text that cannot be meant is an error of whoever asks
// first, and of all who ask after: a program that was to have a limit must not run without one.
MemoryBudget& MemoryBudget::Global() {
  static MemoryBudget* const budget = [] {
    const char* const text = std::getenv(kBudgetVariable);
    const std::vector<MemoryLimit> limits =
        MemoryLimitsOfText(kBudgetVariable, text == nullptr ? "" : text);
    std::unique_ptr<MemoryBudget> made(new MemoryBudget);
    // As the setters do, which ask for the budget that is being made; nobody has anything yet.
    for (const MemoryLimit& limit : limits) {
      BudgetLine* line = &made->process_;
      if (limit.of != MemoryLimit::Of::kProcess) {
        MemoryOwner& owner = limit.of == MemoryLimit::Of::kOwner ? MemoryOwnerAt(limit.owner)
                                                                 : MemoryOwner::Process();
        MakeLines(owner, limit.device);
        line = &LineOf(owner, limit.device);
      }
      (limit.is_soft ? line->soft_limit : line->limit)
          .store(limit.bytes, std::memory_order_relaxed);
      made->limits_.fetch_add(1, std::memory_order_relaxed);
      if (limit.is_soft) made->soft_limits_.fetch_add(1, std::memory_order_relaxed);
    }
    return made.release();
  }();
  return *budget;
}

BudgetLine* MemoryBudget::FindLine(const MemoryOwner& owner, Device device) noexcept {
  if (device == Host()) return owner.host_line_.load(std::memory_order_acquire);
  const MemoryOwner::Lines* const lines =
      owner.lines_[device.type.number()].load(std::memory_order_acquire);
  if (lines == nullptr) return nullptr;
  return lines->of_device[device.index].load(std::memory_order_acquire);
}

namespace {
// What `slot` points to, which is made when it is null and then never freed.
template <typename T>
T& FindOrMake(std::atomic<T*>& slot) {
  T* found = slot.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  auto made = std::make_unique<T>();
  if (slot.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *found;
}

}  // namespace

// Nodes get their counters when they first take memory of a device, or get a limit there.
BudgetLine& MemoryBudget::LineOf(MemoryOwner& owner, Device device) {
  if (device == Host()) return FindOrMake(owner.host_line_);
  return FindOrMake(FindOrMake(owner.lines_[device.type.number()]).of_device[device.index]);
}

void MemoryBudget::MakeLines(MemoryOwner& owner, Device device) {
  if (FindLine(owner, device) != nullptr) return;
  // From the root: who has counters has them at every level.
  if (owner.parent() != nullptr) MakeLines(*owner.parent(), device);
  LineOf(owner, device);
}

template <typename Function>
void MemoryBudget::ForEachLine(MemoryOwner& owner, Device device, const Function& function) {
  for (MemoryOwner* node = &owner; node != nullptr; node = node->parent()) {
    function(*FindLine(*node, device), node);
    if (node == internal::owner_beside_budgets.load(std::memory_order_acquire)) return;
  }
  function(process_, nullptr);
}

MemoryBudget::Refusal MemoryBudget::FindRefusal(MemoryOwner& owner, Device device, int64_t bytes) {
  Refusal refusal;
  ForEachLine(owner, device, [&](const BudgetLine& line, const MemoryOwner* node) {
    BudgetUsage usage = UsageOf(line);
    if (node == nullptr) usage.limit_bytes = std::min(usage.limit_bytes, kMostCountedBytesInAll);
    if (usage.limit_bytes == kUnlimited) return;
    const int64_t room = usage.limit_bytes - usage.taken_bytes;
    if (bytes - room <= refusal.missing) return;
    refusal = {node, node == nullptr, usage, bytes - room};
  });
  return refusal;
}

// Those of one change of what is taken. What does not fit is found with the next change.
class MemoryBudget::LevelChanges {
 public:
  void Update(BudgetLine& line, const MemoryOwner* node) noexcept {
    const BudgetUsage usage = UsageOf(line);
    const MemoryLevel level = MemoryLevelAfter(usage.level, usage.taken_bytes, usage.limit_bytes);
    if (level == usage.level || count_ == kMost) return;
    line.level.store(level, std::memory_order_relaxed);
    changes_[count_++] = {node, usage, level};
  }
  void Tell(const MemoryRequest& request) const noexcept {
    if (count_ == 0 || internal::memory_event_callbacks.load(std::memory_order_relaxed) == 0)
      return;
    MemoryEvent events[kMost];
    for (int i = 0; i < count_; ++i) {
      events[i].kind = MemoryEvent::Kind::kLevel;
      events[i].request = request;
      events[i].level = changes_[i].level;
      events[i].previous = changes_[i].usage.level;
      events[i].budget = changes_[i].node;
      events[i].taken_bytes = changes_[i].usage.taken_bytes;
      events[i].limit_bytes = changes_[i].usage.limit_bytes;
    }
    internal::TellMemoryEvents(events, count_);
  }

 private:
  static constexpr int kMost = 8;
  struct Change {
    const MemoryOwner* node;
    BudgetUsage usage;
    MemoryLevel level;
  };
  Change changes_[kMost];
  int count_ = 0;
};

void MemoryBudget::FindLevelChanges(MemoryOwner& owner, Device device, LevelChanges& changes) {
  ForEachLine(owner, device,
              [&](BudgetLine& line, const MemoryOwner* node) { changes.Update(line, node); });
}

int64_t MemoryBudget::TryReserve(Device device, MemoryOwner& owner, int64_t bytes) {
  if (bytes > kMostCountedBytes) return bytes;
  CheckNotNegative(owner, bytes);
  CheckDevice(kWho, device);
  const auto count = [&](BudgetLine& line, const MemoryOwner*) { Count(line, bytes); };
  std::unique_lock<std::mutex> lock(MemoryTracker::Global().mutex_);
  MakeLines(owner, device);
  const bool fits_in_all =
      bytes <= kMostCountedBytesInAll - process_.taken.load(std::memory_order_relaxed);
  if (!limited() && fits_in_all) {
    ForEachLine(owner, device, count);
    return 0;
  }
  if (const Refusal refusal = FindRefusal(owner, device, bytes); refusal.missing > 0)
    return refusal.missing;
  ForEachLine(owner, device, count);
  LevelChanges changes;
  FindLevelChanges(owner, device, changes);
  lock.unlock();
  changes.Tell({device, &owner, bytes, "a reservation"});
  return 0;
}

bool MemoryBudget::CountWithoutLimits(Device device, MemoryKind kind, MemoryOwner& owner,
                                      int64_t bytes) {
  CheckDevice(kWho, device);
  MemoryTracker& tracker = MemoryTracker::Global();
  std::lock_guard<std::mutex> lock(tracker.mutex_);
  if (limits_.load(std::memory_order_relaxed) != 0) return false;
  MakeLines(owner, device);
  tracker.AddLocked(device, kind, bytes, &owner);
  ForEachLine(owner, device, [&](BudgetLine& line, const MemoryOwner*) { Count(line, bytes); });
  return true;
}

[[gnu::noinline]] void MemoryBudget::TellOfRelease(std::unique_lock<std::mutex> lock, Device device,
                                                   MemoryOwner& owner, int64_t bytes) noexcept {
  if (TellLater::Take(device, owner, &bytes)) return;
  LevelChanges changes;
  FindLevelChanges(owner, device, changes);
  lock.unlock();
  changes.Tell({device, &owner, -bytes, "a release"});
}

void MemoryBudget::Uncount(Device device, MemoryKind kind, MemoryOwner& owner,
                           int64_t bytes) noexcept {
  MemoryTracker& tracker = MemoryTracker::Global();
  std::unique_lock<std::mutex> lock(tracker.mutex_);
  tracker.AddLocked(device, kind, -bytes, &owner);
  ForEachLine(owner, device,
              [&](BudgetLine& line, const MemoryOwner*) { Raise(line.taken, -bytes); });
  if (limited()) TellOfRelease(std::move(lock), device, owner, bytes);
}

void MemoryBudget::Reserve(Device device, MemoryOwner& owner, int64_t bytes, const char* what) {
  CheckNotNegative(owner, bytes);  // before anybody is asked
  KeepToSoftLimits(device, owner, bytes, what);
  int64_t missing = TryReserve(device, owner, bytes);
  if (missing == 0) return;
  if (bytes > kMostCountedBytes) ThrowOverLimit(device, owner, bytes, what, 0);
  const int64_t reclaimed = Reclaimer::Global().RetryWhileReclaiming(
      missing, [&] { return missing = TryReserve(device, owner, bytes); },
      {device, &owner, bytes, what});
  if (missing > 0) ThrowOverLimit(device, owner, bytes, what, reclaimed);
}

void MemoryBudget::Release(Device device, MemoryOwner& owner, int64_t bytes) noexcept {
  std::unique_lock<std::mutex> lock(MemoryTracker::Global().mutex_);
  const BudgetLine* const own = FindLine(owner, device);
  const int64_t taken = own == nullptr ? 0 : own->taken.load(std::memory_order_relaxed);
  if (bytes < 0 || bytes > taken) ReportWrongRelease(device, owner, bytes, taken);
  ForEachLine(owner, device,
              [&](BudgetLine& line, const MemoryOwner*) { Raise(line.taken, -bytes); });
  if (limited()) TellOfRelease(std::move(lock), device, owner, bytes);
}

// ---- limits ---------------------------------------------------------------------------------

void MemoryBudget::AskAtSoftLimits(Device device, MemoryOwner& owner, int64_t bytes,
                                   const char* what) {
  if (bytes > kMostCountedBytes) return;  // which is refused
  CheckDevice(kWho, device);
  int64_t over = 0;
  {
    std::lock_guard<std::mutex> lock(MemoryTracker::Global().mutex_);
    MakeLines(owner, device);
    ForEachLine(owner, device, [&](const BudgetLine& line, const MemoryOwner*) {
      const int64_t limit = line.soft_limit.load(std::memory_order_relaxed);
      if (limit == kUnlimited) return;
      over = std::max(over, bytes - (limit - line.taken.load(std::memory_order_relaxed)));
    });
  }
  if (over > 0) Reclaimer::Global().ReclaimUnderPressure(over, {device, &owner, bytes, what});
}

BudgetUsage MemoryBudget::SetLimit(std::atomic<int64_t> BudgetLine::*limit, BudgetLine& line,
                                   MemoryOwner* node, Device device, int64_t bytes,
                                   const std::string& whose) {
  if (bytes < 0) {
    ThrowInvalidArgument(absl::StrCat("memory budget: limit of ", whose, ": found ", bytes,
                                      " bytes, expected at least 0 or kUnlimited"));
  }
  const MemoryRequest request{device, node, 0, "a limit"};
  LevelChanges changes;
  {
    std::lock_guard<std::mutex> lock(MemoryTracker::Global().mutex_);
    const bool was = (line.*limit).load(std::memory_order_relaxed) != kUnlimited;
    (line.*limit).store(bytes, std::memory_order_relaxed);
    const int more = (bytes != kUnlimited) - was;
    limits_.fetch_add(more, std::memory_order_release);
    if (limit == &BudgetLine::soft_limit) soft_limits_.fetch_add(more, std::memory_order_release);
    changes.Update(line, node);
  }
  changes.Tell(request);
  // What comes back first may be of another device or owner, as a pool's: then the rest is asked for again.
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t taken = line.taken.load(std::memory_order_relaxed);
    if (taken <= bytes || Reclaimer::Global().ReclaimUnderPressure(taken - bytes, request) == 0)
      break;
  }
  return UsageOf(line);
}

BudgetUsage MemoryBudget::process() const { return UsageOf(process_); }
BudgetUsage MemoryBudget::Of(Device device) const { return Of(MemoryOwner::Process(), device); }
BudgetUsage MemoryBudget::Of(const MemoryOwner& owner, Device device) const {
  CheckDevice(kWho, device);
  const BudgetLine* const line = FindLine(owner, device);
  return line != nullptr ? UsageOf(*line) : BudgetUsage();
}

}  // namespace tidepool
