// What goes back of a pool, and when.
#include <algorithm>
#include <new>
#include <utility>

#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool {
namespace {

constexpr size_t kArenaPart = 16;  // of what is live, an arena has also
// Addresses of one whose memory comes and goes in parts, by what is live.
constexpr size_t kAddresses = 3, kFewestAddresses = 2;

}  // namespace

// Nothing here knows of the chunk any more, so whoever is called may come in.
void Pool::GiveBack(std::unique_ptr<Chunk> chunk) noexcept {
  if (chunk->pages == nullptr) upstream_.Release(chunk->token, chunk->bytes, chunk_alignment_);
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

// Bytes owned beyond what was live. An arena has its own; beside it only chunks of the other kind
// pay for not going in turns with it.
size_t Pool::Slack(size_t peak, bool coarse) const {
  const bool arena_serves = arena_ != nullptr && !coarse && !keeps_blocks_;
  if (looseness_ < kLoose || arena_serves) return peak / 10;
  return std::min(peak, peak / 4 << (looseness_ - kLoose));
}

// First those go that the new one, of so many bytes, can serve for; else kinds of cycles that take
// turns would each take away what the next one needs.
void Pool::MakeRoom(size_t bytes, size_t footprint, bool coarse) noexcept {
  const size_t added = asked_bytes_ + footprint;
  const size_t peak = std::max(peak_used_bytes(), used_bytes_ + added);
  const size_t most = peak + Slack(peak, coarse) + shared_bytes_;
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
  const size_t bytes = GiveBackWhere([](const Chunk&) { return true; });
  // Else the next use would have chunks of many sizes again.
  arena_is_due_ = has_arenas_ && arena_ == nullptr;
  return bytes + upstream_.Trim();
}

size_t Pool::TrimIf(absl::FunctionRef<bool(void*)> goes) noexcept {
  return GiveBackWhere([&](const Chunk& chunk) { return goes(chunk.token); });
}

// Whether a use is of a kind that comes again, by its huge requests. Those of 256 kinds in turns
// are known when they come the second time. True: such uses have come for some time.
bool Pool::JudgeHuge() noexcept {
  if (huge_ == 0) return false;
  last_huge_use_ = use_;
  strange_uses_ =
      huge_kinds_.Note(std::exchange(huge_, 0)) ? 0 : std::min(strange_uses_ + 1, kStrange);
  if (strange_uses_ < kStrange) return false;
  if (has_arenas_) return true;  // they hold little more, and are there
  looseness_ = 0;
  MakeRoom(0, 0, false);
  makes_room_ = false;
  return true;
}

// At first; more where that proves too little.
size_t Pool::ArenaBytesFor(size_t peak) const { return peak + peak / kArenaPart + kArenaSlack; }

// It comes with the next request.
void Pool::ReplaceArena(size_t bytes, size_t peak, bool in_parts) noexcept {
  GiveBackWhere([](const Chunk& chunk) { return !chunk.coarse; });
  arena_bytes_ = std::min(bytes, kMostBytes) & ~(alignment_ - 1);
  arena_in_parts_ = in_parts;
  arena_peak_ = peak;
  arena_is_due_ = true;
}

// Once, where it matters: whether what it wraps has addresses without memory.
void Pool::AskWhetherItReserves() noexcept {
  asked_reserves_ = true;
  try {
    reserves_ = upstream_.ReservePages(kLeastInParts) != nullptr;
  } catch (...) {  // no memory for it, or the device is lost: it does without
  }
}

// What chunks of many sizes hold beyond what is live is none of one that all sizes share.
void Pool::FitArena(bool made_room, bool strange, uint64_t kept) noexcept {
  if (!grows_) return;
  const uint64_t kind = std::exchange(kind_, 0);
  const bool at_once = std::exchange(last_kind_, kind) == kind;
  if (!at_once || kind == 0) {
    equal_uses_ = 0;
    had_others_ = true;
  } else if (equal_uses_ < kEqualUses) {
    ++equal_uses_;
  }
  const size_t beside = std::exchange(peak_beside_bytes_, beside_bytes_);
  keeps_blocks_ = fine_bytes_ > 0;
  const bool kinds_share = std::exchange(kinds_share_, false);
  const bool huge = last_huge_use_ > 0 && use_ - last_huge_use_ < kept;
  const bool reached = std::exchange(reaches_, false);
  const bool is_short = std::exchange(is_short_, false);
  if (keeps_blocks_) return;
  const size_t peak = std::max(peak_fine_bytes_, last_peak_fine_bytes_);
  const size_t most = MostWithGaps(peak);
  if (!has_arenas_) {
    size_t owned = 0;
    for (const auto& chunk : chunks_) owned += chunk->coarse ? 0 : chunk->bytes;
    if (!asked_reserves_ && (is_short || made_room || owned > ArenaBytesFor(peak)))
      AskWhetherItReserves();
    // Chunks that serve the same uses, or small and large blocks in turns, serve them for nothing.
    const bool settles = kinds_share || equal_uses_ > 0 || !reserves_;
    const bool wastes = made_room || owned > (settles ? most : ArenaBytesFor(peak));
    strikes_ += wastes && (!strange || reserves_);
    if (is_short) strikes_ = kStrikes;
    if (strikes_ < kStrikes) return;
    has_arenas_ = true;
    had_others_ = equal_uses_ == 0;
    overflows_ = 0;
    if (!reserves_ || peak < kLeastInParts) return ReplaceArena(ArenaBytesFor(peak), peak);
    few_gaps_ = strange;
    return FitParts(peak, /*beside=*/0);
  }
  if (reserves_ && (peak >= kLeastInParts || (arena_ != nullptr && arena_->pages != nullptr))) {
    few_gaps_ = strange;
    FitGaps(kind, peak, huge, reached);
    return FitParts(peak, beside);
  }
  if (beside > 0) {
    const bool comes_again = overflowed_.Note(kind);
    if (!comes_again) overflows_ = std::min(overflows_ + 1, kOverflowsBeforeWide + 1);
    if (arena_ == nullptr) {  // it had to go for something larger
      return ReplaceArena(std::max(ArenaBytesFor(peak), arena_bytes_), peak);
    }
    const size_t wide = overflows_ > kOverflowsBeforeWide ? most + peak / 8 : most;
    const size_t step = at_once ? std::min(beside, peak / 8 + kArenaSlack) : beside;
    const size_t wanted =
        std::min(arena_->bytes + step, comes_again ? 2 * peak + kArenaSlack : wide);
    if (wanted > arena_->bytes) return ReplaceArena(wanted, peak);
    GiveBackWhere([this](const Chunk& chunk) { return !chunk.coarse && &chunk != arena_; });
    return;
  }
  // All of its pages come anew with another one, so that is for having far less, as what is live
  // varies where kinds come less often than uses count.
  if (arena_peak_ - std::min(arena_peak_, peak) > peak / 2 + kArenaSlack) {
    return ReplaceArena(ArenaBytesFor(peak), peak);
  }
  arena_is_due_ = arena_ == nullptr;  // nothing was asked for, and it had to go for coarse blocks
}

// What comes again settles in memory rather than in system calls, until others come for so many uses; but not huge
// requests, beside which a malloc that maps them holds nothing.
void Pool::FitGaps(uint64_t kind, size_t peak, bool huge, bool reached) noexcept {
  const int made = std::exchange(made_holes_, 0);
  const bool is_busy =
      std::exchange(is_busy_, false) | (std::exchange(filled_bytes_, 0) > peak / 2);
  const bool was_busy = std::exchange(was_busy_, is_busy);
  const bool equal = equal_uses_ > 0;
  const size_t most = huge ? kManyGaps : kMostGaps;
  if (!equal) gaps_ = std::min(gaps_, most);
  const bool is_loose = gaps_ > kManyGaps;
  const bool known = (made > 0 || is_loose) && overflowed_.Note(kind);
  if (known || !is_loose) {
    unknown_uses_ = 0;
  } else if (++unknown_uses_ == kForgets) {
    unknown_uses_ = 0;
    gaps_ = gaps_ > kBusyGaps ? kManyGaps : gaps_ - 1;
  }
  if (equal && reached && arena_ != nullptr) {
    const size_t beside = arena_->footprint - std::min(arena_->footprint, peak + kArenaSlack);
    gaps_ = std::clamp(beside / std::max<size_t>(peak / kGrowth, 1) + 1, gaps_, kMostGaps);
  }
  // What went back of such a use comes again in the next one. (At once it would be held where there is no need: the
  // bound makes large blocks find memory that others left.)
  reaches_ = equal && made > 0 && (!(huge && had_others_) || equal_uses_ == kEqualUses);
  if (made > 0 && known) {
    gaps_ = std::max(gaps_, std::min(gaps_ + 2, most));
  } else if (was_busy && is_busy) {
    gaps_ = std::max(gaps_, std::min(gaps_ + 1, kBusyGaps));
  } else if (made > kManyHoles && peak < kHugeBytes) {
    gaps_ = std::max(gaps_, std::min(gaps_ + 1, kManyGaps));
  }
}

// Its memory comes where blocks are, so it has addresses enough.
void Pool::FitParts(size_t peak, size_t beside) noexcept {
  const size_t addresses = kAddresses * peak + kArenaSlack;
  const bool lacks = arena_ == nullptr || arena_->pages == nullptr ||
                     arena_->bytes < kFewestAddresses * peak ||
                     (beside > 0 && addresses > arena_->bytes);
  // All of its pages come anew with another one.
  const bool far_less = arena_peak_ - std::min(arena_peak_, peak) > peak / 8 + kArenaSlack;
  if (far_less) gaps_ = kFewestGaps;
  if (lacks || far_less) return ReplaceArena(addresses, peak, /*in_parts=*/true);
  if (beside > 0)
    GiveBackWhere([this](const Chunk& chunk) { return !chunk.coarse && &chunk != arena_; });
  FitHeld(MostHeld(peak));
}

size_t Pool::TrimIdle(int uses) noexcept {
  for (const auto& chunk : chunks_) {
    if (!chunk->idle()) chunk->used_in = use_;
  }
  const uint64_t kept = static_cast<uint64_t>(std::max(uses, 1));
  const size_t bytes =
      GiveBackWhere([&](const Chunk& chunk) { return use_ - chunk.used_in >= kept; });
  ++use_;
  of_one_uses_ -= of_one_uses_ > 0;
  const bool made_room = std::exchange(makes_room_, false);
  if (made_room) looseness_ = std::min(looseness_ + 1, kMostLoose);
  if (chunks_.empty()) {
    looseness_ = strikes_ = 0;
    has_arenas_ = false;
    arena_is_due_ = false;
  }
  FitArena(made_room, JudgeHuge(), kept);
  if (++uses_of_peak_ >= kept) {
    uses_of_peak_ = 0;
    last_peak_used_bytes_ = std::exchange(peak_used_bytes_, used_bytes_);
    last_peak_fine_bytes_ = std::exchange(peak_fine_bytes_, fine_bytes_);
  }
  return bytes + upstream_.TrimIdle(uses);
}

}  // namespace tidepool
