// Matrix products: three loops for each item of the batch, sums in the wide type. Integers wrap.
#include <type_traits>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool {
namespace {

// The matrix of one item: the last two axes, from an element on.
TensorRef MatrixAt(const TensorRef& ref, int64_t offset) {
  TensorRef matrix = ref;
  matrix.data = ref.as<std::byte>() + offset * static_cast<int64_t>(DTypeBytes(ref.dtype));
  matrix.rank = 2;
  matrix.dims = ref.dims + ref.rank - 2;
  matrix.strides = ref.strides + ref.rank - 2;
  return matrix;
}

template <typename T>
void Product(const MatMulAttributes& a, const TensorRef& x, const TensorRef& y,
             const TensorRef& bias, const TensorRef& z) {
  // Unsigned for integers, whose overflow is not defined otherwise.
  using Total = std::conditional_t<kIsFloat<T>, Wide<T>, uint64_t>;
  const int64_t inner = x.dims[a.transpose_x ? 0 : 1];
  for (int64_t i = 0; i < z.dims[0]; ++i) {
    for (int64_t j = 0; j < z.dims[1]; ++j) {
      Total sum = a.accumulate ? static_cast<Total>(At<T>(z, i, j)) : Total(0);
      for (int64_t k = 0; k < inner; ++k) {
        const Total left = static_cast<Total>(a.transpose_x ? At<T>(x, k, i) : At<T>(x, i, k));
        const Total right = static_cast<Total>(a.transpose_y ? At<T>(y, j, k) : At<T>(y, k, j));
        sum += left * right;
      }
      if (bias.present) sum += static_cast<Total>(At<T>(bias, j));
      T result = static_cast<T>(sum);
      if (a.relu && result <= T{}) result = T{};
      At<T>(z, i, j) = result;
    }
  }
}

template <typename T>
void MatMul(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& z = call.outputs[0];
  const int lead = z.rank - 2;
  int64_t strides[3][kMaxRank];
  BroadcastStrides(x.rank - 2, x.dims, x.strides, lead, strides[0]);
  BroadcastStrides(y.rank - 2, y.dims, y.strides, lead, strides[1]);
  BroadcastStrides(lead, z.dims, z.strides, lead, strides[2]);
  ForEachRun<3>(
      lead, z.dims, strides, [&](const int64_t* offset, int64_t count, const int64_t* stride) {
        for (int64_t i = 0; i < count; ++i) {
          Product<T>(call.attrs<MatMulAttributes>(), MatrixAt(x, offset[0] + i * stride[0]),
                     MatrixAt(y, offset[1] + i * stride[1]), call.inputs[2],
                     MatrixAt(z, offset[2] + i * stride[2]));
        }
      });
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kMatMul, MatMul),
    ReferenceKernel(OpCode::kMatMul, DType::kInt32, &MatMul<int32_t>),
    ReferenceKernel(OpCode::kMatMul, DType::kInt64, &MatMul<int64_t>),
});

}  // namespace
}  // namespace tidepool
