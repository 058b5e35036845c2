// Products against the reference, and what cuBLASLt's epilogues do: one kernel for product, bias and
// ReLU, the same bits in every run, and steps where there is none.
#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/matmul/fused_product.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#endif

namespace tidepool::cuda {
namespace {

constexpr DType kFusedTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

struct Form {
  int64_t m = 5, n = 7, k = 3;
  bool bias = true, relu = true, accumulate = false, transpose_x = false, transpose_y = true;
  std::vector<int64_t> x_lead = {}, y_lead = {}, lead = {};
};

Shape With(std::vector<int64_t> dims, int64_t rows, int64_t columns) {
  dims.push_back(rows), dims.push_back(columns);
  return Shape(absl::MakeConstSpan(dims));
}

OpCase ProductCase(DType dtype, const Form& f) {
  MatMulAttributes a;
  a.transpose_x = f.transpose_x, a.transpose_y = f.transpose_y;
  a.relu = f.relu, a.accumulate = f.accumulate;
  const Shape result = With(f.lead, f.m, f.n);
  OpCase c{
      OpCode::kMatMul,
      dtype,
      {RandomOperand(dtype, f.transpose_x ? With(f.x_lead, f.k, f.m) : With(f.x_lead, f.m, f.k), 1),
       RandomOperand(dtype, f.transpose_y ? With(f.y_lead, f.n, f.k) : With(f.y_lead, f.k, f.n), 2),
       RandomOperand(dtype, {f.n}, 3)},
      {f.accumulate ? RandomOperand(dtype, result, 4) : ResultOperand(dtype, result)},
      {},
      static_cast<double>(f.k) + 2};
  c.inputs[2].present = f.bias;
  c.attributes = a;
  return c;
}

class MatMul : public CudaKernelTest {
 protected:
  void SetUp() override {
    CudaKernelTest::SetUp();
    SetFused(true);
  }
  void TearDown() override { SetFused(true); }
  static void SetFused(bool fused) {
#if defined(TIDEPOOL_CUDA_EMULATED)
    EmulatedCuda::Get().set_fused_products(fused);
#else
    (void)fused;
#endif
  }
  // Kernels and products of calls since the last call of this; -1 where nothing counts them.
  struct Work {
    int64_t kernels = -1, products = -1, fused = -1;
  };
  static Work Since() {
    Work work;
#if defined(TIDEPOOL_CUDA_EMULATED)
    static EmulatedCuda::Counters before;
    EmulatedCuda::Get().Finish();
    const EmulatedCuda::Counters now = EmulatedCuda::Get().counters();
    work = {now.kernels - before.kernels, now.products - before.products,
            now.fused_products - before.fused_products};
    before = now;
#endif
    return work;
  }
};

TEST_F(MatMul, RandomCases) { CheckRandomCases(OpCode::kMatMul, 60); }

TEST_F(MatMul, EveryEpilogueOfEveryTypeAndLayout) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    for (int bits = 0; bits < 32; ++bits) {
      Form form;
      form.bias = bits & 1, form.relu = bits & 2, form.accumulate = bits & 4;
      form.transpose_x = bits & 8, form.transpose_y = bits & 16;
      CheckCase(ProductCase(dtype, form));
      form.m = 33, form.n = 16, form.k = 20;
      CheckCase(ProductCase(dtype, form));
    }
  }
}

TEST_F(MatMul, BatchesShareTheBias) {
  for (DType dtype : kFusedTypes) {
    CheckCase(ProductCase(dtype, {.x_lead = {4}, .y_lead = {4}, .lead = {4}}));
    CheckCase(ProductCase(dtype, {.x_lead = {4}, .y_lead = {}, .lead = {4}}));
    CheckCase(ProductCase(dtype, {.x_lead = {}, .y_lead = {3}, .lead = {3}}));
    CheckCase(ProductCase(dtype, {.x_lead = {2, 1}, .y_lead = {1, 3}, .lead = {2, 3}}));
  }
}

TEST_F(MatMul, WithoutTermsOnlyTheBiasIsLeft) {
  for (DType dtype : kFusedTypes) {
    for (bool accumulate : {false, true}) {
      CheckCase(ProductCase(dtype, {.k = 0, .accumulate = accumulate}));
      CheckCase(ProductCase(dtype, {.k = 0, .bias = false, .accumulate = accumulate}));
    }
  }
}

// Halves of 2049 and -2048, which is 1 in f32; rounded to 16 bits before they are added, the first one is 2048.
TEST_F(MatMul, PartsOfSumsOf16BitTypesAreAddedInF32) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const bool bias : {false, true}) {
      OpCase c = ProductCase(dtype, {.m = 8, .n = 8, .k = 4096, .bias = bias, .relu = false});
      c.inputs[0].reals.assign(c.inputs[0].reals.size(), 1);
      for (size_t i = 0; i < c.inputs[1].reals.size(); ++i) {
        const size_t term = i % 4096;
        c.inputs[1].reals[i] = term == 0 ? 2 : term < 2048 ? 1 : -1;
      }
      if (bias) c.inputs[2].reals.assign(8, 0.5);
      c.inner = 0;  // every sum is exact
      CheckCase(c);
    }
  }
}

#if defined(TIDEPOOL_CUDA_EMULATED)
TEST_F(MatMul, BiasAndReluAreNoKernelsOfTheirOwn) {
  for (DType dtype : kFusedTypes) {
    for (int bits = 1; bits < 4; ++bits) {
      Form form;
      form.bias = bits & 1, form.relu = bits & 2;
      Since();
      CheckCase(ProductCase(dtype, form));  // runs it twice
      const Work work = Since();
      EXPECT_EQ(work.kernels, 0);
      EXPECT_EQ(work.products, 2);
      EXPECT_EQ(work.fused, 2);
    }
  }
}

TEST_F(MatMul, PlainProductsAndDoublesAreLeftToCublas) {
  Since();
  CheckCase(ProductCase(DType::kFloat32, {.bias = false, .relu = false}));
  CheckCase(ProductCase(DType::kFloat64, {}));
  EXPECT_EQ(Since().fused, 0);
}

TEST_F(MatMul, WhereThereIsNoAlgorithmItIsDoneInSteps) {
  SetFused(false);
  // Sizes of their own: answers are kept.
  for (DType dtype : kFusedTypes) {
    for (int bits = 1; bits < 8; ++bits) {
      Form form{.m = 6, .n = 9, .k = 11};
      form.bias = bits & 1, form.relu = bits & 2, form.accumulate = bits & 4;
      Since();
      CheckCase(ProductCase(dtype, form));
      form.x_lead = form.lead = {3};
      CheckCase(ProductCase(dtype, form));
      form.y_lead = {3};
      CheckCase(ProductCase(dtype, form));
      const Work work = Since();
      EXPECT_EQ(work.fused, 0);
      EXPECT_EQ(work.products, 6);
    }
  }
  // It is not asked again for what it did not know.
  SetFused(true);
  Since();
  CheckCase(ProductCase(DType::kFloat32, {.m = 6, .n = 9, .k = 11, .bias = true, .relu = false}));
  EXPECT_EQ(Since().fused, 0);
}

#endif

// Operands anywhere: rows of a batch begin where they do.
TEST_F(MatMul, AddressesThatAreNotOfVectors) {
  CudaDevice* const device = CudaDevice::Find(0);
  ASSERT_NE(device, nullptr);
  device->Activate();
  constexpr int kSide = 6;
  float* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 4096), cudaSuccess);
  std::vector<float> values(1024);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
  for (const int shift : {0, 1, 2, 4}) {
    for (const int bias_shift : {0, 4, 1}) {
      ASSERT_EQ(cudaMemcpy(memory, values.data(), 4096, cudaMemcpyHostToDevice), cudaSuccess);
      MatrixProduct p;
      p.m = p.n = p.k = p.lda = p.ldb = p.ldd = kSide;
      p.a = memory + shift, p.b = memory + 128 + shift, p.d = memory + 256 + shift;
      p.bias = memory + 512 + bias_shift;
      p.relu = true;
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      const bool queued = QueueFusedProduct(*device, 0, p);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
#if defined(TIDEPOOL_CUDA_EMULATED)
      EXPECT_EQ(queued, bias_shift % 4 == 0) << shift << " " << bias_shift;
#else
      EXPECT_TRUE(queued || shift % 4 != 0 || bias_shift % 4 != 0) << shift << " " << bias_shift;
#endif
      if (!queued) continue;
      std::vector<float> result(values.size());
      ASSERT_EQ(cudaMemcpy(result.data(), memory, 4096, cudaMemcpyDeviceToHost), cudaSuccess);
      for (int i = 0; i < kSide; ++i) {
        for (int j = 0; j < kSide; ++j) {
          float sum = values[512 + bias_shift + i];
          for (int l = 0; l < kSide; ++l) {
            sum += values[shift + i + l * kSide] * values[128 + shift + l + j * kSide];
          }
          EXPECT_EQ(result[256 + shift + i + j * kSide], sum > 0 ? sum : 0);
        }
      }
    }
  }
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

// Products of two streams in one workspace would disturb each other.
TEST_F(MatMul, EachQueueHasAHandleAndAWorkspaceOfItsOwn) {
  CudaDevice* const device = CudaDevice::Find(0);
  ASSERT_NE(device, nullptr);
  constexpr int kOther = 3;
  device->OpenQueue(kOther, nullptr);
  Cublas &first = Cublas::Of(*device), &other = Cublas::Of(*device, kOther);
  cublasHandle_t handles[2] = {};
  first.With([&](cublasHandle_t handle) { handles[0] = handle; });
  other.With([&](cublasHandle_t handle) { handles[1] = handle; });
  EXPECT_NE(handles[0], handles[1]);
  const std::byte* const apart = first.workspace() < other.workspace()
                                     ? first.workspace() + first.workspace_bytes()
                                     : other.workspace() + other.workspace_bytes();
  EXPECT_LE(apart, std::max(first.workspace(), other.workspace()));
  device->CloseQueue(kOther);
}

#if defined(TIDEPOOL_CUDA_EMULATED)
TEST_F(MatMul, AFaultLeavesTheNextCallWhole) {
  CudaDevice* const device = CudaDevice::Find(0);
  ASSERT_NE(device, nullptr);
  float* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 256), cudaSuccess);
  MatrixProduct p;
  p.m = p.n = p.k = p.lda = p.ldb = p.ldd = 3;
  p.a = p.b = memory, p.d = memory + 16;
  p.relu = true;
  Cublas::Of(*device);
  for (int call = 0; call < 2; ++call) {  // the description of one kind, then of another
    EmulatedCuda::Get().call_faults().FailRequest(call);
    EXPECT_THROW(QueueFusedProduct(*device, 0, p), Error) << call;
    EmulatedCuda::Get().call_faults().Clear();
    p.m = p.k = p.n = 2;
    EXPECT_TRUE(QueueFusedProduct(*device, 0, p));
    p.m = p.k = p.n = 3;
    p.accumulate = true;
  }
  EXPECT_TRUE(QueueFusedProduct(*device, 0, p));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}
#endif

}  // namespace
}  // namespace tidepool::cuda
