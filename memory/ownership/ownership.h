// Ownership: a node of the tree of owners. What a node owns ends when the node is closed, whoever
// still has handles of it. Managers of arrays (ndarray/manager) are built on it.
//
//   Ownership requests = Ownership::Process().NewChild("requests");
//   requests.Attach(buffer);             // closed with `requests`, or with its last handle before
//   Ownership one = requests.NewChild("one");
//   one.Lend(buffer);                    // borrowed: back in `requests` when `one` closes
//
// Where bytes are and whose they are is independent: buffers of every kind (heap, workspace, ring
// slot, mapped or imported memory) can be owned, and belonging to a node keeps nothing alive: the last
// handle frees a buffer as ever.
//
// A node closes its children before itself and the newest first; then it ends what it borrowed, its
// buffers, the newest first, and its other resources, the newest first. Closing is idempotent, goes on
// after a resource that fails, needs no stack however deep the tree is, and happens at the latest in
// the destructor. A root (Process(), NewRoot) owns nothing by itself that it could be asked to
// close early: it cannot be closed, borrow, or be capped.
//
// Errors: a closed node or root misused, a capped node: kFailedPrecondition; beyond a budget:
// OutOfMemoryError with the subtree. Whatever throws has changed nothing, but Close(). Of a workspace that
// is a place a node keeps the name: when it was destroyed, making an array there is an error that says so.
// Threads: every function may be called on any thread at any time, but the Ownership object itself
// is a value of one thread at a time. What is attached while the node closes either is closed
// with it or throws. The destructor of a node that another thread is closing waits until it is closed, and so
// does closing what is above it: a resource whose Close() waits for a thread that does either (joins a worker
// that has the node's handle) waits for ever. Close() of the node itself returns at once then.
// Cost: attach and release of a buffer together about 16 ns, one uncontended lock each; open and close
// 40 to 50 ns; no allocation in either once nodes are warm. 32 bytes per buffer.
#ifndef TIDEPOOL_MEMORY_OWNERSHIP_OWNERSHIP_H_
#define TIDEPOOL_MEMORY_OWNERSHIP_OWNERSHIP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/types/span.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/ownership/owner_node.h"
#include "tidepool/memory/ownership/owner_scopes.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {

// Anything else that ends with a node: a session, a file, a compiled model.
class OwnedResource {
 public:
  virtual ~OwnedResource() = default;
  // May throw; once. It must not wait for a thread that ends its node's Ownership, or closes one above.
  virtual void Close() = 0;
  virtual std::string Describe() const = 0;  // for dumps and errors: "file weights.bin"
};

// What a moved-from or default-made Ownership is not, and what never keeps anything open: the name of
// a node. Compares equal when it is the same node's.
class OwnerRef {
 public:
  OwnerRef() = default;
  explicit OwnerRef(uint64_t bits) : bits_(bits) {}
  explicit operator bool() const { return bits_ != 0; }
  bool is_open() const;
  std::string ToString() const { return bits_ == 0 ? "no manager" : DescribeNode(bits_); }
  uint64_t bits() const { return bits_; }
  friend bool operator==(OwnerRef, OwnerRef) = default;

 private:
  uint64_t bits_ = 0;  // 0: handles own it
};

class Ownership {
 public:
  // The root of the process; it never ends.
  static Ownership& Process();
  // The same root as a value, for a wrapper that never ends.
  static Ownership ProcessAlias() { return Ownership(Process().node_); }
  // Owns nothing: what is attached to it or made in it is its handles', its children are as it is, and
  // everything but Own() may be asked of it to no effect. Always open. For code that is given an owner
  // and may be given none.
  static Ownership Null();
  // For tests and libraries that want a tree of their own. When it ends it closes what is open below
  // it and reports that (SetOwnershipReport).
  static Ownership NewRoot(std::string_view name);

  Ownership() = default;
  Ownership(Ownership&& other) noexcept;
  Ownership& operator=(Ownership&& other) noexcept;
  // Closes; failures go to SetOwnershipReport. Waits for another thread that is closing it.
  ~Ownership();

  // Children have their parent's device and place unless given their own: a workspace, which must be
  // open where arrays are made. Without a place arrays are made where the calling thread is.
  Ownership NewChild(std::string_view name);
  // Of a device that there cannot be: kInvalidArgument.
  Ownership NewChild(std::string_view name, Device device);
  Ownership NewChild(std::string_view name, Workspace& place);
  // A child whose place is the workspace's next cycle: it is entered here, on this thread, and ends
  // with the child, whoever closes that, in the order of scopes; closed on another thread it is left to
  // this one, as a scope that is destroyed there. What the child owns of that cycle goes with it at once,
  // however much it is.
  Ownership NewCycle(std::string_view name, Workspace& workspace);

  // The buffer becomes this node's, and every loan of it ends.
  void Attach(const BufferHandle& buffer);
  // It becomes its handles', if this node owns it or has borrowed it: its owner has lost it then, too. Of
  // another's buffer: nothing.
  void Detach(const BufferHandle& buffer);
  // It is this node's for the time being: when the node closes it is back where it was, in whichever
  // order borrowers and owner close; when the owner closed before, it ends with its last borrower.
  // Lending again moves that loan to the top; lending to the owner changes nothing. Capped nodes
  // may borrow.
  void Lend(const BufferHandle& buffer);
  // To the parent; what is only lent here goes back to where it was. From a child of a root: to its
  // handles.
  void Return(const BufferHandle& buffer);
  // All or nothing.
  void AttachAll(absl::Span<const BufferHandle* const> buffers);
  void LendAll(absl::Span<const BufferHandle* const> buffers);
  void ReturnAll(absl::Span<const BufferHandle* const> buffers);
  // Owns a resource that is no memory; kInvalidArgument for none. Release takes it back, null when it is
  // not this node's.
  OwnedResource& Own(std::unique_ptr<OwnedResource> resource);
  std::unique_ptr<OwnedResource> Release(const OwnedResource* resource);

  // No buffer and no resource may be attached from here on. Children, loans, detaching and closing
  // stay allowed. Counts: as many Uncap as Cap.
  void Cap();
  void Uncap();
  bool is_capped() const;
  // What is made in it, and in children made from here on, lives on the heap whatever workspace is
  // open: for nodes that outlive cycles. Not for one that has a workspace.
  void PlaceOnHeap();
  // Of everything attached to it and below it. What ended with its cycle counts while handles of it are left,
  // but only until there would be no room: it leaves its node before anything is refused. Set before it has
  // children; kInvalidArgument below 0.
  void SetBudget(int64_t bytes, int64_t arrays = INT64_MAX);

  // Needs no memory. Throws an Error naming every resource that failed to close, after everything is
  // closed; std::bad_alloc instead when there is no memory to say so.
  void Close();
  bool is_open() const;
  bool is_null() const { return id_ == kHandlesOwn; }
  explicit operator bool() const { return node_ != nullptr || is_null(); }

  std::string name() const;
  void SetName(std::string_view name);
  std::string parent_name() const;     // as it was last seen; empty of a root
  uint64_t id() const { return id_; }  // never used again
  Device device() const;
  bool is_root() const;
  OwnerRef ref() const;
  // Attached, without its children's; with what ended with its cycle and has handles, which snapshots leave
  // out, until a budget needs the room.
  int64_t arrays() const;
  int64_t bytes() const;
  int64_t loans() const;  // borrowed

  OwnerNode* node() const { return node_; }

 private:
  explicit Ownership(OwnerNode* node) : node_(node), id_(node->opened_ref) {}
  Ownership MakeChild(std::string_view name, const Device* device, Workspace* place,
                      bool cycle) const;
  OwnerNode& Checked(const char* operation) const;
  OwnerNode& CheckMayReturn() const;
  void End(internal::CloseFailures* failures) noexcept;
  void Discard() noexcept;

  OwnerNode* node_ = nullptr;
  uint64_t id_ = 0;
  internal::ScopeToken null_cycle_;  // of a null one, which has no node to keep it
};

// What is made on this thread without another destination is `owner`'s until the scope ends, and is
// where the owner's place is: a workspace, which must be open on this thread (kFailedPrecondition, which
// says whether it was destroyed). Scopes end in the reverse order of their beginning; one that ends before
// those entered inside it leaves them current, and is reported (owner_scopes.h).
class [[nodiscard]] OwnershipScope {
 public:
  [[nodiscard]] explicit OwnershipScope(const Ownership& owner);
  OwnershipScope(const OwnershipScope&) = delete;
  OwnershipScope& operator=(const OwnershipScope&) = delete;

 private:
  internal::ScopeToken place_;
  internal::OwnerToken owner_;
};

// What is made on this thread without another destination belongs to its handles until the scope ends,
// whosever its operands are; where no other owner is entered, that is. For code that computes with
// owned arrays and keeps nothing.
class [[nodiscard]] HandlesOwnScope {
 public:
  [[nodiscard]] HandlesOwnScope() {
    if (current_owner.ref == 0) owner_.Push({nullptr, kHandlesOwn});
  }
  HandlesOwnScope(const HandlesOwnScope&) = delete;
  HandlesOwnScope& operator=(const HandlesOwnScope&) = delete;

 private:
  internal::OwnerToken owner_;
};

// Capped from here to the end of the block. The cap is the node's: it comes off wherever the Ownership
// was moved meanwhile. A node that was closed keeps nothing to take back; one that somebody uncapped more
// often than they capped it has lost this cap already, which is reported.
class [[nodiscard]] CapScope {
 public:
  [[nodiscard]] explicit CapScope(Ownership& owner);  // throws as Cap()
  ~CapScope();
  CapScope(const CapScope&) = delete;
  CapScope& operator=(const CapScope&) = delete;

 private:
  uint64_t id_ = 0;  // of the node; 0: of none
};

// Where failures of destructors and what roots find open at their end is told; stderr by default.
void SetOwnershipReport(void (*report)(const std::string& text));

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_OWNERSHIP_OWNERSHIP_H_
