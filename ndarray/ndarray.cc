#include "tidepool/ndarray/ndarray.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {
namespace {

void SetDenseStrides(const Shape& shape, int64_t* strides) {
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
}

}  // namespace

Place Place::In(Workspace& workspace) {
  return Place(Where::kWorkspace, workspace.core(), MemoryKind::kAllocated);
}

BufferHandle Place::Allocate(size_t bytes) const {
  switch (where_) {
    case Where::kCurrent:
      return BufferHandle(AllocateHere(bytes));
    case Where::kHeap:
      return BufferHandle(NewHeapBuffer(bytes, 64, kind_));
    case Where::kWorkspace:
      if (!core_->is_open_on(CurrentThreadToken())) {
        ThrowFailedPrecondition(absl::StrCat("place: workspace [", core_->id,
                                             "] is not open on this thread; enter it first"));
      }
      // A workspace that is switched off passes its requests through to the heap.
      return BufferHandle(core_->passes_through()
                              ? NewHeapBuffer(bytes, 64, kind_, core_->memory_device())
                              : core_->Allocate(bytes));
  }
  return BufferHandle();
}

NDArray::NDArray(const Shape& shape, DType dtype, Place place)
    : dtype_(dtype), defined_(true), shape_(shape) {
  SetDenseStrides(shape, strides_);
  const int64_t count = shape.NumElements();
  if (count == 0) return;
  buffer_ = place.Allocate(static_cast<size_t>(count) * DTypeBytes(dtype));
  data_ = buffer_->data;
}

NDArray::NDArray(BufferHandle buffer, const Shape& shape, DType dtype)
    : buffer_(std::move(buffer)), dtype_(dtype), defined_(true), shape_(shape) {
  SetDenseStrides(shape, strides_);
  const size_t needed = static_cast<size_t>(shape.NumElements()) * DTypeBytes(dtype);
  if ((buffer_ ? buffer_->bytes : 0) < needed) {
    ThrowInvalidArgument(absl::StrCat("array of shape ", shape.ToString(), " ", DTypeName(dtype),
                                      " needs ", needed, " bytes, the buffer has ",
                                      buffer_ ? buffer_->bytes : 0));
  }
  if (buffer_) data_ = buffer_->data;
}

bool NDArray::is_dense() const {
  if (NumElements() == 0) return true;
  int64_t stride = 1;
  for (int i = shape_.rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != stride) return false;
    stride *= shape_[i];
  }
  return true;
}

void NDArray::ThrowDead(const char* op, const char* operand) const {
  const std::string where = absl::StrCat("Op [", op, "] ", operand, " argument");
  if (!defined_) ThrowInvalidArgument(absl::StrCat(where, " is an undefined array"));
  if (buffer_->closed) {
    ThrowFailedPrecondition(
        absl::StrCat(where, " was closed before the call (shape ", shape_.ToString(), ")"));
  }
  std::string message =
      absl::StrCat(where, " uses ", buffer_->owner->DescribeStale(buffer_->stamp));
  const std::string origin = buffer_->owner->DescribeOrigin(*buffer_.get());
  if (!origin.empty()) absl::StrAppend(&message, "; ", origin);
  if (MemoryTracing::enabled()) {
    AllocationTrace here;
    here.Capture();
    absl::StrAppend(&message, "; used at ", here.Site());
  }
  ThrowFailedPrecondition(message);
}

void* NDArray::CheckedData(DType dtype, const char* what) const {
  CheckAlive(what, "X");
  if (dtype != dtype_) {
    ThrowInvalidArgument(absl::StrCat("Op [", what, "]: the array is ", DTypeName(dtype_),
                                      ", asked for as ", DTypeName(dtype)));
  }
  if (!is_dense()) {
    ThrowFailedPrecondition(absl::StrCat("Op [", what, "]: the array of shape ", shape_.ToString(),
                                         " is a view with gaps; Dup() makes it dense"));
  }
  return data_;
}

const void* NDArray::ElementAt(DType dtype, absl::Span<const int64_t> index) const {
  CheckAlive("at", "X");
  if (dtype != dtype_) {
    ThrowInvalidArgument(absl::StrCat("Op [at]: the array is ", DTypeName(dtype_),
                                      ", asked for as ", DTypeName(dtype)));
  }
  bool inside = static_cast<int>(index.size()) == rank();
  int64_t offset = 0;
  for (int i = 0; inside && i < rank(); ++i) {
    inside = index[i] >= 0 && index[i] < shape_[i];
    offset += index[i] * strides_[i];
  }
  if (!inside) {
    ThrowInvalidArgument(absl::StrCat("Op [at]: index [", absl::StrJoin(index, ", "),
                                      "] of an array of shape ", shape_.ToString()));
  }
  return data_ + offset * static_cast<int64_t>(DTypeBytes(dtype_));
}

const void* NDArray::OnlyElement(DType dtype) const {
  CheckAlive("item", "X");
  if (dtype != dtype_ || NumElements() != 1) {
    ThrowInvalidArgument(absl::StrCat("Op [item]: expected one ", DTypeName(dtype),
                                      " element, found ", DTypeName(dtype_), " of shape ",
                                      shape_.ToString()));
  }
  return data_;
}

template <typename T>
std::vector<T> NDArray::ToVector() const {
  const NDArray dense = is_dense() ? *this : CopyTo(Place::Heap());
  const T* begin = dense.data<T>();
  return std::vector<T>(begin, begin + NumElements());
}
template std::vector<float> NDArray::ToVector<float>() const;
template std::vector<int64_t> NDArray::ToVector<int64_t>() const;
template std::vector<double> NDArray::ToVector<double>() const;
template std::vector<Float16> NDArray::ToVector<Float16>() const;
template std::vector<BFloat16> NDArray::ToVector<BFloat16>() const;
template std::vector<int8_t> NDArray::ToVector<int8_t>() const;
template std::vector<uint8_t> NDArray::ToVector<uint8_t>() const;
template std::vector<int32_t> NDArray::ToVector<int32_t>() const;
template std::vector<bool> NDArray::ToVector<bool>() const;

void NDArray::Close() {
  if (buffer_) buffer_->Close();
}

// ---- views ----------------------------------------------------------------------------------

NDArray NDArray::Reshape(const Shape& shape) const {
  CheckAlive("reshape", "X");
  if (shape.NumElements() != NumElements() || !is_dense()) {
    ThrowInvalidArgument(absl::StrCat("Op [reshape]: cannot view shape ", shape_.ToString(),
                                      is_dense() ? "" : " (with gaps)", " as ", shape.ToString()));
  }
  NDArray view = *this;
  view.shape_ = shape;
  SetDenseStrides(shape, view.strides_);
  return view;
}

NDArray NDArray::Transpose() const {
  CheckAlive("transpose", "X");
  NDArray view = *this;
  int64_t dims[kMaxRank];
  for (int i = 0; i < rank(); ++i) {
    dims[i] = shape_[rank() - 1 - i];
    view.strides_[i] = strides_[rank() - 1 - i];
  }
  view.shape_ = Shape(absl::Span<const int64_t>(dims, rank()));
  return view;
}

NDArray NDArray::Slice(int axis, int64_t begin, int64_t end) const {
  CheckAlive("slice", "X");
  axis = NormalizeAxis("slice", axis, rank());
  if (begin < 0 || end < begin || end > shape_[axis]) {
    ThrowInvalidArgument(absl::StrCat("Op [slice]: [", begin, ", ", end, ") of axis ", axis,
                                      " of shape ", shape_.ToString()));
  }
  NDArray view = *this;
  int64_t dims[kMaxRank];
  std::copy_n(shape_.dims(), rank(), dims);
  dims[axis] = end - begin;
  view.shape_ = Shape(absl::Span<const int64_t>(dims, rank()));
  if (view.data_ != nullptr) {
    view.data_ += begin * strides_[axis] * static_cast<int64_t>(DTypeBytes(dtype_));
  }
  return view;
}

NDArray NDArray::Index(int axis, int64_t index) const {
  CheckAlive("index", "X");
  axis = NormalizeAxis("index", axis, rank());
  if (index < 0 || index >= shape_[axis]) {
    ThrowInvalidArgument(absl::StrCat("Op [index]: ", index, " in axis ", axis, " of shape ",
                                      shape_.ToString()));
  }
  NDArray view = Slice(axis, index, index + 1);
  int64_t dims[kMaxRank];
  int out = 0;
  for (int i = 0; i < rank(); ++i) {
    if (i == axis) continue;
    dims[out] = shape_[i];
    view.strides_[out++] = strides_[i];
  }
  view.shape_ = Shape(absl::Span<const int64_t>(dims, out));
  return view;
}

}  // namespace tidepool
