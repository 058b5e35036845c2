#include "tidepool/memory/resource/pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/poison.h"

namespace tidepool {
namespace {

constexpr int kNodesPerSlab = 64;
constexpr size_t kLeastChunkBytes = 4096;
constexpr int kLoose = 2;  // uses that made room until large chunks are shared

}  // namespace

Pool::Pool(MemoryResource& upstream, size_t chunk_bytes, size_t alignment)
    : upstream_(upstream),
      chunk_bytes_((std::max(chunk_bytes, kLeastChunkBytes) + alignment - 1) & ~(alignment - 1)),
      alignment_(alignment),
      on_host_(upstream.device() == Host()) {
  if (!std::has_single_bit(alignment) || alignment < 16) {
    ThrowInvalidArgument(
        absl::StrCat("Pool: alignment ", alignment, ", expected a power of two of at least 16"));
  }
}

Pool::~Pool() {
  for (const auto& chunk : chunks_) GiveBack(*chunk);
}

void Pool::Poison(const std::byte* data, size_t bytes) const {
  if (on_host_) PoisonBlock(data, bytes);
}

size_t Pool::FootprintBytes(size_t bytes, size_t alignment) const {
  if (bytes > kMostBytes || alignment > alignment_) return SIZE_MAX;
  return std::max(alignment_, (bytes + alignment_ - 1) & ~(alignment_ - 1));
}

// ---- records --------------------------------------------------------------------------------

// Before anything is changed: a chunk and a split take a node each.
void Pool::ReserveNodes() {
  if (recycled_ != nullptr && recycled_->next_in_chunk != nullptr) return;
  slabs_.push_back(std::make_unique<Block[]>(kNodesPerSlab));
  for (int i = 0; i < kNodesPerSlab; ++i) RecycleNode(&slabs_.back()[i]);
}

Pool::Block* Pool::NewNode() noexcept {
  Block* const node = std::exchange(recycled_, recycled_->next_in_chunk);
  *node = Block{};
  return node;
}

void Pool::RecycleNode(Block* node) noexcept {
  node->next_in_chunk = std::exchange(recycled_, node);
}

// Large chunks have few blocks, which FindLarge walks.
void Pool::SetFree(Block* block, bool free) noexcept {
  block->free = free;
  if (block->chunk->large) return;
  if (free) {
    tree_.Insert(block);
  } else {
    tree_.Remove(block);
  }
}

// ---- chunks ---------------------------------------------------------------------------------

// Whether such a request may keep a large chunk from going back.
bool Pool::MayHold(size_t bytes, const Chunk& chunk) const {
  if (bytes > chunk.bytes) return false;
  return looseness_ < kLoose ? chunk.bytes - bytes <= bytes / 10 : bytes >= chunk.bytes / 4;
}

// Bytes owned beyond what was live.
size_t Pool::Slack(size_t peak) const {
  if (looseness_ < kLoose) return peak / 10;
  return std::min(peak, peak / 4 << (looseness_ - kLoose));
}

Pool::Block* Pool::FindLarge(size_t bytes) const {
  Block* best = nullptr;
  for (const auto& chunk : chunks_) {
    if (!chunk->large || !MayHold(bytes, *chunk)) continue;
    for (Block* block = chunk->first; block != nullptr; block = block->next_in_chunk) {
      if (block->free && block->size >= bytes && (best == nullptr || block->size < best->size)) {
        best = block;
      }
    }
  }
  return best;
}

// All of what the chunk takes in the end is asked for, but for the tail.
Allocation Pool::TakeChunk(size_t bytes, size_t* asked) {
  *asked = bytes;
  const size_t footprint = upstream_.FootprintBytes(bytes, alignment_);
  if (footprint != SIZE_MAX && footprint >= bytes + kReadableTailBytes) {
    const size_t all = (footprint - kReadableTailBytes) / alignment_ * alignment_;
    if (upstream_.FootprintBytes(all, alignment_) == footprint) *asked = all;
  }
  if (footprint != SIZE_MAX) MakeRoom(footprint);
  return upstream_.Allocate(*asked, alignment_);
}

Allocation Pool::AddChunk(size_t bytes, Block** whole) {
  const bool large = bytes > chunk_bytes_;
  chunks_.reserve(chunks_.size() + 1);
  auto chunk = std::make_unique<Chunk>();
  Allocation taken = TakeChunk(large ? bytes : chunk_bytes_, &chunk->bytes);
  if (!taken && taken.refusal != Refusal::kImpossible && bytes < chunk_bytes_) {
    taken = TakeChunk(bytes, &chunk->bytes);  // there may be room for the request alone
  }
  if (!taken) return taken;
  chunk->token = taken.token;
  chunk->footprint = upstream_.FootprintBytes(chunk->bytes, alignment_);
  chunk->large = large;
  Block* const node = NewNode();
  node->data = taken.data;
  node->size = chunk->bytes;
  node->chunk = chunk.get();
  chunk->first = node;
  owned_bytes_ += chunk->footprint;
  Poison(node->data, node->size);
  chunks_.push_back(std::move(chunk));
  SetFree(node, true);
  *whole = node;
  return taken;
}

// The caller drops the chunk's entry.
size_t Pool::GiveBack(Chunk& chunk) noexcept {
  if (on_host_) UnpoisonBlock(chunk.first->data, chunk.bytes);
  owned_bytes_ -= chunk.footprint;
  upstream_.Release(chunk.token, chunk.bytes, alignment_);
  return chunk.footprint;
}

template <typename Predicate>
size_t Pool::GiveBackWhere(const Predicate& goes) noexcept {
  size_t bytes = 0;
  std::erase_if(chunks_, [&](const std::unique_ptr<Chunk>& chunk) {
    if (!chunk->idle() || !goes(*chunk)) return false;
    SetFree(chunk->first, false);
    bytes += GiveBack(*chunk);
    RecycleNode(chunk->first);
    return true;
  });
  return bytes;
}

void Pool::MakeRoom(size_t footprint) noexcept {
  const size_t peak = std::max({peak_used_bytes_, last_peak_used_bytes_, used_bytes_ + footprint});
  const size_t most = peak + Slack(peak) + chunk_bytes_;
  while (owned_bytes_ + footprint > most) {
    const Chunk* oldest = nullptr;
    for (const auto& chunk : chunks_) {
      if (chunk->idle() && (oldest == nullptr || chunk->used_in < oldest->used_in)) {
        oldest = chunk.get();
      }
    }
    if (oldest == nullptr) return;
    GiveBackWhere([&](const Chunk& chunk) { return &chunk == oldest; });
    makes_room_ = true;
  }
}

size_t Pool::Trim() noexcept {
  return GiveBackWhere([](const Chunk&) { return true; }) + upstream_.Trim();
}

size_t Pool::TrimIdle(int uses) noexcept {
  for (const auto& chunk : chunks_) {
    if (!chunk->idle()) chunk->used_in = use_;
  }
  const uint64_t kept = static_cast<uint64_t>(std::max(uses, 1));
  const size_t bytes =
      GiveBackWhere([&](const Chunk& chunk) { return use_ - chunk.used_in >= kept; });
  ++use_;
  if (std::exchange(makes_room_, false)) looseness_ = std::min(looseness_ + 1, kLoose + 2);
  if (chunks_.empty()) looseness_ = 0;
  last_peak_used_bytes_ = std::exchange(peak_used_bytes_, used_bytes_);
  return bytes + upstream_.TrimIdle(uses);
}

// ---- blocks ---------------------------------------------------------------------------------

Allocation Pool::Allocate(size_t bytes, size_t alignment) {
  if (bytes > kMostBytes || alignment > alignment_ || !std::has_single_bit(alignment)) {
    return Allocation::Refused(Refusal::kImpossible, this, bytes);
  }
  bytes = FootprintBytes(bytes, alignment);
  ReserveNodes();
  Block* block =
      bytes > chunk_bytes_ ? FindLarge(bytes) : static_cast<Block*>(tree_.BestFit(bytes));
  if (block == nullptr) {
    if (const Allocation chunk = AddChunk(bytes, &block); !chunk) return chunk;
  }
  SetFree(block, false);
  if (block->size > bytes) {
    Block* const rest = NewNode();
    rest->data = block->data + bytes;
    rest->size = block->size - bytes;
    rest->chunk = block->chunk;
    rest->previous_in_chunk = block;
    rest->next_in_chunk = block->next_in_chunk;
    if (rest->next_in_chunk != nullptr) rest->next_in_chunk->previous_in_chunk = rest;
    block->next_in_chunk = rest;
    block->size = bytes;
    SetFree(rest, true);
  }
  if (on_host_) UnpoisonBlock(block->data, bytes);
  block->chunk->used_in = use_;
  used_bytes_ += bytes;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
  ++block_count_;
  return {block->data, block};
}

void Pool::Release(void* token, size_t, size_t) noexcept {
  auto* block = static_cast<Block*>(token);
  Poison(block->data, block->size);
  block->chunk->used_in = use_;
  used_bytes_ -= block->size;
  --block_count_;
  if (Block* next = block->next_in_chunk; next != nullptr && next->free) {
    SetFree(next, false);
    block->size += next->size;
    block->next_in_chunk = next->next_in_chunk;
    if (block->next_in_chunk != nullptr) block->next_in_chunk->previous_in_chunk = block;
    RecycleNode(next);
  }
  if (Block* previous = block->previous_in_chunk; previous != nullptr && previous->free) {
    SetFree(previous, false);
    previous->size += block->size;
    previous->next_in_chunk = block->next_in_chunk;
    if (previous->next_in_chunk != nullptr) previous->next_in_chunk->previous_in_chunk = previous;
    RecycleNode(block);
    block = previous;
  }
  SetFree(block, true);
}

}  // namespace tidepool
