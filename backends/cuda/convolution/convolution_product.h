// Which kernel makes a convolution's product: tensor cores those of f16 and bf16, and of f32 where TF32 is allowed;
// the others are sums in f32 or f64 of tiled_product.h.
#ifndef TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_CONVOLUTION_PRODUCT_H_
#define TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_CONVOLUTION_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/convolution/tensor_product.h"
#include "tidepool/backends/cuda/convolution/tf32_policy.h"
#include "tidepool/backends/cuda/convolution/tiled_product.h"

namespace tidepool::cuda {

template <typename T>
inline constexpr bool kOnlyTensorCores = sizeof(T) == 2;
template <typename T>
inline constexpr bool kMayUseTensorCores = sizeof(T) <= 4;

// Whether `count` neighbours are whole pieces of 16 bytes, of an operand that begins at a multiple of them.
template <typename T>
bool IsPacked(int64_t count, const T* operand) {
  return count % kAccessWidth<T> == 0 && IsAligned(operand);
}

// Parts of the summed axis that QueueProduct makes at most, whatever is allowed until then.
template <typename T>
int64_t MostParts(int64_t rows, int64_t columns, int64_t depth, int64_t groups,
                  int64_t splits_at_most, bool few_rows) {
  int64_t parts = 1;
  if constexpr (kMayUseTensorCores<T>) {
    parts = TensorPlan::Of(rows, columns, depth, groups, splits_at_most, few_rows).tiles.splits;
  }
  if constexpr (!kOnlyTensorCores<T>) {
    parts = std::max(parts, ProductPlan::Of(rows, columns, depth, groups, splits_at_most,
                                            sizeof(Compute<T>) != 4, few_rows)
                                .tiles.splits);
  }
  return parts;
}

// `packed`: what lies side by side of both operands IsPacked. Returns the parts of the summed axis.
template <typename Problem>
int64_t QueueProduct(const Problem& problem, int64_t groups, int64_t splits_at_most, bool packed,
                     cudaStream_t stream) {
  using T = typename Problem::Element;
  if constexpr (kMayUseTensorCores<T>) {
    if (kOnlyTensorCores<T> || Tf32IsAllowed()) {
      const TensorPlan plan = TensorPlan::Of(problem.rows, problem.columns, problem.depth, groups,
                                             splits_at_most, Problem::kFewRows);
      LaunchTensorProduct(problem, plan, packed, stream);
      return plan.tiles.splits;
    }
  }
  if constexpr (!kOnlyTensorCores<T>) {
    const ProductPlan plan =
        ProductPlan::Of(problem.rows, problem.columns, problem.depth, groups, splits_at_most,
                        sizeof(Compute<T>) != 4, Problem::kFewRows);
    LaunchProduct(problem, plan, stream);
    return plan.tiles.splits;
  }
  return 0;
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_CONVOLUTION_PRODUCT_H_
