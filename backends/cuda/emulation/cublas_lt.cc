// Products with an epilogue. What cuBLASLt would refuse with a status is refused with that status; what
// would be wrong without a word (other operands than the algorithm was asked for, a workspace that is
// too small, sums whose bits differ between runs) ends the program.
#include <algorithm>
#include <cstring>

#include "cublasLt.h"
#include "tidepool/backends/cuda/emulation/emulation.h"
#include "tidepool/backends/cuda/emulation/product.h"

using tidepool::EmulatedCuda;
using tidepool::cuda_emulation::CheckOperand;
using tidepool::cuda_emulation::CheckOperands;
using tidepool::cuda_emulation::Die;
using tidepool::cuda_emulation::ElementBytes;
using tidepool::cuda_emulation::Emulation;
using tidepool::cuda_emulation::Product;
using tidepool::cuda_emulation::RunProduct;

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType scale_type;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;

  bool operator==(const cublasLtMatrixLayoutOpaque_t&) const = default;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace {

constexpr uint64_t kWorkspace = 4096;
constexpr uintptr_t kBiasAlignment = 16;

// The layouts of a call, if they fit together.
struct Problem {
  const cublasLtMatmulDescOpaque_t& desc;
  const cublasLtMatrixLayoutOpaque_t &a, &b, &c, &d;

  cublasStatus_t Check() const {
    for (const cublasLtMatrixLayoutOpaque_t* layout : {&a, &b, &c, &d}) {
      if (layout->ld < static_cast<int64_t>(layout->rows) || layout->rows == 0 ||
          layout->columns == 0 || layout->batch != d.batch) {
        return CUBLAS_STATUS_INVALID_VALUE;
      }
    }
    const bool ta = desc.transpose_a == CUBLAS_OP_T, tb = desc.transpose_b == CUBLAS_OP_T;
    const uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
    if (!(c == d) || d.rows != m || d.columns != (tb ? b.rows : b.columns) ||
        k != (tb ? b.columns : b.rows)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const bool has_bias = (desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    if (has_bias && desc.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    const bool known_type = d.type == CUDA_R_32F || d.type == CUDA_R_16F || d.type == CUDA_R_16BF;
    if (!known_type || a.type != d.type || b.type != d.type || desc.scale_type != CUDA_R_32F ||
        (desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && d.type != CUDA_R_32F) ||
        desc.compute == CUBLAS_COMPUTE_64F || (desc.epilogue & ~7u) != 0 ||
        (has_bias && reinterpret_cast<uintptr_t>(desc.bias) % kBiasAlignment != 0)) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
  }
  // Of everything an algorithm is chosen for.
  uint64_t Signature() const {
    uint64_t hash = 1469598103934665603u;
    auto add = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
    for (const cublasLtMatrixLayoutOpaque_t* layout : {&a, &b, &d}) {
      add(layout->type), add(layout->rows), add(layout->columns);
      add(static_cast<uint64_t>(layout->ld)), add(static_cast<uint64_t>(layout->stride));
      add(static_cast<uint64_t>(layout->batch));
    }
    add(desc.compute), add(desc.epilogue);
    add(static_cast<uint64_t>(desc.transpose_a)), add(static_cast<uint64_t>(desc.transpose_b));
    return hash;
  }
};

template <typename T>
cublasStatus_t Set(T& field, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale_type) {
  if (EmulatedCuda::Get().call_faults().Next()) return CUBLAS_STATUS_ALLOC_FAILED;
  *desc = new cublasLtMatmulDescOpaque_t{compute, scale_type};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(desc->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(desc->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{type, rows, columns, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Set(layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Set(layout->stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Set(preference->reductions, value, bytes);
    default:
      return Set(preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                 value, bytes);
  }
}

// The algorithm: its signature, the alignments it needs, its workspace, how it adds up parts.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  std::lock_guard<std::mutex> lock(Emulation::Get().mutex);
  *found = 0;
  if (handle == nullptr || requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem problem{*desc, *a, *b, *c, *d};
  if (const cublasStatus_t status = problem.Check(); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!Emulation::Get().fused_products) return CUBLAS_STATUS_NOT_SUPPORTED;
  cublasLtMatmulHeuristicResult_t result{};
  result.workspaceSize = std::min(preference->workspace, kWorkspace);
  result.state = CUBLAS_STATUS_SUCCESS;
  result.algo.data[0] = problem.Signature();
  for (int i = 0; i < 4; ++i) result.algo.data[1 + i] = preference->alignments[i];
  result.algo.data[5] = result.workspaceSize;
  result.algo.data[6] = preference->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE;
  results[0] = result;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  Emulation& emulation = Emulation::Get();
  std::lock_guard<std::mutex> lock(emulation.mutex);
  if (emulation.lost || EmulatedCuda::Get().call_faults().Next())
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const Problem problem{*desc, *a_layout, *b_layout, *c_layout, *d_layout};
  if (const cublasStatus_t status = problem.Check(); status != CUBLAS_STATUS_SUCCESS) return status;
  if (handle == nullptr || c != d) return CUBLAS_STATUS_INVALID_VALUE;
  if (algo == nullptr)
    Die("a product without an algorithm: the library would look for one in each call");
  if (algo->data[0] != problem.Signature())
    Die("a product by an algorithm that was chosen for another");
  if (algo->data[6] != 0)
    Die("a product whose parts are added in the output: let no such algorithm in");
  const void* const operands[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(operands[i]) % algo->data[1 + i] != 0) {
      Die("operand %c of a product, %p, is not aligned to the %d bytes its algorithm was chosen "
          "for",
          "ABCD"[i], operands[i], static_cast<int>(algo->data[1 + i]));
    }
  }
  if (workspace_bytes < algo->data[5] || reinterpret_cast<uintptr_t>(workspace) % 16 != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  CheckOperand("workspace", workspace, workspace_bytes);
  const cudaDataType type = d_layout->type;
  const bool ta = desc->transpose_a == CUBLAS_OP_T;
  Product product;
  product.transpose_a = ta;
  product.transpose_b = desc->transpose_b == CUBLAS_OP_T;
  product.m = static_cast<int64_t>(d_layout->rows);
  product.n = static_cast<int64_t>(d_layout->columns);
  product.k = static_cast<int64_t>(ta ? a_layout->rows : a_layout->columns);
  product.alpha = *static_cast<const float*>(alpha);
  product.beta = *static_cast<const float*>(beta);
  product.a = a, product.lda = a_layout->ld, product.a_stride = a_layout->stride;
  product.b = b, product.ldb = b_layout->ld, product.b_stride = b_layout->stride;
  product.c = d, product.ldc = d_layout->ld, product.c_stride = d_layout->stride;
  product.batch = d_layout->batch;
  if ((desc->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) product.bias = desc->bias;
  product.relu = (desc->epilogue & CUBLASLT_EPILOGUE_RELU) != 0;
  CheckOperands(product, type);
  emulation.AddDeviceWork(emulation.Stream(stream), [=, &emulation] {
    RunProduct(product, type);
    ++emulation.counters.fused_products;
  });
  return CUBLAS_STATUS_SUCCESS;
}
