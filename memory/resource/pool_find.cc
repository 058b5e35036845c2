// Which free block of a pool serves a request, and memory under it where an arena has none.
#include <algorithm>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool {
namespace {

// Smaller ones do not go: each is a system call and a part of the system's books.
constexpr size_t kLeastHole = size_t{256} << 10;
constexpr size_t kMostHoles = 128;
constexpr size_t kAhead = 64, kLeastAhead = size_t{64} << 10, kMostAhead = size_t{1} << 20;

}  // namespace

// Not so many that a look at each of them is much.
bool Pool::HasOwnChunk(size_t bytes) const noexcept {
  if (bytes > shared_bytes_) return true;
  return of_one_uses_ > 0 && bytes >= std::max(kLeastOfOne, used_bytes_ / kMostOfOne);
}

// At first a pool that is loose leaves free what fits, but not closely: for something larger, as
// when a container grows, whose old and new buffers take turns in the two largest chunks. A pool
// that had to make room even so packs as closely as it can.
Pool::Block* Pool::FindLarge(size_t bytes, bool coarse) const noexcept {
  FitNode* closest = nullptr;
  FitNode* largest = nullptr;
  for (const auto& chunk : chunks_) {
    if (chunk->busy || !MayHold(bytes, chunk->bytes)) continue;
    // Where blocks of the other kind live, a part of it would not begin as theirs do. Not only
    // `large` ones serve: the tail alone may make a chunk larger than what is shared.
    if (!HasKind(*chunk, coarse)) continue;
    FitNode* const block = chunk->tree.BestFit(bytes);
    if (block == nullptr) continue;
    if (closest == nullptr || block->size < closest->size) closest = block;
    if (largest == nullptr || block->size > largest->size) largest = block;
  }
  const bool spreads = looseness_ == kLoose;
  if (spreads && closest != nullptr && closest->size - bytes > bytes / 10) closest = largest;
  return static_cast<Block*>(closest);
}

// In the oldest chunk that has such a block, the smallest there.
Pool::Block* Pool::FindShared(size_t bytes, bool coarse) noexcept {
  if (grows_ && !coarse && bytes > span_bytes_ / kMany) {
    Block* const best = FindBest(bytes, coarse);
    return best == nullptr && CutsDeeply() ? FindLarge(bytes, coarse) : best;
  }
  FirstFit& room = room_[coarse];
  while (room.Has(bytes)) {
    Chunk& chunk = *chunks_[room.First(bytes)];
    FitNode* const found = chunk.tree.BestFit(bytes);
    if (found != nullptr) return static_cast<Block*>(found);
    SetRoom(chunk, chunk.tree.Largest());  // had been more
  }
  return nullptr;
}

// The smallest of all chunks, which are few where such requests are not small.
Pool::Block* Pool::FindBest(size_t bytes, bool coarse) const noexcept {
  FitNode* best = nullptr;
  for (const auto& chunk : chunks_) {
    if (chunk->room < bytes || !Serves(*chunk, coarse)) continue;
    FitNode* const block = chunk->tree.BestFit(bytes);
    if (block == nullptr || (best != nullptr && block->size >= best->size)) continue;
    best = block;
    if (block->size == bytes) break;
  }
  return static_cast<Block*>(best);
}

// ---- holes ------------------------------------------------------------------------------------

// Memory for what is to be live there. False: refused. Of an arena whose memory comes and goes in
// parts; nobody else comes to it meanwhile.
bool Pool::Fill(Block& block) {
  Chunk& chunk = *block.chunk;
  auto offset = static_cast<size_t>(block.data - chunk.pages->base());
  size_t bytes = block.size;
  if (chunk.pages->HoleBytesIn(offset, bytes) == 0) return true;
  // Not for each small one.
  const size_t ahead = std::clamp(arena_peak_ / kAhead, kLeastAhead, kMostAhead);
  if (bytes < ahead) {
    const size_t more = ahead - bytes;
    const Block* const next = block.next_in_chunk;
    const Block* const previous = block.previous_in_chunk;
    if (next != nullptr && next->free) {
      bytes += std::min(more, next->size);
    } else if (previous != nullptr && previous->free) {
      const size_t below = std::min(more, previous->size);
      offset -= below, bytes += below;
    }
  }
  const size_t lacks = chunk.pages->HoleBytesIn(offset, bytes);
  const auto note = [&] {
    SetBusy(chunk, false);
    NoteFootprint(chunk);
  };
  SetBusy(chunk, true);
  const size_t live = fine_bytes_ + block.size;
  MakeHoles(chunk, MostHeld(std::max({peak_fine_bytes_, last_peak_fine_bytes_, live})), lacks);
  if (made_holes_ > 0) NoteFilled(lacks);
  for (bool is_tight = false;;) {
    try {
      chunk.pages->FillHole(offset, bytes);
      break;
    } catch (const OutOfMemoryError&) {
      // Where memory is short, it has its own alone, and what lies between live blocks goes for it.
      const size_t held = chunk.pages->committed_bytes();
      offset = static_cast<size_t>(block.data - chunk.pages->base());
      bytes = block.size;
      if (!std::exchange(is_tight, true)) MakeHoles(chunk, live, lacks);
      NoteFootprint(chunk);
      if (chunk.pages->committed_bytes() < held) continue;
      note();
      return false;
    } catch (...) {
      note();
      throw;
    }
  }
  note();
  return true;
}

// A use may be long: what is held beside what is live grows within it too, with each time that so many times as much came again.
void Pool::NoteFilled(size_t bytes) noexcept {
  constexpr size_t kTimes = 8;
  filled_bytes_ += bytes;
  if (filled_bytes_ / kTimes <= arena_peak_ || gaps_ >= kBusyGaps) return;
  filled_bytes_ = 0;
  is_busy_ = true;
  ++gaps_;
}

// False: it was refused, and is free.
bool Pool::FillOrJoin(Block* block) {
  try {
    if (Fill(*block)) return true;
  } catch (...) {
    Join(block);
    throw;
  }
  Join(block);
  return false;
}

// Before so many bytes more are held, where as many are to be live: what lies between the live
// blocks goes as far as too much would be.
void Pool::MakeHoles(Chunk& chunk, size_t most, size_t lacks) noexcept {
  Pages& pages = *chunk.pages;
  // No more of them than their table is worth.
  const size_t least = std::max(kLeastHole, most / kMostHoles);
  const auto excess = [&] {
    const size_t held = pages.committed_bytes() + beside_bytes_ + lacks;
    return held - std::min(held, most);
  };
  for (Block* block = chunk.first; block != nullptr; block = block->next_in_chunk) {
    const size_t goes = excess();
    if (goes == 0) return;
    ++made_holes_;
    if (!block->free || block->size < least) continue;
    const auto offset = static_cast<size_t>(block->data - pages.base());
    const size_t bytes = std::max(goes, least) + pages.HoleBytesIn(offset, block->size);
    pages.MakeHole(offset, std::min(block->size, bytes), /*splits=*/true);
  }
}

// Of an arena without live blocks: what lies beside its largest hole, which blocks come to last.
void Pool::FitHeld(size_t most) noexcept {
  Pages& pages = *arena_->pages;
  const size_t held = pages.committed_bytes();
  if (held <= most || pages.holes().empty()) return;
  const Pages::Hole largest =
      *std::max_element(pages.holes().begin(), pages.holes().end(),
                        [](auto& a, auto& b) { return a.end - a.begin < b.end - b.begin; });
  const size_t half = std::max((held - most) / 2, kLeastHole);
  const size_t below = std::min(half, largest.begin);
  pages.MakeHole(largest.begin - below, below, /*splits=*/true);
  pages.MakeHole(largest.end, half, /*splits=*/true);
  NoteFootprint(*arena_);
}

// Requests that come in meanwhile find it in no table.
void Pool::SetBusy(Chunk& chunk, bool busy) noexcept {
  chunk.busy = busy;
  SetRoom(chunk, chunk.room);
}

void Pool::NoteFootprint(Chunk& chunk) noexcept {
  owned_bytes_ -= std::exchange(chunk.footprint, chunk.pages->committed_bytes());
  owned_bytes_ += chunk.footprint;
  UpdateShared();
}

}  // namespace tidepool
