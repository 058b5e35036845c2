// Operators of neural networks on one thread. Counters: flops of products and convolutions, bytes
// read and written of what is bound by memory.
#include <string>

#include "benchmark/benchmark.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/recurrent.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool {
namespace {

NDArray Values(const Shape& shape, DType dtype = DType::kFloat32) {
  return Cast(RandomUniform(shape, -1, 1, /*seed=*/1), dtype);
}

// Iterations are cycles of a workspace that has learned what `call` needs.
template <typename Call>
void Run(benchmark::State& state, const char* counter, double work, const Call& call) {
  SetThreadCount(1);
  Workspace workspace("benchmark", WorkspaceConfig::Training());
  auto cycle = [&] {
    WorkspaceScope scope(workspace);
    call();
  };
  for (int i = 0; i < 3; ++i) cycle();
  for (auto _ : state) cycle();
  state.counters[counter] = benchmark::Counter(work, benchmark::Counter::kIsIterationInvariantRate);
}

void MatMulOfType(benchmark::State& state, DType dtype) {
  const int64_t n = state.range(0);
  const NDArray x = Values({n, n}, dtype), y = Values({n, n}, dtype);
  Run(state, "flops", 2.0 * n * n * n, [&] { MatMul(x, y); });
}
BENCHMARK_CAPTURE(MatMulOfType, f32, DType::kFloat32)->Arg(128)->Arg(512);
BENCHMARK_CAPTURE(MatMulOfType, f64, DType::kFloat64)->Arg(128)->Arg(512);
BENCHMARK_CAPTURE(MatMulOfType, f16, DType::kFloat16)->Arg(128)->Arg(512);
BENCHMARK_CAPTURE(MatMulOfType, bf16, DType::kBFloat16)->Arg(128)->Arg(512);

// Heads of an attention layer: 64 products of 64 x 64 x 32.
void MatMulBatch(benchmark::State& state) {
  const NDArray x = Values({8, 8, 64, 32}), y = Values({8, 8, 64, 32});
  Run(state, "flops", 2.0 * 64 * 64 * 64 * 32, [&] { MatMul(x, y, {.transpose_y = true}); });
}
BENCHMARK(MatMulBatch);

// Channels and groups: 64 in 64 is depthwise.
struct GroupedConvolution {
  NDArray input = Values({8, 28, 28, 64}), filter, output_gradient = Values({8, 28, 28, 64});
  Conv2dAttributes attributes;
  double flops;

  explicit GroupedConvolution(int64_t groups) : filter(Values({64, 3, 3, 64 / groups})) {
    attributes.groups = groups;
    attributes.pad_top = attributes.pad_bottom = attributes.pad_left = attributes.pad_right = 1;
    flops = 2.0 * 8 * 28 * 28 * 9 * 64 * 64 / static_cast<double>(groups);
  }
};

void ConvolutionForward(benchmark::State& state) {
  const GroupedConvolution c(state.range(0));
  Run(state, "flops", c.flops, [&] { Conv2d(c.input, c.filter, nullptr, c.attributes); });
}
BENCHMARK(ConvolutionForward)->Arg(1)->Arg(4)->Arg(64);

void ConvolutionGradInput(benchmark::State& state) {
  const GroupedConvolution c(state.range(0));
  Run(state, "flops", c.flops,
      [&] { Conv2dGradInput(c.output_gradient, c.filter, c.input.shape(), c.attributes); });
}
BENCHMARK(ConvolutionGradInput)->Arg(1)->Arg(4)->Arg(64);

void ConvolutionGradFilter(benchmark::State& state) {
  const GroupedConvolution c(state.range(0));
  NDArray gradient = Values(c.filter.shape());
  Run(state, "flops", c.flops,
      [&] { Conv2dGradFilterInto(c.input, c.output_gradient, gradient, c.attributes); });
}
BENCHMARK(ConvolutionGradFilter)->Arg(1)->Arg(4)->Arg(64);

// LeNet's first pooling layer, batch 128.
void MaxPoolGradient(benchmark::State& state) {
  const NDArray x = Values({128, 24, 24, 20});
  Pool2dAttributes a;
  a.relu_grad = true;
  const NDArray y = MaxPool2d(x, a), dy = Values(y.shape());
  Run(state, "bytes", 4.0 * (2 * x.NumElements() + 2 * y.NumElements()),
      [&] { MaxPool2dGrad(x, y, dy, a); });
}
BENCHMARK(MaxPoolGradient);

void GlobalAverage(benchmark::State& state) {
  const NDArray x = Values({32, 7, 7, 512});
  Run(state, "bytes", 4.0 * x.NumElements(), [&] { GlobalAveragePool2d(x); });
}
BENCHMARK(GlobalAverage);

void BatchNormForward(benchmark::State& state) {
  const NDArray x = Values({32, 28, 28, state.range(0)});
  const NDArray scale = Ones({state.range(0)}), shift = Zeros({state.range(0)});
  Run(state, "bytes", 8.0 * x.NumElements(), [&] { BatchNorm(x, scale, shift); });
}
BENCHMARK(BatchNormForward)->Arg(3)->Arg(64);

void BatchNormBackward(benchmark::State& state) {
  const NDArray x = Values({32, 28, 28, 64}), one = Ones({64});
  Run(state, "bytes", 12.0 * x.NumElements(), [&] { BatchNormGrad(x, one, one, one, x); });
}
BENCHMARK(BatchNormBackward);

void LayerNormForward(benchmark::State& state) {
  const NDArray x = Values({1024, 768}), scale = Ones({768}), shift = Zeros({768});
  Run(state, "bytes", 8.0 * x.NumElements(), [&] { LayerNorm(x, scale, shift); });
}
BENCHMARK(LayerNormForward);

void SoftmaxOverAxis(benchmark::State& state) {
  const NDArray x = Values({128, 64, 64});
  Run(state, "bytes", 8.0 * x.NumElements(), [&] { Softmax(x, static_cast<int>(state.range(0))); });
}
BENCHMARK(SoftmaxOverAxis)->Arg(1)->Arg(2);

void LstmCellForward(benchmark::State& state) {
  const NDArray gates = Values({64, 4 * 256}), cell = Values({64, 256});
  Run(state, "bytes", 4.0 * (8 + 3) * cell.NumElements(), [&] { LstmCell(gates, cell); });
}
BENCHMARK(LstmCellForward);

// 16-bit floats: converted around the f32 kernels here, beside the reference, which is all other
// providers have.
void OnType(benchmark::State& state, const char* provider, DType dtype, int op) {
  const NDArray images = Values({8, 28, 28, 32}, dtype), filter = Values({32, 3, 3, 32}, dtype);
  const NDArray rows = Values({256, 768}, dtype);
  // Scale and shift are of X's type, or f32 beside 16-bit floats.
  const NDArray scale = Cast(Ones({768}), dtype), shift = Cast(Zeros({768}), dtype);
  const NDArray channel_scale = Cast(Ones({32}), dtype), channel_shift = Cast(Zeros({32}), dtype);
  const NDArray gates = Values({64, 4 * 192}, dtype), cell = Values({64, 192}, dtype);
  const ScopedProvider scoped(provider);
  Run(state, "calls", 1, [&] {
    switch (op) {
      case 0:
        Conv2d(images, filter, nullptr, {});
        break;
      case 1:
        MaxPool2d(images, {});
        break;
      case 2:
        AveragePool2d(images, {});
        break;
      case 3:
        BatchNorm(images, channel_scale, channel_shift);
        break;
      case 4:
        LayerNorm(rows, scale, shift);
        break;
      case 5:
        Softmax(rows, 1);
        break;
      default:
        LstmCell(gates, cell);
    }
  });
}
const bool on_types = [] {
  const char* const names[] = {"conv2d",     "max_pool", "average_pool", "batch_norm",
                               "layer_norm", "softmax",  "lstm_cell"};
  for (int op = 0; op < 7; ++op) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      for (const char* provider : {"cpu", "reference"}) {
        const std::string name =
            std::string("OnType/") + names[op] + "/" + DTypeName(dtype) + "/" + provider;
        benchmark::RegisterBenchmark(name.c_str(), OnType, provider, dtype, op)
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidepool
