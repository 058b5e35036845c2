// NDArray: a value handle to an n-dimensional array. Copying a handle shares the bytes; the bytes
// go when the last handle goes, or with the workspace cycle they were made in, or at Close().
//
//   NDArray x = Ones({32, 32});   // creation.h: in the current workspace, or on the heap
//   x *= 2;
//   NDArray kept = x.Detach();    // a copy on the heap that outlives the cycle
//
// Every use checks that the bytes are still the array's: reading an array whose workspace cycle has
// ended throws kFailedPrecondition, naming the operation, operand, workspace and generations.
//
// Layout: strided, row-major when made; views share bytes. Threads: handles of one array may be
// copied and released on any thread; writes must not race with other uses.
#ifndef TIDEPOOL_NDARRAY_NDARRAY_H_
#define TIDEPOOL_NDARRAY_NDARRAY_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/workspace/workspace_ref.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/scalar.h"
#include "tidepool/ndarray/shape.h"
#include "tidepool/ndarray/subscript.h"

namespace tidepool {

class NDArray;
class Ownership;
class Workspace;

// Where a new array lives, and whose it is.
//
// A value that keeps nothing alive: of a workspace and of a manager it has the name. When either has gone,
// making an array there is an error that says so; nothing is ever made in what came to lie where it was.
class Place {
 public:
  // The calling thread's current workspace, or the heap; it belongs to the manager entered last on
  // this thread (ManagerScope), or to its handles.
  static Place Current() { return Place(Where::kCurrent, MemoryKind::kAllocated); }

  // The heap of the host; `kind` is what its bytes are counted under.
  static Place Heap(MemoryKind kind = MemoryKind::kAllocated) { return Place(Where::kHeap, kind); }
  // The heap of a device.
  static Place On(Device device, MemoryKind kind = MemoryKind::kAllocated) {
    return Place(Where::kHeap, kind).OnDevice(device);
  }
  // A workspace that is open on this thread, current or not.
  static Place In(Workspace& workspace);
  // It belongs to `owner` and lives where that one's arrays do. NDManager converts to this.
  static Place Of(const Ownership& owner);
  // As Current, but its handles' whatever manager is entered: for what does not outlive a call.
  static Place Scratch() { return Place(Where::kScratch, MemoryKind::kAllocated); }
  static Place Scratch(Device device) { return Scratch().OnDevice(device); }
  // Current() where that is on `device`, else the device's heap.
  static Place CurrentOn(Device device) { return Current().OnDevice(device); }

  // What Current() means here and now, for use where that is something else.
  static Place Here();
  // The same where that is on `device`, else the device's heap. Here and above a device that there
  // cannot be (`cuda:16`) is kInvalidArgument; whether there is one is found when memory is taken.
  Place OnDevice(Device device) const {
    CheckDevice("place", device);
    Place place = *this;
    place.device_ = device;
    place.wants_device_ = true;
    return place;
  }

  // Where memory of this place would be taken from now; the host's where that cannot be said, as of a
  // workspace that is not open here.
  Device device() const;
  // `bytes` of new memory. Throws OutOfMemoryError; kFailedPrecondition when the workspace is not
  // open on this thread, or was destroyed.
  BufferHandle Allocate(size_t bytes) const;

 private:
  enum class Where : uint8_t { kCurrent, kHeap, kWorkspace, kOwner, kScratch };
  Place(Where where, MemoryKind kind, WorkspaceRef workspace = WorkspaceRef())
      : where_(where), kind_(kind), workspace_(workspace) {}
  // The manager that a new array belongs to; 0: its handles.
  uint64_t Owner() const;
  Device DeviceOf(WorkspaceRef workspace) const;
  template <typename At>
  static Place OfOperands(const char* op, const char* names, size_t count, At at);
  BufferHandle AllocateCurrent(size_t bytes) const;
  BufferHandle AllocateIn(WorkspaceRef workspace, size_t bytes) const;
  BufferHandle AllocateFor(uint64_t owner, size_t bytes, const Shape& shape, DType dtype) const;

  Where where_;
  MemoryKind kind_;
  bool wants_device_ = false;  // the heap of device_ where the place is on another one
  Device device_;
  uint8_t operand_ = 0;          // of `op_`: whose manager owner_ is
  WorkspaceRef workspace_;       // of kWorkspace
  uint64_t owner_ = 0;           // the node of kOwner
  const char* op_ = nullptr;     // for the error of one that takes nothing
  const char* names_ = nullptr;  // of the operator's operands
  friend class NDArray;
  friend Place PlaceOfOperands(const char* op, const char* names,
                               absl::Span<const NDArray* const> operands);
  friend Place ResultPlace(const char* op, absl::Span<const NDArray> operands);
};

class NDArray {
 public:
  // Undefined: what reads or writes elements, makes a view or a copy, or takes it as an operand is an
  // error. Assignment is none; accessors answer as of an array of rank 0 and kFloat32 on the host that has
  // no memory, in scope and not closed; Close() and MarkWritten() do nothing.
  NDArray() = default;
  NDArray(const NDArray&) = default;
  NDArray& operator=(const NDArray&) & = default;
  // What was moved from is undefined, as a default-made one. Few instructions and no call: nothing is done as often.
  NDArray(NDArray&& other) noexcept;
  NDArray& operator=(NDArray&& other) & noexcept;
  // A variable becomes another array; what a call returns is written to: `x(0, All()) = y`, `x.Transpose() = y`.
  // Values broadcast to this shape, are converted to this type, and may overlap it. Throws as CopyInto.
  void operator=(const NDArray& values) &&;
  void operator=(const Scalar& value) &&;
  ~NDArray() = default;
  // Contents are whatever the memory held.
  NDArray(const Shape& shape, DType dtype, Place place = Place::Current());
  // Over existing memory; see also NewImportedBuffer. Throws kInvalidArgument when it is too small
  // or not aligned to elements of that type.
  NDArray(BufferHandle buffer, const Shape& shape, DType dtype);
  // The same with any strides, in elements, as NDArray::strides(); `first` is the number of the
  // first element from the buffer's begin. The caller has checked that they stay inside. Without a
  // buffer the array, which must be empty, is on `empty_on`.
  static NDArray FromStrides(BufferHandle buffer, int64_t first, const Shape& shape,
                             absl::Span<const int64_t> strides, DType dtype,
                             Device empty_on = Host());

  // Whether there is an array at all; its sizes, and how many. Of a closed or stale one as well.
  bool is_defined() const { return defined_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  // Throws kInvalidArgument unless 0 <= axis < rank().
  int64_t dim(int axis) const {
    if (static_cast<unsigned>(axis) >= static_cast<unsigned>(rank())) ThrowNoAxis(axis);
    return shape_[axis];
  }

  // Type of the elements, where they are (of none: where the array was made), and how many.
  DType dtype() const { return dtype_; }
  Device device() const { return buffer_ ? buffer_->device : empty_on_; }
  int64_t NumElements() const { return shape_.NumElements(); }
  const int64_t* strides() const { return strides_; }  // in elements
  bool is_dense() const;                               // row-major without gaps

  // ---- elements ----
  // Pointer to the first element on the host. Throws when the array is stale, not dense, or T is not
  // its type. mutable_data counts as one write, at the call: who keeps its pointer and writes again after
  // an operator has used the array calls MarkWritten() then. Of an array on a device: to its host copy, brought up
  // to date, until the array is next used on the device; kFailedPrecondition where its workspace keeps
  // device memory only. HostView (host_view.h) is the safe form.
  template <typename T>
  const T* data() const {
    return static_cast<const T*>(CheckedData(DTypeOf<T>::value, "data", false));
  }
  // The same to write to; kFailedPrecondition for an array that was imported to be read only, too.
  template <typename T>
  T* mutable_data() {
    void* pointer = CheckedData(DTypeOf<T>::value, "mutable_data", true);
    MarkWritten();
    return static_cast<T*>(pointer);
  }
  // After a write to a host array that no call of this library made, as by a pointer that was kept: what was
  // derived from the bytes of this array and its views (packed weights, replicas of a model's parameters
  // on other devices) is made again at the next use. What is exported or imported by DLPack needs it not.
  void MarkWritten() {
    if (buffer_) {
      buffer_->version.store(buffer_->version.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
    }
  }
  // The element at `index`, a number from 0 for each axis. Throws kInvalidArgument for an index
  // outside and for a T that is not its type. From a device it is copied, behind the work that
  // writes it.
  template <typename T>
  T At(absl::Span<const int64_t> index) const {
    T element;
    ReadElement(DTypeOf<T>::value, index, &element);
    return element;
  }
  // The same: x.At<float>({0, 2}).
  template <typename T>
  T At(std::initializer_list<int64_t> index) const {
    return At<T>(absl::Span<const int64_t>(index.begin(), index.size()));
  }
  // The only element of an array that has exactly one, of any rank; else kInvalidArgument.
  template <typename T>
  T Item() const {
    T element;
    ReadOnlyElement(DTypeOf<T>::value, &element);
    return element;
  }
  // A copy of all elements, row-major, of a view with gaps and from a device too.
  template <typename T>
  std::vector<T> ToVector() const;

  // ---- views: share bytes, allocate nothing ----
  // Throws kInvalidArgument when there are no strides that walk this view in that shape.
  NDArray Reshape(const Shape& shape) const;
  NDArray ReshapeOrCopy(const Shape& shape) const;  // then a dense copy in the current place
  // The same by sizes, one of which may be -1: what the others leave. x.Reshape({-1, 4})
  NDArray Reshape(absl::Span<const int64_t> dims) const { return Reshape(Completed(dims)); }
  NDArray Reshape(std::initializer_list<int64_t> dims) const {
    return Reshape(absl::Span<const int64_t>(dims.begin(), dims.size()));
  }
  // Where no strides walk this view in that shape: a dense copy in the current place.
  NDArray ReshapeOrCopy(absl::Span<const int64_t> dims) const {
    return ReshapeOrCopy(Completed(dims));
  }
  // The same: x.ReshapeOrCopy({-1, 4}).
  NDArray ReshapeOrCopy(std::initializer_list<int64_t> dims) const {
    return ReshapeOrCopy(absl::Span<const int64_t>(dims.begin(), dims.size()));
  }
  NDArray Flatten() const;  // of rank 1, as ReshapeOrCopy

  // Axes in another order. Throws kInvalidArgument unless each axis is named once.
  NDArray Transpose() const;                            // axes reversed
  NDArray Transpose(absl::Span<const int> axes) const;  // axis i is axes[i] of this; -1: the last
  // The same: x.Transpose({1, 0}).
  NDArray Transpose(std::initializer_list<int> axes) const {
    return Transpose(absl::Span<const int>(axes.begin(), axes.size()));
  }
  NDArray SwapAxes(int axis1,
                   int axis2) const;  // -1: the last; throws for an axis that there is not
  // Elements begin to end - 1 of an axis (-1: the last one). Throws kInvalidArgument unless
  // 0 <= begin <= end <= its size.
  NDArray Slice(int axis, int64_t begin, int64_t end) const;
  // Every step-th element from `begin` towards `end`, which is left out; backwards for a negative
  // step, where end -1 takes the first element as well. Throws kInvalidArgument beyond the axis.
  NDArray Slice(int axis, int64_t begin, int64_t end, int64_t step) const;

  // One element of an axis, which disappears. Throws kInvalidArgument unless 0 <= index < its size.
  NDArray Index(int axis, int64_t index) const;
  // By NumPy's rules. Elements repeat, so such a view cannot be written to.
  NDArray BroadcastTo(const Shape& shape) const;

  // Axes of size 1 go or come. Throws kInvalidArgument for another size, for an axis that there is
  // not, and for a rank above kMaxRank.
  NDArray Squeeze() const;  // without all of them
  NDArray Squeeze(int axis) const;
  NDArray ExpandDims(int axis) const;  // with an axis of size 1 there; -1: as the last
  // Elements whose indices along axis2 and axis1 differ by `offset`; as a new last axis, those two go.
  NDArray Diagonal(int64_t offset = 0, int axis1 = 0, int axis2 = 1) const;
  // By subscripts (subscript.h): a view; with masks or index arrays among them a Selection.
  template <typename... S>
  requires(sizeof...(S) > 0) auto operator()(const S&... subscripts) const {
    const Subscript list[] = {Subscript(subscripts)...};
    if constexpr ((std::is_same_v<S, NDArray> || ...)) {
      return Selection(*this, list);
    } else {
      return Subscripted(list);
    }
  }
  // The same by a list made at run time; with masks and index arrays it is Selection(x, list).
  NDArray Subscripted(absl::Span<const Subscript> subscripts) const;

  // ---- movers: values and type kept, views become dense ----
  NDArray Dup() const;  // a copy in the current place, whose as an operator's result
  // The array is there then and its handles': no manager's close ends it. This array itself where
  // both hold already, else a copy; this one stays what it was. A workspace that is switched off is
  // the heap.
  NDArray Detach() const;  // on the heap: no workspace's cycle ends it either
  // In the parent of the current workspace: where arrays were made when its cycle began. The heap
  // where it has none or none is current.
  NDArray Leverage() const;
  // In that workspace, which must be open here. As with Leverage, an array on the heap stays there, open
  // workspace or not: it lives longer already, and Migrate() is what moves it in.
  NDArray LeverageTo(const std::string& id) const;
  NDArray LeverageOrDetach(
      const std::string& id) const;  // the same; on the heap where it is not open
  // In the current workspace; without one: this array, or detached if asked.
  NDArray Migrate(bool detach_if_none = false) const;
  // To any device, whatever the kernels linked for it.
  NDArray CopyTo(Place place) const;
  // This array when it is on `device`; else a dense copy there, in the current place if that is on it.
  NDArray To(Device device) const;

  // Its bytes are a workspace's, which its cycle takes back.
  bool IsAttached() const { return buffer_ && buffer_->attached; }

  // Its elements may be read: neither closed nor of a cycle that has ended.
  bool IsInScope() const { return !buffer_ || buffer_->IsAlive(); }
  // Gives the bytes back now; every handle and view of them is dead afterwards. Idempotent. An
  // array without elements, or an undefined one, has no bytes to give back and stays as it is.
  void Close();

  // By Close() or by a manager that closed; a cycle's end is IsInScope()'s.
  bool is_closed() const { return buffer_ && buffer_->closed; }

  // ---- arithmetic, in place and out of place (ops/elementwise.h) ----
  // `other` may overlap this in any way: x += x.Transpose().
  NDArray& operator+=(const NDArray& other);
  NDArray& operator-=(const NDArray& other);
  NDArray& operator*=(const NDArray& other);
  NDArray& operator/=(const NDArray& other);
  NDArray& operator+=(const Scalar& value);
  NDArray& operator-=(const Scalar& value);
  NDArray& operator*=(const Scalar& value);
  NDArray& operator/=(const Scalar& value);

  // As NumPy's array2string(x, separator=', '); of more than `limit` elements the edges only.
  std::string ToString(int64_t limit = 1000) const;

  // ---- for the runtime ----
  // Throws when undefined, closed or stale: "Op [<op>] <operand> argument uses ...".
  void CheckAlive(const char* op, const char* operand) const {
    if (!defined_ || (buffer_ && !buffer_->IsAlive())) ThrowDead(op, operand);
  }
  // Throws kFailedPrecondition for an array that was imported to be read only.
  void CheckWritable(const char* op) const {
    if (buffer_ && buffer_->read_only) [[unlikely]]
      ThrowReadOnly(op);
  }
  // The first element in its device's memory, and the record of its bytes, which all views of them
  // share; unchecked, and null where there is no memory.
  std::byte* raw_data() const { return data_; }
  const BufferHandle& buffer() const { return buffer_; }

 private:
  bool ViewAs(const Shape& shape, NDArray* view) const;
  Shape Completed(absl::Span<const int64_t> dims) const;
  friend class Selection;
  NDArray ByNumbersAndRanges(absl::Span<const Subscript> subscripts) const;
  [[noreturn]] void ThrowDead(const char* op, const char* operand) const;
  [[noreturn]] void ThrowNoAxis(int axis) const;
  [[noreturn]] void ThrowReadOnly(const char* op) const;
  void* CheckedData(DType dtype, const char* what, bool to_write) const;
  void ReadElement(DType dtype, absl::Span<const int64_t> index, void* out) const;
  void ReadOnlyElement(DType dtype, void* out) const;
  void LoadElement(const std::byte* at, void* out) const;

  BufferHandle buffer_;  // null for empty arrays
  std::byte* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  bool defined_ = false;
  Device empty_on_;  // where an array without a buffer is
  Shape shape_;
  int64_t strides_[kMaxRank] = {};
};

inline NDArray::NDArray(NDArray&& other) noexcept
    : buffer_(std::move(other.buffer_)),
      data_(std::exchange(other.data_, nullptr)),
      dtype_(std::exchange(other.dtype_, DType::kFloat32)),
      defined_(std::exchange(other.defined_, false)),
      empty_on_(std::exchange(other.empty_on_, Host())),
      shape_(other.shape_) {
  other.shape_.rank_ = 0;
  std::memcpy(strides_, other.strides_, sizeof(strides_));
}

inline NDArray& NDArray::operator=(NDArray&& other) & noexcept {
  if (this == &other) return *this;
  buffer_ = std::move(other.buffer_);
  data_ = std::exchange(other.data_, nullptr);
  dtype_ = std::exchange(other.dtype_, DType::kFloat32);
  defined_ = std::exchange(other.defined_, false);
  empty_on_ = std::exchange(other.empty_on_, Host());
  shape_ = other.shape_;
  other.shape_.rank_ = 0;
  std::memcpy(strides_, other.strides_, sizeof(strides_));
  return *this;
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_NDARRAY_H_
