// Nodes: making, moving, naming and asking them.
#include "tidepool/memory/ownership/ownership.h"

#include <cstdio>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

OwnerNode* MakeRoot(std::string_view name) {
  internal::InstallHooks();
  OwnerNode* node = internal::NewNode();
  node->is_root = true;
  node->opened_ref = node->ref.load(std::memory_order_relaxed);
  node->place = NodePlace::kCurrent;
  node->device = Host();
  node->workspace = WorkspaceRef();
  node->cycle = nullptr;
  node->parent = nullptr;
  node->parent_ref = 0;
  node->budgeted = nullptr;
  node->parent_name.clear();
  node->name = name;
  node->opened_ns = internal::CoarseNow();
  node->state.store(NodeState::kOpen, std::memory_order_release);
  return node;
}

}  // namespace

bool OwnerRef::is_open() const {
  const OwnerNode* node = NodeOf(bits_);
  return node != nullptr && node->ref.load(std::memory_order_acquire) == bits_ &&
         node->state.load(std::memory_order_relaxed) == NodeState::kOpen;
}

Ownership& Ownership::Process() {
  static Ownership& root = *new Ownership(MakeRoot("system"));  // outlives every static
  return root;
}

Ownership Ownership::NewRoot(std::string_view name) { return Ownership(MakeRoot(name)); }

Ownership Ownership::Null() {
  Ownership null;
  null.id_ = kHandlesOwn;
  return null;
}

Ownership::Ownership(Ownership&& other) noexcept
    : node_(std::exchange(other.node_, nullptr)),
      id_(std::exchange(other.id_, 0)),
      null_cycle_(std::move(other.null_cycle_)) {}

Ownership& Ownership::operator=(Ownership&& other) noexcept {
  if (this == &other) return *this;
  Discard();
  node_ = std::exchange(other.node_, nullptr);
  id_ = std::exchange(other.id_, 0);
  null_cycle_ = std::move(other.null_cycle_);
  return *this;
}

OwnerNode& Ownership::Checked(const char* operation) const {
  if (node_ == nullptr) {
    ThrowFailedPrecondition(absl::StrCat(operation, is_null() ? ": the null manager owns nothing"
                                                              : ": this manager was moved from"));
  }
  return *node_;
}

Ownership Ownership::MakeChild(std::string_view name, const Device* device, Workspace* place,
                               bool cycle) const {
  if (is_null()) return Null();
  OwnerNode& parent = Checked("NewSubManager");
  OwnerNode* node = internal::NewNode();
  try {
    if (node->name != name) node->name = name;  // its last use often had the same
  } catch (...) {
    internal::RecycleNode(node);
    throw;
  }
  node->device = device != nullptr ? *device : parent.device;
  node->place = place != nullptr ? NodePlace::kWorkspace : parent.place;
  node->workspace = place != nullptr ? WorkspaceRef(*place->core()) : parent.workspace;
  node->cycle = cycle ? place->core() : nullptr;
  node->opened_ns = internal::CoarseNow();
  node->opened_ref = node->ref.load(std::memory_order_relaxed);
  parent.lock.lock();
  const bool open = parent.state.load(std::memory_order_relaxed) == NodeState::kOpen;
  if (open) {
    node->parent = &parent;
    node->parent_ref = parent.ref.load(std::memory_order_relaxed);
    if (node->parent_name != parent.name) node->parent_name = parent.name;
    node->budgeted = parent.budgeted;
    node->older = parent.newest_child;
    if (node->older != nullptr) node->older->newer = node;
    parent.newest_child = node;
    node->state.store(NodeState::kOpen, std::memory_order_release);
  }
  parent.lock.unlock();
  if (!open) {
    internal::RecycleNode(node);
    ThrowFailedPrecondition(absl::StrCat("NewSubManager [", std::string(name), "]: the parent ",
                                         ref().ToString(), " is closed"));
  }
  if (!owners_in_use.load(std::memory_order_relaxed)) {
    owners_in_use.store(true, std::memory_order_release);
  }
  return Ownership(node);
}

Ownership Ownership::NewChild(std::string_view name) {
  return MakeChild(name, nullptr, nullptr, false);
}
Ownership Ownership::NewChild(std::string_view name, Device device) {
  CheckDevice("NewSubManager", device);
  return MakeChild(name, &device, nullptr, false);
}
Ownership Ownership::NewChild(std::string_view name, Workspace& place) {
  const Device device = place.device();
  return MakeChild(name, &device, &place, false);
}

Ownership Ownership::NewCycle(std::string_view name, Workspace& workspace) {
  WorkspaceCore* core = workspace.core();
  internal::EndLeftScopes();
  if (core->is_open_on(CurrentThreadToken())) {
    ThrowFailedPrecondition(
        absl::StrCat("NewCycle [", std::string(name), "]: workspace [", core->id,
                     "] is open on this thread already; expected a closed one"));
  }
  const Device device = workspace.device();
  Ownership child = MakeChild(name, &device, &workspace, !core->passes_through());
  internal::ScopeToken scope;
  scope.Push(core, core->passes_through() ? nullptr : core);  // throws: the child closes
  if (child.is_null()) {
    child.null_cycle_ = std::move(scope);
    return child;
  }
  core->OwnCycle();
  OwnerNode& node = *child.node_;
  std::lock_guard<SpinLock> lock(node.lock);
  // Of one that was closed meanwhile the cycle ends as this returns.
  if (node.is_open()) node.cycle_scope = std::move(scope);
  return child;
}

void Ownership::PlaceOnHeap() {
  if (is_null()) return;
  OwnerNode& node = Checked("PlaceOnHeap");
  bool done = false;
  {
    std::lock_guard<SpinLock> lock(node.lock);
    if (node.place != NodePlace::kWorkspace && !node.is_root) {
      node.place = NodePlace::kHeap;
      done = true;
    }
  }
  if (!done) {
    ThrowFailedPrecondition(absl::StrCat("PlaceOnHeap: ", ref().ToString(),
                                         node.is_root ? " is a root" : " has a workspace already"));
  }
}

void Ownership::SetBudget(int64_t bytes, int64_t arrays) {
  if (is_null()) return;
  OwnerNode& node = Checked("SetBudget");
  if (bytes < 0 || arrays < 0) {
    ThrowInvalidArgument(absl::StrCat("SetBudget: ", ref().ToString(), ": found ",
                                      bytes < 0 ? bytes : arrays, bytes < 0 ? " bytes" : " arrays",
                                      ", expected at least 0"));
  }
  auto budget = std::make_unique<OwnerBudget>();
  budget->limit_bytes = bytes;
  budget->limit_arrays = arrays;
  const char* problem = nullptr;
  {
    std::lock_guard<SpinLock> lock(node.lock);
    if (node.is_root) {
      problem = "is a root, which has no budget";
    } else if (node.state.load(std::memory_order_relaxed) != NodeState::kOpen) {
      problem = "is closed";
    } else if (node.newest_child != nullptr) {
      problem = "has sub-managers already; expected the budget before them";
    } else {
      budget->bytes.store(node.bytes.get(), std::memory_order_relaxed);
      budget->arrays.store(node.arrays.get(), std::memory_order_relaxed);
      std::swap(node.budget, budget);
      node.budgeted = &node;
    }
  }
  if (problem != nullptr) {
    ThrowFailedPrecondition(absl::StrCat("SetBudget: ", ref().ToString(), " ", problem));
  }
}

void Ownership::Cap() {
  if (is_null()) return;
  OwnerNode& node = Checked("Cap");
  if (node.is_root) {
    ThrowFailedPrecondition(absl::StrCat("Cap: ", ref().ToString(),
                                         " is a root; only managers below it can be capped"));
  }
  node.caps.fetch_add(1, std::memory_order_relaxed);
}

void Ownership::Uncap() {
  if (is_null()) return;
  OwnerNode& node = Checked("Uncap");
  if (!internal::TakeOffCap(node)) {
    ThrowFailedPrecondition(absl::StrCat("Uncap: ", ref().ToString(), " is not capped"));
  }
}

bool internal::TakeOffCap(OwnerNode& node) noexcept {
  int32_t caps = node.caps.load(std::memory_order_relaxed);
  while (caps > 0 && !node.caps.compare_exchange_weak(caps, caps - 1)) {
  }
  return caps > 0;
}

bool Ownership::is_capped() const {
  return node_ != nullptr && node_->caps.load(std::memory_order_relaxed) > 0;
}

bool Ownership::is_open() const {
  if (node_ == nullptr) return is_null();
  return node_->state.load(std::memory_order_acquire) == NodeState::kOpen;
}

std::string Ownership::name() const {
  if (node_ == nullptr) return "";
  std::lock_guard<SpinLock> lock(node_->lock);
  return node_->name;
}

void Ownership::SetName(std::string_view name) {
  if (is_null()) return;
  OwnerNode& node = Checked("SetName");
  std::string copy(name);
  std::lock_guard<SpinLock> lock(node.lock);
  node.name.swap(copy);
}

std::string Ownership::parent_name() const { return node_ != nullptr ? node_->parent_name : ""; }

Device Ownership::device() const { return node_ != nullptr ? node_->device : Host(); }
bool Ownership::is_root() const { return node_ != nullptr && node_->is_root; }

OwnerRef Ownership::ref() const {
  return OwnerRef(node_ != nullptr ? node_->ref.load(std::memory_order_acquire) : 0);
}

int64_t Ownership::arrays() const {
  if (node_ == nullptr) return 0;
  std::lock_guard<SpinLock> lock(node_->lock);
  return node_->arrays.get();
}

int64_t Ownership::bytes() const {
  if (node_ == nullptr) return 0;
  std::lock_guard<SpinLock> lock(node_->lock);
  return node_->bytes.get();
}

OwnershipScope::OwnershipScope(const Ownership& owner) {
  internal::EndLeftScopes();
  if (owner.is_null()) {
    owner_.Push({nullptr, kHandlesOwn});
    return;
  }
  OwnerNode* node = owner.node();
  if (!owner.is_open()) {
    ThrowFailedPrecondition(absl::StrCat("OwnershipScope: ", node == nullptr
                                                                 ? "this manager was moved from"
                                                                 : owner.name() + " is closed"));
  }
  if (node->place == NodePlace::kWorkspace) {
    WorkspaceCore* const core = node->workspace.OpenHere();
    if (core == nullptr) {
      node->workspace.ThrowNotOpenHere(
          absl::StrCat("OwnershipScope: place of ", owner.ref().ToString()));
    }
    if (CurrentPlace() != core) place_.Push(core, core->passes_through() ? nullptr : core);
  } else if (node->place == NodePlace::kHeap) {
    place_.Push(nullptr, nullptr);
  }
  owner_.Push({node, owner.ref().bits()});
}

CapScope::CapScope(Ownership& owner) {
  owner.Cap();
  if (!owner.is_null()) id_ = owner.id();
}

CapScope::~CapScope() {
  if (id_ == 0) return;
  OwnerNode* const node = NodeOf(id_);
  {
    // A node that has closed has another reference, and its record may be another node's.
    std::lock_guard<SpinLock> lock(node->lock);
    if (node->ref.load(std::memory_order_relaxed) != id_ || internal::TakeOffCap(*node)) return;
  }
  internal::Report([this] {
    return absl::StrCat("CapScope: ", DescribeNode(id_),
                        " was uncapped meanwhile by another; nothing is left to undo");
  });
}

}  // namespace tidepool
