#include "tidepool/backends/cuda/matmul/fused_product.h"

#include <array>
#include <cstddef>
#include <map>
#include <memory>

#include "cublasLt.h"

namespace tidepool::cuda {
namespace {

constexpr uintptr_t kVector = 16;  // bytes that kernels load at once
constexpr size_t kMostPlans = 4096;

template <typename T, cublasStatus_t (*kDestroy)(T)>
struct Destroy {
  using pointer = T;
  void operator()(T descriptor) const { kDestroy(descriptor); }
};
using Description =
    std::unique_ptr<void, Destroy<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<void, Destroy<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<void, Destroy<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>>;

// What cuBLASLt said to one kind of product.
struct Plan {
  Description description;
  Layout a, b, d;
  cublasLtMatmulAlgo_t algorithm{};
  bool is_usable = false;
};

using Key = std::array<int64_t, 13>;

bool IsAligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % kVector == 0; }
bool IsAligned(const MatrixProduct& p) {
  return IsAligned(p.a) && IsAligned(p.b) && IsAligned(p.d);
}

uint32_t EpilogueOf(const MatrixProduct& p) {
  if (p.bias == nullptr) return p.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
  return p.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
}

Key KeyOf(const MatrixProduct& p) {
  const int64_t flags = (p.transpose_a ? 1 : 0) | (p.transpose_b ? 2 : 0) | (p.accumulate ? 4 : 0) |
                        (IsAligned(p) ? 8 : 0) | int64_t{EpilogueOf(p)} << 4;
  return {p.m,   p.n,        p.k,     p.lda, p.a_stride, p.ldb,    p.b_stride,
          p.ldd, p.d_stride, p.batch, flags, p.type,     p.compute};
}

template <typename T>
void Set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
  CheckCublas(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)),
              "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void Set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  CheckCublas(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)),
              "cublasLtMatrixLayoutSetAttribute");
}
template <typename T>
void Set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  CheckCublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
              "cublasLtMatmulPreferenceSetAttribute");
}

Layout MakeLayout(cudaDataType type, int64_t rows, int64_t columns, int64_t ld, int64_t batch,
                  int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  CheckCublas(cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), ld),
              "cublasLtMatrixLayoutCreate");
  Layout layout(made);
  Set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
  Set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  return layout;
}

Preference MakePreference(const MatrixProduct& p, size_t workspace_bytes) {
  cublasLtMatmulPreference_t made = nullptr;
  CheckCublas(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  Preference preference(made);
  Set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes});
  Set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  // One of two answers for a shape, not one for each address.
  const uint32_t alignment = IsAligned(p) ? kVector : p.type == CUDA_R_32F ? 4 : 2;
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    Set(made, attribute, alignment);
  }
  return preference;
}

Plan MakePlan(cublasLtHandle_t handle, const MatrixProduct& p, size_t workspace_bytes) {
  Plan plan;
  cublasLtMatmulDesc_t description = nullptr;
  CheckCublas(cublasLtMatmulDescCreate(&description, p.compute, CUDA_R_32F),
              "cublasLtMatmulDescCreate");
  plan.description.reset(description);
  auto operation = [](bool transpose) {
    return static_cast<int32_t>(transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  Set(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(p.transpose_a));
  Set(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(p.transpose_b));
  Set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(p));
  // Its alignment counts in the choice.
  if (p.bias != nullptr) Set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  plan.a = MakeLayout(p.type, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda, p.batch,
                      p.a_stride);
  plan.b = MakeLayout(p.type, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb, p.batch,
                      p.b_stride);
  plan.d = MakeLayout(p.type, p.m, p.n, p.ldd, p.batch, p.d_stride);
  const Preference preference = MakePreference(p, workspace_bytes);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, description, plan.a.get(), plan.b.get(), plan.d.get(),
                                     plan.d.get(), preference.get(), 1, &result, &found);
  plan.is_usable =
      status == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
  plan.algorithm = result.algo;
  return plan;
}

// One table per compute queue; used under the lock of its handle.
std::map<Key, Plan>& PlansOf(const CudaDevice& device, int queue) {
  static auto* const plans = new std::map<Key, Plan>[kMaxDevicesPerType][kMostQueues];
  return plans[device.index()][queue];
}

bool Run(cublasLtHandle_t handle, const Cublas& cublas, CudaDevice& device, int queue,
         const MatrixProduct& p) {
  std::map<Key, Plan>& plans = PlansOf(device, queue);
  const Key key = KeyOf(p);
  auto found = plans.find(key);
  if (found == plans.end()) {
    // Of endlessly many shapes: begin again rather than grow.
    if (plans.size() >= kMostPlans) plans.clear();
    found = plans.emplace(key, MakePlan(handle, p, cublas.workspace_bytes())).first;
  }
  Plan& plan = found->second;
  if (!plan.is_usable) return false;
  if (p.bias != nullptr) Set(plan.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  const float alpha = 1, beta = p.accumulate ? 1 : 0;
  const cublasStatus_t status =
      cublasLtMatmul(handle, plan.description.get(), &alpha, p.a, plan.a.get(), p.b, plan.b.get(),
                     &beta, p.d, plan.d.get(), p.d, plan.d.get(), &plan.algorithm,
                     cublas.workspace(), cublas.workspace_bytes(), device.compute(queue));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    plan.is_usable = false;  // refused before anything was queued
    return false;
  }
  CheckCublas(status, "cublasLtMatmul");
  return true;
}

}  // namespace

bool QueueFusedProduct(CudaDevice& device, int queue, const MatrixProduct& product) {
  if (product.bias != nullptr && !IsAligned(product.bias)) return false;
  Cublas& cublas = Cublas::Of(device, queue);
  bool queued = false;
  cublas.With([&](cublasHandle_t handle) {
    // A handle of cuBLAS is one of cuBLASLt, says its manual.
    queued = Run(reinterpret_cast<cublasLtHandle_t>(handle), cublas, device, queue, product);
  });
  return queued;
}

}  // namespace tidepool::cuda
