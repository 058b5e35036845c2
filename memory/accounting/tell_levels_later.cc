// Changes of levels that are told later: MemoryBudget::TellLater, and those within callbacks of memory events.
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_owner.h"

namespace tidepool {
namespace {

thread_local constinit MemoryBudget::TellLater* innermost = nullptr;
thread_local constinit int64_t told_bytes =
    0;  // that the release which tells of them does not have

}  // namespace

// ---- within callbacks -------------------------------------------------------------------------

// What callbacks of this thread have changed, each budget once.
class MemoryBudget::KeptLevels {
 public:
  static void Keep(const MemoryEvent& event) noexcept {
    try {
      if (here_ == nullptr) here_ = new KeptLevels;
      for (const Kept& kept : here_->kept_) {
        if (kept.budget == event.budget && kept.device == event.request.device) return;
      }
      here_->kept_.push_back({event.budget, event.request.device, event.previous});
    } catch (const std::bad_alloc&) {
      // Nobody is told.
    }
  }

  static void Tell(void (*call)(const MemoryEvent&) noexcept) noexcept {
    constexpr int kRounds = 8;  // callbacks may change levels to and fro for ever
    for (int round = 0; round < kRounds && here_ != nullptr; ++round) {
      const std::unique_ptr<KeptLevels> now(std::exchange(here_, nullptr));
      for (const Kept& kept : now->kept_) TellOf(kept, call);
    }
  }

  ~KeptLevels() { ChangeHolds(-1); }

 private:
  struct Kept {
    const MemoryOwner* budget;  // as MemoryEvent::budget
    Device device;
    MemoryLevel told;  // before the first change that was kept
  };

  // The last lease of a node may end before it is told of.
  KeptLevels() { ChangeHolds(1); }
  static void ChangeHolds(int by) {
    const std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
    MemoryOwner::holds_ += by;
  }

  static void TellOf(const Kept& kept, void (*call)(const MemoryEvent&) noexcept) noexcept {
    const MemoryBudget& budget = Global();
    const BudgetUsage usage =
        kept.budget == nullptr ? budget.process() : budget.Of(*kept.budget, kept.device);
    if (usage.level == kept.told) return;
    MemoryEvent event{MemoryEvent::Kind::kLevel,
                      {kept.device, &MemoryOwner::Process(), 0, "what callbacks did"}};
    event.level = usage.level;
    event.previous = kept.told;
    event.budget = kept.budget;
    event.taken_bytes = usage.taken_bytes;
    event.limit_bytes = usage.limit_bytes;
    call(event);
  }

  static thread_local constinit KeptLevels* here_;
  static const bool is_used_;

  std::vector<Kept> kept_;
};

thread_local constinit MemoryBudget::KeptLevels* MemoryBudget::KeptLevels::here_ = nullptr;

const bool MemoryBudget::KeptLevels::is_used_ = [] {
  internal::keep_level.store(&Keep, std::memory_order_release);
  internal::tell_kept_levels.store(&Tell, std::memory_order_release);
  return true;
}();

// ---- within a scope ---------------------------------------------------------------------------

MemoryBudget::TellLater::TellLater() noexcept : outer_(std::exchange(innermost, this)) {}

MemoryBudget::TellLater::~TellLater() {
  innermost = outer_;
  for (int i = 0; i < count_; ++i) {
    // Which finds the changes of levels, or leaves them to the outer one.
    told_bytes = released_[i].bytes;
    MemoryBudget::Global().Release(released_[i].device, *released_[i].owner, 0);
  }
  told_bytes = 0;
  if (count_ == 0) return;
  std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
  --MemoryOwner::holds_;
}

bool MemoryBudget::TellLater::Take(Device device, MemoryOwner& owner, int64_t* bytes) noexcept {
  *bytes += std::exchange(told_bytes, 0);
  TellLater* const later = innermost;
  if (later == nullptr) return false;
  for (int i = 0; i < later->count_; ++i) {
    Released& released = later->released_[i];
    if (released.owner != &owner || released.device != device) continue;
    released.bytes += *bytes;
    return true;
  }
  if (later->count_ == 0) {
    // The last lease of a node may end before it is told of. The caller's lock is taken before this one.
    std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
    ++MemoryOwner::holds_;
  }
  if (later->count_ < kMost) later->released_[later->count_++] = {device, &owner, *bytes};
  return true;
}

}  // namespace tidepool
