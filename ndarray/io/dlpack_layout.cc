#include "tidepool/ndarray/io/dlpack_layout.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/error.h"

namespace tidepool::internal {
namespace {

constexpr uint8_t kCodeOfBool = 6;  // named kDLBool in later versions of the header

}  // namespace

DLDataType DLPackTypeOf(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * DTypeBytes(dtype));
  if (dtype == DType::kBool) return {kCodeOfBool, bits, 1};
  if (dtype == DType::kBFloat16) return {kDLBfloat, bits, 1};
  if (IsUnsigned(dtype)) return {kDLUInt, bits, 1};
  return {static_cast<uint8_t>(IsFloating(dtype) ? kDLFloat : kDLInt), bits, 1};
}

namespace {

DType TypeOf(const DLDataType& type) {
  for (int i = 0; i < kDTypes; ++i) {
    const DLDataType ours = DLPackTypeOf(static_cast<DType>(i));
    if (ours.code == type.code && ours.bits == type.bits && type.lanes == 1) {
      return static_cast<DType>(i);
    }
  }
  ThrowUnimplemented(absl::StrCat(
      "from_dlpack: found elements of code ", type.code, ", ", type.bits, " bits, ", type.lanes,
      " lanes, expected f16, bf16, f32, f64, i8 to i64, u8 to u64 or bool"));
}

}  // namespace

DLPackLayout LayoutOf(const DLTensor& tensor) {
  const DType dtype = TypeOf(tensor.dtype);
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found rank ", tensor.ndim, " without sizes"));
  }
  if (tensor.ndim > kMaxRank) {
    ThrowInvalidArgument(
        absl::StrCat("from_dlpack: found rank ", tensor.ndim, ", expected at most ", kMaxRank));
  }
  DLPackLayout layout{
      dtype, Shape(absl::Span<const int64_t>(tensor.shape, tensor.ndim)), {}, nullptr, 0, 0};
  const Shape& shape = layout.shape;
  shape.SetDenseStrides(layout.strides);
  if (shape.NumElements() == 0) return layout;
  if (tensor.strides != nullptr) {
    for (int i = 0; i < shape.rank(); ++i) {
      // Of an axis of one element it may be anything and means nothing: what nobody adds up cannot
      // overflow.
      if (shape[i] > 1) layout.strides[i] = tensor.strides[i];
    }
  }
  const auto width = static_cast<int64_t>(DTypeBytes(dtype));
  __int128 lowest = 0, highest = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const __int128 reach = static_cast<__int128>(shape[i] - 1) * layout.strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  const __int128 bytes = (highest - lowest + 1) * width;
  if (bytes > kMostCountedBytes || tensor.data == nullptr) {
    ThrowInvalidArgument(
        absl::StrCat("from_dlpack: found shape ", shape.ToString(), " with strides [",
                     absl::StrJoin(absl::Span<const int64_t>(layout.strides, shape.rank()), ", "),
                     "]", tensor.data == nullptr ? " and no data" : ", which no memory holds"));
  }
  if (tensor.byte_offset > static_cast<uint64_t>(kMostCountedBytes)) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found byte_offset ", tensor.byte_offset,
                                      ", expected at most ", kMostCountedBytes));
  }
  // As numbers, because pointers that leave the address space are not even to be computed.
  const __int128 first = __int128{reinterpret_cast<uintptr_t>(tensor.data)} + tensor.byte_offset;
  if (first % width != 0) {
    ThrowInvalidArgument(absl::StrCat(
        "from_dlpack: found data that is not aligned to its elements of ", width, " bytes"));
  }
  const __int128 begin = first + lowest * width;
  if (begin <= 0 || begin + bytes > __int128{UINTPTR_MAX}) {
    ThrowInvalidArgument(absl::StrCat(
        "from_dlpack: found ", static_cast<int64_t>(bytes), " bytes of elements about ",
        absl::Hex(reinterpret_cast<uintptr_t>(tensor.data)), " with byte_offset ",
        tensor.byte_offset, ", expected them within the address space"));
  }
  layout.lowest = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(begin));
  layout.bytes = static_cast<size_t>(bytes);
  layout.first = -static_cast<int64_t>(lowest);
  return layout;
}

void CheckBools(const DLPackLayout& layout) {
  uint64_t elements = 1;
  for (int i = 0; i < layout.shape.rank(); ++i) {
    if (layout.strides[i] != 0)
      elements *= static_cast<uint64_t>(layout.shape[i]);  // below 2^59, as all together
  }
  if (elements > layout.bytes) {
    // They lie over one another, and may be very many in few bytes.
    for (size_t i = 0; i < layout.bytes; ++i) {
      const auto value = std::to_integer<int>(layout.lowest[i]);
      if (value <= 1) continue;
      ThrowInvalidArgument(absl::StrCat("from_dlpack: found a bool of ", value, " at byte ", i,
                                        " of elements that overlap, expected 0 or 1"));
    }
    return;
  }
  int64_t at[kMaxRank] = {};
  int64_t element = layout.first;
  for (;;) {
    const auto value = std::to_integer<int>(layout.lowest[element]);
    if (value > 1) {
      ThrowInvalidArgument(
          absl::StrCat("from_dlpack: found a bool of ", value, " at [",
                       absl::StrJoin(absl::Span<const int64_t>(at, layout.shape.rank()), ", "),
                       "], expected 0 or 1"));
    }
    int axis = layout.shape.rank() - 1;
    for (; axis >= 0; --axis) {
      if (layout.strides[axis] == 0) continue;
      element += layout.strides[axis];
      if (++at[axis] < layout.shape[axis]) break;
      element -= layout.strides[axis] * layout.shape[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace tidepool::internal
