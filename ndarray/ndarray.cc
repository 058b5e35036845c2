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
  shape.SetDenseStrides(strides_);
  const int64_t count = shape.NumElements();
  if (count == 0) return;
  buffer_ = place.Allocate(static_cast<size_t>(count) * DTypeBytes(dtype));
  data_ = buffer_->data;
}

NDArray::NDArray(BufferHandle buffer, const Shape& shape, DType dtype)
    : buffer_(std::move(buffer)), dtype_(dtype), defined_(true), shape_(shape) {
  shape.SetDenseStrides(strides_);
  const size_t needed = static_cast<size_t>(shape.NumElements()) * DTypeBytes(dtype);
  if ((buffer_ ? buffer_->bytes : 0) < needed) {
    ThrowInvalidArgument(absl::StrCat("array of shape ", shape.ToString(), " ", DTypeName(dtype),
                                      " needs ", needed, " bytes, the buffer has ",
                                      buffer_ ? buffer_->bytes : 0));
  }
  if (buffer_) data_ = buffer_->data;
}

NDArray NDArray::FromStrides(BufferHandle buffer, int64_t first, const Shape& shape,
                             absl::Span<const int64_t> strides, DType dtype) {
  NDArray array;
  array.dtype_ = dtype;
  array.defined_ = true;
  array.shape_ = shape;
  std::copy(strides.begin(), strides.end(), array.strides_);
  if (buffer) array.data_ = buffer->data + first * static_cast<int64_t>(DTypeBytes(dtype));
  array.buffer_ = std::move(buffer);
  return array;
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

}  // namespace tidepool
