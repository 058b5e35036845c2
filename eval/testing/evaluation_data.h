// Generated data that scikit_learn_values.py makes as well.
#ifndef TIDEPOOL_EVAL_TESTING_EVALUATION_DATA_H_
#define TIDEPOOL_EVAL_TESTING_EVALUATION_DATA_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/eval/base_evaluation.h"

namespace tidepool {

// Knuth's, its upper 31 bits.
class Lcg {
 public:
  explicit Lcg(uint64_t seed) : state_(seed) {}
  int64_t Next(int64_t below) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>(state_ >> 33) % below;
  }

 private:
  uint64_t state_;
};

struct EvaluationData {
  int64_t columns = 1;
  std::vector<float> scores;
  std::vector<double> labels;  // [rows] or [rows, columns]
  std::vector<float> weights;  // of rows or of scores

  int64_t rows() const { return static_cast<int64_t>(scores.size()) / columns; }
  // Rows begin to end.
  EvaluationBatch Batch(bool weighted, int64_t begin, int64_t end) const {
    const auto part = [&](const auto& all) {
      const int64_t each = static_cast<int64_t>(all.size()) / rows();
      return absl::MakeConstSpan(all).subspan(begin * each, (end - begin) * each);
    };
    EvaluationBatch batch;
    batch.scores = part(scores);
    batch.labels = part(labels);
    if (weighted) batch.weights = part(weights);
    batch.columns = columns;
    return batch;
  }
  EvaluationBatch Batch(bool weighted) const { return Batch(weighted, 0, rows()); }
};

inline EvaluationData BinaryData() {
  Lcg lcg(1);
  EvaluationData data;
  for (int i = 0; i < 400; ++i) {
    const bool label = lcg.Next(3) == 0;
    data.labels.push_back(label);
    data.scores.push_back(static_cast<float>(lcg.Next(768) + 256 * label) / 1024);
    data.weights.push_back(static_cast<float>(lcg.Next(9)) / 4);
  }
  return data;
}

// Scores of a row sum to 1.
inline EvaluationData ClassData() {
  Lcg lcg(2);
  EvaluationData data;
  data.columns = 5;
  for (int i = 0; i < 300; ++i) {
    const int64_t label = lcg.Next(5);
    std::vector<int64_t> cuts{0};
    for (int c = 0; c < 4; ++c) cuts.push_back(lcg.Next(513));
    cuts.push_back(512);
    std::sort(cuts.begin(), cuts.end());
    std::vector<float> parts;
    for (int c = 0; c < 5; ++c) parts.push_back(static_cast<float>(cuts[c + 1] - cuts[c]) / 512);
    if (lcg.Next(2) != 0) std::swap(parts[label], *std::max_element(parts.begin(), parts.end()));
    data.scores.insert(data.scores.end(), parts.begin(), parts.end());
    data.labels.push_back(static_cast<double>(label));
    data.weights.push_back(static_cast<float>(lcg.Next(9)) / 4);
  }
  return data;
}

// Weights are masks of single outputs.
inline EvaluationData OutputData() {
  Lcg lcg(3);
  EvaluationData data;
  data.columns = 4;
  for (int i = 0; i < 250; ++i) {
    for (int c = 0; c < 4; ++c) {
      const bool label = lcg.Next(c + 2) == 0;
      data.labels.push_back(label);
      data.scores.push_back(static_cast<float>(lcg.Next(768) + 256 * label) / 1024);
      data.weights.push_back(lcg.Next(4) != 0);
    }
  }
  return data;
}

// One column near 2^20 that varies by 1. Scores are more than f32 holds.
struct RegressionData {
  std::vector<double> scores, labels;
  std::vector<float> weights;

  EvaluationBatch Batch(bool weighted, int64_t begin = 0, int64_t end = 300) const {
    EvaluationBatch batch;
    batch.scores = absl::MakeConstSpan(scores).subspan(begin * 3, (end - begin) * 3);
    batch.labels = absl::MakeConstSpan(labels).subspan(begin * 3, (end - begin) * 3);
    if (weighted) batch.weights = absl::MakeConstSpan(weights).subspan(begin, end - begin);
    batch.columns = 3;
    return batch;
  }
};

inline RegressionData RegressionNumbers() {
  Lcg lcg(4);
  RegressionData data;
  constexpr double kOffsets[] = {0, 1048576, -3}, kSpreads[] = {8, 1, 0.015625};
  for (int i = 0; i < 300; ++i) {
    for (int c = 0; c < 3; ++c) {
      data.labels.push_back(kOffsets[c] + kSpreads[c] * static_cast<double>(lcg.Next(4096)) / 4096);
      data.scores.push_back(data.labels.back() +
                            kSpreads[c] * static_cast<double>(lcg.Next(2048) - 900) / 4096);
    }
    data.weights.push_back(static_cast<float>(lcg.Next(9)) / 4);
  }
  return data;
}

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_TESTING_EVALUATION_DATA_H_
