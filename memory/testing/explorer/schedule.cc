// Who takes the next step.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/testing/explorer/engine.h"

namespace tidepool::explorer::internal {

// A yield is a chance for others, no promise that they take it: the thread may also go on at once. What
// keeps loops that yield from going on for ever:
//
// - A thread that comes to a yield in the state that it was in at an earlier one, with nothing done in
//   between but reading atomic variables, is parked: it goes on when all others wait as well. Whatever
//   it could do from here it could do from there, where it was free to stay; without what it read
//   in between it has seen less, so that it may read all the more, and the switches are no more. So
//   nothing is left out, and mostly the execution need not be looked at any further. That the thread
//   goes on at all is to find livelocks.
// - A loop that does more, or counts, comes to no such state. After Options::yields rounds, in each of
//   which it went on though others could have, it waits for those as in CHESS: until each of them
//   took a step, and then reads no old store again. That does leave something out, and is noted.
void Engine::Yield() {
  if (slot_ == kBody || inspecting_) return;
  // For the reduction a yield is a step, whose place among others' matters. Within a bound it is
  // not: a switch in front of it would be a preemption that a switch behind it is not.
  if (preemption_bound_ < 0) AnnounceInThread({.everything = true});
  anyone_yielded_ = true;
  Slot& me = slots_[slot_];
  ThreadMemory& mine = memory();
  const bool repeats = RepeatsItself(me);
  if (repeats) {
    parked_ |= 1u << slot_;
    // Somebody goes on who would do so all the same with this thread at the earlier yield, and what
    // it read in between it can read again later, should that race with something.
    const uint32_t others = unfinished_ & ~blocked_ & ~parked_ & ~at_yield_ & ~yielded_;
    if (others != 0 && !mine.read_newest) {
      choices_.FreeRun();
      pruned_ = true;
    }
    me.unfair_yields = 0;
    me.seen_stepping = 0;
  } else {
    const uint32_t others = unfinished_ & ~blocked_ & ~me.seen_stepping & ~(1u << slot_);
    // Nor may it go round and round without any step.
    const bool unfair = others != 0 || mine.read_old || me.yielded_at == steps_;
    mine.read_old = false;
    me.yielded_at = steps_;
    me.unfair_yields = unfair ? me.unfair_yields + 1 : 0;
    if (!unfair) me.seen_stepping = 0;
    if (me.unfair_yields <= options_.yields && !choices_.free_run()) {
      at_yield_ |= 1u << slot_;  // a switch is free at its next step; until then it runs on
      return;
    }
    me.waits_for = others;
    me.seen_stepping = 0;
    me.waited_unfairly = !choices_.free_run();
    yielded_ |= 1u << slot_;
  }
  ++mine.yields;
  AnnounceInThread({.everything = true});
}

bool Engine::RepeatsItself(Slot& slot) {
  ThreadMemory& mine = memory();
  if (mine.wrote) {
    slot.states.clear();
    mine.read_newest = false;
  }
  mine.wrote = false;
  if (choices_.free_run()) return false;
  uint64_t state = slot.fiber->HashStack();
  const char* own = static_cast<const char*>(slot.run.argument);
  for (size_t i = 0; i < slot.run_bytes; ++i) {
    state = (state ^ static_cast<unsigned char>(own[i])) * 0x100000001b3u;
  }
  state = (state ^ unwatched_.Hash(lifetimes_)) * 0x100000001b3u;
  // What nobody uses on the stack differs between executions, so the answer is kept.
  const bool repeats = !slot.states.empty() && choices_.Decide([&] {
    return std::find(slot.states.begin(), slot.states.end(), state) != slot.states.end();
  });
  if (!repeats) slot.states.push_back(state);
  return repeats;
}

uint32_t Engine::Enabled() {
  const uint32_t ready = unfinished_ & ~blocked_;
  if (!anyone_yielded_) return ready;
  uint32_t waiting = yielded_;
  for (int i = 1; i <= thread_count_; ++i) {
    if ((slots_[i].waits_for & ready) != 0) waiting |= 1u << i;
  }
  const uint32_t enabled = ready & ~parked_ & ~waiting;
  if (enabled == 0 && ready != 0) {
    // All who could go on wait for each other.
    for (Slot& slot : slots_) slot.waits_for = 0;
    yielded_ = parked_ = 0;
    return ready;
  }
  if ((ready & ~parked_ & waiting) != 0 && !choices_.free_run()) yields_mattered_ = true;
  return enabled;
}

// A shared mutex may let nobody share it from when a thread waits to have it alone. What that does beside
// keeping threads waiting, which others' being slow does as well, is that nobody may be left to go on.
bool Engine::WaitBehindWriters(uint32_t* behind) const {
  *behind = unfinished_ & ~blocked_;
  for (int i = 1; i <= thread_count_; ++i) {
    if ((*behind >> i & 1) == 0) continue;
    const Step& next = slots_[i].next;
    bool waits = false;
    for (int j = 1; j <= thread_count_ && next.locks && next.shared; ++j) {
      const Step& other = slots_[j].next;
      waits |=
          (blocked_ >> j & 1) != 0 && other.locks && !other.shared && other.object == next.object;
    }
    if (!waits) return false;
  }
  return *behind != 0;
}

int Engine::Next() {
  const uint32_t enabled = Enabled();
  if (uint32_t behind = 0; anyone_shares_ && WaitBehindWriters(&behind)) {
    SetFailure(
        FailureKind::kDeadlock,
        absl::StrCat(
            Describe(unfinished_), " wait for ever: ", Describe(behind),
            " would share a mutex that another thread waits to have alone, which may let that go "
            "first"));
    return -1;
  }
  if (enabled == 0) {
    if (unfinished_ != 0) {
      SetFailure(
          FailureKind::kDeadlock,
          absl::StrCat(Describe(unfinished_), " wait for ever: nobody is left to wake them"));
    }
    return -1;
  }
  if (steps_ >= options_.max_steps) {
    SetFailure(
        FailureKind::kLivelock,
        absl::StrCat("no end after ", steps_, " steps (Options::max_steps); ", Describe(enabled),
                     " could go on. A loop that waits for another thread "
                     "must block or call Sync::Yield()"));
    return -1;
  }
  int options[kMaxSlots] = {};
  uint32_t count = 0;
  const bool can_continue = (enabled >> slot_ & 1) != 0;
  const uint32_t others = enabled & ~(1u << slot_);
  const bool keeps = can_continue && (at_yield_ >> slot_ & 1) == 0;
  if (keeps) options[count++] = slot_;
  if (keeps && preemption_bound_ >= 0 && preemptions_ >= preemption_bound_) {
    if (others != 0) bound_mattered_ = true;
  } else {
    for (uint32_t rest = others; rest != 0; rest &= rest - 1)
      options[count++] = std::countr_zero(rest);
  }
  if (can_continue && !keeps) options[count++] = slot_;
  const int next = Pick(options, count);
  if (keeps && next != slot_) ++preemptions_;
  TakeTurn(next);
  return next;
}

int Engine::Pick(const int* options, uint32_t count) {
  if (!reduce_ || !invariants_.empty()) {
    if (count == 1) return options[0];
    if (options_.search != Search::kPriorities || !choices_.is_random()) {
      return options[choices_.Choose(count)];
    }
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; ++i) {
      if (slots_[options[i]].priority > slots_[options[best]].priority) best = i;
    }
    choices_.Record(best, count);
    return options[best];
  }
  // Sleep sets: what was explored from here already need not be tried again later until a step that
  // its first step depends on was taken.
  if (choices_.free_run()) return options[0];
  uint32_t allowed = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if ((sleeping_ >> options[i] & 1) == 0) allowed |= 1u << i;
  }
  if (allowed == 0) {
    choices_.FreeRun();
    pruned_ = true;
    return options[0];
  }
  const uint32_t chosen = count == 1 ? 0 : choices_.Choose(count, allowed);
  uint32_t asleep = sleeping_;
  for (uint32_t i = 0; i < chosen; ++i) asleep |= 1u << options[i];
  const Step& step = slots_[options[chosen]].next;
  sleeping_ = 0;
  for (; asleep != 0; asleep &= asleep - 1) {
    const int i = std::countr_zero(asleep);
    if (i != options[chosen] && Independent(slots_[i].next, step)) sleeping_ |= 1u << i;
  }
  return options[chosen];
}

void Engine::TakeTurn(int number) {
  ++steps_;
  choices_.CountEvent();
  step_taken_ = true;
  if (anyone_yielded_) {
    yielded_ = 0;
    at_yield_ &= ~(1u << number);
    for (int i = 1; i <= thread_count_; ++i) {
      slots_[i].waits_for &= ~(1u << number);
      slots_[i].seen_stepping |= 1u << number;
    }
  }
  if (options_.search != Search::kPriorities) return;
  for (size_t i = 0; i < changes_.size(); ++i) {
    if (changes_[i] == steps_) slots_[number].priority = i;
  }
}

// High priorities in random order at the start; low ones at a few random steps.
void Engine::ChangePriorities() {
  for (int i = 1; i <= thread_count_; ++i) {
    slots_[i].priority = (choices_.Random() | (uint64_t{1} << 63));
  }
  changes_.clear();
  for (int i = 0; i < options_.priority_changes; ++i) {
    changes_.push_back(1 + static_cast<int64_t>(choices_.Random() % (longest_ + 1)));
  }
}

}  // namespace tidepool::explorer::internal
