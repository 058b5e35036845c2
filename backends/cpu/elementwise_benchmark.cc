// Bytes per second of elementwise operators beside memcpy: `bytes` are those of one operand; what
// is counted is what the operator reads and writes once (memcpy: both sides).
#include <cstring>

#include "benchmark/benchmark.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/elementwise_chain.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

constexpr int64_t kLeast = 4 << 10, kMost = 64 << 20;

NDArray Values(const Shape& shape, uint64_t stream = 0) {
  return RandomUniform(shape, -2, 2, /*seed=*/1, stream);
}

// `call` with arrays of state.range(0) bytes of f32; it moves `operands` times that.
template <typename Call>
void Measure(benchmark::State& state, double operands, const Call& call) {
  SetThreadCount(1);
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(
      static_cast<int64_t>(static_cast<double>(state.iterations() * state.range(0)) * operands));
}

int64_t Count(const benchmark::State& state) { return state.range(0) / 4; }

void Memcpy(benchmark::State& state) {
  const NDArray x = Values({Count(state)});
  NDArray z = Zeros(x.shape());
  Measure(state, 2, [&] {
    std::memcpy(z.mutable_data<float>(), x.data<float>(), static_cast<size_t>(state.range(0)));
  });
}
BENCHMARK(Memcpy)->RangeMultiplier(16)->Range(kLeast, kMost);

using Binary = void (*)(const NDArray&, const NDArray&, NDArray&);
void TwoOperands(benchmark::State& state, Binary function, DType result) {
  const NDArray x = Values({Count(state)}), y = Values(x.shape(), 1);
  NDArray z = Zeros(x.shape(), result);
  Measure(state, 2 + DTypeBytes(result) / 4.0, [&] { function(x, y, z); });
}
BENCHMARK_CAPTURE(TwoOperands, Add, &AddInto, DType::kFloat32)
    ->RangeMultiplier(16)
    ->Range(kLeast, kMost);
BENCHMARK_CAPTURE(TwoOperands, Multiply, &MultiplyInto, DType::kFloat32)
    ->RangeMultiplier(16)
    ->Range(kLeast, kMost);
BENCHMARK_CAPTURE(TwoOperands, Less, &LessInto, DType::kBool)
    ->RangeMultiplier(16)
    ->Range(kLeast, kMost);
BENCHMARK_CAPTURE(TwoOperands, Power, &PowerInto, DType::kFloat32)->Arg(1 << 20);
BENCHMARK_CAPTURE(TwoOperands, Remainder, &RemainderInto, DType::kFloat32)->Arg(1 << 20);

// clip(relu(x + y) + w, -6, 6): the bytes are those of one pass, whoever makes four.
void FourSteps(benchmark::State& state, bool chained) {
  const NDArray x = Values({Count(state)}), y = Values(x.shape(), 1), w = Values(x.shape(), 2);
  NDArray z = Zeros(x.shape());
  const ElementwiseChain chain = ElementwiseChain().Add(kChainY).Relu().Add(kChainW).Clip(-6, 6);
  Measure(state, 4, [&] {
    if (chained) return chain.ApplyInto(x, &y, &w, z);
    AddInto(x, y, z);
    ReluInto(z, z);
    AddInto(z, w, z);
    ClipInto(z, -6, 6, z);
  });
}
BENCHMARK_CAPTURE(FourSteps, Chain, true)->RangeMultiplier(16)->Range(kLeast, kMost);
BENCHMARK_CAPTURE(FourSteps, OneByOne, false)->RangeMultiplier(16)->Range(kLeast, kMost);

using Unary = void (*)(const NDArray&, NDArray&);
void OneOperand(benchmark::State& state, Unary function) {
  const NDArray x = Values({Count(state)});
  NDArray z = Zeros(x.shape());
  Measure(state, 2, [&] { function(x, z); });
}
void GeluByErf(const NDArray& x, NDArray& z) { GeluInto(x, GeluForm::kErf, z); }
void GeluByTanh(const NDArray& x, NDArray& z) { GeluInto(x, GeluForm::kTanh, z); }
BENCHMARK_CAPTURE(OneOperand, Relu, &ReluInto)->RangeMultiplier(16)->Range(kLeast, kMost);
BENCHMARK_CAPTURE(OneOperand, Exp, &ExpInto)->RangeMultiplier(16)->Range(kLeast, kMost);
BENCHMARK_CAPTURE(OneOperand, Gelu, &GeluByErf)->RangeMultiplier(16)->Range(kLeast, kMost);
BENCHMARK_CAPTURE(OneOperand, GeluByTanh, &GeluByTanh)->Arg(1 << 20);
BENCHMARK_CAPTURE(OneOperand, Log, &LogInto)->Arg(1 << 20);
BENCHMARK_CAPTURE(OneOperand, Sin, &SinInto)->Arg(1 << 20);
BENCHMARK_CAPTURE(OneOperand, Tanh, &TanhInto)->Arg(1 << 20);
BENCHMARK_CAPTURE(OneOperand, Sigmoid, &SigmoidInto)->Arg(1 << 20);
BENCHMARK_CAPTURE(OneOperand, Erf, &ErfInto)->Arg(1 << 20);
BENCHMARK_CAPTURE(OneOperand, Swish, &SwishInto)->Arg(1 << 20);
BENCHMARK_CAPTURE(OneOperand, Softplus, &SoftplusInto)->Arg(1 << 20);

void WhereOfArrays(benchmark::State& state) {
  const NDArray x = Values({Count(state)}), y = Values(x.shape(), 1);
  const NDArray condition = Less(x, y);
  NDArray z = Zeros(x.shape());
  Measure(state, 3.25, [&] { WhereInto(condition, x, y, z); });
}
BENCHMARK(WhereOfArrays)->RangeMultiplier(16)->Range(kLeast, kMost);

// range(0): bytes as f32.
void CastTo(benchmark::State& state, DType from, DType to) {
  const NDArray x = Cast(Values({Count(state)}), from);
  NDArray z = Zeros(x.shape(), to);
  Measure(state, (DTypeBytes(from) + DTypeBytes(to)) / 4.0, [&] { CopyInto(x, z); });
}
#define TIDEPOOL_CAST(from, to) \
  BENCHMARK_CAPTURE(CastTo, from##To##to, DType::k##from, DType::k##to)
TIDEPOOL_CAST(Float32, Float16)->RangeMultiplier(16)->Range(kLeast, kMost);
TIDEPOOL_CAST(Float16, Float32)->RangeMultiplier(16)->Range(kLeast, kMost);
TIDEPOOL_CAST(Float32, BFloat16)->Arg(1 << 20);
TIDEPOOL_CAST(BFloat16, Float32)->Arg(1 << 20);
TIDEPOOL_CAST(Float32, Float64)->Arg(1 << 20);
TIDEPOOL_CAST(Float64, Float32)->Arg(1 << 20);
TIDEPOOL_CAST(Float32, Int32)->Arg(1 << 20);
TIDEPOOL_CAST(Float32, Int64)->Arg(1 << 20);
TIDEPOOL_CAST(Int64, Float32)->Arg(1 << 20);
TIDEPOOL_CAST(Float32, Bool)->Arg(1 << 20);
TIDEPOOL_CAST(UInt8, Float32)->Arg(1 << 20);

// Layouts, of n x n elements.
enum class Layout { kTransposed, kRow, kColumn, kEverySecond, kThreeColumns };
void AddLayout(benchmark::State& state, Layout layout) {
  const int64_t n = state.range(0);
  const NDArray x = layout == Layout::kThreeColumns ? Values({n * n / 3, 3}) : Values({n, n});
  NDArray y;
  switch (layout) {
    case Layout::kTransposed:
      y = Values({n, n}, 1).Transpose();
      break;
    case Layout::kRow:
      y = Values({n}, 1);
      break;
    case Layout::kColumn:
      y = Values({n, 1}, 1);
      break;
    case Layout::kEverySecond:
      y = Values({n, n, 2}, 1).Index(2, 0);
      break;
    case Layout::kThreeColumns:
      y = Values({3}, 1);
      break;
  }
  NDArray z = Zeros(x.shape());
  SetThreadCount(1);
  for (auto _ : state) {
    AddInto(x, y, z);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * z.NumElements());
}
BENCHMARK_CAPTURE(AddLayout, Transposed, Layout::kTransposed)->Arg(256)->Arg(1024)->Arg(4096);
BENCHMARK_CAPTURE(AddLayout, Row, Layout::kRow)->Arg(256)->Arg(1024);
BENCHMARK_CAPTURE(AddLayout, Column, Layout::kColumn)->Arg(256)->Arg(1024);
BENCHMARK_CAPTURE(AddLayout, EverySecond, Layout::kEverySecond)->Arg(256)->Arg(1024);
BENCHMARK_CAPTURE(AddLayout, ThreeColumns, Layout::kThreeColumns)->Arg(256)->Arg(1024);

void CopyTransposed(benchmark::State& state) {
  const int64_t n = state.range(0);
  const NDArray x = Values({n, n}).Transpose();
  NDArray z = Zeros({n, n});
  SetThreadCount(1);
  for (auto _ : state) {
    CopyInto(x, z);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * n * n * 8);
}
BENCHMARK(CopyTransposed)->Arg(256)->Arg(1000)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace tidepool
