#include "tidepool/memory/provider/kept_blocks.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <new>
#include <utility>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"

namespace tidepool {
namespace {

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

// The ends of queues, each asked for once.
class KeptBlocks::PointsOfQueues {
 public:
  explicit PointsOfQueues(DeviceProvider& device) : device_(device) {}
  // Throws kInternal.
  QueuePoint Of(int queue) {
    if ((known_ >> queue & 1) == 0) {
      points_[queue] = queue == 0 ? device_.ComputePoint(0) : EndOfQueue(device_.device(), queue);
      // Of a DeviceQueue that has ended nothing may be asked at the provider. One that was opened at the provider itself
      // is none of those.
      const bool is_unknown = queue != 0 && points_[queue].value == 0 &&
                              (AllQueues(device_.device()) >> queue & 1) == 0;
      if (is_unknown) points_[queue] = device_.ComputePoint(queue);
      known_ |= 1u << queue;
    }
    return points_[queue];
  }

 private:
  DeviceProvider& device_;
  uint32_t known_ = 0;
  QueuePoint points_[kMostQueues];
};

KeptBlocks::KeptBlocks(DeviceProvider& device, Source& source, size_t alignment, size_t most_bytes)
    : device_(device), source_(source), alignment_(alignment), most_bytes_(most_bytes) {
  // So that there is an entry, and counting needs no memory.
  MemoryTracker::Global().Add(device_.device(), MemoryKind::kUnreferenced, 0);
}

KeptBlocks::Stats KeptBlocks::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

// Whoever refuses to order the queue has the host wait; what has failed uses nothing any more.
void KeptBlocks::OrderBehind(const Block& block, int queue) noexcept {
  for (const EarlierUse& use : block.uses) {
    if (use.queue == queue) continue;
    try {
      device_.ComputeAfter(queue, use.point);
    } catch (...) {
      try {
        device_.WaitFor(use.point);
      } catch (...) {
        return source_.FinishAll();
      }
    }
    std::lock_guard<std::mutex> lock(mutex_);
    ++stats_.orders;
  }
}

KeptBlocks::Block* KeptBlocks::TakeFresh(size_t bytes, int queue) noexcept {
  std::unique_ptr<Block> block(new (std::nothrow) Block);
  if (block == nullptr) return nullptr;
  QueuePoint from;
  std::byte* data = nullptr;
  try {
    BySize place;
    place.insert(block.get());
    block->place = place.extract(place.begin());
    block->uses.reserve(2);
    data = source_.TakeBlock(bytes, &from);
    if (data == nullptr) return nullptr;
    block->base = data;
    block->bytes = bytes;
    if (from.value != 0) block->uses.push_back({-1, from});
    std::lock_guard<std::mutex> lock(mutex_);
    Block* const taken = block.get();
    all_.emplace(data, std::move(block));
    ++stats_.taken;
    TakeIntoUse(taken, bytes, queue);
    return taken;
  } catch (const std::bad_alloc&) {
    if (data != nullptr) source_.GiveBlock(data, bytes);
    return nullptr;
  }
}

std::byte* KeptBlocks::Allocate(size_t bytes, size_t alignment) noexcept {
  if (bytes > SIZE_MAX / 8 || IsLost(device_.device())) return nullptr;
  const size_t slack = alignment > alignment_ ? alignment : 0;
  const size_t whole = RoundUp(bytes + kReadableTailBytes + slack, kUnit);
  const int queue = QueueHere(device_.device());
  size_t beyond = 0;
  const auto take_kept = [&](auto&& pick) {
    std::lock_guard<std::mutex> lock(mutex_);
    Block* const found = pick();
    if (found != nullptr) TakeIntoUse(found, whole, queue);
    beyond = unused_.oldest != nullptr ? Beyond() : 0;
    return found;
  };
  Block* block = take_kept([&] { return Pick(whole, queue); });
  if (block == nullptr) {
    GiveBack(std::max(whole, beyond));
    block = TakeFresh(whole, queue);
  } else if (beyond > 0) {
    GiveBack(beyond);
  }
  if (block == nullptr && TrimUnused() > 0) block = TakeFresh(whole, queue);
  if (block == nullptr) block = take_kept([&] { return PickAny(whole, queue); });
  if (block == nullptr) {
    Trim();  // or another thread's, which has ended then
    block = TakeFresh(whole, queue);
  }
  if (block == nullptr) return nullptr;
  OrderBehind(*block, queue);
  if (slack == 0) return block->base;
  const uintptr_t address = reinterpret_cast<uintptr_t>(block->base);
  return block->base + (RoundUp(address, alignment) - address);
}

void KeptBlocks::NoteUsers(const std::byte* data, uint32_t queues) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (Block* const block = Find(data)) block->users = queues;
}

// The block is the thread's: it is in no list.
bool KeptBlocks::NoteRelease(Block* block, PointsOfQueues& points) noexcept {
  block->uses.clear();
  uint32_t users = std::exchange(block->users, 0);
  if (users == 0) users = 1u << QueueHere(device_.device());
  try {
    for (QueuePoint copy : block->copies) block->uses.push_back({-1, copy});
    for (; users != 0; users &= users - 1) {
      const int queue = std::countr_zero(users);
      const QueuePoint point = points.Of(queue);
      if (point.value != 0) block->uses.push_back({queue, point});
    }
  } catch (...) {
    // There is no point, or no memory to note it.
    block->uses.clear();
    block->copies.clear();
    return false;
  }
  block->copies.clear();
  return true;
}

void KeptBlocks::ReleaseMany(const DeviceProvider::Block* blocks, int count) noexcept {
  PointsOfQueues points(device_);
  Block* unnoted = nullptr;
  {
    std::lock_guard<std::mutex> noting(noting_);
    for (int i = 0; i < count; ++i) {
      Block* block;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        block = Find(blocks[i].data);
      }
      if (block == nullptr) continue;
      if (!NoteRelease(block, points)) {
        block->older = std::exchange(unnoted, block);
        continue;
      }
      std::lock_guard<std::mutex> lock(mutex_);
      Keep(block);
    }
  }
  if (unnoted != nullptr) source_.FinishAll();
  size_t beyond;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    while (unnoted != nullptr) Keep(std::exchange(unnoted, unnoted->older));
    Count();
    beyond = Beyond();
  }
  if (beyond > 0) GiveBack(beyond);
}

QueuePoint KeptBlocks::EarlierUses(const std::byte* data) {
  int queue;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Block* const block = Find(data);
    if (block == nullptr) return {};
    block->filled_by_copy = true;
    std::erase_if(block->uses, [this](const EarlierUse& use) { return HasPassed(use.point); });
    if (block->uses.empty()) return {};
    if (block->uses.size() == 1) return block->uses[0].point;
    queue = block->queue;
  }
  // It comes behind all of them.
  return PointsOfQueues(device_).Of(queue);
}

void KeptBlocks::NoteCopy(const std::byte* at, QueuePoint point) {
  if (point.value == 0) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Block* const block = Find(at);
    if (block == nullptr || block->kept) return;
    std::erase_if(block->copies, [this](QueuePoint copy) { return HasPassed(copy); });
    try {
      return block->copies.push_back(point);
    } catch (const std::bad_alloc&) {
    }
  }
  device_.WaitFor(point);
}

}  // namespace tidepool
