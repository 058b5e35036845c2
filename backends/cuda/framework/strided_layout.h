// Where the elements of operands of one shape lie, in a form that kernels take by value.
//
// Neighbouring axes that all operands walk evenly are merged. Numbers are 32-bit: calls that need more
// are cut into pieces (ForEachPiece), so there is one kind of index arithmetic, without division.
#ifndef TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_STRIDED_LAYOUT_H_
#define TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_STRIDED_LAYOUT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "cuda_runtime.h"
#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool::cuda {

inline constexpr int kMaxOperands = 4;

// n / d for n below 2^31 (Granlund, Montgomery, "Division by invariant integers using
// multiplication", PLDI 1994).
struct FastDivisor {
  uint32_t divisor = 1, multiplier = 1, shift = 0;

  FastDivisor() = default;
  explicit FastDivisor(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier =
        static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
// For kernels; the C++ compiler sees the rest.
#if defined(__CUDACC__) || defined(TIDEPOOL_CUDA_EMULATED)
  __device__ __forceinline__ uint32_t Divide(uint32_t n) const {
    return (static_cast<uint32_t>(uint64_t{n} * multiplier >> 32) + n) >> shift;
  }
#endif
};

struct StridedLayout {
  int rank = 0;
  uint32_t count = 1;
  FastDivisor dims[kMaxRank];  // innermost first
  int32_t strides[kMaxOperands][kMaxRank];

#if defined(__CUDACC__) || defined(TIDEPOOL_CUDA_EMULATED)
  // Of element `n` in row-major order, for the first N operands.
  template <int N>
  __device__ __forceinline__ void Offsets(uint32_t n, int32_t (&offsets)[N]) const {
    for (int i = 0; i < N; ++i) offsets[i] = 0;
#pragma unroll
    for (int axis = 0; axis < kMaxRank; ++axis) {
      if (axis == rank) break;
      const uint32_t rest = dims[axis].Divide(n);
      const int32_t index = static_cast<int32_t>(n - rest * dims[axis].divisor);
      for (int i = 0; i < N; ++i) offsets[i] += index * strides[i][axis];
      n = rest;
    }
  }
#endif
};

// The axes of a call, merged, on the host.
struct StridedPlan {
  int operands = 0;
  int rank = 0;  // innermost axis last
  int64_t dims[kMaxRank];
  int64_t strides[kMaxOperands][kMaxRank];
  int64_t count = 1;

  // Operands seen with the shape of `shape`: repeated where they broadcast. At most four.
  StridedPlan(const TensorRef& shape, absl::Span<const TensorRef* const> refs);

  // Every operand is either dense or one element that all share.
  bool IsFlat() const;
  bool IsScalar(int operand) const { return rank == 0 ? false : strides[operand][0] == 0; }
};

// Calls visit(layout, offsets) for pieces that together make the plan; `offsets`: of each operand's
// first element. One piece for all but arrays of billions of elements.
void ForEachPiece(const StridedPlan& plan,
                  absl::FunctionRef<void(const StridedLayout&, const int64_t*)> visit);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_STRIDED_LAYOUT_H_
