// NDManager: whose arrays are. Closing a manager closes the arrays attached to it and the managers
// below it, whoever still has handles; until then an array dies with its last handle, as every value.
//
//   NDManager manager = NDManager::NewBaseManager();
//   NDArray weights = manager.RandomNormal({784, 10}, 0, 0.1, 42);
//   {
//     NDManager step = manager.NewSubManager("step");
//     ManagerScope scope(step);                 // what is made here is the step's
//     NDArray y = MatMul(x, weights);           // not `manager`'s, though `weights` are
//     loss = manager.Scoped({&y}, ...);         // see Scoped
//     kept = step.Ret(y);                       // to the parent
//   }                                           // the rest of the step is closed
//
// Whose a new array is: its explicit destination's, `Zeros({3}, DType::kFloat32, manager)`, else the
// manager's that was entered last on this thread (ManagerScope), else that of the operator's first
// operand that has one, else its handles'. Where its bytes are is another question: a manager's own
// place (a workspace), or what is current.
//
// Cap() long-lived managers once they are set up: an array that would stay in one is then an error at
// the line that makes it. The rules of attaching, lending, closing, threads, errors and costs are
// those of Ownership (memory/ownership/ownership.h), which each manager is; docs/managers.md tells
// how to use them.
#ifndef TIDEPOOL_NDARRAY_MANAGER_ND_MANAGER_H_
#define TIDEPOOL_NDARRAY_MANAGER_ND_MANAGER_H_

#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_list.h"

namespace tidepool {

// An array or a list, as an argument of the functions that take many.
class NDResource {
 public:
  NDResource(const NDArray& array) : array_(&array) {}  // NOLINT: implicit
  NDResource(const NDList& list) : list_(&list) {}      // NOLINT: implicit
  // How many arrays it is, and the i-th of them.
  size_t size() const { return array_ != nullptr ? 1 : list_->size(); }
  const NDArray& operator[](size_t i) const { return array_ != nullptr ? *array_ : (*list_)[i]; }

 private:
  const NDArray* array_ = nullptr;
  const NDList* list_ = nullptr;
};

class NDManager {
 public:
  // The root of the process: never closed, capped or lent to.
  static NDManager& System();
  // A root of its own, for tests: reports what is open below it when it ends.
  static NDManager NewRoot(std::string_view name) { return NDManager(Ownership::NewRoot(name)); }
  // Directly below the root of the process.
  // A device that there cannot be (`cuda:16`), here and below, is kInvalidArgument.
  static NDManager NewBaseManager(Device device = Host(), std::string_view name = "base");

  // Owns nothing and may be used as any other: what is made in it is its handles' (Ownership::Null).
  static NDManager Null() { return NDManager(Ownership::Null()); }

  NDManager() = default;

  // Below this one, with its device and place, or with its own: arrays live in `place`, which must be
  // open where they are made; once it is destroyed, making one is an error that says so. Throws
  // kFailedPrecondition when this one is closed. Capped ones allow it.
  NDManager NewSubManager(std::string_view name = "") { return NDManager(node_.NewChild(name)); }
  // Of that device, on whose heap its arrays are made.
  NDManager NewSubManager(std::string_view name, Device device) {
    return NDManager(node_.NewChild(name, device));
  }
  // In that workspace; see above.
  NDManager NewSubManager(std::string_view name, Workspace& place) {
    return NDManager(node_.NewChild(name, place));
  }
  // Below this one, with a cycle of the workspace that begins here and ends when the manager closes, by
  // itself or with one above it: a request, or a training step. On one thread, in the order of scopes.
  NDManager NewCycleManager(std::string_view name, Workspace& workspace) {
    return NDManager(node_.NewCycle(name, workspace));
  }

  // ---- making arrays that are this manager's ----
  // Each as the function of its name in creation.h (Create: Empty), in the manager's place. Throws
  // kFailedPrecondition when the manager is closed or capped, and what its budget refuses.
  NDArray Create(const Shape& shape, DType dtype = DType::kFloat32) const {
    return Empty(shape, dtype, *this);
  }
  // Each element 0; 1; `value`.
  NDArray Zeros(const Shape& shape, DType dtype = DType::kFloat32) const {
    return tidepool::Zeros(shape, dtype, *this);
  }
  // Likewise.
  NDArray Ones(const Shape& shape, DType dtype = DType::kFloat32) const {
    return tidepool::Ones(shape, dtype, *this);
  }
  // Likewise.
  NDArray Full(const Shape& shape, double value, DType dtype = DType::kFloat32) const {
    return tidepool::Full(shape, value, dtype, *this);
  }
  // begin, begin + step, ... below end.
  NDArray Arange(double begin, double end, double step = 1, DType dtype = DType::kFloat32) const {
    return tidepool::Arange(begin, end, step, dtype, *this);
  }
  // Functions of (seed, stream) alone: [low, high), and normal numbers.
  NDArray RandomUniform(const Shape& shape, double low, double high, uint64_t seed,
                        uint64_t stream = 0) const {
    return tidepool::RandomUniform(shape, low, high, seed, stream, *this);
  }
  // Likewise.
  NDArray RandomNormal(const Shape& shape, double mean, double deviation, uint64_t seed,
                       uint64_t stream = 0) const {
    return tidepool::RandomNormal(shape, mean, deviation, seed, stream, *this);
  }
  // A dense copy, this manager's.
  NDArray CopyOf(const NDArray& array) const { return array.CopyTo(*this); }

  // ---- whose they are ----
  // Views share their array's owner: it is the bytes that are owned.
  void Attach(const NDArray& array);
  // The array for its handles alone, on the heap, as NDArray::Detach() gives it: neither this
  // manager nor a workspace's cycle ends it. It is the same array, taken out of this manager, where
  // its bytes are on the heap; else a copy, and the array is its handles' until its cycle ends.
  // What another manager owns stays there, unless it is lent to this one: a borrower may take it from
  // its owner for good, as in DJL.
  NDArray Detach(const NDArray& array);
  // Lends it to this manager until that closes (Ownership::Lend); a capped one may borrow.
  void TempAttach(const NDArray& array);
  // All or nothing.
  void AttachAll(std::initializer_list<NDResource> resources);
  void TempAttachAll(std::initializer_list<NDResource> resources);
  // To the parent, or to its handles from a base manager. The same array.
  NDArray Ret(const NDArray& array);
  NDList Ret(const NDList& list);
  // True when closing this manager would close the array, or end its loan here.
  bool Manages(const NDArray& array) const;
  // The manager the array is with now: its last borrower, else its owner; none: its handles'.
  static OwnerRef ManagerOf(const NDArray& array);
  // Resources that are no arrays: closed with the manager, after its arrays. kInvalidArgument for none.
  OwnedResource& Own(std::unique_ptr<OwnedResource> resource) {
    return node_.Own(std::move(resource));
  }

  // Sub-manager, inputs lent to it, `compute(sub)` with it entered, result to this manager, closed:
  //   NDArray z = manager.Scoped({x, y}, [&](NDManager&) { return Softmax(x + y); });
  // `compute` gives an NDArray or an NDList. An input it returns stays whose it is. On an exception
  // everything is as before.
  template <typename Compute>
  auto Scoped(std::initializer_list<NDResource> inputs, Compute&& compute);

  // ---- place and limits ----
  // What is made in it, and in managers made below it from here on, lives on the heap, whatever
  // workspace is open: for managers that outlive cycles. Without it `manager.Zeros(...)` within a cycle
  // makes an array whose bytes end with that cycle. Before arrays are made in it.
  void PlaceOnHeap() { node_.PlaceOnHeap(); }

  // No array and no resource may be attached or made in it from here on; managers below, loans and
  // closing stay allowed.
  void Cap() { node_.Cap(); }
  void Uncap() { node_.Uncap(); }  // as many as Cap
  bool is_capped() const { return node_.is_capped(); }

  // Most that may be attached to it and below it at once; beyond it making and attaching arrays is
  // OutOfMemoryError. Before it has managers below it; kInvalidArgument below 0.
  void SetBudget(int64_t bytes, int64_t arrays = INT64_MAX) { node_.SetBudget(bytes, arrays); }

  // ---- the end ----
  // The destructor closes too, and waits until the manager is closed if another thread is at it: a resource
  // (Own) must not wait in its Close() for a worker that still has this manager and destroys it there.
  void Close() { node_.Close(); }

  // False once Close() has begun, and of one that was moved from or default-made.
  bool is_open() const { return node_.is_open(); }

  // ---- looking ----
  // Its own numbers, without those of managers below: arrays and bytes attached, arrays borrowed.
  // Names are for people, and need not differ; an id is never used again. Any thread.
  std::string name() const { return node_.name(); }
  void SetName(std::string_view name) { node_.SetName(name); }
  std::string parent_name() const { return node_.parent_name(); }
  uint64_t id() const { return node_.id(); }
  Device device() const { return node_.device(); }
  OwnerRef ref() const { return node_.ref(); }
  int64_t arrays() const { return node_.arrays(); }
  int64_t bytes() const { return node_.bytes(); }
  int64_t loans() const { return node_.loans(); }

  // It and all below it, as a list or as text (ownership_snapshot.h); with each array where asked.
  OwnershipSnapshot Snapshot(bool list_arrays = false) const {
    return SnapshotOf(node_, list_arrays);
  }
  // Likewise, a line for each manager.
  void DebugDump(std::ostream& out, bool list_arrays = false) const {
    tidepool::DebugDump(node_, out, list_arrays);
  }
  std::string ToString() const;  // "owner [a/b] of [a], open, 2 arrays, 128 bytes"

  // What it is made of, for code that knows no arrays.
  Ownership& ownership() { return node_; }
  const Ownership& ownership() const { return node_; }
  operator Place() const { return Place::Of(node_); }  // NOLINT: the explicit destination

 private:
  explicit NDManager(Ownership node) : node_(std::move(node)) {}
  Ownership node_;
};

// From here to the end of the block, what is made on this thread is this manager's and lives in its
// place. Scopes end in the reverse order of their beginning; one that does not leaves the inner ones
// entered and is reported (SetOwnershipReport).
class [[nodiscard]] ManagerScope {
 public:
  [[nodiscard]] explicit ManagerScope(const NDManager& manager) : scope_(manager.ownership()) {}

 private:
  OwnershipScope scope_;
};

// The manager is capped to the end of the block, wherever it is moved meanwhile (CapScope).
class [[nodiscard]] ManagerCapScope {
 public:
  [[nodiscard]] explicit ManagerCapScope(NDManager& manager) : scope_(manager.ownership()) {}

 private:
  CapScope scope_;
};

template <typename Compute>
auto NDManager::Scoped(std::initializer_list<NDResource> inputs, Compute&& compute) {
  NDManager sub = NewSubManager("scoped");
  sub.TempAttachAll(inputs);
  auto result = [&] {
    ManagerScope scope(sub);
    return compute(sub);
  }();
  sub.Ret(result);
  sub.Close();
  return result;
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_MANAGER_ND_MANAGER_H_
