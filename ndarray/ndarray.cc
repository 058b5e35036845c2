#include "tidepool/ndarray/ndarray.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/pins.h"
#include "tidepool/ndarray/device_transfer.h"

namespace tidepool {

NDArray::NDArray(BufferHandle buffer, const Shape& shape, DType dtype)
    : buffer_(std::move(buffer)), dtype_(dtype), defined_(true), shape_(shape) {
  shape.SetDenseStrides(strides_);
  const size_t needed = static_cast<size_t>(shape.NumElements()) * DTypeBytes(dtype);
  if ((buffer_ ? buffer_->bytes : 0) < needed) {
    ThrowInvalidArgument(absl::StrCat("array of shape ", shape.ToString(), " ", DTypeName(dtype),
                                      " needs ", needed, " bytes, the buffer has ",
                                      buffer_ ? buffer_->bytes : 0));
  }
  if (!buffer_) return;
  data_ = buffer_->data;
  if (reinterpret_cast<uintptr_t>(data_) % DTypeBytes(dtype) != 0) {
    ThrowInvalidArgument(absl::StrCat("array of shape ", shape.ToString(), " ", DTypeName(dtype),
                                      ": the buffer begins at ", absl::Hex(data_),
                                      ", expected a multiple of ", DTypeBytes(dtype)));
  }
}

NDArray NDArray::FromStrides(BufferHandle buffer, int64_t first, const Shape& shape,
                             absl::Span<const int64_t> strides, DType dtype, Device empty_on) {
  NDArray array;
  array.dtype_ = dtype;
  array.defined_ = true;
  array.empty_on_ = empty_on;
  array.shape_ = shape;
  for (size_t i = 0; i < strides.size(); ++i) array.strides_[i] = strides[i];  // few: no call
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
    const auto* hooks = internal::ownership_hooks.load(std::memory_order_acquire);
    const std::string by = hooks != nullptr ? hooks->describe_closed(*buffer_.get()) : "";
    ThrowFailedPrecondition(absl::StrCat(where, " was closed before the call (shape ",
                                         shape_.ToString(), ")",
                                         by.empty() ? "" : absl::StrCat(": by ", by)));
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

void NDArray::ThrowNoAxis(int axis) const {
  const std::string what = absl::StrCat("dim: axis ", axis, " of ");
  if (!defined_) ThrowInvalidArgument(absl::StrCat(what, "an undefined array"));
  ThrowInvalidArgument(absl::StrCat(
      what, "an array of shape ", shape_.ToString(),
      rank() == 0 ? ", which has none" : absl::StrCat(", expected 0 to ", rank() - 1)));
}

void NDArray::ThrowReadOnly(const char* op) const {
  ThrowFailedPrecondition(
      absl::StrCat("Op [", op, "]: the array of shape ", shape_.ToString(), " ", DTypeName(dtype_),
                   " was imported to be read only; Dup() makes one of its own"));
}

void* NDArray::CheckedData(DType dtype, const char* what, bool to_write) const {
  CheckAlive(what, "X");
  if (dtype != dtype_) {
    ThrowInvalidArgument(absl::StrCat("Op [", what, "]: the array is ", DTypeName(dtype_),
                                      ", asked for as ", DTypeName(dtype)));
  }
  if (!is_dense()) {
    ThrowFailedPrecondition(absl::StrCat("Op [", what, "]: the array of shape ", shape_.ToString(),
                                         " is a view with gaps; Dup() makes it dense"));
  }
  if (to_write) CheckWritable(what);
  if (device() != Host()) return HostCopyData(*this, what, to_write);
  return data_;
}

namespace {

// Whoever closes the array on another thread meanwhile leaves its bytes to this one. Before it is
// looked at whether it is alive.
class Reading {
 public:
  explicit Reading(Buffer* buffer) {
    pins_.Pin(buffer);
    pins_.Publish();
  }

 private:
  PinScope pins_;
};

}  // namespace

void NDArray::ReadElement(DType dtype, absl::Span<const int64_t> index, void* out) const {
  const Reading reading(buffer_.get());
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
  LoadElement(data_ + offset * static_cast<int64_t>(DTypeBytes(dtype_)), out);
}

void NDArray::LoadElement(const std::byte* at, void* out) const {
  if (device() != Host()) {
    ReadFromDevice(*this, at, DTypeBytes(dtype_), out);
  } else {
    std::memcpy(out, at, DTypeBytes(dtype_));
  }
  // Another library or a kernel may have written any byte: a bool of it is not to be looked at.
  auto* const first = static_cast<std::byte*>(out);
  if (dtype_ == DType::kBool) *first = std::byte(*first != std::byte{0});
}

void NDArray::ReadOnlyElement(DType dtype, void* out) const {
  const Reading reading(buffer_.get());
  CheckAlive("item", "X");
  if (dtype != dtype_ || NumElements() != 1) {
    ThrowInvalidArgument(absl::StrCat("Op [item]: expected one ", DTypeName(dtype),
                                      " element, found ", DTypeName(dtype_), " of shape ",
                                      shape_.ToString()));
  }
  LoadElement(data_, out);
}

template <typename T>
std::vector<T> NDArray::ToVector() const {
  const Reading reading(buffer_.get());
  CheckAlive("data", "X");
  if (!is_dense() || device() != Host()) return CopyTo(Place::Heap()).ToVector<T>();
  const T* begin = data<T>();
  if constexpr (std::is_same_v<T, bool>) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(begin);
    std::vector<bool> values(static_cast<size_t>(NumElements()));
    std::transform(bytes, bytes + NumElements(), values.begin(),
                   [](uint8_t byte) { return byte != 0; });
    return values;
  } else {
    return std::vector<T>(begin, begin + NumElements());
  }
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
template std::vector<int16_t> NDArray::ToVector<int16_t>() const;
template std::vector<uint16_t> NDArray::ToVector<uint16_t>() const;
template std::vector<uint32_t> NDArray::ToVector<uint32_t>() const;
template std::vector<uint64_t> NDArray::ToVector<uint64_t>() const;

void NDArray::Close() {
  if (buffer_) buffer_->Close();
}

}  // namespace tidepool
