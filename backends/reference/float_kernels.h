// Registration of kernels that are defined for every float type, and walking lines of operands.
#ifndef TIDEPOOL_BACKENDS_REFERENCE_FLOAT_KERNELS_H_
#define TIDEPOOL_BACKENDS_REFERENCE_FLOAT_KERNELS_H_

#include <cstdint>
#include <initializer_list>

#include "tidepool/backends/reference/wide.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool {

constexpr Kernel ReferenceKernel(OpCode op, DType dtype, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, dtype, "reference", 0, run, nullptr, nullptr, true};
}

// The four kernels of a template over the element type, for a KernelRegistrar's list.
#define TIDEPOOL_FLOAT_KERNELS(op, Run)                    \
  ReferenceKernel(op, DType::kFloat32, &Run<float>),       \
      ReferenceKernel(op, DType::kFloat64, &Run<double>),  \
      ReferenceKernel(op, DType::kFloat16, &Run<Float16>), \
      ReferenceKernel(op, DType::kBFloat16, &Run<BFloat16>)

// Elements one after the other along an axis, wherever they lie.
template <typename T>
class Line {
 public:
  Line(T* first, int64_t stride) : first_(first), stride_(stride) {}
  T& operator[](int64_t i) const { return first_[i * stride_]; }
  Wide<T> wide(int64_t i) const { return static_cast<Wide<T>>(first_[i * stride_]); }
  void Set(int64_t i, Wide<T> value) const { first_[i * stride_] = Narrow<T>(value); }

 private:
  T* first_;
  int64_t stride_;
};

// Calls visit(lines) with an array of N lines for each line along `axis` of operands of one shape.
template <typename T, int N, typename Visit>
void ForEachLine(const TensorRef* const (&refs)[N], int axis, Visit visit) {
  int64_t dims[kMaxRank], strides[N][kMaxRank];
  int rank = 0;
  for (int i = 0; i < refs[0]->rank; ++i) {
    if (i == axis) continue;
    dims[rank] = refs[0]->dims[i];
    for (int n = 0; n < N; ++n) strides[n][rank] = refs[n]->strides[i];
    ++rank;
  }
  ForEachRun<N>(rank, dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  for (int64_t i = 0; i < count; ++i) {
                    auto at = [&](int n) {
                      return Line<T>(refs[n]->template as<T>() + offset[n] + i * stride[n],
                                     refs[n]->strides[axis]);
                    };
                    if constexpr (N == 1) {
                      visit(at(0));
                    } else if constexpr (N == 2) {
                      visit(at(0), at(1));
                    } else {
                      visit(at(0), at(1), at(2));
                    }
                  }
                });
}

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_REFERENCE_FLOAT_KERNELS_H_
