#include "tidepool/memory/resource/pool.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/poison.h"

namespace tidepool {
namespace {

constexpr int kNodesPerSlab = 64;

}  // namespace

Pool::Pool(size_t chunk_bytes, size_t alignment, PagesOptions pages, DeviceProvider& provider)
    : chunk_bytes_(std::max<size_t>(chunk_bytes, 4096)),
      alignment_(alignment),
      pages_options_(pages),
      provider_(&provider),
      host_readable_(provider.traits().host_readable) {
  if (!std::has_single_bit(alignment) || alignment < 16) {
    ThrowInvalidArgument(
        absl::StrCat("Pool: alignment ", alignment, ", expected a power of two of at least 16"));
  }
}

Pool::~Pool() {
  for (const Chunk& chunk : chunks_) {
    if (chunk.pages != nullptr && host_readable_) {
      UnpoisonBlock(chunk.pages->base(), ChunkBytes(chunk));
    }
  }
}

// Only addresses of the host's own have an AddressSanitizer shadow.
void Pool::Poison(const std::byte* data, size_t bytes) const {
  if (host_readable_) PoisonBlock(data, bytes);
}

size_t Pool::ChunkBytes(const Chunk& chunk) const {
  return (chunk.pages->committed_bytes() - kReadableTailBytes) / alignment_ * alignment_;
}

// Sizes below kSubdivisions granules have a list of their own each (level 0).
void Pool::Map(size_t granules, int* level, int* subdivision) const {
  if (granules < kSubdivisions) {
    *level = 0;
    *subdivision = static_cast<int>(granules);
    return;
  }
  const int highest = std::bit_width(granules) - 1;
  *level = highest - kSubdivisionBits + 1;
  *subdivision = static_cast<int>(granules >> (highest - kSubdivisionBits)) & (kSubdivisions - 1);
}

Pool::Block* Pool::FindFree(size_t bytes) {
  size_t granules = bytes / alignment_;
  if (granules >= kSubdivisions) {
    // Round up to the next list, whose every block is large enough.
    granules += (size_t{1} << (std::bit_width(granules) - 1 - kSubdivisionBits)) - 1;
  }
  int level, subdivision;
  Map(granules, &level, &subdivision);
  if (level >= kLevels) return nullptr;
  uint32_t in_level = subdivision_bits_[level] & (~uint32_t{0} << subdivision);
  if (in_level == 0) {
    const uint64_t above = level + 1 < 64 ? level_bits_ & (~uint64_t{0} << (level + 1)) : 0;
    if (above == 0) return nullptr;
    level = std::countr_zero(above);
    in_level = subdivision_bits_[level];
  }
  return lists_[level][std::countr_zero(in_level)];
}

void Pool::InsertFree(Block* block) {
  int level, subdivision;
  Map(block->bytes / alignment_, &level, &subdivision);
  Block*& head = lists_[level][subdivision];
  block->free = true;
  block->previous_free = nullptr;
  block->next_free = head;
  if (head != nullptr) head->previous_free = block;
  head = block;
  level_bits_ |= uint64_t{1} << level;
  subdivision_bits_[level] |= uint32_t{1} << subdivision;
}

void Pool::RemoveFree(Block* block) {
  int level, subdivision;
  Map(block->bytes / alignment_, &level, &subdivision);
  block->free = false;
  if (block->next_free != nullptr) block->next_free->previous_free = block->previous_free;
  if (block->previous_free != nullptr) {
    block->previous_free->next_free = block->next_free;
    return;
  }
  lists_[level][subdivision] = block->next_free;
  if (block->next_free == nullptr) {
    subdivision_bits_[level] &= ~(uint32_t{1} << subdivision);
    if (subdivision_bits_[level] == 0) level_bits_ &= ~(uint64_t{1} << level);
  }
}

// Before anything is changed: a chunk and a split take a node each.
void Pool::ReserveNodes() {
  if (recycled_ != nullptr && recycled_->next_free != nullptr) return;
  slabs_.push_back(std::make_unique<Block[]>(kNodesPerSlab));
  for (int i = 0; i < kNodesPerSlab; ++i) RecycleNode(&slabs_.back()[i]);
}

Pool::Block* Pool::NewNode() {
  Block* node = recycled_;
  recycled_ = node->next_free;
  *node = Block{};
  return node;
}

void Pool::RecycleNode(Block* node) {
  node->next_free = recycled_;
  recycled_ = node;
}

Pool::Block* Pool::AddChunk(size_t bytes) {
  const size_t wanted = std::max(bytes, chunk_bytes_);
  PagesOptions options = pages_options_;
  options.reserve_bytes = wanted + kReadableTailBytes;
  auto pages = std::make_unique<Pages>(options, *provider_);
  try {
    pages->Resize(wanted);
  } catch (const OutOfMemoryError&) {
    if (wanted == bytes) throw;
    pages->Resize(bytes);  // there may be room for the request alone
  }
  // A free slot of an earlier, trimmed chunk is used again before the list grows.
  size_t index = 0;
  while (index < chunks_.size() && chunks_[index].pages != nullptr) ++index;
  if (index == chunks_.size()) chunks_.emplace_back();
  Block* node = NewNode();
  node->data = pages->base();
  node->chunk = static_cast<uint32_t>(index);
  owned_bytes_ += pages->committed_bytes();
  chunks_[index] = Chunk{std::move(pages), node};
  node->bytes = ChunkBytes(chunks_[index]);
  Poison(node->data, node->bytes);
  InsertFree(node);
  return node;
}

Pool::Block* Pool::Allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 4) {
    throw OutOfMemoryError(absl::StrCat("Pool: a block of ", bytes, " bytes cannot exist"),
                           MemoryTracker::Global().Snapshot().ToString());
  }
  bytes = std::max(alignment_, (bytes + alignment_ - 1) / alignment_ * alignment_);
  ReserveNodes();
  Block* block = FindFree(bytes);
  if (block == nullptr) block = AddChunk(bytes);
  if (block->bytes > bytes) {
    Block* rest = NewNode();
    RemoveFree(block);
    rest->data = block->data + bytes;
    rest->bytes = block->bytes - bytes;
    rest->chunk = block->chunk;
    rest->previous_in_chunk = block;
    rest->next_in_chunk = block->next_in_chunk;
    if (rest->next_in_chunk != nullptr) rest->next_in_chunk->previous_in_chunk = rest;
    block->next_in_chunk = rest;
    block->bytes = bytes;
    InsertFree(rest);
  } else {
    RemoveFree(block);
  }
  if (host_readable_) UnpoisonBlock(block->data, bytes);
  used_bytes_ += bytes;
  ++block_count_;
  return block;
}

void Pool::Release(Block* block) noexcept {
  Poison(block->data, block->bytes);
  used_bytes_ -= block->bytes;
  --block_count_;
  if (Block* next = block->next_in_chunk; next != nullptr && next->free) {
    RemoveFree(next);
    block->bytes += next->bytes;
    block->next_in_chunk = next->next_in_chunk;
    if (block->next_in_chunk != nullptr) block->next_in_chunk->previous_in_chunk = block;
    RecycleNode(next);
  }
  if (Block* previous = block->previous_in_chunk; previous != nullptr && previous->free) {
    RemoveFree(previous);
    previous->bytes += block->bytes;
    previous->next_in_chunk = block->next_in_chunk;
    if (previous->next_in_chunk != nullptr) previous->next_in_chunk->previous_in_chunk = previous;
    RecycleNode(block);
    block = previous;
  }
  InsertFree(block);
}

void Pool::Trim() {
  for (Chunk& chunk : chunks_) {
    if (chunk.pages == nullptr || !chunk.first->free || chunk.first->next_in_chunk != nullptr) continue;
    RemoveFree(chunk.first);
    RecycleNode(chunk.first);
    if (host_readable_) UnpoisonBlock(chunk.pages->base(), ChunkBytes(chunk));
    owned_bytes_ -= chunk.pages->committed_bytes();
    chunk = Chunk{};
  }
}

}  // namespace tidepool
