// Arrays of the C API.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/tools/c_api/calls.h"
#include "tidepool/tools/c_api/objects.h"

namespace tidepool::c_api {

constinit ArrayTable arrays;

namespace {

#define TIDEPOOL_SAME_DTYPE(code, dtype) \
  static_assert(static_cast<int>(DType::dtype) == TIDEPOOL_##code)
TIDEPOOL_SAME_DTYPE(FLOAT32, kFloat32);
TIDEPOOL_SAME_DTYPE(INT64, kInt64);
TIDEPOOL_SAME_DTYPE(FLOAT64, kFloat64);
TIDEPOOL_SAME_DTYPE(FLOAT16, kFloat16);
TIDEPOOL_SAME_DTYPE(BFLOAT16, kBFloat16);
TIDEPOOL_SAME_DTYPE(INT8, kInt8);
TIDEPOOL_SAME_DTYPE(UINT8, kUInt8);
TIDEPOOL_SAME_DTYPE(INT32, kInt32);
TIDEPOOL_SAME_DTYPE(BOOL, kBool);
TIDEPOOL_SAME_DTYPE(INT16, kInt16);
TIDEPOOL_SAME_DTYPE(UINT16, kUInt16);
TIDEPOOL_SAME_DTYPE(UINT32, kUInt32);
TIDEPOOL_SAME_DTYPE(UINT64, kUInt64);
#undef TIDEPOOL_SAME_DTYPE
static_assert(kMaxRank == TIDEPOOL_MAX_RANK);

// Where a new array goes. `manager` is kept by `pinned` meanwhile.
Place PlaceOf(const char* function, tidepool_manager manager, ManagerTable::Pinned* pinned) {
  if (manager == nullptr) return Place::Current();
  *pinned = managers.Pin(function, manager);
  return **pinned;
}

const void* ReadableData(const NDArray& array) {
  return VisitDType(array.dtype(),
                    [&](auto element) -> const void* { return array.data<decltype(element)>(); });
}

void* WritableData(NDArray& array) {
  return VisitDType(array.dtype(),
                    [&](auto element) -> void* { return array.mutable_data<decltype(element)>(); });
}

// Bools of strangers: other bytes than 0 and 1 are no values.
void CheckElements(const char* function, DType dtype, const void* data, size_t bytes) {
  if (dtype != DType::kBool) return;
  const auto* const begin = static_cast<const uint8_t*>(data);
  const auto* const found =
      std::find_if(begin, begin + bytes, [](uint8_t byte) { return byte > 1; });
  if (found == begin + bytes) return;
  ThrowInvalidArgument(absl::StrCat(function, ": element ", found - begin, " is ", *found,
                                    ", expected 0 or 1 for bool"));
}

// Without elements there is nothing to point to.
void CheckData(const char* function, const void* data, size_t bytes, const Shape& shape,
               DType dtype) {
  CheckBytes(function, "data", bytes, shape, dtype);
  if (bytes > 0) CheckGiven(function, "data", data);
}

void CopyIn(const void* data, size_t bytes, NDArray& array) {
  const BytesInUse in_use(array);
  if (bytes > 0) std::memcpy(WritableData(array), data, bytes);
}

struct Release {
  void (*release)(void*);
  void* context;
};

void RunRelease(void* context) {
  const std::unique_ptr<Release> release(static_cast<Release*>(context));
  if (release->release != nullptr) release->release(release->context);
}

DLPackExport ExportOf(const char* function, const int64_t* stream, uint32_t flags, uint32_t known) {
  if ((flags & ~known) != 0)
    ThrowInvalidArgument(
        absl::StrCat(function, ": flags are ", flags, ", of which this function knows ", known));
  return {stream != nullptr ? std::optional<int64_t>(*stream) : std::nullopt,
          (flags & TIDEPOOL_DLPACK_READ_ONLY) != 0, (flags & TIDEPOOL_DLPACK_COPY) != 0};
}

template <typename Tensor>
tidepool_status TakeOver(const char* function, Tensor* tensor, const int64_t* stream,
                         tidepool_array* array) {
  return Call(function, [&](const char* function) {
    Clear(function, "array", array);
    CheckGiven(function, "tensor", tensor);
    // Where no handle can be had the tensor is still the caller's: so that comes first.
    const tidepool_array handle = NewArrayHandle(NDArray());
    try {
      *arrays.Pin(function, handle) =
          FromDLPack(tensor, stream != nullptr ? std::optional<int64_t>(*stream) : std::nullopt);
    } catch (...) {
      arrays.Release(function, handle);
      throw;
    }
    *array = handle;
  });
}

}  // namespace
}  // namespace tidepool::c_api

using namespace tidepool;         // NOLINT: the functions of C have no namespace
using namespace tidepool::c_api;  // NOLINT

tidepool_status tidepool_array_new(tidepool_manager manager, tidepool_dtype dtype, int32_t rank,
                                   const int64_t* dims, tidepool_array* array) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "array", array);
    ManagerTable::Pinned pinned;
    *array = NewArrayHandle(NDArray(ShapeOf(function, rank, dims), DTypeOfCode(function, dtype),
                                    PlaceOf(function, manager, &pinned)));
  });
}

tidepool_status tidepool_array_full(tidepool_manager manager, tidepool_dtype dtype, int32_t rank,
                                    const int64_t* dims, double value, tidepool_array* array) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "array", array);
    ManagerTable::Pinned pinned;
    *array = NewArrayHandle(Full(ShapeOf(function, rank, dims), value, DTypeOfCode(function, dtype),
                                 PlaceOf(function, manager, &pinned)));
  });
}

tidepool_status tidepool_array_from_data(tidepool_manager manager, tidepool_dtype dtype,
                                         int32_t rank, const int64_t* dims, const void* data,
                                         size_t bytes, tidepool_array* array) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "array", array);
    const Shape shape = ShapeOf(function, rank, dims);
    const DType type = DTypeOfCode(function, dtype);
    CheckData(function, data, bytes, shape, type);
    CheckElements(function, type, data, bytes);
    ManagerTable::Pinned pinned;
    NDArray made(shape, type, PlaceOf(function, manager, &pinned));
    CopyIn(data, bytes, made);
    *array = NewArrayHandle(std::move(made));
  });
}

tidepool_status tidepool_array_wrap(tidepool_dtype dtype, int32_t rank, const int64_t* dims,
                                    void* data, size_t bytes, void (*release)(void* context),
                                    void* context, tidepool_array* array) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "array", array);
    const Shape shape = ShapeOf(function, rank, dims);
    const DType type = DTypeOfCode(function, dtype);
    CheckData(function, data, bytes, shape, type);
    CheckElements(function, type, data, bytes);
    // What fails leaves the memory to the caller, so what can fail comes before it is taken over.
    if (reinterpret_cast<uintptr_t>(data) % DTypeBytes(type) != 0) {
      ThrowInvalidArgument(absl::StrCat(function, ": data are not aligned to their elements of ",
                                        DTypeBytes(type), " bytes"));
    }
    const tidepool_array handle = NewArrayHandle(NDArray());
    try {
      if (bytes > 0) {
        auto given = std::make_unique<Release>(Release{release, context});
        BufferHandle buffer(NewImportedBuffer(data, bytes, &RunRelease, given.get()));
        given.release();
        *arrays.Pin(function, handle) = NDArray(std::move(buffer), shape, type);
      } else {
        *arrays.Pin(function, handle) = NDArray(shape, type, Place::Heap());
      }
    } catch (...) {
      arrays.Release(function, handle);
      throw;
    }
    *array = handle;
    if (bytes == 0 && release != nullptr) release(context);
  });
}

tidepool_status tidepool_array_release(tidepool_array array) {
  return Call(__func__, [&](const char* function) { arrays.Release(function, array); });
}

tidepool_status tidepool_array_close(tidepool_array array) {
  return Call(__func__, [&](const char* function) {
    NDArray closed = *arrays.Pin(function, array);
    closed.Close();
  });
}

tidepool_status tidepool_array_get_info(tidepool_array array, tidepool_array_info* info) {
  return Call(__func__, [&](const char* function) {
    const auto pinned = arrays.Pin(function, array);
    const NDArray& x = *pinned;
    CheckInfo(function, info, kFirstArrayInfoBytes);
    tidepool_array_info found = {};
    found.dtype = static_cast<int32_t>(x.dtype());
    found.rank = x.rank();
    std::copy_n(x.shape().dims(), x.rank(), found.dims);
    std::copy_n(x.strides(), x.rank(), found.strides);
    found.elements = x.NumElements();
    DeviceName(x.device()).copy(found.device, sizeof found.device - 1);
    found.is_alive = x.is_defined() && x.IsInScope() && !x.is_closed();
    found.is_dense = x.is_dense();
    found.in_workspace = x.IsAttached();
    found.is_read_only = x.buffer() && x.buffer()->read_only;
    GiveInfo(found, info);
  });
}

tidepool_status tidepool_array_data(tidepool_array array, const void** data) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "data", data);
    *data = ReadableData(*arrays.Pin(function, array));
  });
}

tidepool_status tidepool_array_mutable_data(tidepool_array array, void** data) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "data", data);
    NDArray written = *arrays.Pin(function, array);
    *data = WritableData(written);
  });
}

tidepool_status tidepool_array_read(tidepool_array array, void* data, size_t bytes) {
  return Call(__func__, [&](const char* function) {
    const NDArray x = *arrays.Pin(function, array);
    CheckData(function, data, bytes, x.shape(), x.dtype());
    const BytesInUse in_use(x);
    x.CheckAlive(function, "array");
    if (bytes == 0) return;
    const NDArray dense =
        x.is_dense() && x.device() == Host() ? x : x.CopyTo(Place::Scratch(Host()));
    std::memcpy(data, ReadableData(dense), bytes);
  });
}

tidepool_status tidepool_array_write(tidepool_array array, const void* data, size_t bytes) {
  return Call(__func__, [&](const char* function) {
    NDArray x = *arrays.Pin(function, array);
    CheckData(function, data, bytes, x.shape(), x.dtype());
    CheckElements(function, x.dtype(), data, bytes);
    x.CheckAlive(function, "array");
    if (bytes == 0) return;
    if (x.is_dense() && x.device() == Host()) return CopyIn(data, bytes, x);
    NDArray dense(x.shape(), x.dtype(), Place::Scratch(Host()));
    CopyIn(data, bytes, dense);
    CopyInto(dense, x);
  });
}

tidepool_status tidepool_array_detach(tidepool_array array, tidepool_array* detached) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "detached", detached);
    *detached = NewArrayHandle(arrays.Pin(function, array)->Detach());
  });
}

tidepool_status tidepool_array_copy(tidepool_array array, tidepool_manager manager,
                                    tidepool_array* copy) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "copy", copy);
    const auto pinned = arrays.Pin(function, array);
    ManagerTable::Pinned pinned_manager;
    *copy = NewArrayHandle(pinned->CopyTo(PlaceOf(function, manager, &pinned_manager)));
  });
}

tidepool_status tidepool_array_to_text(tidepool_array array, char** text) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "text", text);
    *text = NewText(arrays.Pin(function, array)->ToString());
  });
}

tidepool_status tidepool_array_to_dlpack(tidepool_array array, const int64_t* stream,
                                         uint32_t flags, DLManagedTensor** tensor) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "tensor", tensor);
    *tensor = ToDLPack(*arrays.Pin(function, array),
                       ExportOf(function, stream, flags, TIDEPOOL_DLPACK_COPY));
  });
}

tidepool_status tidepool_array_to_dlpack_versioned(tidepool_array array, const int64_t* stream,
                                                   uint32_t flags,
                                                   DLManagedTensorVersioned** tensor) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "tensor", tensor);
    *tensor = ToDLPackVersioned(
        *arrays.Pin(function, array),
        ExportOf(function, stream, flags, TIDEPOOL_DLPACK_COPY | TIDEPOOL_DLPACK_READ_ONLY));
  });
}

tidepool_status tidepool_array_from_dlpack(DLManagedTensor* tensor, const int64_t* stream,
                                           tidepool_array* array) {
  return TakeOver(__func__, tensor, stream, array);
}

tidepool_status tidepool_array_from_dlpack_versioned(DLManagedTensorVersioned* tensor,
                                                     const int64_t* stream, tidepool_array* array) {
  return TakeOver(__func__, tensor, stream, array);
}
