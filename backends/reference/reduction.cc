// Sums (in double for floats, wrapping for integers) and the index of the largest element.
#include <type_traits>

#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

template <typename T>
void Sum(const KernelCall& call) {
  using Total = std::conditional_t<std::is_same_v<T, float>, double, uint64_t>;
  const TensorRef& x = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  const bool first = call.attrs<SumAttributes>().first_axis;
  const int64_t count = x.dims[first ? 0 : 1];
  for (int64_t i = 0; i < z.dims[0]; ++i) {
    Total total = 0;
    for (int64_t k = 0; k < count; ++k) {
      total += static_cast<Total>(first ? At<T>(x, k, i) : At<T>(x, i, k));
    }
    At<T>(z, i) = static_cast<T>(total);
  }
}

template <typename T>
void ArgMax(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  for (int64_t i = 0; i < x.dims[0]; ++i) {
    int64_t best = 0;
    for (int64_t k = 1; k < x.dims[1]; ++k) {
      const T candidate = At<T>(x, i, k);
      const T value = At<T>(x, i, best);
      if (candidate > value || (candidate != candidate && value == value)) best = k;
    }
    At<int64_t>(z, i) = best;
  }
}

constexpr Kernel Strided(OpCode op, DType dtype, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, dtype, "reference", 0, run, nullptr, nullptr, true};
}

const KernelRegistrar registrar({
    Strided(OpCode::kSum, DType::kFloat32, &Sum<float>),
    Strided(OpCode::kSum, DType::kInt64, &Sum<int64_t>),
    Strided(OpCode::kArgMax, DType::kFloat32, &ArgMax<float>),
    Strided(OpCode::kArgMax, DType::kInt64, &ArgMax<int64_t>),
});

}  // namespace
}  // namespace tidepool
