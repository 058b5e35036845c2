#include "tidepool/eval/do_evaluation.h"

#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/eval/evaluation_binary.h"
#include "tidepool/eval/evaluation_calibration.h"
#include "tidepool/eval/regression_evaluation.h"
#include "tidepool/eval/roc.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/recurrent.h"

namespace tidepool {
namespace {

using absl::StatusCode;
using nn::Batch;
using nn::Network;

Network Classifier(WorkspaceMode mode = WorkspaceMode::kEnabled) {
  std::vector<nn::AnyLayer> layers;
  layers.push_back(nn::Dense(7, nn::Activation::kTanh));
  layers.push_back(nn::Dense(4));
  return Network({3}, std::move(layers), 5, mode);
}

NDArray Features(int batch, const Shape& shape) {
  NDArray features(shape, DType::kFloat32);
  float* data = features.mutable_data<float>();
  for (int64_t i = 0; i < features.NumElements(); ++i)
    data[i] = std::sin(0.7f * static_cast<float>(i + 31 * batch));
  return features;
}

NDArray Classes(const Shape& shape, int64_t classes, int64_t first) {
  NDArray labels(shape, DType::kInt64);
  int64_t* data = labels.mutable_data<int64_t>();
  for (int64_t i = 0; i < labels.NumElements(); ++i) data[i] = (first + 2 * i) % classes;
  return labels;
}

// So many batches of 6; the last one of 4.
class Source {
 public:
  explicit Source(int batches) : batches_(batches) {}
  std::optional<Batch> operator()() {
    if (at_ == batches_) return std::nullopt;
    const int64_t size = at_ + 1 == batches_ ? 4 : 6;
    Batch batch(Features(at_, {size, 3}), Classes({size}, 4, at_));
    ++at_;
    return batch;
  }

 private:
  const int batches_;
  int at_ = 0;
};

TEST(DoEvaluation, OnePassGivesWhatTheNetworkSaysOfEachBatch) {
  for (const WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kSingle,
                                   WorkspaceMode::kSeparate, WorkspaceMode::kNone}) {
    Network network = Classifier(mode);
    Evaluation evaluation(4, {}, 2), expected(4, {}, 2);
    ROCMultiClass roc(4), expected_roc(4);
    EvaluationCalibration calibration(4), expected_calibration(4);
    Source source(5);
    const EvaluatedCounts counts = DoEvaluation(
        network, std::ref(source), {.outputs = OutputsAre::kLogits}, evaluation, roc, calibration);
    EXPECT_EQ(counts.batches, 5);
    EXPECT_EQ(counts.examples, 28);
    Source again(5);
    while (std::optional<Batch> batch = again()) {
      const std::vector<float> scores = Softmax(network.Output(batch->features)).ToVector<float>();
      const std::vector<int64_t> labels = batch->labels.ToVector<int64_t>();
      EvaluationBatch numbers;
      numbers.scores = scores;
      numbers.labels = labels;
      numbers.columns = 4;
      expected.Add(numbers);
      expected_roc.Add(numbers);
      expected_calibration.Add(numbers);
    }
    EXPECT_EQ(evaluation.Serialize(), expected.Serialize());
    EXPECT_EQ(roc.Serialize(), expected_roc.Serialize());
    EXPECT_EQ(calibration.Serialize(), expected_calibration.Serialize());
  }
}

Network Reader(int outputs) { return Network({4, 2}, {nn::Lstm(outputs)}, 6); }

// Requests to the system for arrays of more than 512 bytes: smaller ones come from spans.
int64_t AllocatedArrays() { return MemoryTracker::Global().system_allocations(); }

// What 200 batches that `make` makes take from the system behind the fourth, and what another pass
// takes.
void ExpectNothingTaken(Network& network, const std::function<Batch(int)>& make,
                        absl::Span<BaseEvaluation* const> evaluations) {
  int64_t at_fourth = 0, at_last = 0, bytes_at_fourth = 0, bytes_at_last = 0;
  const auto pass = [&] {
    int made = 0;
    const auto next = [&]() -> std::optional<Batch> {
      const int64_t bytes = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated);
      if (made == 4) at_fourth = AllocatedArrays(), bytes_at_fourth = bytes;
      if (made == 200) {
        at_last = AllocatedArrays(), bytes_at_last = bytes;
        return std::nullopt;
      }
      return make(made++);
    };
    DoEvaluation(network, next, {.outputs = OutputsAre::kLogits}, evaluations);
  };
  pass();
  EXPECT_EQ(at_last, at_fourth);
  EXPECT_EQ(bytes_at_last, bytes_at_fourth);
  const int64_t before = AllocatedArrays();
  pass();
  EXPECT_EQ(AllocatedArrays(), before);
}

TEST(DoEvaluation, TakesNoMemoryForABatch) {
  for (const WorkspaceMode mode :
       {WorkspaceMode::kEnabled, WorkspaceMode::kSingle, WorkspaceMode::kSeparate}) {
    SCOPED_TRACE(static_cast<int>(mode));
    Network network = Classifier(mode);
    Evaluation evaluation(4);
    ROCMultiClass roc(4, 100);
    EvaluationCalibration calibration(4);
    ExpectNothingTaken(network,
                       [](int i) {
                         return Batch(Features(i, {256, 3}), Classes({256}, 4, 1));
                       },
                       {&evaluation, &roc, &calibration});
  }
  Network network = Reader(3);
  Evaluation evaluation(3);
  const auto masked = [](int i) {
    Batch batch(Features(i, {64, 4, 2}), Classes({64, 4}, 3, 1));
    batch.features_mask = Full({64, 4}, 1);
    return batch;
  };
  ExpectNothingTaken(network, masked, {&evaluation});
}

TEST(DoEvaluation, BatchesOfAnIterator) {
  Network network = Classifier();
  Evaluation evaluation(4), expected(4);
  nn::FunctionIterator<nn::DataSet> batches(8, [](int64_t i) {
    return Batch(Features(static_cast<int>(i), {6, 3}), Classes({6}, 4, i));
  });
  nn::AsyncDataSetIterator ahead(batches);
  EXPECT_EQ(DoEvaluation(network, ahead, {}, evaluation).examples, 48);
  EXPECT_EQ(DoEvaluation(network, ahead, {}, evaluation).examples, 0);
  evaluation.Reset();
  ahead.Reset();
  EXPECT_EQ(DoEvaluation(network, ahead, {}, evaluation).examples, 48);
  int i = 0;
  DoEvaluation(
      network,
      [&]() -> std::optional<Batch> {
        if (i == 8) return std::nullopt;
        ++i;
        return Batch(Features(i - 1, {6, 3}), Classes({6}, 4, i - 1));
      },
      {}, expected);
  EXPECT_EQ(evaluation.Serialize(), expected.Serialize());
}

std::optional<Batch> Once(Batch& batch) {
  if (!batch.features.is_defined()) return std::nullopt;
  Batch result = std::move(batch);
  batch = Batch();
  return result;
}

TEST(DoEvaluation, SequencesAreARowForEachPositionThatTheMaskLeavesIn) {
  Network network = Reader(3);
  NDArray mask = Full({2, 4}, 1);
  mask(1, Range(0, 2)) = Scalar(0);  // the first steps, on which what comes behind them depends
  for (const bool by_features : {false, true}) {
    Batch batch(Features(1, {2, 4, 2}), Classes({2, 4}, 3, 0));
    batch.labels(1, Range(0, 2)) = Scalar(-100);  // what is left out may be anything
    (by_features ? batch.features_mask : batch.labels_mask) = mask;
    nn::Network::RunOptions options;
    if (by_features) options.masks.push_back(mask);
    std::vector<float> scores = network.Run({batch.features}, options)[0].ToVector<float>();
    scores.erase(scores.begin() + 12, scores.begin() + 18);
    ROCMultiClass roc(3), expected(3);
    DoEvaluation(
        network, [&] { return Once(batch); }, {}, roc);
    const std::vector<int64_t> labels{0, 2, 1, 0, 0, 2};
    EvaluationBatch numbers;
    numbers.scores = scores;
    numbers.labels = labels;
    numbers.columns = 3;
    expected.Add(numbers);
    EXPECT_EQ(roc.at(0).count(), 6);
    EXPECT_EQ(roc.Serialize(), expected.Serialize());
  }
}

TEST(DoEvaluation, MasksOfExamplesAndOfSingleOutputs) {
  Network network = Classifier();
  const NDArray features = Features(2, {2, 3});
  const auto run = [&](const NDArray& labels, const NDArray& mask, BaseEvaluation& evaluation) {
    Batch batch(features, labels);
    batch.labels_mask = mask;
    DoEvaluation(
        network, [&] { return Once(batch); }, {.outputs = OutputsAre::kBinaryLogits}, evaluation);
  };
  NDArray labels = Zeros({2, 4}, DType::kFloat32, Place::Heap()), mask = Full({2, 4}, 1);
  labels(0, 2) = Scalar(1);
  mask(1, 3) = Scalar(0);
  EvaluationBinary binary(4);
  run(labels, mask, binary);
  EXPECT_EQ(binary.count(2), 2);
  EXPECT_EQ(binary.count(3), 1);
  EXPECT_EQ(binary.TruePositives(2) + binary.FalseNegatives(2), 1);
  NDArray weights = Full({2}, 1);
  weights(1) = Scalar(2.5);
  RegressionEvaluation regression(4);
  run(labels, weights, regression);
  const std::vector<float> scores = network.Output(features).ToVector<float>();
  const auto error = [&](int i, double truth) {
    const float p = 1 / (1 + std::exp(-scores[i]));
    return (p - truth) * (p - truth);
  };
  EXPECT_NEAR(regression.MSE(2), (error(2, 1) + 2.5 * error(6, 0)) / 3.5, 1e-6);
}

TEST(DoEvaluation, ErrorsNameTheBatch) {
  Network network = Classifier();
  Evaluation evaluation(4);
  const auto error_of = [&](Batch second) {
    int at = 0;
    evaluation.Reset();
    return ErrorOf([&] {
      DoEvaluation(
          network,
          [&]() -> std::optional<Batch> {
            if (at++ == 0) return Batch(Features(0, {6, 3}), Classes({6}, 4, 0));
            if (at == 2) return std::move(second);
            return std::nullopt;
          },
          {}, evaluation);
    });
  };
  const std::string where = "evaluation: batch 1 from example 6: ";
  EXPECT_THAT(error_of(Batch(Features(1, {2, 3}), Classes({2}, 9, 4))),
              IsError(StatusCode::kInvalidArgument,
                      {where + "evaluation: label 0: found 4, expected 0..3"}));
  EXPECT_EQ(evaluation.count(), 6);
  EXPECT_THAT(error_of(Batch(Features(1, {2, 3}), Classes({3}, 4, 0))),
              IsError(StatusCode::kInvalidArgument,
                      {where + "labels have shape [3]", "the output's, [2, 4]"}));
  Batch masked(Features(1, {2, 3}), Classes({2}, 4, 0));
  masked.labels_mask = Full({4}, 1);
  EXPECT_THAT(error_of(std::move(masked)),
              IsError(StatusCode::kInvalidArgument, {where + "labels_mask have shape [4]"}));
  EXPECT_THAT(error_of(Batch(Features(1, {2, 4}), Classes({2}, 4, 0))),
              IsError(StatusCode::kInvalidArgument, {where + "network"}));
  Batch infinite(Features(1, {2, 3}), Classes({2}, 4, 0));
  infinite.features(1, 0) = Scalar(NAN);
  EXPECT_THAT(error_of(std::move(infinite)),
              IsError(StatusCode::kOutOfRange, {where + "example 7: its scores are not finite"}));
  // The workspace is closed, and the next pass as ever.
  Source source(2);
  EXPECT_EQ(DoEvaluation(network, std::ref(source), {}, evaluation).examples, 10);
}

TEST(DoEvaluation, AnyNumberOfEvaluationsThatAreThere) {
  Network network = Classifier();
  Evaluation evaluation(4);
  Source source(2);
  EXPECT_EQ(DoEvaluation(network, std::ref(source), {}).examples, 10);
  BaseEvaluation* const list[] = {&evaluation, nullptr};
  bool is_asked = false;
  const auto next = [&]() -> std::optional<Batch> {
    is_asked = true;
    return std::nullopt;
  };
  EXPECT_THAT(ErrorOf([&] { DoEvaluation(network, next, {}, absl::MakeConstSpan(list)); }),
              IsError(StatusCode::kInvalidArgument, {"evaluation 1 of 2: found null"}));
  EXPECT_FALSE(is_asked);
}

// Iterators throw what ended an epoch at each call.
TEST(DoEvaluation, AnErrorThatIsThrownAgainDoesNotGrow) {
  Network network = Classifier();
  Evaluation evaluation(4);
  const std::exception_ptr kept = std::make_exception_ptr(Error(StatusCode::kUnavailable, "disk"));
  for (int again = 0; again < 3; ++again) {
    const Error error = ErrorOf([&] {
      DoEvaluation(
          network, [&]() -> std::optional<Batch> { std::rethrow_exception(kept); }, {}, evaluation);
    });
    EXPECT_EQ(error.message(), "evaluation: batch 0 from example 0: disk");
    EXPECT_EQ(error.code(), StatusCode::kUnavailable);
  }
}

TEST(DoEvaluation, AnyTypesOfNetworksAndLabels) {
  const NDArray features = Features(1, {20, 3}), labels = Classes({20}, 4, 0);
  NDArray one_hot = Zeros({20, 4}, DType::kUInt8, Place::Heap());
  for (int i = 0; i < 20; ++i) one_hot(i, static_cast<int>(labels.At<int64_t>({i}))) = Scalar(1);
  std::vector<std::string> states;
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    nn::NetworkOptions options;
    options.seed = 5;
    if (type == DType::kFloat16) {
      options.compute_type = type;
    } else {
      options.dtype = type;
    }
    Network network(
        nn::NetworkConfig::Sequential({3}, {nn::Dense(7, nn::Activation::kTanh), nn::Dense(4)}),
        options);
    for (const NDArray& given : {labels, one_hot, labels.Reshape({20, 1})}) {
      Batch batch(Cast(features, options.dtype), given);
      Evaluation evaluation(4);
      EvaluationCalibration calibration(4);
      DoEvaluation(
          network, [&] { return Once(batch); }, {.outputs = OutputsAre::kLogits}, evaluation,
          calibration);
      EXPECT_EQ(calibration.count(), 20);
      states.push_back(evaluation.Serialize());
    }
  }
  // Of f64 other parameters are drawn.
  for (const int i : {1, 2, 6, 7, 8}) EXPECT_EQ(states[i], states[0]);
  for (const int i : {4, 5}) EXPECT_EQ(states[i], states[3]);
}

// Outputs come to the host through a workspace of the pass; labels and masks may be on the device.
TEST(DoEvaluation, NetworksOfADevice) {
  SimulatedDevice::Get().Reset();
  const Device device = SimulatedDevice::kDevice;
  {
    Network near({3}, {nn::Dense(7, nn::Activation::kTanh), nn::Dense(4)}, 5);
    Network far({3}, {nn::Dense(7, nn::Activation::kTanh), nn::Dense(4)}, 5,
                WorkspaceMode::kEnabled, device);
    Evaluation expected(4), evaluation(4);
    NDArray mask = Full({256}, 1);
    mask(3) = Scalar(0);
    const NDArray features = Features(1, {256, 3}), labels = Classes({256}, 4, 3);
    int64_t taken[2] = {0, 0};
    for (Network* network : {&near, &far}) {
      const NDArray labels_there = labels.To(network->device()),
                    mask_there = mask.To(network->device());
      int made = 0;
      const auto next = [&]() -> std::optional<Batch> {
        if (made == 6) taken[0] = AllocatedArrays();
        if (made == 40) {
          taken[1] = AllocatedArrays();
          return std::nullopt;
        }
        ++made;
        Batch batch(features, labels_there);
        batch.labels_mask = mask_there;
        return batch;
      };
      DoEvaluation(*network, next, {.outputs = OutputsAre::kLogits},
                   network == &near ? expected : evaluation);
    }
    EXPECT_EQ(evaluation.count(), 40 * 255);
    EXPECT_EQ(evaluation.confusion().correct(), expected.confusion().correct());
    EXPECT_EQ(taken[0], taken[1]);
  }
  SimulatedDevice::Get().Reset();  // which finds what is left
}

}  // namespace
}  // namespace tidepool
