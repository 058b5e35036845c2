// The records behind Ownership: nodes of the tree of owners, their locks and lists. For
// memory/ownership and the array layer's allocation path.
//
// Nodes live in slabs that are never given back, so that a thread may lock a node it read from a
// buffer a moment ago and see afterwards, by the reference, whether the buffer is still that node's.
// A reference is 24 bits of index and 40 bits of generation; the generation moves on when the node's
// buffers are gone, before its resources are closed, which drops every reference to it at once. How
// buffers come and go is memory/sync/owner_list.h.
//
// Locks: several nodes' are taken by address, or the second one only if it is free; the loan mutex last.
// None is held while foreign code (resources, release functions of imported memory) runs.
#ifndef TIDEPOOL_MEMORY_OWNERSHIP_OWNER_NODE_H_
#define TIDEPOOL_MEMORY_OWNERSHIP_OWNER_NODE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/sync/loan_book.h"
#include "tidepool/memory/sync/owner_list.h"
#include "tidepool/memory/sync/spin_lock.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/scope_token.h"
#include "tidepool/memory/workspace/workspace_ref.h"

namespace tidepool {

class OwnedResource;
struct OwnedArray;
struct OwnerNode;

// One temporary attachment. In two lists: the array's stack, the borrower's set.
struct Loan : LoanLinks<StdSync, Loan, Buffer, OwnerNode> {};

struct OwnerBudget {
  int64_t limit_bytes;
  int64_t limit_arrays;
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> arrays{0};
};

struct ResourceEntry {
  std::unique_ptr<OwnedResource> resource;
  ResourceEntry* older = nullptr;
};

enum class NodeState : uint8_t { kFree, kOpen, kClosing, kClosed };
enum class NodePlace : uint8_t { kCurrent, kHeap, kWorkspace };

struct OwnerNode : OwnerList<StdSync, Buffer> {
  std::atomic<NodeState> state{NodeState::kFree};
  bool is_root = false;
  bool abandoned = false;  // its Ownership went while another frame was closing it
  NodePlace place = NodePlace::kCurrent;
  Device device;
  std::atomic<int32_t> caps{0};  // > 0: capped
  WorkspaceRef workspace;        // of kWorkspace; it may be gone
  // The workspace, if a cycle of it is to end with the node; only ever compared. That may have ended
  // otherwise meanwhile: what is listed as in it is then closed as the rest is.
  const BufferOwner* cycle = nullptr;
  // The scope of that cycle. Whoever closes the node ends it; with the lock while the node is open.
  internal::ScopeToken cycle_scope;

  int32_t arriving = 0;  // LendAll under way: closing waits

  // What `ref` is while the node is open; from before it is published to when its record serves again. Of a
  // node that ends, `ref` names the next one that the record will be.
  uint64_t opened_ref = 0;
  OwnerNode* parent = nullptr;
  uint64_t parent_ref = 0;  // the record of a parent that has ended may be another node's
  OwnerNode* newest_child = nullptr;
  OwnerNode* newer = nullptr;  // siblings; the parent's lock
  OwnerNode* older = nullptr;
  OwnerNode* budgeted = nullptr;  // the nearest with a budget, this one included
  std::unique_ptr<OwnerBudget> budget;
  ResourceEntry* newest_resource = nullptr;
  int64_t resources = 0;
  std::atomic<Loan*> newest_loan{nullptr};   // into this node; the loan mutex
  StdSync::Plain<int64_t> loans;             // the loan mutex
  std::atomic<const void*> closer{nullptr};  // the thread that closes it
  int64_t opened_ns = 0;
  OwnerNode* next_free = nullptr;
  std::string name;
  std::string parent_name;

  bool is_open() const { return state.load(std::memory_order_relaxed) == NodeState::kOpen; }
  // Whether the buffer is of the cycle that ends with this node.
  bool HasInCycle(const Buffer& buffer) const { return buffer.owner == cycle; }
};

namespace internal {
inline constexpr int kSlabBits = 10;
extern std::atomic<OwnerNode*> slabs[size_t{1} << (kOwnerIndexBits - kSlabBits)];
}  // namespace internal

// Null for 0. The node may have closed since: look whether its `ref` is still that one.
inline OwnerNode* NodeOf(uint64_t ref) {
  const uint64_t index = ref & kOwnerIndexMask;
  if (index == 0) return nullptr;
  return internal::slabs[(index - 1) >> internal::kSlabBits].load(std::memory_order_acquire) +
         ((index - 1) & ((uint64_t{1} << internal::kSlabBits) - 1));
}

// The node that an array made here and now belongs to; see OwnershipScope. Null: to its handles.
struct CurrentOwner {
  OwnerNode* node = nullptr;
  uint64_t ref = 0;
};
extern thread_local constinit CurrentOwner current_owner;
// As current_owner.ref: what is made is its handles', whatever its operands'.
inline constexpr uint64_t kHandlesOwn = UINT64_MAX;
// Whether there has ever been a node below a root: until then nothing is asked about owners.
extern std::atomic<bool> owners_in_use;

// "owner [model/predictor]".
std::string DescribeNode(uint64_t ref);

// Throws kFailedPrecondition when the node is closed or capped and OutOfMemoryError beyond a budget,
// `what` in front of the message. Before anything is allocated.
void CheckMayOwn(uint64_t ref, size_t bytes, const std::string& what);
// The same as one look, for the path that does not fail.
inline bool MayOwn(const OwnerNode& node, uint64_t ref) {
  return node.ref.load(std::memory_order_acquire) == ref &&
         node.state.load(std::memory_order_relaxed) == NodeState::kOpen &&
         node.caps.load(std::memory_order_relaxed) == 0 && node.budgeted == nullptr;
}
// A buffer just made, of which the caller has the only handle, belongs to the node. False when the
// node closed or was capped meanwhile or its budget is spent; nothing has changed then.
bool LinkNew(Buffer* buffer, uint64_t ref) noexcept;

// Who is to close the buffer now: the last borrower, else the owner; 0: its handles, or it is closed.
uint64_t CurrentNodeOf(const Buffer& buffer);

// ---- between the sources of memory/ownership -------------------------------------------------
namespace internal {

struct ClosedBy;
struct CloseFailures;

// To the few milliseconds that ages are for; a fifth of the price of the exact clock.
int64_t CoarseNow() noexcept;

void Lock(OwnerNode* a, OwnerNode* b) noexcept;  // either may be null, or both the same
void Unlock(OwnerNode* a, OwnerNode* b) noexcept;
// Takes the buffer out if it is in that node; it is `to` then, its handles' or closed.
bool TakeOutOf(OwnerNode& node, Buffer* buffer, uint64_t to) noexcept;
// Out of whichever node has it; false when it has moved meanwhile, or is in none.
bool TakeOut(Buffer* buffer, uint64_t to) noexcept;
bool IsLentTo(const Buffer& buffer, const OwnerNode& node) noexcept;
bool EndLoanTo(Buffer* buffer, const OwnerNode& node) noexcept;  // false: there was none
void EndLoans(Buffer* buffer) noexcept;  // all of it; the loan mutex is taken here
void ReturnLoans(OwnerNode& node, ClosedBy* closed_by) noexcept;  // all into it; likewise
int64_t ListLoans(OwnerNode& node,
                  std::vector<OwnedArray>* arrays);  // their number; null: only that
// Under the node's lock, of a buffer that leaves it: true when it is lent, and lives on for that as its
// handles'.
bool OutlivesOwner(Buffer* buffer) noexcept;
StdSync::Mutex& LoanMutex() noexcept;
OwnerNode* NewNode();  // as RecycleNode left it; throws kResourceExhausted
void RecycleNode(OwnerNode* node) noexcept;
void InstallHooks();

// Closes the node and all below it, without recursion and without a need for memory. The cycle that a node
// owns ends at its turn. Failures of resources are noted in `failures`.
bool FinishEmpty(OwnerNode& node) noexcept;  // closes it if there is nothing in it
void CloseTree(OwnerNode& top, CloseFailures* failures) noexcept;

// Which close ended a buffer, shared by all that it ended: their `link.newer` from then on, where
// `closed` is kClosedByNode.
struct ClosedBy {
  std::atomic<int64_t> users{1};
  std::string text;
};
// Of buffers that the caller won the right to close. `closed_by` may be null.
void MarkClosed(Buffer* const* buffers, int count, ClosedBy* closed_by) noexcept;
void Drop(ClosedBy* closed_by) noexcept;
// To SetOwnershipReport's function, from destructors: with no memory for the text it is told that
// something happened.
void Report(absl::FunctionRef<std::string()> text) noexcept;
// One of the caps of a node; false when it has none.
bool TakeOffCap(OwnerNode& node) noexcept;

// What went wrong while a tree closed.
struct CloseFailures {
  bool any = false;
  std::string text;  // as far as there was memory for it
};

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_OWNERSHIP_OWNER_NODE_H_
