#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/tools/c_api/objects.h"

namespace tidepool::c_api {
namespace {

struct Scope {
  const void* handle = nullptr;
  WorkspaceTable::Pinned workspace;  // one that is released meanwhile stays until its cycle ends
  ManagerTable::Pinned manager;
  std::optional<WorkspaceScope> cycle;
  std::optional<ManagerScope> entered;

  void End() {
    cycle.reset();
    entered.reset();
    workspace = {};
    manager = {};
  }
};

class Scopes {
 public:
  Scopes() = default;
  ~Scopes() {
    while (depth_ > 0) scopes_[--depth_]->End();
  }

  // One that is not open yet: Begun() says that it is.
  Scope& Next() {
    if (depth_ == scopes_.size()) scopes_.push_back(std::make_unique<Scope>());
    return *scopes_[depth_];
  }
  void Begun() { ++depth_; }

  // `check` throws for what is no handle of that kind. One that was released names a scope until that ends.
  Scope& Innermost(const char* function, const char* what, const void* handle,
                   absl::FunctionRef<void()> check) {
    const bool is_open = std::any_of(
        scopes_.begin(), scopes_.begin() + static_cast<std::ptrdiff_t>(depth_),
        [handle](const std::unique_ptr<Scope>& scope) { return scope->handle == handle; });
    if (!is_open) check();
    if (depth_ == 0) {
      ThrowFailedPrecondition(
          absl::StrCat(function, ": nothing is open on this thread, expected the ", what));
    }
    Scope& scope = *scopes_[depth_ - 1];
    if (scope.handle != handle) {
      ThrowFailedPrecondition(absl::StrCat(
          function, ": the ", what, " is not the innermost scope of this thread, which is ",
          scope.cycle.has_value() ? absl::StrCat("workspace [", scope.workspace->id(), "]")
                                  : absl::StrCat("manager [", scope.manager->name(), "]"),
          "; scopes end in the reverse order of their beginning"));
    }
    return scope;
  }
  void Ended() { --depth_; }

 private:
  std::vector<std::unique_ptr<Scope>> scopes_;  // those from depth_ on are kept for the next ones
  size_t depth_ = 0;
};

thread_local Scopes scopes;

// Ends a cycle as an exception that passes does.
void EndAsFailed(Scope& scope) {
  struct Left {};
  struct Ender {
    Scope& scope;
    ~Ender() { scope.cycle.reset(); }
  };
  try {
    const Ender ender{scope};
    throw Left();
  } catch (const Left&) {
  }
}

}  // namespace

void EnterWorkspace(WorkspaceTable::Pinned workspace, const void* handle) {
  Scope& scope = scopes.Next();
  scope.cycle.emplace(*workspace);
  scope.workspace = std::move(workspace);
  scope.handle = handle;
  scopes.Begun();
}

void LeaveWorkspace(const char* function, const void* handle, bool has_failed) {
  Scope& scope =
      scopes.Innermost(function, "workspace", handle, [&] { workspaces.Pin(function, handle); });
  if (has_failed) {
    EndAsFailed(scope);
  } else {
    scope.cycle->Close();  // throws where C++ has scopes within it
  }
  scope.End();
  scopes.Ended();
}

void EnterManager(ManagerTable::Pinned manager, const void* handle) {
  Scope& scope = scopes.Next();
  scope.entered.emplace(*manager);
  scope.manager = std::move(manager);
  scope.handle = handle;
  scopes.Begun();
}

void LeaveManager(const char* function, const void* handle) {
  scopes.Innermost(function, "manager", handle, [&] { managers.Pin(function, handle); }).End();
  scopes.Ended();
}

}  // namespace tidepool::c_api
