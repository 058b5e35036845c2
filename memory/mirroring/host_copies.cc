#include "tidepool/memory/mirroring/host_copies.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/resource/heap.h"

namespace tidepool {
namespace {

constexpr size_t kAlignment = 64;

// Kept blocks are the process's: its entry the ledger has, so that adding to it takes no memory.
void Move(Device device, int64_t bytes, MemoryOwner& owner, bool to_kept) {
  MemoryTracker& tracker = MemoryTracker::Global();
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryOwner& process = MemoryOwner::Process();
  MemoryOwner& from = to_kept ? owner : process;
  MemoryOwner& to = to_kept ? process : owner;
  const MemoryKind was = to_kept ? MemoryKind::kAllocated : MemoryKind::kUnreferenced;
  const MemoryKind becomes = to_kept ? MemoryKind::kUnreferenced : MemoryKind::kAllocated;
  // What throws comes first: giving back and taking off do not.
  if (&from != &to) budget.Reserve(device, to, bytes, "a host copy");
  try {
    tracker.Add(device, becomes, bytes, &to);
  } catch (...) {
    if (&from != &to) budget.Release(device, to, bytes);
    throw;
  }
  tracker.Add(device, was, -bytes, &from);
  if (&from != &to) budget.Release(device, from, bytes);
}

}  // namespace

HostCopies& HostCopies::Global() {
  static HostCopies& copies = *new HostCopies;
  return copies;
}

HostCopies::HostCopies()
    : reclaimer_(Reclaimer::Global().Register("host copies", [this](ReclaimDepth depth) -> int64_t {
        return depth == ReclaimDepth::kSpare ? 0 : Trim();
      })) {
  kept_.reserve(kMostBlocks + 1);
}

std::byte* HostCopies::Take(DeviceProvider& memory, size_t bytes, MemoryOwner& owner) {
  Block block{};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // The latest first: its cache lines and pages are warm.
    const auto it = std::find_if(kept_.rbegin(), kept_.rend(), [&](const Block& kept) {
      return kept.memory == &memory && kept.bytes == bytes;
    });
    if (it != kept_.rend()) {
      block = *it;
      kept_.erase(std::next(it).base());
      kept_bytes_ -= bytes;
    }
  }
  if (block.data == nullptr) {
    return static_cast<std::byte*>(
        HeapAllocate(bytes, kAlignment, MemoryKind::kAllocated, memory, &owner));
  }
  try {
    Move(memory.device(), static_cast<int64_t>(bytes), owner, /*to_kept=*/false);
  } catch (...) {
    Release(block);
    throw;
  }
  return block.data;
}

void HostCopies::GiveBack(DeviceProvider& memory, std::byte* data, size_t bytes,
                          MemoryOwner& owner) noexcept {
  try {
    if (bytes > kMostBytesOfOne) {
      return HeapRelease(data, bytes, MemoryKind::kAllocated, memory, &owner);
    }
    Move(memory.device(), static_cast<int64_t>(bytes), owner, /*to_kept=*/true);
  } catch (const std::exception&) {  // a budget or the ledger refuses
    return HeapRelease(data, bytes, MemoryKind::kAllocated, memory, &owner);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back({&memory, data, bytes});  // reserved
    kept_bytes_ += bytes;
  }
  for (;;) {
    Block oldest;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (kept_bytes_ <= kKeptBytes && kept_.size() <= kMostBlocks) return;
      oldest = kept_.front();
      kept_.erase(kept_.begin());
      kept_bytes_ -= oldest.bytes;
    }
    Release(oldest);
  }
}

void HostCopies::Release(const Block& block) noexcept {
  HeapRelease(block.data, block.bytes, MemoryKind::kUnreferenced, *block.memory);
}

int64_t HostCopies::Trim() noexcept {
  for (int64_t bytes = 0;;) {
    Block block;
    {
      std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
      if (!lock.owns_lock() || kept_.empty()) return bytes;
      block = kept_.back();
      kept_.pop_back();
      kept_bytes_ -= block.bytes;
    }
    Release(block);
    bytes += static_cast<int64_t>(block.bytes);
  }
}

size_t HostCopies::kept_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return kept_bytes_;
}

}  // namespace tidepool
