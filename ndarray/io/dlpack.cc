#include "tidepool/ndarray/io/dlpack.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/memory/ownership/owner_node.h"
#include "tidepool/memory/ownership/owner_traces.h"

namespace tidepool {
namespace {

constexpr uint8_t kCodeOfBool = 6;  // named kDLBool in later versions of the header

struct Exported {
  explicit Exported(const NDArray& exported) : array(exported), bytes(exported.buffer()) {}
  NDArray array;
  HeldBytes bytes;  // also when the array is closed
  DLManagedTensor tensor;
  int64_t strides[kMaxRank];
};

DLDataType TypeOf(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * DTypeBytes(dtype));
  if (dtype == DType::kBool) return {kCodeOfBool, bits, 1};
  if (dtype == DType::kBFloat16) return {kDLBfloat, bits, 1};
  if (dtype == DType::kUInt8) return {kDLUInt, bits, 1};
  return {static_cast<uint8_t>(IsFloating(dtype) ? kDLFloat : kDLInt), bits, 1};
}

DType TypeOf(const DLDataType& type) {
  for (int i = 0; i < kDTypes; ++i) {
    const DLDataType ours = TypeOf(static_cast<DType>(i));
    if (ours.code == type.code && ours.bits == type.bits && type.lanes == 1) {
      return static_cast<DType>(i);
    }
  }
  ThrowUnimplemented(absl::StrCat("from_dlpack: found elements of code ", type.code, ", ", type.bits,
                                  " bits, ", type.lanes,
                                  " lanes, expected f16, bf16, f32, f64, i8, u8, i32, i64 or bool"));
}

void Release(void* tensor) {
  DLManagedTensor* managed = static_cast<DLManagedTensor*>(tensor);
  if (managed->deleter != nullptr) managed->deleter(managed);
}

// The manager's that is entered on this thread, if any, as what is made here is.
void GiveToEnteredOwner(Buffer* buffer, const Shape& shape, DType dtype) {
  const uint64_t owner = current_owner.ref;
  if (owner == 0 || owner == kHandlesOwn) return;
  try {
    while (!LinkNew(buffer, owner)) {
      CheckMayOwn(owner, buffer->bytes, absl::StrCat("from_dlpack: an array of shape ",
                                                     shape.ToString(), " ", DTypeName(dtype)));
    }
  } catch (...) {
    buffer->outside.release_imported = nullptr;  // the tensor is not taken over
    throw;
  }
  if (MemoryTracing::enabled()) {
    internal::TraceOwned(*buffer, absl::StrCat(DTypeName(dtype), " ", shape.ToString()));
  }
}

}  // namespace

DLManagedTensor* ToDLPack(const NDArray& array) {
  array.CheckAlive("to_dlpack", "X");
  if (array.IsAttached()) {
    ThrowFailedPrecondition(absl::StrCat(
        "Op [to_dlpack] X is an array of workspace [", array.buffer()->owner->WorkspaceId(),
        "], whose cycle would end under its other owner; Detach() it first"));
  }
  if (array.device() != Host()) {
    ThrowUnimplemented(absl::StrCat("Op [to_dlpack] X is on ", DeviceName(array.device()),
                                    ", expected an array of the host"));
  }
  auto exported = std::make_unique<Exported>(array);
  array.CheckAlive("to_dlpack", "X");  // may have been closed before its bytes were held
  const NDArray& held = exported->array;
  std::copy_n(held.strides(), held.rank(), exported->strides);
  DLTensor& tensor = exported->tensor.dl_tensor;
  tensor.data = held.raw_data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = held.rank();
  tensor.dtype = TypeOf(held.dtype());
  tensor.shape = const_cast<int64_t*>(held.shape().dims());
  tensor.strides = exported->strides;
  tensor.byte_offset = 0;
  exported->tensor.manager_ctx = exported.get();
  exported->tensor.deleter = [](DLManagedTensor* self) {
    delete static_cast<Exported*>(self->manager_ctx);
  };
  return &exported.release()->tensor;
}

NDArray FromDLPack(DLManagedTensor* managed) {
  if (managed == nullptr) ThrowInvalidArgument("from_dlpack: found no tensor");
  const DLTensor& tensor = managed->dl_tensor;
  if (tensor.device.device_type != kDLCPU && tensor.device.device_type != kDLCUDAHost) {
    ThrowUnimplemented(absl::StrCat("from_dlpack: found a tensor on device type ",
                                    static_cast<int>(tensor.device.device_type),
                                    ", expected the host (1)"));
  }
  const DType dtype = TypeOf(tensor.dtype);
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found rank ", tensor.ndim, " without sizes"));
  }
  const Shape shape(absl::Span<const int64_t>(tensor.shape, tensor.ndim));
  int64_t strides[kMaxRank];
  shape.SetDenseStrides(strides);
  if (tensor.strides != nullptr) std::copy_n(tensor.strides, tensor.ndim, strides);
  // The bytes from the lowest to the highest element.
  const auto width = static_cast<int64_t>(DTypeBytes(dtype));
  __int128 lowest = 0, highest = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const __int128 reach = static_cast<__int128>(shape[i] - 1) * strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  const __int128 bytes = (highest - lowest + 1) * width;
  if (shape.NumElements() > 0 && (bytes > kMostCountedBytes || tensor.data == nullptr)) {
    ThrowInvalidArgument(absl::StrCat(
        "from_dlpack: found shape ", shape.ToString(), " with strides [",
        absl::StrJoin(absl::Span<const int64_t>(strides, shape.rank()), ", "), "]",
        tensor.data == nullptr ? " and no data" : ", which no memory holds"));
  }
  std::byte* const first = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  if (shape.NumElements() > 0 && reinterpret_cast<uintptr_t>(first) % width != 0) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found data that is not aligned to its elements of ",
                                      width, " bytes"));
  }
  if (shape.NumElements() == 0) {
    Release(managed);
    return NDArray(shape, dtype);
  }
  BufferHandle buffer(NewImportedBuffer(first + static_cast<int64_t>(lowest) * width,
                                        static_cast<size_t>(bytes), &Release, managed));
  GiveToEnteredOwner(buffer.get(), shape, dtype);
  return NDArray::FromStrides(std::move(buffer), -static_cast<int64_t>(lowest), shape,
                              absl::Span<const int64_t>(strides, shape.rank()), dtype);
}

}  // namespace tidepool
