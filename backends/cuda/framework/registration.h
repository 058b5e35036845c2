// Registration of kernels for CUDA devices.
#ifndef TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_REGISTRATION_H_
#define TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_REGISTRATION_H_

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {

inline constexpr char kProvider[] = "cuda";
inline constexpr int kPriority = 10;

inline void AddKernel(OpCode op, DType dtype, void (*run)(const KernelCall&), bool strided = false,
                      size_t (*scratch_bytes)(const KernelCall&) = nullptr,
                      bool (*supports)(const KernelCall&) = nullptr) {
  KernelRegistry::Global().Add(
      {op, DeviceType::kCuda, dtype, kProvider, kPriority, run, scratch_bytes, supports, strided});
}

// What kernels compute in. i16, u16, u32 and u64 are moved by the width of their elements; what computes with them runs on
// the host, on copies.
template <typename... T>
struct TypeList {};
using FloatTypes = TypeList<float, double, Float16, BFloat16>;
using IntegerTypes = TypeList<int8_t, uint8_t, int32_t, int64_t>;
using NumberTypes = TypeList<float, double, Float16, BFloat16, int8_t, uint8_t, int32_t, int64_t>;
using AllTypes =
    TypeList<float, double, Float16, BFloat16, int8_t, uint8_t, int32_t, int64_t, bool>;

inline constexpr DTypeSet kComputedTypes = operator_list::kFloats | operator_list::kI8 |
                                           operator_list::kU8 | operator_list::kI32 |
                                           operator_list::kI64 | operator_list::kBoolean;

// Calls visit(T()) for each type of the list.
template <typename... T, typename Visit>
void ForEachType(TypeList<T...>, Visit visit) {
  (visit(T()), ...);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_REGISTRATION_H_
