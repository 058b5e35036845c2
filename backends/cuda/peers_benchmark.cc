// Operators at sizes that fill a device, that tools/benchmarks/torch_operators.py --device=cuda measures in PyTorch under
// the same names: f32 where nothing else is said. Results come out of a learned workspace; times are of the device, by
// events around many calls. `bytes` are the fewest that must move, operands once: their rate beside that of copy is the
// part of the bandwidth that a kernel has.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "tidepool/backends/cuda/cudnn/cudnn.h"
#include "tidepool/backends/cuda/matmul/cublas.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using cuda::Check;
using cuda::CudaDevice;

constexpr Device kDevice{DeviceType::kCuda, 0};
#ifdef TIDEPOOL_EMULATED
// A rehearsal without a device: every call of the table on something small.
constexpr int kCalls = 2;
constexpr int64_t Sized(int64_t size) { return size > 100 ? size / 64 : size; }
constexpr int64_t kImages = 2, kImageSide = 4, kPictures = 2, kPictureSide = 8;
#else
constexpr int kCalls = 10;
constexpr int64_t Sized(int64_t size) { return size; }
constexpr int64_t kImages = 64, kImageSide = 56, kPictures = 64, kPictureSide = 64;
#endif

Shape Sized(const Shape& shape) {
  int64_t dims[kMaxRank];
  for (int i = 0; i < shape.rank(); ++i) dims[i] = Sized(shape[i]);
  return Shape(absl::MakeConstSpan(dims, shape.rank()));
}
NDArray Values(const Shape& shape, DType dtype = DType::kFloat32) {
  return Cast(RandomUniform(Sized(shape), -1, 1, /*seed=*/1, 0, Place::On(kDevice)), dtype);
}
NDArray Filled(const Shape& shape, double value) {
  return Full(Sized(shape), value, DType::kFloat32, Place::On(kDevice));
}
NDArray Indices(const Shape& shape, int64_t end) {
  return RandomIntegers(Sized(shape), 0, Sized(end), /*seed=*/5, 0, DType::kInt64,
                        Place::On(kDevice));
}

// What has no kernel would run on the host.
bool HasKernel(OpCode op, DType dtype = DType::kFloat32) {
  return !KernelRegistry::Find(op, DeviceType::kCuda, dtype).empty();
}

// `mib`: what must move, in MiB; `flops`: of products.
void Add(const char* name, double mib, std::function<void()> call, double flops = 0) {
  benchmark::RegisterBenchmark(
      name,
      [call = std::move(call), mib, flops](benchmark::State& state) {
        Workspace workspace("benchmark", WorkspaceConfig::Training(), kDevice);
        auto cycle = [&] {
          WorkspaceScope scope(workspace);
          call();
        };
        for (int i = 0; i < 3; ++i) cycle();
        CudaDevice& device = *CudaDevice::Find(0);
        cudaEvent_t begin, end;
        Check(cudaEventCreate(&begin), "cudaEventCreate");
        Check(cudaEventCreate(&end), "cudaEventCreate");
        for (auto _ : state) {
          Check(cudaEventRecord(begin, device.compute()), "cudaEventRecord");
          for (int i = 0; i < kCalls; ++i) cycle();
          Check(cudaEventRecord(end, device.compute()), "cudaEventRecord");
          Check(cudaEventSynchronize(end), "cudaEventSynchronize");
          float milliseconds = 0;
          Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
          state.SetIterationTime(milliseconds / 1000 / kCalls);
        }
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
        using benchmark::Counter;
        if (mib > 0)
          state.counters["bytes"] = Counter(mib * 1048576, Counter::kIsIterationInvariantRate);
        if (flops > 0) state.counters["flops"] = Counter(flops, Counter::kIsIterationInvariantRate);
      })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

// What the host spends: on a launch, and on a block that is given back and had again.
void AddCosts() {
  const auto add = [](const char* name, std::function<void()> call) {
    benchmark::RegisterBenchmark(name, [call = std::move(call)](benchmark::State& state) {
      Workspace workspace("costs", WorkspaceConfig::Training(), kDevice);
      int64_t count = 0;
      for (auto _ : state) {
        WorkspaceScope scope(workspace);
        call();
        if (++count % 512 != 0) continue;  // the queue stays short
        state.PauseTiming();
        Check(cudaStreamSynchronize(CudaDevice::Find(0)->compute()), "cudaStreamSynchronize");
        state.ResumeTiming();
      }
    })->Unit(benchmark::kMicrosecond);
  };
  const NDArray one = Values({1});
  add("host_launch", [one] { Add(one, one); });
  add("host_block", [] {
    CudaDevice& device = *CudaDevice::Find(0);
    std::byte* const block = device.Allocate(1 << 20, 256);
    if (block != nullptr) device.Release(block, 1 << 20);
  });
}

// What the operators are measured against: cuBLAS and the runtime's copies, called as they are.
void AddRaw() {
  const NDArray x = Values({4096, 4096}), y = Values({4096, 4096});
  NDArray z = Values({4096, 4096});
  Add("raw_copy", 128, [=] {
    Check(cudaMemcpyAsync(z.raw_data(), x.raw_data(), x.NumElements() * 4, cudaMemcpyDeviceToDevice,
                          CudaDevice::Find(0)->compute()),
          "cudaMemcpyAsync");
  });
  for (const int full : {256, 1024, 4096}) {
    const int side = static_cast<int>(Sized(full));
    Add(
        absl::StrCat("raw_matmul_", full).c_str(), 0,
        [=] {
          const float one = 1, zero = 0;
          cuda::Cublas::Of(*CudaDevice::Find(0)).With([&](cublasHandle_t handle) {
            cuda::CheckCublas(
                cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, side, side, side, &one,
                                           y.raw_data(), CUDA_R_32F, side, 0, x.raw_data(),
                                           CUDA_R_32F, side, 0, &zero, z.raw_data(), CUDA_R_32F,
                                           side, 0, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                "cublasGemmStridedBatchedEx");
          });
        },
        2.0 * side * side * side);
    if (full == 4096) continue;
    const NDArray small_x = Values({side, side}), small_y = Values({side, side});
    Add(
        absl::StrCat("matmul_", full).c_str(), 0, [=] { MatMul(small_x, small_y); },
        2.0 * side * side * side);
  }
}

void AddElementwise() {
  // 64 MiB each.
  const NDArray x = Values({4096, 4096}), y = Values({4096, 4096}), row = Values({4096});
  const NDArray half = Cast(x, DType::kFloat16), small = Values({64, 64});
  Add("copy", 128, [=] { x.Dup(); });
  Add("add", 192, [=] { Add(x, y); });
  Add("add_small", 0, [=] { Add(small, small); });
  Add("add_row", 128, [=] { Add(x, row); });
  Add("add_transposed", 192, [=] { Add(x, y.Transpose()); });
  Add("copy_transposed", 128, [=] { x.Transpose().Dup(); });
  Add("copy_transposed_f16", 64, [=] { half.Transpose().Dup(); });
  const NDArray image = Values({kPictures, kPictureSide, kPictureSide, 64});
  Add("nhwc_to_nchw", 128, [=] { image.Transpose({0, 3, 1, 2}).Dup(); });
  Add("cast_f16", 96, [=] { Cast(x, DType::kFloat16); });
  Add("tanh", 128, [=] { Tanh(x); });
  Add("gelu", 128, [=] { Gelu(x); });
  Add("gelu_f16", 64, [=] { Gelu(half); });
  Add("random_uniform", 64, [] {
    RandomUniform(Sized(Shape{4096, 4096}), 0, 1, 7, 0, Place::CurrentOn(kDevice));
  });
  Add("random_normal", 64, [] {
    RandomNormal(Sized(Shape{4096, 4096}), 0, 1, 7, 0, Place::CurrentOn(kDevice));
  });
  Add("dropout", 192, [=] { Dropout(x, 0.5, 7, 1); });
}

void AddReductions() {
  const NDArray x = Values({4096, 4096}), flat = Values({1 << 22}), rows = Values({4096, 1000});
  Add("sum", 64, [=] { Sum(x); });
  Add("sum_rows", 64, [=] { Sum(x, {1}); });
  Add("sum_columns", 64, [=] { Sum(x, {0}); });
  Add("variance_columns", 64, [=] { Variance(x, {0}); });
  Add("max_rows", 64, [=] { Max(x, {1}); });
  Add("argmax_rows", 64, [=] { ArgMax(x, 1); });
  Add("sort_flat", 32, [=] { Sort(flat, 0); });
  Add("sort_rows", 31.25, [=] { Sort(rows, 1); });
  Add("argsort_rows", 31.25, [=] { ArgSort(rows, 1); });
  Add("cumsum_flat", 32, [=] { CumSum(flat, 0); });
  Add("cumsum_rows", 128, [=] { CumSum(x, 1); });
  const NDArray table = Values({50000, 512}), indices = Indices({16384}, 50000),
                updates = Values({16384, 512});
  NDArray sums = Filled({50000, 512}, 0);
  Add("gather_rows", 64, [=] { Gather(table, indices); });
  Add("scatter_add_rows", 96, [=]() mutable { ScatterAddInto(updates, indices, 0, sums); });
  const NDArray few = Indices({16384}, 1000);
  Add("one_hot", 62.5, [=] { OneHot(few, Sized(1000)); });
  Add("random_permutation", 8,
      [] { RandomPermutation(Sized(1 << 20), 7, 0, DType::kInt64, Place::CurrentOn(kDevice)); });
}

void AddNetworks() {
  const NDArray logits = Values({16384, 1000}), scores = Values({65536, 64});
  const NDArray softmax = Softmax(logits), labels = Indices({16384}, 1000);
  Add("softmax_short", 32, [=] { Softmax(scores, 1); });
  Add("softmax", 125, [=] { Softmax(logits); });
  Add("softmax_grad", 187.5, [=] { SoftmaxGrad(softmax, logits); });
  Add("cross_entropy", 62.5, [=] { SoftmaxCrossEntropy(logits, labels); });
  const NDArray tokens = Values({16384, 1024}), one = Filled({1024}, 1), zero = Filled({1024}, 0);
  const NDArray tokens16 = Cast(tokens, DType::kBFloat16), one16 = Cast(one, DType::kBFloat16);
  const NDArray zero16 = Cast(zero, DType::kBFloat16);
  Add("layer_norm", 128, [=] { LayerNorm(tokens, one, zero); });
  Add("layer_norm_bf16", 64, [=] { LayerNorm(tokens16, one16, zero16); });
  const Normalized layer = LayerNorm(tokens, one, zero);
  Add("layer_norm_grad", 192,
      [=] { LayerNormGrad(tokens, one, layer.mean, layer.inverse_deviation, tokens); });
  if (HasKernel(OpCode::kRmsNorm)) Add("rms_norm", 128, [=] { RmsNorm(tokens, one); });
  const NDArray image = Values({kPictures, kPictureSide, kPictureSide, 64}),
                one64 = Filled({64}, 1), zero64 = Filled({64}, 0);
  GroupNormAttributes groups;
  groups.groups = 8;
  if (HasKernel(OpCode::kGroupNorm))
    Add("group_norm", 128, [=] { GroupNorm(image, one64, zero64, groups); });
  Add("batch_norm", 128, [=] { BatchNorm(image, one64, zero64); });
  const Normalized batch = BatchNorm(image, one64, zero64);
  Add("batch_norm_grad", 192,
      [=] { BatchNormGrad(image, one64, batch.mean, batch.inverse_deviation, image); });
  const Pool2dAttributes pool;
  const NDArray pooled = MaxPool2d(image, pool);
  Add("max_pool", 80, [=] { MaxPool2d(image, pool); });
  Add("max_pool_grad", 160, [=] { MaxPool2dGrad(image, pooled, pooled, pool); });
  Add("global_average", 64, [=] { GlobalAveragePool2d(image); });
}

void AddProducts() {
  for (const auto& [name, type] :
       {std::pair("matmul", DType::kFloat32), std::pair("matmul_bf16", DType::kBFloat16)}) {
    const NDArray x = Values({4096, 4096}, type), y = Values({4096, 4096}, type);
    Add(
        name, 0, [=] { MatMul(x, y); }, 2.0 * 4096 * 4096 * 4096);
  }
  const NDArray q = Values({512, 128, 64}), k = Values({512, 128, 64});
  Add(
      "matmul_batch", 0, [=] { MatMul(q, k, {.transpose_y = true}); }, 2.0 * 512 * 128 * 128 * 64);
  const NDArray image = Values({kImages, kImageSide, kImageSide, 64}),
                filter = Values({64, 3, 3, 64});
  Conv2dAttributes same;
  same.pad_top = same.pad_bottom = same.pad_left = same.pad_right = 1;
  const double flops = 2.0 * kImages * kImageSide * kImageSide * 64 * 9 * 64;
  Add(
      "conv_3x3", 0, [=] { Conv2d(image, filter, nullptr, same); }, flops);
  Add(
      "conv_3x3_own", 0,
      [=] {
        const ScopedProvider own("cuda");
        Conv2d(image, filter, nullptr, same);
      },
      flops);
  Add(
      "conv_3x3_grad_input", 0, [=] { Conv2dGradInput(image, filter, image.shape(), same); },
      flops);
  NDArray filter_gradient = filter.Dup();
  Add(
      "conv_3x3_grad_filter", 0,
      [=]() mutable { Conv2dGradFilterInto(image, image, filter_gradient, same); }, flops);
  const NDArray image16 = Cast(image, DType::kFloat16), filter16 = Cast(filter, DType::kFloat16);
  Add(
      "conv_3x3_f16", 0, [=] { Conv2d(image16, filter16, nullptr, same); }, flops);
  if (!HasKernel(OpCode::kAttention) || !HasKernel(OpCode::kAttentionGrad)) return;
  const NDArray heads = Values({8, 16, 1024, 64}), heads16 = Cast(heads, DType::kBFloat16);
  const double attention = 4.0 * 8 * 16 * 1024 * 1024 * 64;
  Add(
      "attention", 0, [=] { Attention(heads, heads, heads); }, attention);
  Add(
      "attention_bf16", 0, [=] { Attention(heads16, heads16, heads16); }, attention);
  const Attended attended = Attention(heads, heads, heads);
  Add(
      "attention_grad", 0, [=] { AttentionGrad(heads, heads, heads, attended, heads); },
      2.5 * attention);
  const Attended attended16 = Attention(heads16, heads16, heads16);
  Add(
      "attention_grad_bf16", 0,
      [=] { AttentionGrad(heads16, heads16, heads16, attended16, heads16); }, 2.5 * attention);
}

}  // namespace
}  // namespace tidepool

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (tidepool::cuda::CudaDevice::Find(0) == nullptr) {
    std::fprintf(stderr, "no CUDA device: %s\n", tidepool::cuda::CudaDevice::WhyAbsent().c_str());
    return 3;
  }
  tidepool::AddRaw();
  tidepool::AddCosts();
  tidepool::AddElementwise();
  tidepool::AddReductions();
  tidepool::AddNetworks();
  tidepool::AddProducts();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  std::printf("cuDNN: %s\n", tidepool::cuda::Cudnn::Description().c_str());
}
