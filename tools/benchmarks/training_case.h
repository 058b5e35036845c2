// What is trained in one row of the table: the same for every side of the comparison.
#ifndef TIDEPOOL_TOOLS_BENCHMARKS_TRAINING_CASE_H_
#define TIDEPOOL_TOOLS_BENCHMARKS_TRAINING_CASE_H_

#include <cstdint>
#include <string>

namespace tidepool::tools {

struct TrainingCase {
  std::string model;  // a name of training_networks.h
  int64_t batch = 0;  // images in a step
  int threads = 0;
  std::string updater;  // "sgd" or "adam"
};

// Small enough that no side diverges or becomes certain within a measurement: both would change
// what arithmetic costs (infinities, denormal numbers).
inline constexpr double kSgdLearningRate = 0.01;
inline constexpr double kAdamLearningRate = 0.001;

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_BENCHMARKS_TRAINING_CASE_H_
