// DLPack's structures, also where the header that is installed is older than version 1 and has no versioned
// tensor: its layout is fixed by the standard.
#ifndef TIDEPOOL_NDARRAY_IO_DLPACK_VERSIONED_H_
#define TIDEPOOL_NDARRAY_IO_DLPACK_VERSIONED_H_

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>

#if !defined(DLPACK_MAJOR_VERSION)
extern "C" {
struct DLPackVersion {
  uint32_t major, minor;
};
// Of another major version nothing but `version`, `manager_ctx` and `deleter` may be looked at.
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
}
#endif

namespace tidepool {

inline constexpr uint32_t kDLPackMajor = 1, kDLPackMinor = 0;  // what we give away
// Flags of a versioned tensor.
inline constexpr uint64_t kDLPackReadOnly = 1, kDLPackIsCopied = 2;

static_assert(sizeof(void*) != 8 ||
              (offsetof(DLManagedTensorVersioned, manager_ctx) == 8 &&
               offsetof(DLManagedTensorVersioned, flags) == 24 &&
               offsetof(DLManagedTensorVersioned, dl_tensor) == 32 && sizeof(DLTensor) == 48));

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_DLPACK_VERSIONED_H_
