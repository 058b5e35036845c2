#include "tidepool/memory/testing/explorer/cells.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/testing/explorer/engine.h"

namespace tidepool::explorer::internal {
namespace {

constexpr const char* kPlain = "a plain variable";

// "Node" of "const char* tidepool::explorer::internal::TypeName() [with T = a::Node<b::C>]".
std::string NameIn(const std::string& function) {
  const size_t begin = function.find("T = ");
  if (begin == function.npos) return function;
  std::string name = function.substr(begin + 4);
  name.resize(std::min(name.find_first_of("<;]"), name.size()));
  const size_t colon = name.rfind(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

}  // namespace

struct NewBlockHeader {
  bool deleted;
  const char* type;
  int made_by;
  Where deleted_where;
};

PlainCell::PlainCell(const Where& where, size_t bytes) : written_where_(where) {
  Engine& engine = Engine::Get();
  id_ = engine.lifetimes().Begin(this, bytes, where);
  engine.memory().wrote = true;
  writer_ = engine.slot();
  written_at_ = engine.Clock();
}

PlainCell::~PlainCell() {
  Engine* engine = Engine::Running();
  if (engine == nullptr) return;
  engine->CheckAlive(id_, this, kPlain, "destroyed", engine->deleting_at());
  CheckWritten(*engine, "destroyed", engine->deleting_at());
  CheckRead(*engine, "destroyed", engine->deleting_at());
  engine->lifetimes().End(id_, engine->deleting_at());
}

void PlainCell::CheckWritten(Engine& engine, const char* what, const Where& where) {
  if (engine.HappenedBefore(writer_, written_at_)) return;
  engine.Fail(FailureKind::kDataRace, [&] {
    return absl::StrCat("a plain variable is written by ", ThreadName(writer_), " at ",
                        ToText(written_where_), " and ", what, " by ", ThreadName(engine.slot()),
                        " at ", ToText(where), ", neither before the other");
  });
}

void PlainCell::CheckRead(Engine& engine, const char* what, const Where& where) {
  const int reader = reads_.Concurrent(engine);
  if (reader < 0) return;
  engine.Fail(FailureKind::kDataRace, [&] {
    return absl::StrCat("a plain variable is read by ", ThreadName(reader), " at ",
                        ToText(reads_.where(reader)), " and ", what, " by ",
                        ThreadName(engine.slot()), " at ", ToText(where),
                        ", neither before the other");
  });
}

void PlainCell::Get(const Where& where) {
  Engine& engine = Engine::Get();
  if (engine.inspecting()) return;
  engine.CheckAlive(id_, this, kPlain, "read", where);
  CheckWritten(engine, "read", where);
  reads_.Note(engine.slot(), engine.Clock(), where);
  engine.memory().wrote = true;  // what is written later may race with it
  if (engine.trace() != nullptr) engine.Record("plain get", where);
}

void PlainCell::Set(const Where& where) {
  Engine& engine = Engine::Get();
  if (engine.inspecting()) {
    engine.Fail(FailureKind::kMisuse, [&] {
      return absl::StrCat("an invariant sets a plain variable at ", ToText(where));
    });
  }
  engine.CheckAlive(id_, this, kPlain, "written", where);
  CheckWritten(engine, "written", where);
  CheckRead(engine, "written", where);
  engine.memory().wrote = true;
  writer_ = engine.slot();
  written_at_ = engine.Clock();
  written_where_ = where;
  if (engine.trace() != nullptr) engine.Record("plain set", where);
}

MutexCell::MutexCell(const Where& where)
    : id_(Engine::Get().lifetimes().Begin(this, sizeof(*this), where)) {}

MutexCell::~MutexCell() {
  Engine* engine = Engine::Running();
  if (engine == nullptr) return;
  engine->CheckAlive(id_, this, "a mutex", "destroyed", engine->deleting_at());
  const int other = accesses_.Concurrent(*engine);
  if (other >= 0 || holder_ >= 0) {
    engine->Fail(FailureKind::kDataRace, [&] {
      return absl::StrCat("the mutex made at ", ToText(engine->lifetimes().made(id_)),
                          " is destroyed by ", ThreadName(engine->slot()),
                          other >= 0 ? " and used at the same time by " : " and held by ",
                          ThreadName(other >= 0 ? other : holder_));
    });
  }
  engine->lifetimes().End(id_, engine->deleting_at());
}

Engine& MutexCell::Use(const Where& where) {
  Engine& engine = Engine::Get();
  engine.CheckAlive(id_, this, "a mutex", "used", where);
  return engine;
}

void MutexCell::Hold(Engine& engine) {
  holder_ = engine.slot();
  engine.memory().wrote = true;
  engine.memory().view.Join(released_);
  engine.MutexHeld(this);
}

void MutexCell::Lock(const Where& where) {
  Engine& engine = Use(where);
  if (engine.inspecting()) return;
  if (holder_ == engine.slot()) {
    engine.Fail(FailureKind::kMisuse, [&] {
      return absl::StrCat(ThreadName(engine.slot()), " locks at ", ToText(where),
                          " a mutex that it holds");
    });
  }
  engine.Announce({.object = this, .writes = true, .locks = true, .held = holder_ >= 0});
  Use(where);
  if (holder_ >= 0) {
    engine.Fail(FailureKind::kDeadlock, [&] {
      return absl::StrCat("the body waits for ever at ", ToText(where), " for a mutex that ",
                          ThreadName(holder_), " left locked");
    });
  }
  accesses_.Note(engine.slot(), engine.Clock(), where);
  Hold(engine);
  if (engine.trace() != nullptr) engine.Record("lock", where);
}

bool MutexCell::TryLock(const Where& where) {
  Engine& engine = Use(where);
  if (engine.inspecting()) return true;
  if (holder_ == engine.slot()) {
    engine.Fail(FailureKind::kMisuse, [&] {
      return absl::StrCat(ThreadName(engine.slot()), " tries at ", ToText(where),
                          " to lock a mutex that it holds");
    });
  }
  engine.Announce({.object = this, .writes = true});
  Use(where);
  accesses_.Note(engine.slot(), engine.Clock(), where);
  bool locks = holder_ < 0;
  engine.memory().read_newest = true;
  if (locks && engine.may_fail_spuriously() && engine.Choose(2) == 1) {
    engine.CountSpuriousFailure();
    locks = false;
  }
  if (locks) Hold(engine);
  if (engine.trace() != nullptr) engine.Record(locks ? "try_lock" : "try_lock fails", where);
  return locks;
}

void MutexCell::Unlock(const Where& where) {
  Engine& engine = Use(where);
  if (engine.inspecting()) return;
  engine.Announce({.object = this, .writes = true});
  Use(where);
  if (holder_ != engine.slot()) {
    engine.Fail(FailureKind::kMisuse, [&] {
      return absl::StrCat(ThreadName(engine.slot()), " unlocks at ", ToText(where),
                          " a mutex that it does not hold");
    });
  }
  if (engine.trace() != nullptr) engine.Record("unlock", where);
  accesses_.Note(engine.slot(), engine.Clock(), where);
  holder_ = -1;
  engine.memory().wrote = true;
  released_ = engine.Release();
  engine.MutexFreed(this);
}

void Fence(std::memory_order order, const Where& where) {
  Engine& engine = Engine::Get();
  if (engine.inspecting()) return;
  if (engine.sites() != nullptr) {
    if (engine.sites()->DropsAt(SiteKind::kFence, "fence", order, where)) return;
    order = engine.sites()->OrderAt(SiteKind::kFence, "fence", order, where);
  }
  if (order == std::memory_order_relaxed) return;
  const bool sequential = order == std::memory_order_seq_cst;
  // Only a seq_cst fence has to do with other threads.
  if (sequential) engine.Announce({.sequential = true, .fence = true});
  ThreadMemory& mine = engine.memory();
  if (order != std::memory_order_acquire) mine.wrote = true;
  if (order != std::memory_order_release) mine.view.Join(mine.pending);
  if (sequential) {
    mine.view.JoinStores(engine.sequential());
    engine.sequential().JoinStores(mine.view);
  }
  if (order != std::memory_order_acquire && order != std::memory_order_consume) {
    mine.released = engine.Release();
  }
  if (engine.trace() != nullptr) engine.Record(absl::StrCat("fence ", ToText(order)), where);
}

void* NewBlock(size_t bytes, size_t alignment, const char* type) {
  Engine& engine = Engine::Get();
  engine.memory().wrote = true;
  const size_t before = (sizeof(NewBlockHeader) + alignment - 1) / alignment * alignment;
  auto* block = static_cast<char*>(
      engine.arena().Allocate(before + bytes, std::max(alignment, alignof(NewBlockHeader))));
  auto* header = reinterpret_cast<NewBlockHeader*>(block + before) - 1;
  *header = {false, type, engine.slot(), Where()};
  engine.blocks().push_back(header);
  engine.AddUnwatched(block + before, bytes);
  if (engine.trace() != nullptr) {
    const auto address = reinterpret_cast<uintptr_t>(block + before);
    engine.trace()->AddPointer(address);
    engine.Record(absl::StrCat("new ", NameIn(type), " ", engine.trace()->PointerName(address)),
                  Where());
  }
  return block + before;
}

void DropBlock(void* memory) noexcept {
  (reinterpret_cast<NewBlockHeader*>(memory) - 1)->deleted = true;
}

void BeginDelete(void* object, const Where& where) {
  Engine& engine = Engine::Get();
  engine.memory().wrote = true;
  auto* const header = reinterpret_cast<NewBlockHeader*>(reinterpret_cast<uintptr_t>(object) -
                                                         sizeof(NewBlockHeader));
  // What stands there is read only if it is one of them. The newest first: they die young.
  const std::vector<NewBlockHeader*>& made = engine.blocks();
  if (std::find(made.rbegin(), made.rend(), header) == made.rend()) {
    engine.Fail(FailureKind::kMisuse, [&] {
      return absl::StrCat("Sync::Delete at ", ToText(where), " by ", ThreadName(engine.slot()),
                          " of what Sync::New did not make in this execution");
    });
  }
  if (header->deleted) {
    engine.Fail(FailureKind::kDoubleFree, [&] {
      return absl::StrCat("a ", NameIn(header->type), " is deleted at ",
                          ToText(header->deleted_where), " and again by ",
                          ThreadName(engine.slot()), " at ", ToText(where));
    });
  }
  header->deleted = true;
  header->deleted_where = where;
  if (engine.trace() != nullptr) {
    engine.Record(
        absl::StrCat("delete ", engine.trace()->PointerName(reinterpret_cast<uintptr_t>(object))),
        where);
  }
  engine.set_deleting_at(where);
}

void EndDelete() { Engine::Get().set_deleting_at(Where()); }

void Engine::FailDead(const void* object, const char* kind, const char* what, const Where& where) {
  Fail(FailureKind::kUseAfterFree, [&] {
    const Lifetimes::Lifetime* lifetime = lifetimes_.Find(object);
    std::string past = "where none was made";
    if (lifetime != nullptr) {
      past = absl::StrCat("made at ", ToText(lifetime->made), ", destroyed at ",
                          ToText(lifetime->destroyed));
    }
    return absl::StrCat(kind, ", ", past, ", is ", what, " by ", ThreadName(slot_), " at ",
                        ToText(where));
  });
}

void Engine::CheckLeaks() {
  size_t leaked = 0;
  const NewBlockHeader* first = nullptr;
  for (const NewBlockHeader* block : blocks_) {
    if (block->deleted) continue;
    if (leaked++ == 0) first = block;
  }
  if (leaked == 0) return;
  Fail(FailureKind::kLeak, [&] {
    return absl::StrCat(leaked, " of ", blocks_.size(),
                        " objects of Sync::New are not deleted, the first a ", NameIn(first->type),
                        " of ", ThreadName(first->made_by));
  });
}

}  // namespace tidepool::explorer::internal
