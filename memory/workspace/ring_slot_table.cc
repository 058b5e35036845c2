#include "tidepool/memory/workspace/ring_slot_table.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {

namespace internal {

thread_local constinit uint64_t thread_number = 0;

uint64_t NumberThisThread() {
  static std::atomic<uint64_t> last{0};
  thread_number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return thread_number;
}

}  // namespace internal

// ---- slots come and go ------------------------------------------------------------------------

int RingSlotTable::Announce(bool temporary) {
  const size_t coming = slots_.size() + static_cast<size_t>(being_made_) + 1;
  if (coming > slots_.capacity()) slots_.reserve(2 * coming);  // so that Add() cannot fail
  if (temporary) ++temporary_;
  return static_cast<int>(slots_.size()) + being_made_++;
}

RingSlot* RingSlotTable::Add(std::unique_ptr<RingSlot> slot) noexcept {
  --being_made_;
  slot->place = slots_.size();
  slots_.push_back(std::move(slot));
  return slots_.back().get();
}

void RingSlotTable::CannotAdd(bool temporary) noexcept {
  --being_made_;
  if (temporary) --temporary_;
}

void RingSlotTable::Remove(RingSlot* slot, RingSlot** removed) noexcept {
  std::unique_ptr<RingSlot>& at = slots_[slot->place];
  (void)at.release();
  at = std::move(slots_.back());
  slots_.pop_back();
  if (slot->place < slots_.size()) at->place = slot->place;
  if (slot->temporary) --temporary_;
  slot->next_on_shelf.set(std::exchange(*removed, slot));
}

// ---- opening ----------------------------------------------------------------------------------

void RingSlotTable::SetWaiting(bool waits) noexcept {
  const uint64_t me = ThreadNumber();
  for (const auto& slot : slots_) {
    RingSlot::Standing& standing = slot->standing;
    if (standing.thread != me || standing.thread_waits == waits) continue;
    standing.thread_waits = waits;
    if (standing.state == RingSlot::State::kOpen) open_waiting_ += waits ? 1 : -1;
  }
}

// ---- leases -----------------------------------------------------------------------------------

void RingSlotTable::SetTag(RingSlot* slot, std::string_view tag) noexcept {
  try {
    slot->standing.tag.assign(tag);
  } catch (const std::exception&) {
    // Without memory for it the batch has no name.
  }
}

void RingSlotTable::SetReader(RingSlot* slot, const void* channel) noexcept {
  slot->standing.reader = ThreadNumber();
  slot->standing.channel = channel;
}

bool RingSlotTable::KeepReadersSlots(const void* channel) noexcept {
  const uint64_t me = ThreadNumber();
  bool keeps = false;
  for (const auto& slot : slots_) {
    if (slot->standing.reader != me || slot->standing.channel != channel) continue;
    keeps = true;
    if (!slot->standing.kept) Mark(slot.get(), 0);
  }
  return keeps;
}

void RingSlotTable::Keep(RingSlot* slot, std::string_view tag) {
  RingSlot::Standing& standing = slot->standing;
  std::string new_tag(tag.empty() ? std::string_view(standing.tag) : tag);
  if (!IsKept(*slot)) {
    const int kept = CountKept() + 1;
    const bool too_many =
        config_.ring_max_kept > 0
            ? kept > config_.ring_max_kept
            : config_.policy_ring_full == RingFullPolicy::kWait && kept >= config_.ring_slots;
    if (too_many) {
      ThrowResourceExhausted(absl::StrCat(
          "ring [", id_, "]: generation ", slot->generation(), " would be kept slot number ", kept,
          " of ", config_.ring_slots,
          config_.ring_max_kept > 0 ? absl::StrCat(", ring_max_kept is ", config_.ring_max_kept)
                                    : std::string(", none would be left"),
          ": ", DescribeTaken(), "; Detach what is kept, or use more slots"));
    }
  }
  standing.tag.swap(new_tag);
  standing.thread_waits = false;  // this one does not, whoever kept it before
  if (!standing.kept) {
    Mark(slot, ThreadNumber());
  } else {
    standing.thread = ThreadNumber();
  }
}

void RingSlotTable::Mark(RingSlot* slot, uint64_t thread) noexcept {
  slot->standing.kept = true;
  slot->standing.thread = thread;
  ++kept_;
}

bool RingSlotTable::IsKept(const RingSlot& slot) const {
  if (slot.standing.state != RingSlot::State::kLeased) return false;
  return slot.standing.kept ||
         generation_ - slot.generation() >= static_cast<uint64_t>(config_.ring_slots);
}

int RingSlotTable::CountKept() const {
  return static_cast<int>(
      std::count_if(slots_.begin(), slots_.end(), [&](const auto& slot) { return IsKept(*slot); }));
}

// ---- the shelf as a whole ---------------------------------------------------------------------

void RingSlotTable::PutBack(RingSlot* chain, RingSlot** removed) noexcept {
  while (chain != nullptr) {
    RingSlot* const slot = std::exchange(chain, chain->next_on_shelf.get());
    if (!shelf_.PutBack(slot)) Remove(slot, removed);
  }
}

void RingSlotTable::Close(RingSlot** removed) noexcept {
  RingSlot* chain = shelf_.Close();
  while (chain != nullptr) Remove(std::exchange(chain, chain->next_on_shelf.get()), removed);
}

// ---- what it is like --------------------------------------------------------------------------

bool RingSlotTable::OnlyWhoWaitsCouldRelease() const {
  const uint64_t me = ThreadNumber();
  const bool kept_are_in_the_way = too_many_kept();
  return std::none_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
    const RingSlot::Standing& standing = slot->standing;
    return (!kept_are_in_the_way || IsKept(*slot)) && standing.thread != me &&
           !standing.thread_waits;
  });
}

void RingSlotTable::ThrowTooManyKept(const std::string& when) const {
  ThrowResourceExhausted(absl::StrCat("ring [", id_, "]: ", CountKept(), " of ", slots_.size(),
                                      " slots are kept, ring_max_kept is ", config_.ring_max_kept,
                                      when, ": ", DescribeTaken(),
                                      "; release or Detach what is kept, or use more slots"));
}

std::string RingSlotTable::Describe(const RingSlot& slot) const {
  const RingSlot::Standing& standing = slot.standing;
  std::string out = absl::StrCat(slot.temporary ? "temporary slot " : "slot ", slot.number);
  if (standing.state == RingSlot::State::kIdle) return absl::StrCat(out, " idle");
  const bool mine = standing.thread == ThreadNumber();
  absl::StrAppend(&out, " generation ", slot.generation(),
                  standing.state == RingSlot::State::kOpen ? " open" : " leased");
  if (IsKept(slot)) absl::StrAppend(&out, " and kept");
  if (standing.thread != 0) absl::StrAppend(&out, mine ? " by this thread" : " by another thread");
  if (standing.thread_waits && !mine) absl::StrAppend(&out, " that waits for a slot");
  if (!standing.tag.empty()) absl::StrAppend(&out, " [", OneLine(standing.tag), "]");
  return out;
}

std::string RingSlotTable::DescribeTaken() const {
  std::string out;
  for (const auto& slot : slots_) {
    if (slot->standing.state == RingSlot::State::kIdle) continue;
    absl::StrAppend(&out, out.empty() ? "" : ", ", Describe(*slot));
  }
  return out;
}

}  // namespace tidepool
