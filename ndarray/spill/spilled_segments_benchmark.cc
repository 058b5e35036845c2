// What a step costs whose activations are kept, computed again, or wait in a file: 64 layers of
// y = tanh(x w1) w2 on 4,096 rows of 256 numbers, 512 MiB of activations on a tape that keeps them.
//
//   bazel run //ndarray/spill:spilled_segments_benchmark   # in $TIDEPOOL_SPILL_FOLDER, else $TMPDIR, else /var/tmp
#include <cstdlib>
#include <optional>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/spill/spilled_segments.h"

namespace tidepool {
namespace {

constexpr int64_t kWidth = 256;

enum Way { kKept, kRecomputed, kSpilled };

void Step(benchmark::State& state, Way way) {
  const bool brief = std::getenv("TIDEPOOL_BENCHMARK_ONCE") != nullptr;
  const int layers = brief ? 4 : 64;
  const int64_t rows = brief ? 64 : 4096;
  std::vector<NDArray> weights;
  for (int i = 0; i < 2 * layers; ++i) {
    weights.push_back(RandomUniform({kWidth, kWidth}, -0.1, 0.1, static_cast<uint64_t>(i + 1)));
  }
  const NDArray x = RandomUniform({rows, kWidth}, -1, 1, 99);
  SpillFile file;
  int64_t peak_bytes = 0;
  for (auto _ : state) {
    PeakScope peak;
    GradientTape tape;
    for (const NDArray& w : weights) tape.Watch(w);
    SpilledSegments segments(file);
    NDArray h = x.Dup();
    for (size_t i = 0; i < weights.size(); i += 2) {
      const NDArray w1 = weights[i], w2 = weights[i + 1];
      const auto layer = [w1, w2](absl::Span<const NDArray> in) {
        return std::vector<NDArray>{MatMul(Tanh(MatMul(in[0], w1)), w2)};
      };
      switch (way) {
        case kKept:
          h = layer({h})[0];
          break;
        case kRecomputed:
          h = Recomputed(layer, {h})[0];
          break;
        case kSpilled:
          h = segments.Run(layer, {h}, {w1, w2})[0];
          break;
      }
    }
    NDArray loss = Mean(Square(h));
    h = NDArray();
    tape.Backward(loss);
    benchmark::DoNotOptimize(tape.Gradient(weights[0]).raw_data());
    peak_bytes = peak.peak_in_use_bytes() - peak.start().in_use;
  }
  state.counters["peak_MiB"] = static_cast<double>(peak_bytes) / (1 << 20);
  state.counters["spilled_MiB"] = static_cast<double>(file.stats().written.bytes) / (1 << 20) /
                                  static_cast<double>(state.iterations());
}
BENCHMARK_CAPTURE(Step, kept, kKept)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Step, recomputed, kRecomputed)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Step, spilled, kSpilled)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidepool
