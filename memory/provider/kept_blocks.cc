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

// Kept blocks that one request looks at, of its size and of the oldest.
constexpr int kMostLooks = KeptBlocks::kMostWaiting;

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
      const bool is_unknown = queue != 0 && points_[queue].value == 0 && (AllQueues(device_.device()) >> queue & 1) == 0;
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

bool KeptBlocks::Smaller::operator()(const Block* a, const Block* b) const {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->released < b->released;
}
bool KeptBlocks::Smaller::operator()(const Block* a, size_t bytes) const { return a->bytes < bytes; }
bool KeptBlocks::Smaller::operator()(size_t bytes, const Block* b) const { return bytes < b->bytes; }

KeptBlocks::KeptBlocks(DeviceProvider& device, Source& source, size_t alignment, size_t most_bytes)
    : device_(device), source_(source), alignment_(alignment), most_bytes_(most_bytes) {
  // So that there is an entry, and counting needs no memory.
  MemoryTracker::Global().Add(device_.device(), MemoryKind::kUnreferenced, 0);
}

// ---- the books ------------------------------------------------------------------------------------

KeptBlocks::Block* KeptBlocks::Find(const std::byte* at) {
  auto it = all_.upper_bound(at);
  if (it == all_.begin()) return nullptr;
  Block* const block = std::prev(it)->second.get();
  return at < block->base + block->bytes ? block : nullptr;
}

// One that cannot be told has not.
bool KeptBlocks::HasPassed(QueuePoint point) noexcept {
  try {
    return device_.HasPassed(point);
  } catch (...) {
    return false;
  }
}

bool KeptBlocks::IsFree(Block& block) noexcept {
  while (!block.uses.empty() && HasPassed(block.uses.back().point)) block.uses.pop_back();
  return block.uses.empty();
}

void KeptBlocks::Count() noexcept {
  const size_t counted = stats_.kept_bytes + spare_bytes_;
  if (counted == stats_.counted_bytes) return;
  MemoryTracker::Global().Add(device_.device(), MemoryKind::kUnreferenced,
                              static_cast<int64_t>(counted) - static_cast<int64_t>(stats_.counted_bytes));
  stats_.counted_bytes = counted;
}

void KeptBlocks::Keep(Block* block) noexcept {
  spare_bytes_ -= std::exchange(block->spare, 0);
  --stats_.live_blocks;
  ++stats_.kept_blocks;
  stats_.kept_bytes += block->bytes;
  block->kept = true;
  block->released = ++releases_;
  block->older = newest_;
  block->newer = nullptr;
  (newest_ != nullptr ? newest_->newer : oldest_) = block;
  newest_ = block;
  by_size_.insert(std::move(block->place));
}

void KeptBlocks::Unkeep(Block* block) noexcept {
  --stats_.kept_blocks;
  stats_.kept_bytes -= block->bytes;
  block->kept = false;
  (block->older != nullptr ? block->older->newer : oldest_) = block->newer;
  (block->newer != nullptr ? block->newer->older : newest_) = block->older;
  block->older = block->newer = nullptr;
  block->place = by_size_.extract(block);
}

void KeptBlocks::TakeIntoUse(Block* block, size_t bytes, int queue) noexcept {
  if (block->kept) {
    Unkeep(block);
    ++stats_.used_again;
  }
  ++stats_.live_blocks;
  block->spare = block->bytes - bytes;
  spare_bytes_ += block->spare;
  block->queue = queue;
  block->users = 0;
  block->filled_by_copy = false;
  Count();
}

KeptBlocks::Block* KeptBlocks::Pick(size_t bytes, int queue) noexcept {
  Block* longest = nullptr;
  Block* same_queue = nullptr;
  int filled = 0, looks = 0;
  for (auto it = by_size_.lower_bound(bytes); it != by_size_.end() && looks < kMostLooks; ++it, ++looks) {
    Block* const block = *it;
    if (block->bytes - bytes > bytes / 8) break;
    if (IsFree(*block)) return block;
    if (longest == nullptr || block->released < longest->released) longest = block;
    filled += block->filled_by_copy;
    // Copies end by themselves, and it is mostly behind them already.
    const bool in_order = std::all_of(block->uses.begin(), block->uses.end(),
                                      [=](const EarlierUse& use) { return use.queue == queue || use.queue < 0; });
    if (in_order && same_queue == nullptr) same_queue = block;
  }
  if (looks == kMostLooks) return same_queue != nullptr ? same_queue : longest;
  return filled == 0 || filled >= kMostFilled ? same_queue : nullptr;
}

// Of whatever queue; not one that is far too large.
KeptBlocks::Block* KeptBlocks::PickAny(size_t bytes) noexcept {
  const auto it = by_size_.lower_bound(bytes);
  return it != by_size_.end() && (*it)->bytes / 2 <= bytes ? *it : nullptr;
}

KeptBlocks::Block* KeptBlocks::TakeOut(size_t bytes, int most_looks) noexcept {
  Block* chain = nullptr;
  size_t taken = 0;
  int looks = 0;
  for (Block* block = oldest_; block != nullptr && taken < bytes && looks < most_looks;) {
    Block* const next = block->newer;
    if (IsFree(*block)) {
      Unkeep(block);
      taken += block->bytes;
      all_.extract(block->base).mapped().release();
      block->older = std::exchange(chain, block);
    } else {
      ++looks;
    }
    block = next;
  }
  if (chain != nullptr) Count();
  return chain;
}

size_t KeptBlocks::Give(Block* chain) noexcept {
  size_t bytes = 0;
  int64_t given = 0;
  while (chain != nullptr) {
    const std::unique_ptr<Block> block(chain);
    chain = block->older;
    source_.GiveBlock(block->base, block->bytes);
    bytes += block->bytes;
    ++given;
  }
  if (given > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.given += given;
  }
  return bytes;
}

size_t KeptBlocks::TrimUnused() noexcept { return GiveBack(SIZE_MAX, INT_MAX); }

size_t KeptBlocks::GiveBack(size_t bytes, int most_looks) noexcept {
  std::lock_guard<std::mutex> giving(giving_);
  Block* chain;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    chain = TakeOut(bytes, most_looks);
  }
  return Give(chain);
}

size_t KeptBlocks::Trim() noexcept {
  std::lock_guard<std::mutex> giving(giving_);
  Block* chain = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    while (oldest_ != nullptr) {
      Block* const block = oldest_;
      Unkeep(block);
      all_.extract(block->base).mapped().release();
      block->older = std::exchange(chain, block);
    }
    Count();
  }
  bool finished = false;
  for (const Block* block = chain; block != nullptr && !finished; block = block->older) {
    for (const EarlierUse& use : block->uses) {
      try {
        device_.WaitFor(use.point);
      } catch (...) {
        source_.FinishAll();
        finished = true;
        break;
      }
    }
  }
  return Give(chain);
}

KeptBlocks::Stats KeptBlocks::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

// ---- blocks ---------------------------------------------------------------------------------------

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
  const auto take_kept = [&](auto&& pick) {
    std::lock_guard<std::mutex> lock(mutex_);
    Block* const found = pick();
    if (found != nullptr) TakeIntoUse(found, whole, queue);
    return found;
  };
  Block* block = take_kept([&] { return Pick(whole, queue); });
  if (block == nullptr) {
    GiveBack(whole, kMostLooks);
    block = TakeFresh(whole, queue);
  }
  if (block == nullptr) block = take_kept([&] { return PickAny(whole); });
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
void KeptBlocks::NoteRelease(Block* block, PointsOfQueues& points) noexcept {
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
    source_.FinishAll();
    block->uses.clear();
  }
  block->copies.clear();
}

void KeptBlocks::ReleaseMany(const DeviceProvider::Block* blocks, int count) noexcept {
  PointsOfQueues points(device_);
  for (int i = 0; i < count; ++i) {
    Block* block;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      block = Find(blocks[i].data);
    }
    if (block == nullptr) continue;
    NoteRelease(block, points);
    std::lock_guard<std::mutex> lock(mutex_);
    Keep(block);
  }
  size_t beyond;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Count();
    beyond = stats_.kept_bytes - std::min(stats_.kept_bytes, most_bytes_);
  }
  if (beyond > 0) GiveBack(beyond, kMostLooks);
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
