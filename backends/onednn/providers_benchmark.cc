// GFLOP/s of every linked provider through Dispatch, and which is the fastest, on one thread.
//
//   bazel run //backends/onednn:providers_benchmark -- [--benchmark_min_time=SECONDS] [substring]
//
// Each cell is the best of several repetitions of at least SECONDS (0.02 by default) of the
// calling thread's processor time; the providers' repetitions take turns. "-": the provider refuses the
// call. `substring` chooses rows.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/convolution.h"

namespace tidepool {
namespace {

constexpr int kRepetitions = 7;  // one where each is too short to mean anything
const char* const kProviders[] = {"cpu", "xnnpack", "onednn"};

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

NDArray Random(const Shape& shape) {
  NDArray array(shape, DType::kFloat32);
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  float* data = array.mutable_data<float>();
  for (int64_t i = 0; i < array.NumElements(); ++i) data[i] = uniform(random);
  return array;
}

struct Row {
  std::string name;
  double multiply_adds;
  std::function<void()> call;
};

double min_seconds = 0.02;
const char* filter = "";

// Calls per second, once.
double Rate(const std::function<void()>& call, int64_t& calls) {
  for (;;) {
    const double begin = ProcessorSeconds();
    for (int64_t i = 0; i < calls; ++i) call();
    const double seconds = ProcessorSeconds() - begin;
    if (seconds >= min_seconds) return calls / seconds;
    calls *= 2;
  }
}

void Measure(const Row& row) {
  if (row.name.find(filter) == std::string::npos) return;
  std::map<std::string, double> best;
  std::map<std::string, int64_t> calls;
  for (const char* provider : kProviders) {
    ScopedProvider scoped(provider);
    try {
      row.call();
      best[provider] = 0;
      calls[provider] = 1;
    } catch (const Error&) {
    }  // it does not do this call
  }
  for (int left = min_seconds < 1e-3 ? 1 : kRepetitions; left > 0; --left) {
    for (auto& [provider, rate] : best) {
      ScopedProvider scoped(provider.c_str());
      rate = std::max(rate, Rate(row.call, calls[provider]));
    }
  }
  std::string line = absl::StrCat("| ", row.name, " |"), fastest;
  double fastest_rate = 0;
  for (const char* provider : kProviders) {
    const auto it = best.find(provider);
    if (it == best.end()) {
      line += " - |";
      continue;
    }
    char cell[32];
    std::snprintf(cell, sizeof(cell), " %.1f |", 2e-9 * row.multiply_adds * it->second);
    line += cell;
    if (it->second > fastest_rate) fastest_rate = it->second, fastest = provider;
  }
  std::printf("%s %s |\n", line.c_str(), fastest.c_str());
  std::fflush(stdout);
}

void MeasureProducts(int64_t m, int64_t k, int64_t n) {
  const NDArray x = Random({m, k}), w = Random({n, k}), bias = Random({n});
  NDArray y = Random({m, n}), dx = Random({m, k}), dw = Random({n, k});
  const std::string shape = absl::StrCat("matmul ", m, "x", k, "x", n, ", ");
  const double multiply_adds = static_cast<double>(m) * k * n;
  const auto row = [&](const char* what, const NDArray* a, const NDArray* b, const NDArray* c,
                       NDArray* z, const MatMulAttributes& attributes) {
    Measure({shape + what, multiply_adds, [=] {
               Dispatch(OpCode::kMatMul, {a, b, c}, {z}, &attributes);
             }});
  };
  MatMulAttributes constant, forward, grad_x, grad_w;
  constant.transpose_y = constant.y_is_constant = forward.transpose_y = true;
  grad_w.transpose_x = true;
  row("forward, constant weights", &x, &w, &bias, &y, constant);
  row("forward", &x, &w, &bias, &y, forward);
  row("dx", &y, &w, nullptr, &dx, grad_x);
  row("dw", &y, &x, nullptr, &dw, grad_w);
}

void MeasureConvolutions(const Shape& image, int64_t size, int64_t filters, int64_t stride,
                         int64_t pad) {
  Conv2dAttributes forward;
  forward.stride_height = forward.stride_width = stride;
  forward.pad_top = forward.pad_bottom = forward.pad_left = forward.pad_right = pad;
  Conv2dAttributes constant = forward;
  constant.filter_is_constant = true;
  const NDArray x = Random(image), w = Random({filters, size, size, image[3]});
  const NDArray bias = Random({filters});
  NDArray y = Random(Conv2dOutputShape(image, w.shape(), forward));
  NDArray dx = Random(image), dw = Random(w.shape());
  const double multiply_adds = static_cast<double>(y.NumElements()) * size * size * image[3];
  const std::string shape = absl::StrCat(
      "conv2d ", image[0], "x", image[1], "x", image[2], "x", image[3], ", ", size, "x", size,
      stride > 1 ? absl::StrCat(" stride ", stride) : "", " to ", filters, ", ");
  Measure({shape + "forward, constant filter", multiply_adds, [&] {
             Dispatch(OpCode::kConv2d, {&x, &w, &bias}, {&y}, &constant);
           }});
  Measure({shape + "forward", multiply_adds, [&] {
             Dispatch(OpCode::kConv2d, {&x, &w, &bias}, {&y}, &forward);
           }});
  Measure({shape + "dx", multiply_adds, [&] {
             Dispatch(OpCode::kConv2dGradInput, {&y, &w}, {&dx}, &forward);
           }});
  Measure({shape + "dw", multiply_adds, [&] {
             Dispatch(OpCode::kConv2dGradFilter, {&x, &y}, {&dw}, &forward);
           }});
}

void MeasureAll() {
  std::printf("| call | cpu | xnnpack | onednn | fastest |\n|---|---|---|---|---|\n");
  for (int64_t m : {1, 8, 32, 128, 512}) MeasureProducts(m, 784, 1000);
  for (int64_t size : {64, 256, 4096}) MeasureProducts(1, size, size);
  MeasureProducts(32, 784, 256);
  MeasureProducts(64, 800, 500);
  MeasureProducts(64, 4096, 4096);
  for (int64_t size : {32, 128, 256, 512}) MeasureProducts(size, size, size);
  MeasureConvolutions({32, 28, 28, 1}, 5, 20, 1, 0);
  MeasureConvolutions({32, 12, 12, 20}, 5, 50, 1, 0);
  MeasureConvolutions({1, 56, 56, 64}, 3, 64, 1, 1);
  MeasureConvolutions({8, 56, 56, 64}, 3, 64, 1, 1);
  MeasureConvolutions({8, 28, 28, 128}, 3, 128, 1, 1);
  MeasureConvolutions({1, 14, 14, 256}, 3, 256, 1, 1);
  MeasureConvolutions({8, 14, 14, 256}, 3, 256, 1, 1);
  MeasureConvolutions({8, 7, 7, 512}, 3, 512, 1, 1);
  MeasureConvolutions({8, 56, 56, 64}, 3, 128, 2, 1);
  MeasureConvolutions({8, 56, 56, 64}, 1, 256, 1, 0);
  MeasureConvolutions({8, 14, 14, 256}, 1, 256, 1, 0);
  MeasureConvolutions({8, 56, 56, 64}, 1, 128, 2, 0);
  MeasureConvolutions({4, 224, 224, 3}, 7, 64, 2, 3);
  MeasureConvolutions({4, 224, 224, 3}, 3, 64, 1, 1);
  MeasureConvolutions({4, 224, 224, 3}, 3, 32, 2, 1);
  MeasureConvolutions({16, 32, 32, 3}, 3, 32, 1, 1);
}

}  // namespace
}  // namespace tidepool

int main(int argc, char** argv) {
  constexpr char kTime[] = "--benchmark_min_time=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kTime, sizeof(kTime) - 1) == 0) {
      tidepool::min_seconds = std::atof(argv[i] + sizeof(kTime) - 1);
    } else if (argv[i][0] == '-') {
      std::fprintf(stderr, "unknown flag %s, expected %sSECONDS or a substring of rows\n", argv[i],
                   kTime);
      return 2;
    } else {
      tidepool::filter = argv[i];
    }
  }
  tidepool::SetThreadCount(1);
  tidepool::MeasureAll();
}
