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
constexpr int kLoose = 2;  // uses that made room until large chunks are shared

}  // namespace

Pool::Pool(MemoryResource& upstream, size_t chunk_bytes, size_t alignment)
    : upstream_(upstream),
      chunk_bytes_((chunk_bytes + alignment - 1) & ~(alignment - 1)),
      alignment_(alignment),
      on_host_(upstream.device() == Host()) {
  if (!std::has_single_bit(alignment) || alignment < 16) {
    ThrowInvalidArgument(
        absl::StrCat("Pool: alignment ", alignment, ", expected a power of two of at least 16"));
  }
  if (chunk_bytes < kLeastChunkBytes || chunk_bytes > kMostBytes) {
    ThrowInvalidArgument(absl::StrCat("Pool: chunks of ", chunk_bytes, " bytes, expected ",
                                      kLeastChunkBytes, " to ", kMostBytes));
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
  return std::max(alignment_, Rounded(bytes));
}

// ---- records --------------------------------------------------------------------------------

// Before anything is changed: a chunk and a split take a node each.
void Pool::MakeNodes() {
  slabs_.push_back(std::make_unique<Block[]>(kNodesPerSlab));
  for (int i = 0; i < kNodesPerSlab; ++i) RecycleNode(&slabs_.back()[i]);
}

Pool::Block* Pool::NewNode() noexcept {
  return std::exchange(recycled_, recycled_->next_in_chunk);
}

void Pool::RecycleNode(Block* node) noexcept {
  node->next_in_chunk = std::exchange(recycled_, node);
}

inline void Pool::AddFree(Block* block) noexcept {
  block->free = true;
  block->chunk->tree.Insert(block);
  if (block->chunk->room < block->size) SetRoom(*block->chunk, block->size);
}

inline void Pool::TakeFree(Block* block) noexcept {
  block->free = false;
  block->chunk->tree.Remove(block);
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

void Pool::SetRoom(Chunk& chunk, size_t room) noexcept {
  chunk.room = room;
  room_.Set(chunk.place, room);
}

Pool::Block* Pool::FindLarge(size_t bytes) const noexcept {
  FitNode* best = nullptr;
  for (const auto& chunk : chunks_) {
    if (!chunk->large || !MayHold(bytes, *chunk)) continue;
    FitNode* const block = chunk->tree.BestFit(bytes);
    if (block != nullptr && (best == nullptr || block->size < best->size)) best = block;
  }
  return static_cast<Block*>(best);
}

// In the oldest chunk that has such a block, the smallest there.
Pool::Block* Pool::FindShared(size_t bytes) noexcept {
  while (room_.Has(bytes)) {
    Chunk& chunk = *chunks_[room_.First(bytes)];
    FitNode* const found = chunk.tree.BestFit(bytes);
    if (found != nullptr) return static_cast<Block*>(found);
    SetRoom(chunk, chunk.tree.Largest());  // had been more
  }
  return nullptr;
}

// All of what the chunk takes in the end is asked for, but for the tail.
Allocation Pool::TakeChunk(size_t bytes, size_t* asked) {
  *asked = bytes;
  const size_t footprint = upstream_.FootprintBytes(bytes, alignment_);
  if (footprint != SIZE_MAX && footprint >= bytes + kReadableTailBytes) {
    const size_t all = (footprint - kReadableTailBytes) / alignment_ * alignment_;
    if (upstream_.FootprintBytes(all, alignment_) == footprint) *asked = all;
  }
  if (footprint == SIZE_MAX) return upstream_.Allocate(*asked, alignment_);
  MakeRoom(footprint);
  // Others may come in until it is there.
  asked_bytes_ += footprint;
  try {
    const Allocation chunk = upstream_.Allocate(*asked, alignment_);
    asked_bytes_ -= footprint;
    return chunk;
  } catch (...) {
    asked_bytes_ -= footprint;
    throw;
  }
}

// For a chunk and a block that is cut from it.
void Pool::ReserveRecords() {
  if (!HasNodes()) MakeNodes();
  chunks_.reserve(chunks_.size() + 1);
  room_.Reserve(chunks_.size() + 1);
}

Allocation Pool::AddChunk(size_t bytes, Block** whole) {
  const bool large = bytes > chunk_bytes_;
  ReserveRecords();
  auto chunk = std::make_unique<Chunk>();
  Allocation taken = TakeChunk(large ? bytes : chunk_bytes_, &chunk->bytes);
  if (!taken && taken.refusal != Refusal::kImpossible && bytes < chunk_bytes_) {
    taken = TakeChunk(bytes, &chunk->bytes);  // there may be room for the request alone
  }
  if (!taken) return taken;
  try {
    ReserveRecords();  // others may have used them
  } catch (...) {
    upstream_.Release(taken.token, chunk->bytes, alignment_);
    throw;
  }
  chunk->token = taken.token;
  chunk->footprint = upstream_.FootprintBytes(chunk->bytes, alignment_);
  chunk->large = large;
  Block* const node = NewNode();
  node->data = taken.data;
  node->size = chunk->bytes;
  node->chunk = chunk.get();
  node->previous_in_chunk = node->next_in_chunk = nullptr;
  chunk->first = node;
  owned_bytes_ += chunk->footprint;
  Poison(node->data, node->size);
  chunk->place = chunks_.size();
  chunk->room = large ? SIZE_MAX : 0;
  chunks_.push_back(std::move(chunk));
  AddFree(node);
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
  const size_t before = chunks_.size();
  std::erase_if(chunks_, [&](const std::unique_ptr<Chunk>& chunk) {
    if (!chunk->idle() || !goes(*chunk)) return false;
    bytes += GiveBack(*chunk);
    RecycleNode(chunk->first);
    return true;
  });
  if (chunks_.size() == before) return bytes;
  for (size_t place = 0; place < before; ++place) {
    size_t room = 0;
    if (place < chunks_.size()) {
      Chunk& chunk = *chunks_[place];
      chunk.place = place;
      if (!chunk.large) room = chunk.room;
    }
    room_.Set(place, room);
  }
  return bytes;
}

void Pool::MakeRoom(size_t footprint) noexcept {
  const size_t added = asked_bytes_ + footprint;
  const size_t peak = std::max({peak_used_bytes_, last_peak_used_bytes_, used_bytes_ + added});
  const size_t most = peak + Slack(peak) + chunk_bytes_;
  while (owned_bytes_ + added > most) {
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
  if (bytes > kMostBytes || alignment - 1 >= alignment_ || (alignment & (alignment - 1)) != 0) {
    return Allocation::Refused(Refusal::kImpossible, this, bytes);
  }
  bytes = std::max(alignment_, Rounded(bytes));
  if (!HasNodes()) MakeNodes();
  Block* block = bytes > chunk_bytes_ ? FindLarge(bytes) : FindShared(bytes);
  if (block == nullptr) {
    if (const Allocation chunk = AddChunk(bytes, &block); !chunk) return chunk;
  }
  TakeFree(block);
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
    AddFree(rest);
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
    TakeFree(next);
    block->size += next->size;
    block->next_in_chunk = next->next_in_chunk;
    if (block->next_in_chunk != nullptr) block->next_in_chunk->previous_in_chunk = block;
    RecycleNode(next);
  }
  if (Block* previous = block->previous_in_chunk; previous != nullptr && previous->free) {
    TakeFree(previous);
    previous->size += block->size;
    previous->next_in_chunk = block->next_in_chunk;
    if (previous->next_in_chunk != nullptr) previous->next_in_chunk->previous_in_chunk = previous;
    RecycleNode(block);
    block = previous;
  }
  AddFree(block);
}

}  // namespace tidepool
