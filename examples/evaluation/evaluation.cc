#include <cstdio>
#include <optional>
#include <string>

#include "tidepool/eval/do_evaluation.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/eval/evaluation_calibration.h"
#include "tidepool/eval/roc.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/dense.h"
using namespace tidepool;

int main() {
  // Two classes along a line, which a network that was not trained for long enough takes for farther apart than they are.
  nn::Network network({1}, {nn::Dense(2)});
  NDArray weights = network.named_parameters()[0].value;
  weights(0, 0) = Scalar(-3);
  weights(1, 0) = Scalar(3);
  int made = 0;
  const auto next = [&made]() -> std::optional<nn::Batch> {
    if (made == 20) return std::nullopt;
    const NDArray x = RandomUniform({50, 1}, -1, 1, made),
                  noise = RandomNormal({50, 1}, 0, 0.5, 100 + made);
    ++made;
    nn::Batch batch(x, Cast(Greater((x + noise).Index(1, 0), 0), DType::kInt64));
    return batch;
  };

  Evaluation evaluation(2, {"left", "right"});
  ROC roc;
  EvaluationCalibration calibration(2, 5);
  DoEvaluation(network, next, {.outputs = OutputsAre::kLogits}, evaluation, roc, calibration);
  std::printf("%s\n%s\n%s\n", evaluation.Report().c_str(), roc.Report().c_str(),
              calibration.Report().c_str());

  // Of another process: bytes. They are merged to what one pass over both parts of the data gives.
  Evaluation both(2, {"left", "right"});
  both.Merge(evaluation);
  both.MergeSerialized(evaluation.Serialize());
  std::printf("%lld examples, accuracy %.3f\n", static_cast<long long>(both.count()),
              both.Accuracy());
}
