// GFLOP/s of Gemm and Conv2d on one thread, beside what else the machine has.
//
//   bazel run -c opt //backends/cpu/gemm:gemm_benchmark -- --benchmark_filter=Gemm
//
// oneDNN (libdnnl.so.2) and OpenBLAS (libopenblas.so.0) are looked for at run time and skipped with
// a message when absent. XNNPACK is measured as a fully connected operator, with its packing of the
// weights (what training pays, since they change) and without. Each measurement is processor time
// of the calling thread. of_peak: the fraction of what multiply-adds in registers reach, measured first.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <xnnpack.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tidepool/backends/cpu/gemm/conv2d.h"
#include "tidepool/backends/cpu/gemm/gemm.h"
#include "tidepool/backends/cpu/gemm/multiply_add_peak.h"
#include "tidepool/backends/cpu/xnnpack/operators.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"

namespace tidepool::cpu {
namespace {

struct Shape {
  const char* name;
  int64_t m, n, k;
};

// Batch x out x in where it is a layer.
constexpr Shape kShapes[] = {
    {"vector", 1, 1024, 1024},    {"8", 8, 8, 8},
    {"16", 16, 16, 16},           {"32", 32, 32, 32},
    {"64", 64, 64, 64},           {"mlp1_b32", 32, 256, 784},
    {"mlp2_b32", 32, 128, 256},   {"mlp3_b32", 32, 10, 128},
    {"mlp1_b128", 128, 256, 784}, {"mlp2_b128", 128, 128, 256},
    {"mlp3_b128", 128, 10, 128},  {"lenet_fc1", 64, 500, 800},
    {"lenet_fc2", 64, 10, 500},   {"layer_b64", 64, 512, 512},
    {"128", 128, 128, 128},       {"wide_b128", 128, 1024, 784},
    {"256", 256, 256, 256},       {"512", 512, 512, 512},
    {"1024", 1024, 1024, 1024},   {"2048", 2048, 2048, 2048},
};

struct ConvShape {
  const char* name;
  Conv2dProblem problem;
};

const ConvShape kConvolutions[] = {
    {"lenet_conv1", {64, 28, 28, 1, 20, 5, 5}},
    {"lenet_conv2", {64, 12, 12, 20, 50, 5, 5}},
    {"3x3_64_56", {1, 56, 56, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1}},
    {"3x3_128_28", {1, 28, 28, 128, 128, 3, 3, 1, 1, 1, 1, 1, 1}},
    {"3x3_256_14", {1, 14, 14, 256, 256, 3, 3, 1, 1, 1, 1, 1, 1}},
    {"3x3_256_14_b8", {8, 14, 14, 256, 256, 3, 3, 1, 1, 1, 1, 1, 1}},
    {"3x3_s2_64_128_56", {4, 56, 56, 64, 128, 3, 3, 2, 2, 1, 1, 1, 1}},
    {"1x1_256_14", {8, 14, 14, 256, 256, 1, 1}},
    {"7x7_s2_3_64_224", {1, 224, 224, 3, 64, 7, 7, 2, 2, 3, 3, 3, 3}},
};

struct FreeDeleter {
  void operator()(void* memory) const { free(memory); }
};
using Scratch = std::unique_ptr<void, FreeDeleter>;
Scratch AllocateScratch(size_t bytes) {
  return Scratch(aligned_alloc(64, (bytes + 127) / 64 * 64));
}

std::vector<float> RandomFloats(size_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  std::vector<float> floats(count + 16);  // XNNPACK reads 16 bytes behind its inputs.
  for (float& value : floats) value = uniform(random);
  return floats;
}

// Measured once, before anything else runs.
const double kPeak = MultiplyAddPeak();

void CountFlops(benchmark::State& state, double flops) {
  if (kPeak > 0) {
    state.counters["of_peak"] = benchmark::Counter(
        flops / kPeak * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  }
  state.counters["GFLOPS"] = benchmark::Counter(
      flops * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// The three products of a layer, y[m, n] = x[m, k] * w[n, k]^T, and the form that none of them has, both
// sides transposed.
enum class Product { kForward, kGradInput, kGradWeights, kBothTransposed };
constexpr const char* kProductNames[] = {"forward", "dx", "dw", "tt"};

// A row-major product in the terms of BLAS.
struct BlasCall {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  const float *a, *b;
  float* c;
};

struct Layer {
  explicit Layer(const Shape& s)
      : shape(s),
        x(RandomFloats(s.m * s.k)),
        w(RandomFloats(s.n * s.k)),
        y(RandomFloats(s.m * s.n)),
        bias(RandomFloats(s.n)) {}

  BlasCall Call(Product product) {
    const auto [name, m, n, k] = shape;
    if (product == Product::kForward) return {false, true, m, n, k, x.data(), w.data(), y.data()};
    if (product == Product::kGradInput)
      return {false, false, m, k, n, y.data(), w.data(), x.data()};
    if (product == Product::kBothTransposed)
      return {true, true, m, n, k, x.data(), w.data(), y.data()};
    return {true, false, n, k, m, y.data(), x.data(), w.data()};
  }
  double Flops() const { return 2.0 * shape.m * shape.n * shape.k; }

  Shape shape;
  std::vector<float> x, w, y, bias;
};

void BM_Gemm(benchmark::State& state, Shape shape, Product product) {
  Layer layer(shape);
  const BlasCall c = layer.Call(product);
  const GemmProblem problem = {c.m,
                               c.n,
                               c.k,
                               c.a,
                               c.transpose_a ? 1 : c.k,
                               c.transpose_a ? c.m : 1,
                               c.b,
                               c.transpose_b ? 1 : c.n,
                               c.transpose_b ? c.k : 1,
                               c.c,
                               c.n};
  const Scratch scratch = AllocateScratch(GemmScratchBytes(c.m, c.n, c.k, 1));
  for (auto _ : state) Gemm(problem, scratch.get(), nullptr);
  CountFlops(state, layer.Flops());
}

void* FindFunction(const char* library, const char* function) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  return handle == nullptr ? nullptr : dlsym(handle, function);
}

void BM_OneDnn(benchmark::State& state, Shape shape, Product product) {
  using Function = int (*)(char, char, int64_t, int64_t, int64_t, float, const float*, int64_t,
                           const float*, int64_t, float, float*, int64_t);
  const auto sgemm = reinterpret_cast<Function>(FindFunction("libdnnl.so.2", "dnnl_sgemm"));
  if (sgemm == nullptr) return state.SkipWithError("absent: libdnnl.so.2");
  Layer layer(shape);
  const BlasCall c = layer.Call(product);
  for (auto _ : state) {
    sgemm(c.transpose_a ? 'T' : 'N', c.transpose_b ? 'T' : 'N', c.m, c.n, c.k, 1.0f, c.a,
          c.transpose_a ? c.m : c.k, c.b, c.transpose_b ? c.k : c.n, 0.0f, c.c, c.n);
  }
  CountFlops(state, layer.Flops());
}

void BM_OpenBlas(benchmark::State& state, Shape shape, Product product) {
  using Function = void (*)(int, int, int, int, int, int, float, const float*, int, const float*,
                            int, float, float*, int);
  const auto sgemm = reinterpret_cast<Function>(FindFunction("libopenblas.so.0", "cblas_sgemm"));
  if (sgemm == nullptr) return state.SkipWithError("absent: libopenblas.so.0");
  constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;
  Layer layer(shape);
  const BlasCall c = layer.Call(product);
  for (auto _ : state) {
    sgemm(kRowMajor, c.transpose_a ? kTranspose : kNoTranspose,
          c.transpose_b ? kTranspose : kNoTranspose, c.m, c.n, c.k, 1.0f, c.a,
          c.transpose_a ? c.m : c.k, c.b, c.transpose_b ? c.k : c.n, 0.0f, c.c, c.n);
  }
  CountFlops(state, layer.Flops());
}

void BM_Xnnpack(benchmark::State& state, Shape shape, bool packs_each_call) {
  if (!XnnpackIsUsable()) return state.SkipWithError(XnnpackDescription().c_str());
  Layer layer(shape);
  const int64_t m = shape.m, n = shape.n, k = shape.k;
  xnn_operator_t op = nullptr;
  const auto create = [&] {
    xnn_delete_operator(op);
    return CreateFullyConnected(k, n, n, layer.w.data(), layer.bias.data(), -INFINITY, /*flags=*/0,
                                &op) == xnn_status_success;
  };
  bool ok = create();
  for (auto _ : state) {
    if (packs_each_call) ok = ok && create();
    ok = ok && RunFullyConnected(op, m, layer.x.data(), layer.y.data()) == xnn_status_success;
  }
  xnn_delete_operator(op);
  if (!ok) return state.SkipWithError("an XNNPACK call failed");
  CountFlops(state, layer.Flops());
}

struct ConvArrays {
  explicit ConvArrays(const Conv2dProblem& p)
      : x(RandomFloats(p.batch * p.in_height * p.in_width * p.in_channels)),
        filter(RandomFloats(p.out_channels * p.kernel_height * p.kernel_width * p.in_channels)),
        y(RandomFloats(p.batch * p.OutHeight() * p.OutWidth() * p.out_channels)),
        bias(RandomFloats(p.out_channels)),
        flops(2.0 * p.batch * p.OutHeight() * p.OutWidth() * p.out_channels * p.kernel_height *
              p.kernel_width * p.in_channels) {}
  std::vector<float> x, filter, y, bias;
  double flops;
};

void BM_Conv2d(benchmark::State& state, Conv2dProblem p, Product product) {
  ConvArrays arrays(p);
  float *x = arrays.x.data(), *filter = arrays.filter.data(), *y = arrays.y.data();
  if (product == Product::kForward) {
    const Scratch scratch = AllocateScratch(Conv2dForwardScratchBytes(p, 1));
    for (auto _ : state) {
      Conv2dForward(p, x, filter, arrays.bias.data(), false, y, scratch.get(), nullptr);
    }
  } else if (product == Product::kGradInput) {
    const Scratch scratch = AllocateScratch(Conv2dGradInputScratchBytes(p, 1));
    for (auto _ : state) Conv2dGradInput(p, y, filter, x, scratch.get(), nullptr);
  } else {
    const Scratch scratch = AllocateScratch(Conv2dGradFilterScratchBytes(p, 1));
    for (auto _ : state) Conv2dGradFilter(p, x, y, filter, false, scratch.get(), nullptr);
  }
  CountFlops(state, arrays.flops);
}

// Registered from a static initialiser because benchmark_main owns main().
const bool kRegistered = [] {
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  std::fprintf(stderr, "multiply-add peak of a core: %.1f GFLOP/s\n", kPeak * 1e-9);
  for (const Shape& shape : kShapes) {
    for (Product product : {Product::kForward, Product::kGradInput, Product::kGradWeights,
                            Product::kBothTransposed}) {
      const std::string suffix =
          std::string("/") + shape.name + "/" + kProductNames[static_cast<int>(product)];
      benchmark::RegisterBenchmark(("Gemm" + suffix).c_str(), BM_Gemm, shape, product);
      benchmark::RegisterBenchmark(("OneDnn" + suffix).c_str(), BM_OneDnn, shape, product);
      benchmark::RegisterBenchmark(("OpenBlas" + suffix).c_str(), BM_OpenBlas, shape, product);
    }
    const std::string suffix = std::string("/") + shape.name + "/forward";
    benchmark::RegisterBenchmark(("XnnpackPacked" + suffix).c_str(), BM_Xnnpack, shape, false);
    benchmark::RegisterBenchmark(("XnnpackPacking" + suffix).c_str(), BM_Xnnpack, shape, true);
  }
  for (const ConvShape& conv : kConvolutions) {
    for (Product product : {Product::kForward, Product::kGradInput, Product::kGradWeights}) {
      benchmark::RegisterBenchmark(
          (std::string("Conv2d/") + conv.name + "/" + kProductNames[static_cast<int>(product)])
              .c_str(),
          BM_Conv2d, conv.problem, product);
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::cpu
