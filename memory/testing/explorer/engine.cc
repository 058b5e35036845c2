#include "tidepool/memory/testing/explorer/engine.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "absl/strings/str_cat.h"

namespace tidepool::explorer::internal {
Engine::Engine(const Options& options, Choices& choices, Sites* sites)
    : options_(options), choices_(choices), sites_(sites) {
  for (int i = 0; i < kMaxSlots; ++i) {
    slots_[i].engine = this;
    slots_[i].number = i;
  }
}

Engine::~Engine() = default;

Engine& Engine::Get() {
  if (running_ == nullptr) {
    std::fputs(
        "tidepool::explorer: an operation of explorer::Sync, Check or Choose was called "
        "outside of an exploration\n",
        stderr);
    std::abort();
  }
  return *running_;
}

void Engine::set_bound(int preemptions, bool reduce) {
  preemption_bound_ = preemptions;
  reduce_ = reduce;
  bound_mattered_ = yields_mattered_ = order_mattered_ = false;
}

void Engine::Reset() {
  arena_.Reset();
  lifetimes_.Clear();
  unwatched_.Clear();
  ends_.clear();
  invariants_.clear();
  objects_.clear();
  blocks_.clear();
  deleting_at_ = Where();
  phase_ = Phase::kBody;
  slot_ = kBody;
  thread_count_ = 0;
  variables_ = 0;
  unfinished_ = blocked_ = sleeping_ = 0;
  at_yield_ = yielded_ = parked_ = 0;
  anyone_yielded_ = anyone_shares_ = inspecting_ = step_taken_ = pruned_ = false;
  preemptions_ = spurious_failures_ = 0;
  if (steps_ > longest_) longest_ = steps_;
  steps_ = 0;
  failure_ = FailureKind::kNone;
  sequential_.Clear();
  ThreadMemory& body = memories_[kBody];
  body.view.Clear();
  body.pending.Clear();
  body.released = nullptr;
  body.view.Raise(kBody, 1);
  choices_.BeginExecution();
}

bool Engine::Run(absl::FunctionRef<void(Execution&)> body) {
  Reset();
  body_ = &body;
  if (slots_[kBody].fiber == nullptr) {
    slots_[kBody].fiber =
        std::make_unique<Fiber>(options_.stack_bytes, &Engine::FiberMain, &slots_[kBody]);
  }
  running_ = this;
  auto failed = [this] { return failure_ != FailureKind::kNone; };
  auto enter = [this](int number) {
    slot_ = number;
    Fiber::Switch(main_, *slots_[number].fiber);
  };
  enter(kBody);
  if (!failed()) {
    phase_ = Phase::kStart;
    if (options_.search == Search::kPriorities) ChangePriorities();
    ThreadMemory& mine = memories_[kBody];
    mine.view.Raise(kBody, mine.view.at(kBody) + 1);
    for (int i = 1; i <= thread_count_ && !failed(); ++i) enter(i);
  }
  if (!failed()) {
    phase_ = Phase::kThreads;
    slot_ = kBody;
    const int next = Next();
    if (next >= 0) enter(next);
  }
  if (!failed()) {
    phase_ = Phase::kEnd;
    for (int i = 1; i <= thread_count_; ++i) memories_[kBody].view.Join(memories_[i].view);
    enter(kBody);
  }
  running_ = nullptr;
  if (choices_.inconsistent() || (!failed() && choices_.repeating())) {
    SetFailure(FailureKind::kNotDeterministic,
               absl::StrCat("the same choices led elsewhere: ", kDependsOnSomethingElse));
  }
  if (!failed()) return true;
  for (Slot& slot : slots_) {
    if (slot.running) slot.fiber->Restart();
    slot.running = false;
  }
  return false;
}

void Engine::AddThread(void (*function)(void*), void* argument, size_t bytes) {
  if (phase_ != Phase::kBody || slot_ != kBody || thread_count_ + 1 == kMaxSlots) {
    Fail(FailureKind::kMisuse, [&] {
      return absl::StrCat("Execution::Thread: expected at most ", kMaxSlots - 1,
                          " threads, added by the body");
    });
  }
  const int number = ++thread_count_;
  Slot& slot = slots_[number];
  if (slot.fiber == nullptr) {
    slot.fiber = std::make_unique<Fiber>(options_.stack_bytes, &Engine::FiberMain, &slot);
  }
  slot.run = {function, argument};
  slot.run_bytes = bytes;
  slot.next = Step();
  slot.waits_for = slot.seen_stepping = 0;
  slot.unfair_yields = 0;
  slot.yielded_at = -1;
  slot.waited_unfairly = false;
  unfinished_ |= 1u << number;
}

void Engine::FiberMain(void* argument) {
  Slot& slot = *static_cast<Slot*>(argument);
  Engine& engine = *slot.engine;
  while (true) {
    slot.running = true;
    engine.RunSlot(slot.number);
    slot.running = false;
    if (slot.number != kBody && engine.phase_ == Phase::kThreads) {
      const int next = engine.Next();
      if (next >= 0) {
        engine.SwitchTo(next);
        continue;
      }
    }
    engine.SwitchToMain();
  }
}

void Engine::RunSlot(int number) {
  auto what_left = [&](const char* what) {
    return absl::StrCat("an exception left ", ThreadName(number), ": ", what);
  };
  try {
    if (number == kBody) {
      RunBodyPhase();
      return;
    }
    ThreadMemory& mine = memories_[number];
    mine.view.Copy(memories_[kBody].view);
    mine.view.Raise(number, 1);
    mine.pending.Clear();
    mine.released = nullptr;
    mine.yields = 0;
    mine.wrote = true;
    mine.read_old = mine.read_newest = false;
    slots_[number].run();
    unfinished_ &= ~(1u << number);
    CheckInvariants();
    return;
  } catch (const std::exception& error) {
    SetFailure(FailureKind::kException, what_left(error.what()));
  } catch (...) {
    SetFailure(FailureKind::kException, what_left("of a type that is no std::exception"));
  }
  LeaveForEver();
}

void Engine::RunBodyPhase() {
  if (phase_ == Phase::kBody) {
    Execution execution(*this);
    (*body_)(execution);
    return;
  }
  for (const Callback& end : ends_) end();
  for (size_t i = objects_.size(); i-- > 0;) objects_[i]();
  CheckLeaks();
}

void Engine::AnnounceInThread(const Step& step) {
  CheckInvariants();
  slots_[slot_].next = step;
  if (step.held) blocked_ |= 1u << slot_;
  anyone_shares_ |= step.shared;
  SwitchToNext();
}

void Engine::Block() {
  CheckInvariants();
  blocked_ |= 1u << slot_;
  SwitchToNext();
}

void Engine::MutexFreed(const void* mutex) {
  for (int i = 1; i <= thread_count_; ++i) {
    if (slots_[i].next.locks && slots_[i].next.object == mutex) Unblock(i);
  }
}

void Engine::MutexHeld(const void* mutex, bool shared) {
  for (int i = 1; i <= thread_count_; ++i) {
    const Step& next = slots_[i].next;
    if (i == slot_ || !next.locks || next.object != mutex || (shared && next.shared)) continue;
    blocked_ |= 1u << i;
  }
}

void Engine::SwitchToNext() {
  if (phase_ == Phase::kStart) return SwitchToMain();
  const int next = Next();
  if (next < 0) return SwitchToMain();
  if (next != slot_) SwitchTo(next);
}

void Engine::SwitchTo(int number) {
  Fiber& from = *slots_[slot_].fiber;
  slot_ = number;
  Fiber::Switch(from, *slots_[number].fiber);
}

void Engine::SwitchToMain() { Fiber::Switch(*slots_[slot_].fiber, main_); }

void Engine::SetFailure(FailureKind kind, std::string message) {
  Record(absl::StrCat("<-- ", ToText(kind)), Where());
  failure_ = kind;
  message_ = std::move(message);
}

void Engine::LeaveForEver() {
  SwitchToMain();
  std::abort();  // nobody comes back to an execution that failed
}

void Engine::CheckInvariants() {
  if (invariants_.empty() || !step_taken_ || inspecting_) return;
  step_taken_ = false;
  inspecting_ = true;
  for (const Callback& invariant : invariants_) invariant();
  inspecting_ = false;
}

std::string Engine::Describe(uint32_t mask) const {
  std::string text;
  for (int i = 0; i < kMaxSlots; ++i) {
    if ((mask >> i & 1) == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    i == kBody ? "the body" : absl::StrCat("T", i));
  }
  return text;
}

}  // namespace tidepool::explorer::internal
