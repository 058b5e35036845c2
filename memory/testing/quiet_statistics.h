// The lowest times of a benchmark's repetitions, beside Google Benchmark's mean, median and deviation.
//
// On a shared machine other processes, and other machines on the same core, lengthen some repetitions
// by up to twice; nothing shortens one. With many short repetitions, taken in turns with a benchmark
// whose time on a quiet machine is known, the first decile is what the code itself takes:
//
//   --benchmark_repetitions=60 --benchmark_min_time=0.003
//   --benchmark_enable_random_interleaving=true --benchmark_report_aggregates_only=true
//
//   BENCHMARK(Allocate)->Apply(QuietStatistics);
#ifndef TIDEPOOL_MEMORY_TESTING_QUIET_STATISTICS_H_
#define TIDEPOOL_MEMORY_TESTING_QUIET_STATISTICS_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "benchmark/benchmark.h"

namespace tidepool {

inline void QuietStatistics(benchmark::internal::Benchmark* benchmark) {
  benchmark->ComputeStatistics("min", [](const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  });
  benchmark->ComputeStatistics("decile", [](const std::vector<double>& times) {
    std::vector<double> values = times;
    const auto decile = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 10);
    std::nth_element(values.begin(), decile, values.end());
    return *decile;
  });
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_QUIET_STATISTICS_H_
