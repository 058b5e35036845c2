#include "tidepool/memory/testing/explorer/shared_mutex_cell.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/testing/explorer/engine.h"

namespace tidepool::explorer::internal {
namespace {

constexpr const char* kName = "a shared mutex";

}  // namespace

SharedMutexCell::SharedMutexCell(const Where& where)
    : id_(Engine::Get().lifetimes().Begin(this, sizeof(*this), where)) {}

SharedMutexCell::~SharedMutexCell() {
  Engine* engine = Engine::Running();
  if (engine == nullptr) return;
  engine->CheckAlive(id_, this, kName, "destroyed", engine->deleting_at());
  const int other = accesses_.Concurrent(*engine);
  const int holder = alone_ >= 0 ? alone_ : sharers_ != 0 ? std::countr_zero(sharers_) : -1;
  if (other >= 0 || holder >= 0) {
    engine->Fail(FailureKind::kDataRace, [&] {
      return absl::StrCat("the shared mutex made at ", ToText(engine->lifetimes().made(id_)),
                          " is destroyed by ", ThreadName(engine->slot()),
                          other >= 0 ? " and used at the same time by " : " and held by ",
                          ThreadName(other >= 0 ? other : holder));
    });
  }
  engine->lifetimes().End(id_, engine->deleting_at());
}

SharedMutexCell::Mode SharedMutexCell::IsMutated(const char* operation, const Where& where) {
  Engine& engine = Engine::Get();
  if (engine.sites() == nullptr || engine.inspecting()) return Mode::kAlone;
  return engine.sites()->DropsAt(SiteKind::kLock, operation, std::memory_order_relaxed, where)
             ? Mode::kMutated
             : Mode::kAlone;
}

Engine& SharedMutexCell::Use(const Where& where) {
  Engine& engine = Engine::Get();
  engine.CheckAlive(id_, this, kName, "used", where);
  return engine;
}

void SharedMutexCell::CheckNotHeld(Engine& engine, const char* operation, const Where& where) {
  if (alone_ != engine.slot() && (sharers_ >> engine.slot() & 1) == 0) return;
  engine.Fail(FailureKind::kMisuse, [&] {
    return absl::StrCat(ThreadName(engine.slot()), " calls ", operation, " at ", ToText(where),
                        " of a shared mutex that it holds");
  });
}

// Two that share it do not have to do with each other.
void SharedMutexCell::Take(Mode mode, const char* operation, const Where& where) {
  Engine& engine = Use(where);
  if (engine.inspecting()) return;
  CheckNotHeld(engine, operation, where);
  const bool shared = mode != Mode::kAlone;
  engine.Announce({.object = this,
                   .writes = !shared,
                   .locks = true,
                   .shared = shared,
                   .held = !IsFree(shared)});
  Use(where);
  if (!IsFree(shared)) {
    engine.Fail(FailureKind::kDeadlock, [&] {
      return absl::StrCat("the body waits for ever at ", ToText(where), " for a shared mutex that ",
                          ThreadName(alone_ >= 0 ? alone_ : std::countr_zero(sharers_)),
                          " left locked");
    });
  }
  accesses_.Note(engine.slot(), engine.Clock(), where);
  Hold(engine, mode);
  if (engine.trace() != nullptr) engine.Record(operation, where);
}

bool SharedMutexCell::TryTake(Mode mode, const char* operation, const Where& where) {
  Engine& engine = Use(where);
  if (engine.inspecting()) return true;
  CheckNotHeld(engine, operation, where);
  const bool shared = mode != Mode::kAlone;
  engine.Announce({.object = this, .writes = !shared});
  Use(where);
  accesses_.Note(engine.slot(), engine.Clock(), where);
  bool locks = IsFree(shared);
  engine.memory().read_newest = true;
  if (locks && engine.may_fail_spuriously() && engine.Choose(2) == 1) {
    engine.CountSpuriousFailure();
    locks = false;
  }
  if (locks) Hold(engine, mode);
  if (engine.trace() != nullptr)
    engine.Record(absl::StrCat(operation, locks ? "" : " fails"), where);
  return locks;
}

void SharedMutexCell::Hold(Engine& engine, Mode mode) {
  const uint32_t me = 1u << engine.slot();
  engine.memory().wrote = true;
  engine.memory().view.Join(unlocked_);
  if (mode == Mode::kAlone) {
    alone_ = engine.slot();
    for (const Snapshot* released : unshared_) engine.memory().view.Join(released);
  } else {
    sharers_ |= me;
    if (mode == Mode::kMutated) mutated_ |= me;
  }
  engine.MutexHeld(this, mode != Mode::kAlone);
}

void SharedMutexCell::Unlock(const Where& where) {
  Engine& engine = Use(where);
  if (engine.inspecting()) return;
  const bool shared = (mutated_ >> engine.slot() & 1) != 0;
  engine.Announce({.object = this, .writes = !shared});
  Use(where);
  if (!shared && alone_ != engine.slot()) FailNotHeld(engine, "unlock", where);
  if (engine.trace() != nullptr) engine.Record("unlock", where);
  accesses_.Note(engine.slot(), engine.Clock(), where);
  Free(engine, shared);
}

void SharedMutexCell::UnlockShared(const Where& where) {
  Engine& engine = Use(where);
  if (engine.inspecting()) return;
  engine.Announce({.object = this});
  Use(where);
  if (((sharers_ & ~mutated_) >> engine.slot() & 1) == 0)
    FailNotHeld(engine, "unlock_shared", where);
  if (engine.trace() != nullptr) engine.Record("unlock_shared", where);
  accesses_.Note(engine.slot(), engine.Clock(), where);
  Free(engine, true);
}

void SharedMutexCell::Free(Engine& engine, bool shared) {
  const uint32_t me = 1u << engine.slot();
  engine.memory().wrote = true;
  const Snapshot* const released = engine.Release();
  if (shared) {
    sharers_ &= ~me;
    mutated_ &= ~me;
    unshared_[engine.slot()] = released;  // after all that the thread has released here before
  } else {
    alone_ = -1;
    unlocked_ = released;  // after all that shared it before
  }
  if (sharers_ == 0) engine.MutexFreed(this);
}

void SharedMutexCell::FailNotHeld(Engine& engine, const char* operation, const Where& where) {
  engine.Fail(FailureKind::kMisuse, [&] {
    return absl::StrCat(ThreadName(engine.slot()), " calls ", operation, " at ", ToText(where),
                        " of a shared mutex that it does not hold so");
  });
}

}  // namespace tidepool::explorer::internal
