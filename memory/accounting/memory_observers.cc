// The ledger's observers (memory_tracker.h).
#include <algorithm>
#include <mutex>

#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {
namespace {

thread_local constinit char this_thread = 0;
const void* ThisThread() { return &this_thread; }

}  // namespace

void MemoryTracker::Observe(LedgerObserver* observer, Device device, MemoryOwner* owner) {
  if (owner == nullptr) owner = &MemoryOwner::Process();
  std::lock_guard<std::mutex> lock(mutex_);
  DeviceLedger& at = At(device);
  AddNodes(at, owner);
  FoldEvery(device, at);
  observers_.push_back(observer);
  observer->thread_ = ThisThread();
  observer->all_devices_ = false;
  observer->device_ = device;
  observer->owner_ = owner;
  observer->Observe(Read(device, *at.by_owner[owner->index()]));
  CountChange();
}

void MemoryTracker::ObserveAllDevices(LedgerObserver* observer) {
  std::lock_guard<std::mutex> lock(mutex_);
  ForEachDevice([&](Device device, DeviceLedger& at) { FoldEvery(device, at); });
  observers_.push_back(observer);
  ++all_device_observers_;
  observer->thread_ = ThisThread();
  observer->all_devices_ = true;
  ForEachDevice(
      [&](Device device, DeviceLedger& at) { observer->Observe(Read(device, *at.by_owner[0])); });
  CountChange();
}

void MemoryTracker::StopObserving(LedgerObserver* observer) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find(observers_.begin(), observers_.end(), observer);
  if (found == observers_.end()) return;
  ForEachDevice([&](Device device, DeviceLedger& at) { FoldEvery(device, at); });
  if (observer->all_devices_) --all_device_observers_;
  observers_.erase(found);
}

void MemoryTracker::FoldAll() {
  std::lock_guard<std::mutex> lock(mutex_);
  ForEachDevice([&](Device device, DeviceLedger& at) { FoldEvery(device, at); });
}

// In a child of fork(), which has this thread alone: where others had theirs on their stacks, there may be anything soon.
void MemoryTracker::ForgetObserversOfOthers() noexcept {
  const void* const here = ThisThread();
  std::erase_if(observers_, [&](const LedgerObserver* observer) {
    if (observer->thread_ == here) return false;
    if (observer->all_devices_) --all_device_observers_;
    return true;
  });
}

}  // namespace tidepool
