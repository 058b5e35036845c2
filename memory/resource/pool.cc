#include "tidepool/memory/resource/pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/provider/poison.h"

namespace tidepool {
namespace {

constexpr size_t kFewestNodes = 64, kMostNodes = 1024;  // that are made at once
constexpr size_t kGrainOfChunks = 4096;  // so much more than what was asked for a chunk may have
constexpr size_t kMostGrownBytes = size_t{1} << 26;
constexpr size_t kLeastSharedBytes = size_t{1}
                                     << 20;  // requests of up to this share chunks that grow
constexpr size_t kCoarseChunkBytes = size_t{1} << 20;

// Sums of these tell apart sets of sizes, in whatever order they come.
uint64_t KindOf(uint64_t bytes) {
  bytes *= 0x9e3779b97f4a7c15u;
  return (bytes ^ bytes >> 32) * 0xd6e8feb86659fd93u;
}

// Of a sequence: what came before, and what comes next.
uint64_t Then(uint64_t before, uint64_t next) {
  before = (before ^ next) * 0x9e3779b97f4a7c15u;
  return before ^ before >> 29;
}

}  // namespace

Pool::Pool(MemoryResource& upstream, size_t chunk_bytes, size_t alignment, PoolGrowth growth)
    : upstream_(upstream),
      chunk_bytes_((chunk_bytes + alignment - 1) & ~(alignment - 1)),
      alignment_(alignment),
      grows_(growth.grows),
      coarse_alignment_(growth.coarse_alignment),
      chunk_alignment_(std::max(alignment, growth.coarse_alignment)),
      on_host_(upstream.device() == Host()),
      span_bytes_(chunk_bytes_),
      shared_bytes_(grows_ ? std::max(chunk_bytes_, kLeastSharedBytes) : chunk_bytes_) {
  if (!std::has_single_bit(alignment) || alignment < 16) {
    ThrowInvalidArgument(
        absl::StrCat("Pool: alignment ", alignment, ", expected a power of two of at least 16"));
  }
  if (coarse_alignment_ != 0 &&
      (!std::has_single_bit(coarse_alignment_) || coarse_alignment_ <= alignment)) {
    ThrowInvalidArgument(absl::StrCat("Pool: coarse alignment ", coarse_alignment_,
                                      ", expected 0 or a power of two beyond ", alignment));
  }
  if (chunk_bytes < kLeastChunkBytes || chunk_bytes > kMostBytes) {
    ThrowInvalidArgument(absl::StrCat("Pool: chunks of ", chunk_bytes, " bytes, expected ",
                                      kLeastChunkBytes, " to ", kMostBytes));
  }
}

Pool::~Pool() {
  for (auto& chunk : chunks_) {
    if (on_host_) UnpoisonBlock(chunk->first->data, chunk->bytes);
    GiveBack(std::move(chunk));
  }
}

void Pool::Poison(const std::byte* data, size_t bytes) const {
  if (on_host_) PoisonBlock(data, bytes);
}

size_t Pool::FootprintBytes(size_t bytes, size_t alignment) const {
  if (bytes > kMostBytes || alignment > chunk_alignment_) return SIZE_MAX;
  return RoundedTo(alignment > alignment_ ? coarse_alignment_ : alignment_, bytes);
}

// ---- records --------------------------------------------------------------------------------

// Before anything is changed: a chunk and a split take a node each.
void Pool::MakeNodes() {
  const size_t count = std::clamp(nodes_ / 2, kFewestNodes, kMostNodes);
  slabs_.emplace_back(count);
  nodes_ += count;
  for (size_t i = 0; i < count; ++i) RecycleNode(&slabs_.back()[i]);
}

// All of them: there are no chunks. Those of the time when there were most would stay for ever.
void Pool::DropNodes() noexcept {
  recycled_ = nullptr;
  decltype(slabs_)().swap(slabs_);
  nodes_ = 0;
}

Pool::Block* Pool::NewNode() noexcept { return std::exchange(recycled_, recycled_->next_in_chunk); }

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

// Then requests that have no chunks of their own, but are not small, cut large ones too: cycles of
// kinds that take turns have one memory, not one for each range of sizes.
bool Pool::CutsDeeply() const { return grows_ && looseness_ == kMostLoose; }

// Whether such a request may keep a large chunk of that size from going back. A fifth: what has
// doubled twice, however it is rounded.
bool Pool::MayHold(size_t bytes, size_t chunk_bytes) const {
  if (bytes > chunk_bytes) return false;
  if (of_one_uses_ > 0) return chunk_bytes - bytes <= bytes / 32;
  if (looseness_ < kLoose) return chunk_bytes - bytes <= bytes / 10;
  return bytes >= chunk_bytes / (CutsDeeply() ? kGrowth : 5);
}

void Pool::SetRoom(Chunk& chunk, size_t room) noexcept {
  chunk.room = room;
  room_[0].Set(chunk.place, Serves(chunk, false) ? room : 0);
  if (coarse_alignment_ > 0) room_[1].Set(chunk.place, Serves(chunk, true) ? room : 0);
}

// After what is owned has changed. What was live counts, because it is the same in each of the
// cycles that take turns: a chunk that goes between them would change which of the others serve.
void Pool::UpdateShared() noexcept {
  if (!grows_) return;
  span_bytes_ = SpanBytesFor(std::min(owned_bytes_, peak_used_bytes()));
  shared_bytes_ = std::max(span_bytes_, kLeastSharedBytes);
  for (const auto& chunk : chunks_) {
    const bool large = chunk->bytes > shared_bytes_ + kGrainOfChunks;
    if (large == chunk->large) continue;
    chunk->large = large;
    SetRoom(*chunk, large ? SIZE_MAX : chunk->tree.Largest());
  }
}

size_t Pool::SpanBytesFor(size_t live) const {
  const size_t grown = std::min(live / kGrowth, kMostGrownBytes) & ~(alignment_ - 1);
  return std::max(chunk_bytes_, grown);
}

// Twice: what was live varies a little, and a chunk that serves no more is missed.
bool Pool::FitToLive() noexcept {
  if (!grows_) return false;
  const size_t peak = peak_used_bytes();
  const size_t shared = std::max(SpanBytesFor(peak), kLeastSharedBytes);
  const size_t coarse = coarse_alignment_ > 0 ? kCoarseChunkBytes : 0;
  if (owned_bytes_ <= peak + Slack(peak, false) + shared + coarse) return false;
  for (const auto& chunk : chunks_) {
    if (chunk->large || chunk->bytes <= 2 * shared) continue;
    chunk->large = true;
    SetRoom(*chunk, SIZE_MAX);
  }
  return true;
}

// A chunk for requests of which it does not hold many is as long as those.
size_t Pool::ChunkBytesFor(size_t bytes, bool coarse) const {
  if (coarse) return std::max(bytes, grows_ ? kCoarseChunkBytes : chunk_bytes_);
  const size_t count = span_bytes_ / bytes;
  if (of_one_uses_ > 0)
    return HasOwnChunk(bytes) ? bytes : std::min(span_bytes_, std::max(4 * bytes, 2 * kLeastOfOne));
  return count >= kMany ? span_bytes_ : std::max<size_t>(count, 1) * bytes;
}

// All of what the chunk takes in the end is asked for, but for the tail.
Allocation Pool::TakeChunk(size_t bytes, bool coarse, size_t* asked) {
  *asked = bytes;
  const size_t footprint = upstream_.FootprintBytes(bytes, chunk_alignment_);
  if (footprint != SIZE_MAX && footprint >= bytes + kReadableTailBytes) {
    const size_t all = (footprint - kReadableTailBytes) / alignment_ * alignment_;
    if (upstream_.FootprintBytes(all, chunk_alignment_) == footprint) *asked = all;
  }
  if (footprint == SIZE_MAX) return upstream_.Allocate(*asked, chunk_alignment_);
  MakeRoom(*asked, footprint, coarse);
  // Others may come in until it is there.
  asked_bytes_ += footprint;
  try {
    const Allocation chunk = upstream_.Allocate(*asked, chunk_alignment_);
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
  room_[0].Reserve(chunks_.size() + 1);
  if (coarse_alignment_ > 0) room_[1].Reserve(chunks_.size() + 1);
}

Allocation Pool::AddChunk(size_t bytes, bool coarse, Block** whole) {
  const bool large = HasOwnChunk(bytes);
  size_t arena = coarse || !std::exchange(arena_is_due_, false) ? 0 : arena_bytes_;
  ReserveRecords();
  auto chunk = std::make_unique<Chunk>();
  Allocation taken = {};
  if (arena > 0 && arena_in_parts_) {
    chunk->bytes = std::max(arena, bytes);
    chunk->pages = upstream_.ReservePages(chunk->bytes);
    if (chunk->pages != nullptr) {
      taken = {chunk->pages->base(), chunk->pages.get()};
    } else {  // then it is not worth it as soon
      reserves_ = arena_in_parts_ = has_arenas_ = false;
      arena = arena_bytes_ = 0;
      strikes_ = 0;
    }
  }
  size_t wanted = arena > 0 ? std::max(arena, bytes) : ChunkBytesFor(bytes, coarse);
  if (!taken) taken = TakeChunk(wanted, coarse, &chunk->bytes);
  const bool is_arena = taken && arena > 0;
  if (!taken && taken.refusal != Refusal::kImpossible && bytes < wanted) {
    taken = TakeChunk(bytes, coarse, &chunk->bytes);  // there may be room for the request alone
  }
  if (!taken) return taken;
  try {
    ReserveRecords();  // others may have used them
  } catch (...) {
    chunk->token = taken.token;
    GiveBack(std::move(chunk));
    throw;
  }
  chunk->token = taken.token;
  chunk->footprint = chunk->pages != nullptr
                         ? chunk->pages->committed_bytes()
                         : upstream_.FootprintBytes(chunk->bytes, chunk_alignment_);
  chunk->large = large;
  chunk->coarse = coarse;
  chunk->is_arena = is_arena;
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
  if (is_arena && arena_ == nullptr) arena_ = chunk.get();
  chunks_.push_back(std::move(chunk));
  AddFree(node);
  UpdateShared();
  *whole = node;
  return taken;
}

// ---- blocks ---------------------------------------------------------------------------------

// In an arena what is large comes from the end: between the small ones it would leave gaps that are too small for the
// next of another size. But not where less memory would have to come at the front.
bool Pool::IsFromEnd(const Block& block, size_t bytes) const noexcept {
  const Pages* const pages = arena_->pages.get();
  if (bytes < (pages != nullptr ? arena_peak_ : arena_->bytes) / kGrowth) return false;
  if (pages == nullptr) return true;
  const auto offset = static_cast<size_t>(block.data - pages->base());
  const size_t lacks = pages->HoleBytesIn(offset + block.size - bytes, bytes);
  return lacks == 0 || lacks <= pages->HoleBytesIn(offset, bytes);
}

// As many bytes of a free block, for a live one; the rest stays free, and mostly where it is in the tree.
Pool::Block* Pool::Cut(Block* block, size_t bytes, bool coarse) noexcept {
  Chunk& chunk = *block->chunk;
  const bool begins = coarse_alignment_ > 0 && chunk.idle();
  Block* live = block;
  if (block->size == bytes) {
    TakeFree(block);
  } else {
    live = NewNode();
    live->size = bytes;
    live->chunk = &chunk;
    live->free = false;
    if (&chunk == arena_ && IsFromEnd(*block, bytes)) {
      live->data = block->data + (block->size - bytes);
      live->previous_in_chunk = block;
      live->next_in_chunk = std::exchange(block->next_in_chunk, live);
      if (live->next_in_chunk != nullptr) live->next_in_chunk->previous_in_chunk = live;
    } else {
      live->data = std::exchange(block->data, block->data + bytes);
      live->next_in_chunk = block;
      live->previous_in_chunk = std::exchange(block->previous_in_chunk, live);
      (live->previous_in_chunk != nullptr ? live->previous_in_chunk->next_in_chunk : chunk.first) =
          live;
    }
    chunk.tree.Resize(block, block->size - bytes);
  }
  if (begins) {  // from here on it is for blocks of this kind
    kinds_share_ |= chunk.coarse != coarse;
    chunk.coarse = coarse;
    SetRoom(chunk, chunk.room);
  }
  return live;
}

Allocation Pool::Allocate(size_t bytes, size_t alignment) {
  if (bytes > kMostBytes || alignment - 1 >= chunk_alignment_ ||
      (alignment & (alignment - 1)) != 0) {
    return Allocation::Refused(Refusal::kImpossible, this, bytes);
  }
  const bool coarse = alignment > alignment_;
  bytes = RoundedTo(coarse ? coarse_alignment_ : alignment_, bytes);
  if (bytes >= kHugeBytes) [[unlikely]]
    huge_ += KindOf(bytes);
  if (!HasNodes()) MakeNodes();
  Block* block = nullptr;
  if (arena_ != nullptr && !arena_->busy && !coarse)
    block = static_cast<Block*>(arena_->tree.BestFit(bytes));
  if (block == nullptr && (coarse || !arena_is_due_)) {
    block = HasOwnChunk(bytes) ? FindLarge(bytes, coarse) : FindShared(bytes, coarse);
  }
  if (block == nullptr) {
    if (const Allocation chunk = AddChunk(bytes, coarse, &block); !chunk) return chunk;
  }
  block = Cut(block, bytes, coarse);
  if (block->chunk->pages != nullptr && !FillOrJoin(block)) [[unlikely]] {
    if (const Allocation chunk = AddChunk(bytes, coarse, &block); !chunk) return chunk;
    block = Cut(block, bytes, coarse);
  }
  if (on_host_) UnpoisonBlock(block->data, bytes);
  block->chunk->used_in = use_;
  used_bytes_ += bytes;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
  if (!coarse) {
    peak_fine_bytes_ = std::max(peak_fine_bytes_, fine_bytes_ += bytes);
    if (grows_) kind_ = Then(kind_, bytes);
    if (block->chunk != arena_)
      peak_beside_bytes_ = std::max(peak_beside_bytes_, beside_bytes_ += bytes);
  }
  ++block_count_;
  return {block->data, block};
}

void Pool::Release(void* token, size_t, size_t) noexcept {
  auto* block = static_cast<Block*>(token);
  Poison(block->data, block->size);
  block->chunk->used_in = use_;
  used_bytes_ -= block->size;
  if (!block->chunk->coarse) {
    fine_bytes_ -= block->size;
    if (block->chunk != arena_) beside_bytes_ -= block->size;
    if (grows_) kind_ = Then(kind_, block->size + 1);
  }
  --block_count_;
  Join(block);
}

// Free from here on, and one with its free neighbours.
void Pool::Join(Block* block) noexcept {
  Chunk& chunk = *block->chunk;
  Block* const previous = block->previous_in_chunk;
  Block* const next = block->next_in_chunk;
  Block* whole = block;
  if (previous != nullptr && previous->free) {
    size_t size = previous->size + block->size;
    Block* after = next;
    if (next != nullptr && next->free) {
      TakeFree(next);
      size += next->size;
      after = next->next_in_chunk;
      RecycleNode(next);
    }
    previous->next_in_chunk = after;
    if (after != nullptr) after->previous_in_chunk = previous;
    chunk.tree.Resize(previous, size);
    RecycleNode(block);
    whole = previous;
  } else if (next != nullptr && next->free) {
    next->data = block->data;
    next->previous_in_chunk = previous;
    (previous != nullptr ? previous->next_in_chunk : chunk.first) = next;
    chunk.tree.Resize(next, next->size + block->size);
    RecycleNode(block);
    whole = next;
  } else {
    block->free = true;
    chunk.tree.Insert(block);
  }
  if (chunk.room < whole->size) SetRoom(chunk, whole->size);
  if (coarse_alignment_ > 0 && chunk.idle()) SetRoom(chunk, chunk.room);
}

}  // namespace tidepool
