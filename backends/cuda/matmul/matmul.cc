// Matrix products by cuBLAS: f32 in f32 (TF32 if asked for), f16 and bf16 with sums in f32, f64.
// Integers by a kernel of ours.
//
// cuBLAS stores matrices by columns, so Z = X Y is asked for as its transpose, Y^T X^T. Batches with
// even strides go in one call; where all items share Y they are one product with more rows. A bias and
// a ReLU are epilogues of cuBLASLt's. Where it has none for a call (and for f64) the bias is written
// to Z first, to which the product is added: one rounding too.
#include <climits>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/backends/cuda/matmul/cublas.h"
#include "tidepool/backends/cuda/matmul/fused_product.h"
#include "tidepool/backends/cuda/matmul/product_kernels.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool::cuda {
namespace {

// Of dense operands: sizes of one product.
struct Sizes {
  int64_t m, n, k;

  explicit Sizes(const KernelCall& call) {
    const auto& a = call.attrs<MatMulAttributes>();
    const TensorRef& x = call.inputs[0];
    const TensorRef& z = call.outputs[0];
    m = z.dims[z.rank - 2];
    n = z.dims[z.rank - 1];
    k = x.dims[x.rank - (a.transpose_x ? 2 : 1)];
  }
};

// Calls visit(x, y, z, count, x_stride, y_stride, z_stride), in elements, for runs of the batch.
template <typename Visit>
void ForEachBatchRun(const KernelCall& call, Visit visit) {
  const TensorRef* const refs[3] = {&call.inputs[0], &call.inputs[1], &call.outputs[0]};
  const int lead = refs[2]->rank - 2;
  int64_t strides[3][kMaxRank];
  for (int i = 0; i < 3; ++i) {
    BroadcastStrides(refs[i]->rank - 2, refs[i]->dims, refs[i]->strides, lead, strides[i]);
  }
  ForEachRun<3>(lead, refs[2]->dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  visit(offset[0], offset[1], offset[2], count, stride[0], stride[1], stride[2]);
                });
}

struct Types {
  cudaDataType data;
  cublasComputeType_t compute;
};
Types TypesOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::kFloat16:
      return {CUDA_R_16F, CUBLAS_COMPUTE_32F};
    case DType::kBFloat16:
      return {CUDA_R_16BF, CUBLAS_COMPUTE_32F};
    default:
      return {CUDA_R_32F, Cublas::tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
  }
}

int ToInt(int64_t size) {
  if (size > INT_MAX) {
    ThrowInvalidArgument(
        absl::StrCat("Op [matmul]: a side of ", size, " elements; cuBLAS takes at most ", INT_MAX));
  }
  return static_cast<int>(size);
}

// By cuBLAS, the bias before it, the ReLU after it.
void QueueInSteps(const Queue& queue, DType dtype, const MatrixProduct& p) {
  if (p.bias != nullptr) QueueBias(queue, dtype, p.bias, p.d, p.n * p.batch, p.m, p.accumulate);
  const float one = 1, beta = p.accumulate || p.bias != nullptr ? 1 : 0;
  const double one_wide = 1, beta_wide = beta;
  const bool wide = p.compute == CUBLAS_COMPUTE_64F;
  Cublas::Of(*CudaDevice::Find(queue.device), queue.number).With([&](cublasHandle_t handle) {
    CheckCublas(cublasGemmStridedBatchedEx(
                    handle, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                    p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, ToInt(p.m), ToInt(p.n), ToInt(p.k),
                    wide ? static_cast<const void*>(&one_wide) : &one, p.a, p.type, ToInt(p.lda),
                    p.a_stride, p.b, p.type, ToInt(p.ldb), p.b_stride,
                    wide ? static_cast<const void*>(&beta_wide) : &beta, p.d, p.type, ToInt(p.ldd),
                    p.d_stride, ToInt(p.batch), p.compute, CUBLAS_GEMM_DEFAULT),
                "cublasGemmStridedBatchedEx");
  });
  if (p.relu) QueueRelu(queue, dtype, p.d, p.m * p.n * p.batch);
}

void RunFloats(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& bias = call.inputs[2];
  const TensorRef& z = call.outputs[0];
  const Sizes sizes(call);
  const int64_t count = z.NumElements();
  const Queue queue = QueueOf(call);
  const auto width = static_cast<int64_t>(DTypeBytes(z.dtype));
  if (sizes.k == 0) {
    if (bias.present) {
      QueueBias(queue, z.dtype, bias.data, z.data, count / sizes.n, sizes.n, a.accumulate);
    } else if (!a.accumulate) {
      Check(cudaMemsetAsync(z.data, 0, static_cast<size_t>(count * width), queue.stream),
            "cudaMemsetAsync");
    }
    if (a.relu) QueueRelu(queue, z.dtype, z.data, count);
    return;
  }
  MatrixProduct p;
  const Types types = TypesOf(z.dtype);
  p.type = types.data, p.compute = types.compute;
  p.transpose_a = a.transpose_y, p.transpose_b = a.transpose_x;
  p.m = sizes.n, p.k = sizes.k;
  p.lda = a.transpose_y ? sizes.k : sizes.n;
  p.ldd = sizes.n;
  p.bias = bias.present ? bias.data : nullptr;
  p.relu = a.relu, p.accumulate = a.accumulate;
  const bool fuses = (bias.present || a.relu) && z.dtype != DType::kFloat64;
  ForEachBatchRun(call, [&](int64_t x, int64_t y, int64_t to, int64_t items, int64_t x_stride,
                            int64_t y_stride, int64_t z_stride) {
    int64_t rows = sizes.m;
    if (items > 1 && y_stride == 0 && !a.transpose_x && x_stride == rows * sizes.k &&
        z_stride == rows * sizes.n && rows * items <= INT_MAX) {
      rows *= items;
      items = 1;
    }
    p.n = rows, p.batch = items;
    p.ldb = a.transpose_x ? rows : sizes.k;
    p.a = call.inputs[1].as<std::byte>() + y * width, p.a_stride = y_stride;
    p.b = call.inputs[0].as<std::byte>() + x * width, p.b_stride = x_stride;
    p.d = z.as<std::byte>() + to * width, p.d_stride = z_stride;
    if (fuses && QueueFusedProduct(*CudaDevice::Find(queue.device), queue.number, p)) return;
    QueueInSteps(queue, z.dtype, p);
  });
}

void RunIntegers(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& z = call.outputs[0];
  const Sizes sizes(call);
  const Queue queue = QueueOf(call);
  const auto width = static_cast<int64_t>(DTypeBytes(z.dtype));
  ForEachBatchRun(call, [&](int64_t x, int64_t y, int64_t to, int64_t items, int64_t x_stride,
                            int64_t y_stride, int64_t z_stride) {
    QueueIntegerProduct(
        queue, z.dtype,
        {call.inputs[0].as<std::byte>() + x * width, call.inputs[1].as<std::byte>() + y * width,
         call.inputs[2].data, z.as<std::byte>() + to * width, sizes.m, sizes.n, sizes.k, x_stride,
         y_stride, z_stride, items, a.transpose_x, a.transpose_y, a.accumulate, a.relu});
  });
}

const bool registered = [] {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    AddKernel(OpCode::kMatMul, dtype, &RunFloats);
  }
  AddKernel(OpCode::kMatMul, DType::kInt32, &RunIntegers);
  AddKernel(OpCode::kMatMul, DType::kInt64, &RunIntegers);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
