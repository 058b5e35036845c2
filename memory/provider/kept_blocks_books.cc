// Which blocks are kept, and who uses them still. Part of KeptBlocks.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/kept_blocks.h"

namespace tidepool {

bool KeptBlocks::Smaller::operator()(const Block* a, const Block* b) const {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->released < b->released;
}
bool KeptBlocks::Smaller::operator()(const Block* a, size_t bytes) const {
  return a->bytes < bytes;
}
bool KeptBlocks::Smaller::operator()(size_t bytes, const Block* b) const {
  return bytes < b->bytes;
}

template <typename T>
void KeptBlocks::Line<T>::Add(T* each) {
  each->older = newest;
  each->newer = nullptr;
  (newest != nullptr ? newest->newer : oldest) = each;
  newest = each;
}

template <typename T>
void KeptBlocks::Line<T>::Remove(T* each) {
  (each->older != nullptr ? each->older->newer : oldest) = each->newer;
  (each->newer != nullptr ? each->newer->older : newest) = each->older;
  each->older = each->newer = nullptr;
}

KeptBlocks::Block* KeptBlocks::Find(const std::byte* at) {
  auto it = all_.upper_bound(at);
  if (it == all_.begin()) return nullptr;
  Block* const block = std::prev(it)->second.get();
  return at < block->base + block->bytes ? block : nullptr;
}

void KeptBlocks::Count() noexcept {
  const size_t counted = stats_.kept_bytes + spare_bytes_;
  if (counted == stats_.counted_bytes) return;
  MemoryTracker::Global().Add(
      device_.device(), MemoryKind::kUnreferenced,
      static_cast<int64_t>(counted) - static_cast<int64_t>(stats_.counted_bytes));
  stats_.counted_bytes = counted;
}

size_t KeptBlocks::Beyond() const noexcept {
  return stats_.kept_bytes - std::min(stats_.kept_bytes, most_bytes_);
}

// ---- who uses them --------------------------------------------------------------------------------

// One that cannot be told has not.
bool KeptBlocks::HasPassed(QueuePoint point) noexcept {
  ++stats_.asked;
  try {
    return device_.HasPassed(point);
  } catch (...) {
    return false;
  }
}

int KeptBlocks::HomeOf(const Block& block) {
  int home = kUnused;
  for (const EarlierUse& use : block.uses) {
    if (use.point.value == 0) continue;
    if (use.queue < 0) {
      if (home == kUnused) home = kCopied;
    } else if (home >= kMostQueues) {
      home = use.queue;
    } else if (home != use.queue) {
      return kSeveral;
    }
  }
  return home;
}

KeptBlocks::Line<KeptBlocks::Block>* KeptBlocks::LineOf(int home) {
  return home == kUnused ? &unused_ : home == kCopied ? &copied_ : nullptr;
}

void KeptBlocks::Move(Block* block) noexcept {
  const int home = HomeOf(*block);
  if (home == block->home) return;
  if (Line<Block>* const line = LineOf(block->home)) line->Remove(block);
  kept_[home].insert(kept_[block->home].extract(block));
  block->home = home;
  if (Line<Block>* const line = LineOf(home)) line->Add(block);
}

void KeptBlocks::NotePassed(EarlierUse* use) noexcept {
  waiting_[use->queue].Remove(use);
  use->point = {};
  Move(use->block);
}

void KeptBlocks::Look() noexcept {
  for (Line<EarlierUse>& line : waiting_) {
    QueuePoint passed;
    while (EarlierUse* const use = line.oldest) {
      // Blocks that were released together have the same one.
      if (use->point.value != passed.value && !HasPassed(use->point)) break;
      passed = use->point;
      NotePassed(use);
    }
  }
  // Each copy of those is asked for when what the queues did with its block has passed: most come before that.
  int left = kMostQueues;
  const Block* const last = copied_.newest;
  for (Block* block = copied_.oldest; block != nullptr && left > 0;) {
    Block* const next = block != last ? block->newer : nullptr;
    for (EarlierUse& use : block->uses) {
      if (use.point.value == 0) continue;
      if (!HasPassed(use.point)) break;
      use.point = {};
    }
    Move(block);
    if (block->home == kCopied) {
      copied_.Remove(block);
      copied_.Add(block);
      --left;
    }
    block = next;
  }
}

// The host has waited for it.
void KeptBlocks::NotePassed(QueuePoint point) noexcept {
  for (Line<EarlierUse>& line : waiting_) {
    while (line.oldest != nullptr && line.oldest->point.value == point.value)
      NotePassed(line.oldest);
  }
  for (Block* block = copied_.oldest; block != nullptr;) {
    Block* const next = block->newer;
    for (EarlierUse& use : block->uses) {
      if (use.point.value == point.value) use.point = {};
    }
    Move(block);
    block = next;
  }
}

// One that a block waits for which was released by then; 0: there is none.
QueuePoint KeptBlocks::PointBefore(uint64_t release) noexcept {
  for (const Line<EarlierUse>& line : waiting_) {
    if (line.oldest != nullptr && line.oldest->block->released <= release)
      return line.oldest->point;
  }
  for (const Block* block = copied_.oldest; block != nullptr; block = block->newer) {
    if (block->released > release) continue;
    for (const EarlierUse& use : block->uses) {
      if (use.point.value != 0) return use.point;
    }
  }
  return {};
}

void KeptBlocks::ForgetUsesBefore(uint64_t release) noexcept {
  for (const auto& [base, block] : all_) {
    if (!block->kept || block->released > release) continue;
    for (EarlierUse& use : block->uses) {
      if (use.queue >= 0 && use.point.value != 0) waiting_[use.queue].Remove(&use);
      use.point = {};
    }
    Move(block.get());
  }
}

// ---- kept and in use ------------------------------------------------------------------------------

void KeptBlocks::Keep(Block* block) noexcept {
  spare_bytes_ -= std::exchange(block->spare, 0);
  --stats_.live_blocks;
  ++stats_.kept_blocks;
  stats_.kept_bytes += block->bytes;
  block->kept = true;
  block->released = ++releases_;
  for (EarlierUse& use : block->uses) {
    use.block = block;
    if (use.queue >= 0) waiting_[use.queue].Add(&use);
  }
  block->home = HomeOf(*block);
  kept_[block->home].insert(std::move(block->place));
  if (Line<Block>* const line = LineOf(block->home)) line->Add(block);
}

void KeptBlocks::Unkeep(Block* block) noexcept {
  --stats_.kept_blocks;
  stats_.kept_bytes -= block->bytes;
  block->kept = false;
  for (EarlierUse& use : block->uses) {
    if (use.queue >= 0 && use.point.value != 0) waiting_[use.queue].Remove(&use);
  }
  if (Line<Block>* const line = LineOf(block->home)) line->Remove(block);
  block->place = kept_[block->home].extract(block);
  std::erase_if(block->uses, [](const EarlierUse& use) { return use.point.value == 0; });
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

// The smallest, and of those that was released first.
KeptBlocks::Block* KeptBlocks::FirstThatFits(int home, size_t bytes, size_t most) const {
  const auto it = kept_[home].lower_bound(bytes);
  return it != kept_[home].end() && (*it)->bytes <= most ? *it : nullptr;
}

KeptBlocks::Block* KeptBlocks::Pick(size_t bytes, int queue) noexcept {
  Look();
  const size_t most = bytes + bytes / 8;
  if (Block* const unused = FirstThatFits(kUnused, bytes, most)) return unused;
  Block* longest = nullptr;
  int waiting = 0, filled = 0;
  for (int home = 0; home < kHomes; ++home) {
    Block* const first = FirstThatFits(home, bytes, most);
    if (first == nullptr) continue;
    if (longest == nullptr || first->released < longest->released) longest = first;
    for (auto it = kept_[home].find(first); waiting < kMostWaiting; ++it, ++waiting) {
      if (it == kept_[home].end() || (*it)->bytes > most) break;
      filled += (*it)->filled_by_copy;
    }
  }
  Block* same_queue = FirstThatFits(queue, bytes, most);
  // Copies end by themselves, and it is mostly behind them already.
  if (same_queue == nullptr) same_queue = FirstThatFits(kCopied, bytes, most);
  if (waiting == kMostWaiting) return same_queue != nullptr ? same_queue : longest;
  return filled == 0 || filled >= kMostFilled ? same_queue : nullptr;
}

// Of whatever queue; not one that is far too large.
KeptBlocks::Block* KeptBlocks::PickAny(size_t bytes, int queue) noexcept {
  const size_t most = 2 * bytes + 1;
  for (const int home : {int{kUnused}, queue, int{kCopied}}) {
    if (Block* const block = FirstThatFits(home, bytes, most)) return block;
  }
  Block* smallest = nullptr;
  for (int home = 0; home < kHomes; ++home) {
    Block* const block = FirstThatFits(home, bytes, most);
    if (block != nullptr && (smallest == nullptr || Smaller()(block, smallest))) smallest = block;
  }
  return smallest;
}

// ---- back to the source ---------------------------------------------------------------------------

KeptBlocks::Block* KeptBlocks::TakeOut(size_t bytes) noexcept {
  Block* chain = nullptr;
  for (size_t taken = 0; unused_.oldest != nullptr && taken < bytes;) {
    Block* const block = unused_.oldest;
    Unkeep(block);
    taken += block->bytes;
    all_.extract(block->base).mapped().release();
    block->older = std::exchange(chain, block);
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

size_t KeptBlocks::TrimUnused() noexcept { return GiveBack(SIZE_MAX); }

size_t KeptBlocks::GiveBack(size_t bytes) noexcept {
  std::lock_guard<std::mutex> giving(giving_);
  Block* chain;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Look();
    chain = TakeOut(bytes);
  }
  return Give(chain);
}

// The blocks stay in the books meanwhile, and who releases others waits for nothing.
size_t KeptBlocks::Trim() noexcept {
  size_t bytes = TrimUnused();
  uint64_t release;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    release = releases_;
  }
  for (;;) {
    QueuePoint point;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      point = PointBefore(release);
    }
    if (point.value == 0) return bytes;
    bool passed = true;
    try {
      device_.WaitFor(point);
    } catch (...) {
      source_.FinishAll();
      passed = false;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (passed) {
        NotePassed(point);
      } else {
        ForgetUsesBefore(release);
      }
    }
    bytes += TrimUnused();
  }
}

}  // namespace tidepool
