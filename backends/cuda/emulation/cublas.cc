#include "cublas_v2.h"

#include <algorithm>

#include "tidepool/backends/cuda/emulation/emulation.h"
#include "tidepool/backends/cuda/emulation/product.h"

using tidepool::EmulatedCuda;
using tidepool::cuda_emulation::CheckOperand;
using tidepool::cuda_emulation::CheckOperands;
using tidepool::cuda_emulation::Die;
using tidepool::cuda_emulation::Emulation;
using tidepool::cuda_emulation::Product;
using tidepool::cuda_emulation::RunProduct;

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  int math = CUBLAS_DEFAULT_MATH;
};

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
  }
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (EmulatedCuda::Get().allocation_faults().Next()) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = new cublasContext();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->workspace = nullptr;  // as the library does
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  CheckOperand("workspace", workspace, bytes);
  handle->workspace = workspace;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int lda, long long a_stride, const void* b,
                                          cudaDataType b_type, int ldb, long long b_stride,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long c_stride, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  Emulation& emulation = Emulation::Get();
  std::lock_guard<std::mutex> lock(emulation.mutex);
  if (emulation.lost || EmulatedCuda::Get().call_faults().Next())
    return CUBLAS_STATUS_EXECUTION_FAILED;
  if (handle->workspace == nullptr)
    Die("a product without a workspace: the library would allocate one");
  const bool ta = transa == CUBLAS_OP_T, tb = transb == CUBLAS_OP_T;
  const int a_rows = ta ? k : m, b_rows = tb ? n : k;
  if (m < 0 || n < 0 || k < 0 || batch < 0 || lda < std::max(1, a_rows) ||
      ldb < std::max(1, b_rows) || ldc < std::max(1, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (a_type != b_type || a_type != c_type ||
      (a_type == CUDA_R_64F) != (compute == CUBLAS_COMPUTE_64F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool wide = compute == CUBLAS_COMPUTE_64F;
  auto number = [&](const void* at) {
    return wide ? *static_cast<const double*>(at) : *static_cast<const float*>(at);
  };
  Product product = {ta,       tb, m,   n,        k, number(alpha), number(beta), a,    lda,
                     a_stride, b,  ldb, b_stride, c, ldc,           c_stride,     batch};
  product.adds_parts_in_output =
      (handle->math & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) == 0;
  CheckOperands(product, a_type);
  emulation.AddDeviceWork(emulation.Stream(handle->stream), [=] { RunProduct(product, a_type); });
  return CUBLAS_STATUS_SUCCESS;
}
