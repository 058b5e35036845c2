// How nodes end, and what the last handle of an owned buffer does.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/owner_budgets.h"
#include "tidepool/memory/ownership/owner_traces.h"
#include "tidepool/memory/ownership/ownership.h"

namespace tidepool {
namespace {

void ReportToStderr(const std::string& text) {
  std::fprintf(stderr, "tidepool: %s\n", text.c_str());
}
std::atomic<void (*)(const std::string&)> report_function{&ReportToStderr};

}  // namespace

void SetOwnershipReport(void (*report)(const std::string& text)) {
  report_function.store(report != nullptr ? report : &ReportToStderr);
}

namespace internal {
namespace {

// Null when there is no memory for it: errors then do not say who closed the array.
ClosedBy* NewClosedBy(const OwnerNode& node) noexcept {
  try {
    auto record = std::make_unique<ClosedBy>();
    record->text = DescribeNode(node.ref.load(std::memory_order_relaxed));
    if (MemoryTracing::enabled()) {
      AllocationTrace here;
      here.Capture();
      absl::StrAppend(&record->text, " at ", here.Site());
    }
    return record.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// The newest of a list that are not lent on, closed; false when there are none left.
bool CloseSome(OwnerNode& node, bool in_cycle, ClosedBy* closed_by) noexcept {
  constexpr int kAtOnce = 64;
  const MemoryBudget::TellLater later;  // without the node's lock
  ImportRelease after[kAtOnce];
  int after_count = 0;
  const bool more = node.CloseSome<kAtOnce>(
      in_cycle,
      [](Buffer* buffer) {
        return (buffer->care.load(std::memory_order_relaxed) & Buffer::kLent) != 0 &&
               OutlivesOwner(buffer);
      },
      [&](Buffer* const* batch, int count, int64_t arrays, int64_t bytes, const Buffer* next) {
        Leave(node, nullptr, arrays, bytes);
        MarkClosed(batch, count, closed_by);
        CloseClaimed(batch, count, after, &after_count, next);
      });
  for (int i = 0; i < after_count; ++i) after[i].release(after[i].context);
  return more;
}

// `what`: null for something that is no std::exception.
void NoteFailure(const OwnerNode& node, const OwnedResource& resource, const char* what,
                 CloseFailures* failures) noexcept {
  failures->any = true;
  try {
    absl::StrAppend(&failures->text, failures->text.empty() ? "" : "; ", resource.Describe(),
                    " of ", DescribeNode(node.ref.load(std::memory_order_relaxed)), ": ",
                    what != nullptr ? what : "threw something that is no std::exception");
  } catch (...) {
    // That there was one is told.
  }
}

void CloseResources(OwnerNode& node, CloseFailures* failures) noexcept {
  for (;;) {
    std::unique_ptr<ResourceEntry> entry;
    {
      std::lock_guard<SpinLock> lock(node.lock);
      entry.reset(node.newest_resource);
      if (entry == nullptr) return;
      node.newest_resource = entry->older;
      --node.resources;
    }
    try {
      entry->resource->Close();
    } catch (const std::exception& error) {
      NoteFailure(node, *entry->resource, error.what(), failures);
    } catch (...) {  // the tree closes on, whatever was thrown
      NoteFailure(node, *entry->resource, nullptr, failures);
    }
  }
}

bool CycleGoesOn(OwnerNode& node) noexcept {
  std::lock_guard<SpinLock> lock(node.lock);
  const Buffer* const newest = node.newest_in_cycle.get();
  return newest != nullptr && newest->IsAlive();
}

void CloseContents(OwnerNode& node, CloseFailures* failures) noexcept {
  // What was let in before the node began to close arrives first.
  for (;; sched_yield()) {
    std::lock_guard<SpinLock> lock(node.lock);
    if (node.arriving == 0) break;
  }
  ClosedBy* closed_by = nullptr;
  node.lock.lock();
  const bool any = !node.is_empty() || node.newest_loan.load(std::memory_order_relaxed) != nullptr;
  node.lock.unlock();
  if (any) closed_by = NewClosedBy(node);
  if (node.newest_loan.load(std::memory_order_relaxed) != nullptr) ReturnLoans(node, closed_by);
  while (CloseSome(node, false, closed_by)) {
  }
  // The workspace's cycle ends, and with it all that is left in it; unless it has ended already, is left to
  // its own thread, or goes on for a scope that should have ended before.
  if (!node.cycle_scope.Reset() || CycleGoesOn(node)) {
    while (CloseSome(node, true, closed_by)) {
    }
  }
  {
    // Before foreign code runs: handles that it drops find that they are the node's no more.
    std::lock_guard<SpinLock> lock(node.lock);
    Leave(node, nullptr, node.arrays.get(), node.bytes.get());
    node.DropAll();
  }
  if (closed_by != nullptr) Drop(closed_by);
  CloseResources(node, failures);
}

// With both locks, of a node that has dropped what it had: it leaves its parent. Whether its record is
// to be recycled.
bool LeaveParent(OwnerNode* parent, OwnerNode& node) noexcept {
  if (parent != nullptr) {
    if (node.newer != nullptr) {
      node.newer->older = node.older;
    } else {
      parent->newest_child = node.older;
    }
    if (node.older != nullptr) node.older->newer = node.newer;
  }
  const bool recycle = node.abandoned;
  node.state.store(NodeState::kClosed, std::memory_order_release);
  return recycle;
}

// Its contents are gone.
void Finish(OwnerNode& node) noexcept {
  OwnerNode* parent = node.parent;
  Lock(parent, &node);
  const bool recycle = LeaveParent(parent, node);
  Unlock(parent, &node);
  if (recycle) RecycleNode(&node);
}

}  // namespace

// Most nodes end with nothing in them.
bool FinishEmpty(OwnerNode& node) noexcept {
  OwnerNode* parent = node.parent;
  Lock(parent, &node);
  const bool empty = node.is_open() && node.is_empty() && node.newest_child == nullptr &&
                     node.newest_resource == nullptr && node.arriving == 0 &&
                     node.newest_loan.load(std::memory_order_relaxed) == nullptr;
  if (empty) {
    node.DropAll();
    LeaveParent(parent, node);
  }
  Unlock(parent, &node);
  return empty;
}

namespace {

// Begins to close the newest child of `node`; null when it has none. Waits for one that another
// thread is closing.
OwnerNode* BeginNewestChild(OwnerNode& node) noexcept {
  for (;; sched_yield()) {
    std::lock_guard<SpinLock> lock(node.lock);
    OwnerNode* child = node.newest_child;
    // One that this thread is closing further up (a resource's Close closed its ancestor) finishes
    // there.
    while (child != nullptr && child->closer.load() == CurrentThreadToken()) child = child->older;
    if (child == nullptr) return nullptr;
    if (!child->lock.try_lock()) continue;
    std::lock_guard<SpinLock> child_lock(child->lock, std::adopt_lock);
    if (child->state.load(std::memory_order_relaxed) != NodeState::kOpen) continue;
    child->state.store(NodeState::kClosing, std::memory_order_release);
    child->closer = CurrentThreadToken();
    return child;
  }
}

}  // namespace

void Report(absl::FunctionRef<std::string()> text) noexcept {
  std::string told;
  try {
    told = text();
  } catch (...) {
    told = "no memory";  // short enough to need none
  }
  try {
    report_function.load()(told);
  } catch (...) {
  }
}

void CloseTree(OwnerNode& top, CloseFailures* failures) noexcept {
  {
    std::lock_guard<SpinLock> lock(top.lock);
    if (top.state.load(std::memory_order_relaxed) != NodeState::kOpen) return;
    top.state.store(NodeState::kClosing, std::memory_order_release);
    top.closer = CurrentThreadToken();
  }
  OwnerNode* node = &top;
  for (;;) {
    if (OwnerNode* child = BeginNewestChild(*node)) {
      node = child;
      continue;
    }
    CloseContents(*node, failures);
    OwnerNode* parent = node->parent;
    const bool done = node == &top;
    Finish(*node);
    if (done) return;
    node = parent;
  }
}

void MarkClosed(Buffer* const* buffers, int count, ClosedBy* closed_by) noexcept {
  if (closed_by != nullptr) closed_by->users.fetch_add(count, std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (closed_by != nullptr) buffers[i]->link.newer.set(reinterpret_cast<Buffer*>(closed_by));
    buffers[i]->closed.store(closed_by != nullptr ? Buffer::kClosedByNode : Buffer::kClosedAlone,
                             std::memory_order_release);
  }
}

void Drop(ClosedBy* closed_by) noexcept {
  if (closed_by->users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete closed_by;
}

namespace {

std::string DescribeClosed(const Buffer& buffer) {
  if (buffer.closed.load(std::memory_order_acquire) != Buffer::kClosedByNode) return "";
  const std::string made = DescribeOwned(buffer.id);
  return absl::StrCat(reinterpret_cast<const ClosedBy*>(buffer.link.newer.get())->text,
                      made.empty() ? "" : "; ", made);
}

void DropRecords(Buffer* buffer) noexcept {
  if ((buffer->care.load(std::memory_order_relaxed) & Buffer::kTraced) != 0) {
    ForgetOwned(buffer->id);
  }
  if (buffer->closed.load(std::memory_order_relaxed) == Buffer::kClosedByNode) {
    Drop(reinterpret_cast<ClosedBy*>(buffer->link.newer.get()));
  }
}

}  // namespace

void InstallHooks() {
  static constinit OwnershipHooks hooks = {&TakeOut, &EndLoans, &DescribeClosed, &DropRecords};
  ownership_hooks.store(&hooks, std::memory_order_release);
}

}  // namespace internal

// ---- Ownership ------------------------------------------------------------------------------

void Ownership::End(internal::CloseFailures* failures) noexcept {
  if (internal::FinishEmpty(*node_)) {
    node_->cycle_scope.Reset();
  } else {
    internal::CloseTree(*node_, failures);
  }
}

void Ownership::Close() {
  if (is_null()) {
    null_cycle_.Reset();
    return;
  }
  OwnerNode& node = Checked("Close");
  if (node.is_root) {
    ThrowFailedPrecondition(
        absl::StrCat("Close: ", ref().ToString(), " is a root, which is not closed"));
  }
  internal::CloseFailures failures;
  End(&failures);
  internal::EndLeftScopes();  // the node's cycle, if another thread closed it
  if (failures.any) {
    throw Error(absl::StatusCode::kInternal,
                absl::StrCat("Close: ", ref().ToString(), " is closed, but not all went well: ",
                             failures.text.empty() ? "no memory to say what" : failures.text));
  }
}

void Ownership::Discard() noexcept {
  if (node_ == nullptr) return;
  internal::CloseFailures failures;
  if (node_->is_root) {
    std::string open;
    try {
      open = internal::DescribeOpen(*node_);
    } catch (...) {
      open = "?";
    }
    if (!open.empty()) internal::Report([&] { return std::move(open); });
  }
  End(&failures);
  if (failures.any) {
    internal::Report([&] { return absl::StrCat("a manager's end: ", failures.text); });
  }
  OwnerNode* node = std::exchange(node_, nullptr);
  // Another thread, or a frame of this one further up, may still be closing it.
  while (node->state.load(std::memory_order_acquire) != NodeState::kClosed) {
    {
      std::lock_guard<SpinLock> lock(node->lock);
      if (node->state.load(std::memory_order_relaxed) == NodeState::kClosed) break;
      if (node->closer == CurrentThreadToken()) {
        node->abandoned = true;
        return;
      }
    }
    sched_yield();
  }
  internal::EndLeftScopes();  // the node's cycle, if another thread closed it
  internal::RecycleNode(node);
}

Ownership::~Ownership() { Discard(); }

OwnedResource& Ownership::Own(std::unique_ptr<OwnedResource> resource) {
  OwnerNode& node = Checked("Own");
  if (resource == nullptr) {
    ThrowInvalidArgument(
        absl::StrCat("Own: ", ref().ToString(), ": found a null resource, expected one to close"));
  }
  OwnedResource& result = *resource;
  auto entry = std::make_unique<ResourceEntry>();
  entry->resource = std::move(resource);
  const char* problem = nullptr;
  {
    std::lock_guard<SpinLock> lock(node.lock);
    if (node.state.load(std::memory_order_relaxed) != NodeState::kOpen) {
      problem = "is closed";
    } else if (node.caps.load(std::memory_order_relaxed) > 0) {
      problem = "is capped: nothing new may be attached to it";
    } else {
      entry->older = node.newest_resource;
      node.newest_resource = entry.release();
      ++node.resources;
    }
  }
  if (problem != nullptr) {
    ThrowFailedPrecondition(absl::StrCat("Own: ", ref().ToString(), " ", problem));
  }
  return result;
}

std::unique_ptr<OwnedResource> Ownership::Release(const OwnedResource* resource) {
  if (is_null()) return nullptr;
  OwnerNode& node = Checked("Release");
  std::unique_ptr<ResourceEntry> found;
  std::lock_guard<SpinLock> lock(node.lock);
  for (ResourceEntry** at = &node.newest_resource; *at != nullptr; at = &(*at)->older) {
    if ((*at)->resource.get() != resource) continue;
    found.reset(*at);
    *at = found->older;
    --node.resources;
    return std::move(found->resource);
  }
  return nullptr;
}

}  // namespace tidepool
