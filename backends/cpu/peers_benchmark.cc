// Operators that tools/benchmarks/torch_operators.py measures in PyTorch under the same names: f32 where
// nothing else is said, on one thread, or as many as TIDEPOOL_PEERS_THREADS says. Results come out of a learned workspace.
#include <cstdlib>
#include <string>

#include "benchmark/benchmark.h"
#include "tidepool/memory/testing/quiet_statistics.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution1d.h"
#include "tidepool/ndarray/ops/convolution3d.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/einsum.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/resize.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

NDArray Values(const Shape& shape, DType dtype = DType::kFloat32) {
  return Cast(RandomUniform(shape, -1, 1, /*seed=*/1), dtype);
}

int Threads() {
  const char* const threads = std::getenv("TIDEPOOL_PEERS_THREADS");
  return threads == nullptr ? 1 : std::atoi(threads);
}

template <typename Call>
void Add(const char* name, const Call& call) {
  benchmark::RegisterBenchmark(name,
                               [call](benchmark::State& state) {
                                 SetThreadCount(Threads());
                                 Workspace workspace("benchmark", WorkspaceConfig::Training());
                                 auto cycle = [&] {
                                   WorkspaceScope scope(workspace);
                                   call();
                                 };
                                 for (int i = 0; i < 3; ++i) cycle();
                                 for (auto _ : state) cycle();
                               })
      ->Apply(QuietStatistics)
      ->Unit(benchmark::kMicrosecond);
}

void AddElementwise() {
  const NDArray x = Values({1024, 1024}), y = Values({1024, 1024}), row = Values({1024});
  const NDArray positive = RandomUniform({1024, 1024}, 0.5, 2, 3);
  Add("add", [=] { Add(x, y); });
  Add("add_row", [=] { Add(x, row); });
  Add("add_transposed", [=] { Add(x, y.Transpose()); });
  Add("copy_transposed", [=] { x.Transpose().Dup(); });
  Add("cast_f16", [=] { Cast(x, DType::kFloat16); });
  Add("exp", [=] { Exp(x); });
  Add("log", [=] { Log(positive); });
  Add("tanh", [=] { Tanh(x); });
  Add("sigmoid", [=] { Sigmoid(x); });
  Add("gelu", [=] { Gelu(x); });
  Add("random_uniform", [] { RandomUniform({1024, 1024}, 0, 1, 7); });
  Add("random_normal", [] { RandomNormal({1024, 1024}, 0, 1, 7); });
  Add("dropout", [=] { Dropout(x, 0.5, 7, 1); });
}

void AddReductions() {
  const NDArray x = Values({1024, 1024}), rows = Values({1024, 1000});
  Add("sum", [=] { Sum(x); });
  Add("sum_rows", [=] { Sum(x, {1}); });
  Add("sum_columns", [=] { Sum(x, {0}); });
  Add("max_rows", [=] { Max(x, {1}); });
  Add("argmax_rows", [=] { ArgMax(x, 1); });
  Add("sort_rows", [=] { Sort(rows, 1); });
  Add("argsort_rows", [=] { ArgSort(rows, 1); });
  Add("cumsum_rows", [=] { CumSum(x, 1); });
  const NDArray table = Values({50000, 256});
  const NDArray indices = RandomIntegers({256}, 0, 50000, /*seed=*/5);
  Add("gather_rows", [=] { Gather(table, indices); });
}

void AddNetworks() {
  const NDArray attention = Values({128, 64, 64}), logits = Values({1024, 1000});
  const NDArray softmax = Softmax(logits), labels = RandomIntegers({1024}, 0, 1000, /*seed=*/5);
  Add("softmax_last", [=] { Softmax(attention, 2); });
  Add("softmax_middle", [=] { Softmax(attention, 1); });
  Add("log_softmax", [=] { LogSoftmax(logits); });
  Add("softmax_grad", [=] { SoftmaxGrad(softmax, logits); });
  Add("cross_entropy", [=] { SoftmaxCrossEntropy(logits, labels); });
  const NDArray tokens = Values({1024, 768}), one = Ones({768}), zero = Zeros({768});
  Add("layer_norm", [=] { LayerNorm(tokens, one, zero); });
  const Normalized layer = LayerNorm(tokens, one, zero);
  Add("layer_norm_grad",
      [=] { LayerNormGrad(tokens, one, layer.mean, layer.inverse_deviation, tokens); });
  Add("rms_norm", [=] { RmsNorm(tokens, one); });
  const NDArray image = Values({32, 28, 28, 64}), one64 = Ones({64}), zero64 = Zeros({64});
  GroupNormAttributes groups;
  groups.groups = 8;
  const Normalized group = GroupNorm(image, one64, zero64, groups);
  Add("group_norm", [=] { GroupNorm(image, one64, zero64, groups); });
  Add("group_norm_grad",
      [=] { GroupNormGrad(image, one64, group.mean, group.inverse_deviation, image); });
  Add("batch_norm", [=] { BatchNorm(image, one64, zero64); });
  const NDArray pooled = Values({128, 24, 24, 20}), deep = Values({32, 7, 7, 512});
  Add("max_pool", [=] { MaxPool2d(pooled, Pool2dAttributes()); });
  Add("global_average", [=] { GlobalAveragePool2d(deep); });
}

void AddAttention() {
  const NDArray q = Values({2, 8, 512, 64});
  AttentionAttributes causal;
  causal.causal = true;
  const Attended whole = Attention(q, q, q), part = Attention(q, q, q, causal);
  Add("attention", [=] { Attention(q, q, q); });
  Add("attention_causal", [=] { Attention(q, q, q, causal); });
  Add("attention_grad", [=] { AttentionGrad(q, q, q, whole, q); });
  Add("attention_causal_grad", [=] { AttentionGrad(q, q, q, part, q, causal); });
  const NDArray one = Values({4, 32, 1, 128}), cache = Values({4, 8, 1024, 128});
  Add("attention_one_query", [=] { Attention(one, cache, cache); });
}

void AddProducts() {
  const NDArray x = Values({512, 512}), y = Values({512, 512});
  Add("matmul", [=] { MatMul(x, y); });
  const NDArray q = Values({64, 64, 32}), k = Values({64, 64, 32});
  Add("matmul_batch", [=] { MatMul(q, k, {.transpose_y = true}); });
  const NDArray xb = Values({512, 512}, DType::kBFloat16),
                yb = Values({512, 512}, DType::kBFloat16);
  Add("matmul_bf16", [=] { MatMul(xb, yb); });
  const NDArray xd = Values({512, 512}, DType::kFloat64), yd = Values({512, 512}, DType::kFloat64);
  Add("matmul_f64", [=] { MatMul(xd, yd); });
  // A layer of a transformer of width 768 for 512 tokens.
  const NDArray tokens = Values({512, 768}), wide = Values({3072, 768}),
                narrow = Values({768, 3072}), within = Values({512, 3072});
  Add("matmul_up", [=] { MatMul(tokens, wide, {.transpose_y = true}); });
  Add("matmul_down", [=] { MatMul(within, narrow, {.transpose_y = true}); });
  // Scores of attention whose heads lie within the tokens.
  const NDArray heads = Values({2, 512, 8, 64});
  Add("einsum", [=] { Einsum("bqhd,bkhd->bhqk", {heads, heads}); });
}

void AddConvolutions() {
  const NDArray image = Values({8, 28, 28, 64});
  Conv2dAttributes same;
  same.pad_top = same.pad_bottom = same.pad_left = same.pad_right = 1;
  const NDArray filter = Values({64, 3, 3, 64});
  Add("conv_3x3", [=] { Conv2d(image, filter, nullptr, same); });
  Conv2dAttributes depthwise = same;
  depthwise.groups = 64;
  const NDArray filters = Values({64, 3, 3, 1});
  Add("conv_depthwise", [=] { Conv2d(image, filters, nullptr, depthwise); });
  const NDArray series = Values({16, 1024, 64}), window = Values({64, 5, 64});
  Conv1dAttributes along;
  along.pad_before = along.pad_behind = 2;
  Add("conv_1d", [=] { Conv1d(series, window, nullptr, along); });
  const NDArray volume = Values({2, 8, 28, 28, 32}), block = Values({32, 3, 3, 3, 32});
  Conv3dAttributes around;
  for (int axis = 0; axis < 3; ++axis) around.pad_before[axis] = around.pad_behind[axis] = 1;
  Add("conv_3d", [=] { Conv3d(volume, block, nullptr, around); });
  const NDArray small = Values({8, 14, 14, 64}), spread = Values({64, 4, 4, 32});
  Conv2dAttributes twice = same;
  twice.stride_height = twice.stride_width = 2;
  Add("conv_transposed", [=] { Conv2dTranspose(small, spread, nullptr, twice); });
  Add("resize", [=] { Resize2d(image, 56, 56); });
}

}  // namespace
}  // namespace tidepool

int main(int argc, char** argv) {
  tidepool::AddElementwise();
  tidepool::AddReductions();
  tidepool::AddNetworks();
  tidepool::AddProducts();
  tidepool::AddConvolutions();
  tidepool::AddAttention();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
