#include "cublas_v2.h"

#include <algorithm>

#include "tidepool/backends/cuda/emulation/emulation.h"
#include "tidepool/ndarray/dtype.h"

using tidepool::BFloat16;
using tidepool::EmulatedCuda;
using tidepool::Float16;
using tidepool::cuda_emulation::Die;
using tidepool::cuda_emulation::Emulation;

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
};

namespace {

struct Product {
  bool transpose_a, transpose_b;
  int m, n, k;
  double alpha, beta;
  const void* a;
  int lda;
  long long a_stride;
  const void* b;
  int ldb;
  long long b_stride;
  void* c;
  int ldc;
  long long c_stride;
  int batch;
};

// Column-major, as cuBLAS has it.
template <typename T>
void Multiply(const Product& p) {
  for (int item = 0; item < p.batch; ++item) {
    const T* a = static_cast<const T*>(p.a) + item * p.a_stride;
    const T* b = static_cast<const T*>(p.b) + item * p.b_stride;
    T* c = static_cast<T*>(p.c) + item * p.c_stride;
    for (int j = 0; j < p.n; ++j) {
      for (int i = 0; i < p.m; ++i) {
        double sum = 0;
        for (int l = 0; l < p.k; ++l) {
          const auto left = static_cast<double>(
              p.transpose_a ? a[l + static_cast<size_t>(i) * p.lda] : a[i + static_cast<size_t>(l) * p.lda]);
          const auto right = static_cast<double>(
              p.transpose_b ? b[j + static_cast<size_t>(l) * p.ldb] : b[l + static_cast<size_t>(j) * p.ldb]);
          sum += left * right;
        }
        T& place = c[i + static_cast<size_t>(j) * p.ldc];
        // Not read when beta is 0.
        const double before = p.beta == 0 ? 0 : p.beta * static_cast<double>(place);
        place = T(p.alpha * sum + before);
      }
    }
  }
}

// Elements that a batch of column-major matrices reaches over.
size_t Reach(int rows, int columns, int ld, long long stride, int batch) {
  if (rows == 0 || columns == 0) return 0;
  return static_cast<size_t>(columns - 1) * ld + rows + static_cast<size_t>(batch - 1) * stride;
}

void CheckOperand(const char* name, const void* at, size_t bytes) {
  if (bytes > 0 && !Emulation::Get().memory.IsDevice(at, bytes)) {
    Die("matrix %s of a product, %p, %zu bytes: not mapped memory of a device", name, at, bytes);
  }
}

}  // namespace

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_NOT_INITIALIZED";
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
  if (emulation.lost || EmulatedCuda::Get().call_faults().Next()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (handle->workspace == nullptr) Die("a product without a workspace: the library would allocate one");
  const bool ta = transa == CUBLAS_OP_T, tb = transb == CUBLAS_OP_T;
  const int a_rows = ta ? k : m, b_rows = tb ? n : k;
  if (m < 0 || n < 0 || k < 0 || batch < 0 || lda < std::max(1, a_rows) || ldb < std::max(1, b_rows) ||
      ldc < std::max(1, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (a_type != b_type || a_type != c_type || (a_type == CUDA_R_64F) != (compute == CUBLAS_COMPUTE_64F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool wide = compute == CUBLAS_COMPUTE_64F;
  auto number = [&](const void* at) {
    return wide ? *static_cast<const double*>(at) : *static_cast<const float*>(at);
  };
  const Product product = {ta,  tb,       m,   n, k,   number(alpha), number(beta), a,
                           lda, a_stride, b, ldb, b_stride, c, ldc, c_stride, batch};
  const size_t bytes = a_type == CUDA_R_64F ? 8 : a_type == CUDA_R_32F ? 4 : 2;
  CheckOperand("A", a, Reach(a_rows, ta ? m : k, lda, a_stride, batch) * bytes);
  CheckOperand("B", b, Reach(b_rows, tb ? k : n, ldb, b_stride, batch) * bytes);
  CheckOperand("C", c, Reach(m, n, ldc, c_stride, batch) * bytes);
  emulation.Add(emulation.Stream(handle->stream), [=, &emulation] {
    ++emulation.counters.products;
    switch (a_type) {
      case CUDA_R_32F: return Multiply<float>(product);
      case CUDA_R_64F: return Multiply<double>(product);
      case CUDA_R_16F: return Multiply<Float16>(product);
      default: return Multiply<BFloat16>(product);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
