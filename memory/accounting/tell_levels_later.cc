// MemoryBudget::TellLater.
#include <mutex>
#include <utility>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"

namespace tidepool {
namespace {

thread_local constinit MemoryBudget::TellLater* innermost = nullptr;
thread_local constinit int64_t told_bytes =
    0;  // that the release which tells of them does not have

}  // namespace

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
