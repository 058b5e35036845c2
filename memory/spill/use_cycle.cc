#include "tidepool/memory/spill/use_cycle.h"

#include <new>
#include <utility>

namespace tidepool::internal {

// ---- what happens ---------------------------------------------------------------------------------------

UseCycle::Outcome UseCycle::Add(UsedThing& thing) {
  thing.id_ = ++last_id_;
  if (!has_begun()) return {};
  thing.born_in_ = cycle_;
  const bool was_full = recording_.full;
  if (!was_full) {
    const size_t birth = births_.size();
    try {
      births_.push_back(&thing);
      thing.birth_ = static_cast<uint32_t>(birth);
    } catch (const std::bad_alloc&) {
      GiveUp();
    }
    if (thing.birth_ != kNone && birth < birth_slot_.size() && birth_slot_[birth] != kNone &&
        plan_.slots[birth_slot_[birth]].bytes == thing.bytes_) {
      Bind(birth_slot_[birth], &thing);
    }
  }
  Outcome outcome = Use(thing);
  outcome.unrecorded = recording_.full && !was_full;
  return outcome;
}

void UseCycle::Remove(UsedThing& thing) noexcept {
  if (has_begun() && thing.recorded_in_ == cycle_ && !recording_.full)
    recording_.slots[thing.recorded_].thing = nullptr;
  if (has_begun() && thing.born_in_ == cycle_ && thing.birth_ < births_.size())
    births_[thing.birth_] = nullptr;
  if (thing.planned_ != kNone) Bind(thing.planned_, nullptr);
}

UseCycle::Outcome UseCycle::Use(UsedThing& thing) {
  if (!has_begun()) return {};
  const bool was_full = recording_.full;
  Record(thing);
  Outcome outcome = Match(thing);
  outcome.unrecorded = recording_.full && !was_full;
  return outcome;
}

// For this cycle.
void UseCycle::GiveUp() noexcept {
  recording_ = Recording();
  recording_.full = true;
}

void UseCycle::Record(UsedThing& thing) {
  if (recording_.full) return;
  try {
    if (recording_.uses.size() == kMostUses) throw std::bad_alloc();
    if (thing.recorded_in_ != cycle_) {
      Slot slot{&thing, thing.id_, thing.bytes_, thing.birth_, 2};
      if (thing.birth_ != kNone && thing.born_in_ + 1 >= cycle_)
        slot.age = static_cast<uint32_t>(cycle_ - thing.born_in_);
      recording_.slots.push_back(slot);
      thing.recorded_ = static_cast<uint32_t>(recording_.slots.size() - 1);
      thing.recorded_in_ = cycle_;
    }
    recording_.uses.push_back(thing.recorded_);
  } catch (const std::bad_alloc&) {
    GiveUp();
  }
}

bool UseCycle::SkipGone() {
  const size_t before = cursor_;
  while (cursor_ < plan_.uses.size() && plan_.slots[plan_.uses[cursor_]].thing == nullptr)
    ++cursor_;
  return cursor_ > before;
}

UseCycle::Outcome UseCycle::Match(UsedThing& thing) {
  if (plan_.uses.empty() || diverged_) return {};
  if (thing.planned_ == kNone && thing.id_ > plan_id_) {
    differs_ = true;
    return {};
  }
  if (SkipGone()) differs_ = true;
  if (cursor_ == plan_.uses.size() || plan_.uses[cursor_] != thing.planned_) {
    diverged_ = true;
    return {.left = trusted_};
  }
  slot_next_[thing.planned_] = next_[cursor_++];
  return {.followed = trusted_};
}

// ---- cycles ---------------------------------------------------------------------------------------------

UseCycle::Outcome UseCycle::EndCycle() {
  Outcome outcome;
  if (has_begun()) {
    if (SkipGone()) differs_ = true;
    const bool has_plan = !plan_.uses.empty();
    const bool whole = has_plan && !diverged_ && cursor_ == plan_.uses.size();
    outcome.followed = whole && trusted_;
    outcome.left = has_plan && !whole && follows();
    trusted_ = whole;
    if (whole && !differs_) {
      last_.Clear();
    } else if (Repeats()) {
      Adopt();
    } else {
      std::swap(last_, recording_);
    }
  }
  BeginCycle();
  return outcome;
}

// Whether the recording is as the last one; where it is but for what is made and goes within the cycle, that is taken out of it.
bool UseCycle::Repeats() {
  if (recording_.full || last_.full) return false;
  for (Slot& slot : recording_.slots) slot.passes = slot.age == 0 && slot.thing == nullptr;
  if (Correspond(recording_, last_)) return true;
  try {
    Recording rest = WithoutPassing(recording_);
    if (!Correspond(rest, WithoutPassing(last_))) return false;
    for (uint32_t i = 0; i < rest.slots.size(); ++i) {
      if (rest.slots[i].thing != nullptr) rest.slots[i].thing->recorded_ = i;
    }
    recording_ = std::move(rest);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

auto UseCycle::WithoutPassing(const Recording& recording) -> Recording {
  Recording rest;
  std::vector<uint32_t> number(recording.slots.size(), kNone);
  for (const uint32_t use : recording.uses) {
    if (recording.slots[use].passes) continue;
    if (number[use] == kNone) {
      number[use] = static_cast<uint32_t>(rest.slots.size());
      rest.slots.push_back(recording.slots[use]);
    }
    rest.uses.push_back(number[use]);
  }
  return rest;
}

bool UseCycle::Correspond(const Recording& a, const Recording& b) {
  if (a.uses.empty() || a.uses != b.uses) return false;
  if (a.slots.size() != b.slots.size()) return false;
  for (size_t i = 0; i < a.slots.size(); ++i) {
    const Slot &one = a.slots[i], &other = b.slots[i];
    const bool as_born =
        one.age == other.age && one.age < 2 && one.birth == other.birth && one.bytes == other.bytes;
    if (one.id != other.id && !as_born) return false;
  }
  return true;
}

// The recording becomes the plan. What has no memory for it leaves none.
void UseCycle::Adopt() {
  for (uint32_t i = 0; i < plan_.slots.size(); ++i) Bind(i, nullptr);
  trusted_ = false;
  plan_.Clear();
  last_.Clear();
  birth_slot_.clear();
  const size_t slots = recording_.slots.size(), uses = recording_.uses.size();
  std::vector<uint32_t> carried;
  try {
    next_.assign(uses, kNever);
    first_.assign(slots, kNever);
    slot_next_.resize(slots);
    birth_slot_.assign(births_.size(), kNone);
    carried.assign(births_.size(), kNone);
  } catch (const std::bad_alloc&) {
    birth_slot_.clear();
    first_.clear();
    return;
  }
  std::swap(plan_, recording_);
  for (uint32_t i = 0; i < slots; ++i) {
    const Slot& slot = plan_.slots[i];
    if (slot.birth >= births_.size()) continue;
    if (slot.age == 0) birth_slot_[slot.birth] = i;
    if (slot.age == 1) carried[slot.birth] = i;
  }
  for (size_t birth = 0; birth < carried.size(); ++birth) {
    const uint32_t now = birth_slot_[birth], later = carried[birth];
    if (now == kNone || later == kNone || plan_.slots[now].bytes != plan_.slots[later].bytes)
      continue;
    plan_.slots[now].partner = later;
    plan_.slots[later].partner = now;
  }
  const auto period = static_cast<int64_t>(uses);
  for (size_t i = 0; i < uses; ++i) {
    int64_t& first = first_[plan_.uses[i]];
    if (first == kNever) first = static_cast<int64_t>(i);
  }
  // From behind: slot_next_ is the next one of each slot.
  for (uint32_t i = 0; i < slots; ++i) {
    const Slot& slot = plan_.slots[i];
    const bool goes_on = slot.age == 0 ? slot.partner != kNone : slot.partner == kNone;
    const uint32_t then = slot.age == 0 ? slot.partner : i;
    slot_next_[i] = goes_on ? first_[then] + period : kNever;
  }
  for (size_t i = uses; i-- > 0;) {
    next_[i] = std::exchange(slot_next_[plan_.uses[i]], static_cast<int64_t>(i));
  }
  plan_id_ = last_id_;
  trusted_ = true;
  for (uint32_t i = 0; i < slots; ++i) {
    Slot& slot = plan_.slots[i];
    UsedThing* const thing = std::exchange(slot.thing, nullptr);
    if (thing != nullptr) Bind(i, thing);
  }
}

void UseCycle::Bind(uint32_t slot, UsedThing* thing) noexcept {
  UsedThing*& bound = plan_.slots[slot].thing;
  if (bound != nullptr) bound->planned_ = kNone;
  bound = thing;
  if (thing == nullptr) return;
  if (thing->planned_ != kNone) plan_.slots[thing->planned_].thing = nullptr;
  thing->planned_ = slot;
}

void UseCycle::BeginCycle() {
  // What each cycle makes anew is not there yet, and what the last one made is what it leaves to this one.
  for (const uint32_t slot : birth_slot_) {
    if (slot == kNone) continue;
    UsedThing* const made = plan_.slots[slot].thing;
    Bind(slot, nullptr);
    if (plan_.slots[slot].partner != kNone && made != nullptr)
      Bind(plan_.slots[slot].partner, made);
  }
  slot_next_ = first_;
  births_.clear();
  recording_.Clear();
  ++cycle_;
  cursor_ = 0;
  diverged_ = differs_ = false;
}

// ---- what is to come ------------------------------------------------------------------------------------

int64_t UseCycle::NextUse(const UsedThing& thing) const {
  if (thing.planned_ == kNone) return kNever;
  const int64_t next = slot_next_[thing.planned_];
  return next == kNever ? kNever : next - static_cast<int64_t>(cursor_);
}

UsedThing* UseCycle::Expected(int64_t ahead) const {
  const size_t uses = plan_.uses.size();
  size_t at = cursor_ + static_cast<size_t>(ahead);
  if (at < uses) return plan_.slots[plan_.uses[at]].thing;
  at -= uses;
  if (at >= uses) return nullptr;
  const Slot& slot = plan_.slots[plan_.uses[at]];
  if (slot.age == 0) return nullptr;
  return slot.partner == kNone ? slot.thing : plan_.slots[slot.partner].thing;
}

}  // namespace tidepool::internal
