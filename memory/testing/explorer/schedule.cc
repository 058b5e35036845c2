// Who takes the next step.
#include <bit>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/testing/explorer/engine.h"

namespace tidepool::explorer::internal {

uint32_t Engine::Enabled() {
  const uint32_t ready = unfinished_ & ~blocked_;
  if (!anyone_yielded_) return ready;
  uint32_t enabled = ready & ~yielded_;
  for (int i = 1; i <= thread_count_; ++i) {
    if ((slots_[i].waits_for & ready) != 0) enabled &= ~(1u << i);
  }
  if (enabled == 0 && ready != 0) {
    // All who could go on yielded to each other.
    for (Slot& slot : slots_) slot.waits_for = 0;
    yielded_ = 0;
    enabled = ready;
  }
  return enabled;
}

int Engine::Next() {
  const uint32_t enabled = Enabled();
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
  if (can_continue) options[count++] = slot_;
  if (can_continue && preemption_bound_ >= 0 && preemptions_ >= preemption_bound_) {
    if (others != 0) bound_mattered_ = true;
  } else {
    for (uint32_t rest = others; rest != 0; rest &= rest - 1)
      options[count++] = std::countr_zero(rest);
  }
  const int next = Pick(options, count);
  if (can_continue && next != slot_) ++preemptions_;
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
  step_taken_ = true;
  if (anyone_yielded_) {
    yielded_ = 0;
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
