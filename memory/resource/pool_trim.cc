// What goes back of a pool, and when.
#include <algorithm>
#include <new>
#include <utility>

#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool {
namespace {

constexpr size_t kArenaSlack = size_t{1} << 20;  // beside what is live

}  // namespace

// Nothing here knows of the chunk any more, so whoever is called may come in.
void Pool::GiveBack(std::unique_ptr<Chunk> chunk) noexcept {
  upstream_.Release(chunk->token, chunk->bytes, chunk_alignment_);
}

template <typename Predicate>
size_t Pool::GiveBackWhere(const Predicate& goes) noexcept {
  std::unique_ptr<Chunk> leaving;
  size_t bytes = 0;
  const size_t before = chunks_.size();
  std::erase_if(chunks_, [&](std::unique_ptr<Chunk>& chunk) {
    if (!chunk->idle() || !goes(*chunk)) return false;
    bytes += chunk->footprint;
    if (chunk.get() == arena_) arena_ = nullptr;
    if (on_host_) UnpoisonBlock(chunk->first->data, chunk->bytes);
    RecycleNode(chunk->first);
    chunk->next_leaving = std::move(leaving);
    leaving = std::move(chunk);
    return true;
  });
  if (leaving == nullptr) return 0;
  owned_bytes_ -= bytes;
  if (chunks_.empty()) DropNodes();
  for (size_t place = 0; place < before; ++place) {
    if (place < chunks_.size()) {
      Chunk& chunk = *chunks_[place];
      chunk.place = place;
      SetRoom(chunk, chunk.room);
    } else {
      room_[0].Set(place, 0);
      if (coarse_alignment_ > 0) room_[1].Set(place, 0);
    }
  }
  UpdateShared();
  while (leaving != nullptr) {
    std::unique_ptr<Chunk> next = std::move(leaving->next_leaving);
    GiveBack(std::exchange(leaving, std::move(next)));
  }
  return bytes;
}

// Bytes owned beyond what was live.
size_t Pool::Slack(size_t peak) const {
  if (arena_ != nullptr) return peak / 10;  // it has its own
  if (looseness_ < kLoose) return peak / 10;
  return std::min(peak, peak / 4 << (looseness_ - kLoose));
}

// First those go that the new one, of so many bytes, can serve for; else kinds of cycles that take
// turns would each take away what the next one needs.
void Pool::MakeRoom(size_t bytes, size_t footprint) noexcept {
  const size_t added = asked_bytes_ + footprint;
  const size_t peak = std::max(peak_used_bytes(), used_bytes_ + added);
  const size_t most = peak + Slack(peak) + shared_bytes_;
  while (owned_bytes_ + added > most) {
    const Chunk* oldest = nullptr;
    bool oldest_replaced = false;
    for (const auto& chunk : chunks_) {
      if (!chunk->idle()) continue;
      const bool replaced = chunk->large && MayHold(chunk->bytes, bytes);
      if (oldest == nullptr || replaced > oldest_replaced ||
          (replaced == oldest_replaced && chunk->used_in < oldest->used_in)) {
        oldest = chunk.get();
        oldest_replaced = replaced;
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

size_t Pool::TrimIf(absl::FunctionRef<bool(void*)> goes) noexcept {
  return GiveBackWhere([&](const Chunk& chunk) { return goes(chunk.token); });
}

// Whether a use is of a kind that comes again, by its huge requests. Those of 256 kinds in turns
// are known when they come the second time. True: such uses have come for some time.
bool Pool::JudgeHuge() noexcept {
  if (huge_ == 0) return false;
  if (std::find(kinds_.begin(), kinds_.end(), huge_) != kinds_.end()) {
    strange_uses_ = 0;
  } else {
    NoteKind(huge_);
    strange_uses_ = std::min(strange_uses_ + 1, kStrange);
  }
  huge_ = 0;
  if (strange_uses_ < kStrange) return false;
  if (arena_ != nullptr) return true;  // it holds little more, and is there
  looseness_ = 0;
  MakeRoom(0, 0);
  makes_room_ = false;
  return true;
}

// Without the memory for one more, as many are known as there was memory for.
void Pool::NoteKind(uint64_t kind) noexcept {
  if (kinds_.size() < kKindsKnown) {
    try {
      kinds_.push_back(kind);
      return;
    } catch (const std::bad_alloc&) {
      if (kinds_.empty()) return;
    }
  }
  kinds_[next_kind_ % kinds_.size()] = kind;
  next_kind_ = (next_kind_ + 1) % kinds_.size();
}

// What chunks of many sizes hold beyond what is live is none of one that all sizes share.
void Pool::FitArena(bool made_room, bool strange) noexcept {
  if (!grows_) return;
  const uint64_t last = std::exchange(last_kind_, std::exchange(kind_, 0));
  const bool varies = last != last_kind_;
  if (fine_bytes_ > 0) return;
  const size_t peak = std::max(peak_fine_bytes_, last_peak_fine_bytes_);
  const size_t wide = std::min(peak + peak / 8 * 3 + kArenaSlack, kMostBytes);
  const size_t most = overflows_ < kOverflowsBeforeWide ? wide - peak / 8 : wide;
  size_t owned = 0;
  for (const auto& chunk : chunks_) owned += chunk->coarse ? 0 : chunk->bytes;
  if (arena_ == nullptr) {
    if (!varies) strikes_ = 0;
    // Without one it did not settle either.
    const bool again = use_ < no_arena_until_;
    strikes_ += varies && !strange && (made_room || (owned > most && !again));
    if (strikes_ < kStrikes) return;
    strikes_ = 0;
    overflows_ = again ? kOverflowsBeforeWide : 0;
    arena_stays_ = again;
  } else if (owned > arena_->bytes) {
    const auto goes = [this](const Chunk& chunk) { return !chunk.coarse && &chunk != arena_; };
    if (arena_->bytes >= most - most / 16) {
      overflows_ = std::min(overflows_ + 1, kOverflowsBeforeNone);
      if (overflows_ == kOverflowsBeforeNone && !arena_stays_) {  // its gaps never fit
        no_arena_until_ = use_ + (kUsesWithoutArena << arenas_in_vain_);
        arenas_in_vain_ = std::min(arenas_in_vain_ + 1, kMostArenasInVain);
        GiveBackWhere([](const Chunk& chunk) { return !chunk.coarse; });
        return;
      }
      if (overflows_ != kOverflowsBeforeWide) {
        GiveBackWhere(goes);
        return;
      }
    }
  } else if (arena_->bytes - std::min(arena_->bytes, peak) <= 2 * (most - peak)) {
    // All of its pages come anew with another one, so that is for having less than half of what it
    // holds beyond the most that is live, which varies where kinds come less often than uses count.
    return;
  }
  arena_bytes_ = (overflows_ < kOverflowsBeforeWide ? wide - peak / 8 : wide) & ~(alignment_ - 1);
  GiveBackWhere([](const Chunk& chunk) { return !chunk.coarse; });
}

size_t Pool::TrimIdle(int uses) noexcept {
  for (const auto& chunk : chunks_) {
    if (!chunk->idle()) chunk->used_in = use_;
  }
  const uint64_t kept = static_cast<uint64_t>(std::max(uses, 1));
  const size_t bytes =
      GiveBackWhere([&](const Chunk& chunk) { return use_ - chunk.used_in >= kept; });
  ++use_;
  const bool made_room = std::exchange(makes_room_, false);
  if (made_room) looseness_ = std::min(looseness_ + 1, kMostLoose);
  if (chunks_.empty()) looseness_ = 0;
  FitArena(made_room, JudgeHuge());
  if (++uses_of_peak_ >= kept) {
    uses_of_peak_ = 0;
    last_peak_used_bytes_ = std::exchange(peak_used_bytes_, used_bytes_);
    last_peak_fine_bytes_ = std::exchange(peak_fine_bytes_, fine_bytes_);
  }
  return bytes + upstream_.TrimIdle(uses);
}

}  // namespace tidepool
