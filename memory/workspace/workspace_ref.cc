#include "tidepool/memory/workspace/workspace_ref.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

// So many that are gone are remembered, for messages.
constexpr size_t kGoneRemembered = 1000;

struct Known {
  std::string id;
  WorkspaceCore* core;  // null: gone
};

struct Table {
  std::mutex mutex;
  // Guarded by it, by number.
  std::map<uint64_t, Known> there;
  std::map<uint64_t, Known> gone;
  uint64_t next_number = 1;
};

Table& TheTable() {
  static Table* const table = [] {
    static constinit const ForkHandlers handlers{[] { TheTable().mutex.lock(); },
                                                 [] { TheTable().mutex.unlock(); },
                                                 [] { TheTable().mutex.unlock(); }};
    HandleFork(ForkLevel::kWorkspaceNames, &handlers);
    return new Table;  // outlives every static workspace
  }();
  return *table;
}
// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] const Table& at_start = TheTable();

// Calls look(core, id), under the lock: `core` null when it is gone.
template <typename Look>
auto LookUp(uint64_t number, const Look& look) {
  Table& table = TheTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  for (auto* const part : {&table.there, &table.gone}) {
    const auto found = part->find(number);
    if (found != part->end()) return look(found->second.core, found->second.id);
  }
  return look(static_cast<WorkspaceCore*>(nullptr), std::string());
}

}  // namespace

namespace internal {

WorkspaceEntry::WorkspaceEntry(WorkspaceCore* core)
    : number_([core] {
        Table& table = TheTable();
        std::lock_guard<std::mutex> lock(table.mutex);
        table.there.emplace(table.next_number, Known{core->id, core});
        return table.next_number++;
      }()) {}

void WorkspaceEntry::Remove() noexcept {
  Table& table = TheTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto entry = table.there.extract(number_);
  if (entry.empty()) return;
  entry.mapped().core = nullptr;
  table.gone.insert(std::move(entry));
  if (table.gone.size() > kGoneRemembered) table.gone.erase(table.gone.begin());
}

}  // namespace internal

// Open on this thread, but not by a scope: nobody else may end that, or the workspace, meanwhile.
// What is on the calling thread's stack is there until its scopes end, whoever destroys it.
WorkspaceCore* WorkspaceRef::OpenHere() const {
  for (const ScopeFrame* frame = current_thread_state.top; frame != nullptr;
       frame = frame->previous) {
    if (frame->core != nullptr && frame->core->number() == number_) return frame->core;
  }
  return FindOpenHere();
}

WorkspaceCore* WorkspaceRef::FindOpenHere() const {
  // A callback may be in the middle of a request there.
  if (number_ == 0 || internal::InCallback()) return nullptr;
  return LookUp(number_, [](WorkspaceCore* core, const std::string&) -> WorkspaceCore* {
    return core != nullptr && core->is_open_on(CurrentThreadToken()) ? core : nullptr;
  });
}

bool WorkspaceRef::is_alive() const {
  return LookUp(number_, [](WorkspaceCore* core, const std::string&) { return core != nullptr; });
}

bool WorkspaceRef::IsOnAnotherDevice(Device device) const {
  return LookUp(number_, [device](WorkspaceCore* core, const std::string&) {
    return core != nullptr && core->memory_device() != device;
  });
}

std::string WorkspaceRef::Describe() const {
  return LookUp(number_, [](WorkspaceCore* core, const std::string& id) {
    if (core != nullptr) return id;
    return absl::StrCat(id, id.empty() ? "" : " ", "(destroyed)");
  });
}

void WorkspaceRef::ThrowNotOpenHere(std::string_view who) const {
  std::string id;
  const bool alive = LookUp(number_, [&id](WorkspaceCore* core, const std::string& its) {
    id = its;
    return core != nullptr;
  });
  ThrowFailedPrecondition(
      absl::StrCat(std::string(who), ": workspace [", id, "] ",
                   alive ? "is not open on this thread; enter it first"
                         : "was destroyed; expected one that outlives what keeps it"));
}

}  // namespace tidepool
