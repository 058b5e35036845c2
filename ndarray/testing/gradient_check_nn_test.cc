// Gradients of pooling, softmax, losses and normalisation against central differences.
#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/testing/gradient_check.h"

namespace tidepool {
namespace {

class GradientCheckNn : public ::testing::Test {
 protected:
  NDArray Random(const Shape& shape) { return RandomUniform(shape, -1, 1, 43, ++stream_); }
  // Any two elements are at least 1/16 apart.
  NDArray Apart(const Shape& shape) {
    std::vector<float> values;
    for (int64_t i = 0; i < shape.NumElements(); ++i) {
      values.push_back((static_cast<float>(i) - shape.NumElements() / 2 + 0.5f) / 16);
    }
    std::shuffle(values.begin(), values.end(), std::mt19937(7));
    return FromValues(values, shape);
  }

  ScopedProvider reference_{"reference"};
  uint64_t stream_ = 0;
};

TEST_F(GradientCheckNn, PoolingWithPadding) {
  for (const bool include : {true, false}) {
    const Pool2dAttributes a{3, 2, 2, 1, false, 2, 1, 0, 1, include};
    NDArray input = Apart({2, 5, 6, 2});
    const NDArray g = Random(MaxPool2dOutputShape(input.shape(), a));
    EXPECT_EQ(GradientProblem([&] { return WeightedSum(MaxPool2d(input, a), g); }, input,
                              MaxPool2dGrad(input, MaxPool2d(input, a), g, a)),
              "");
    EXPECT_EQ(GradientProblem([&] { return WeightedSum(AveragePool2d(input, a), g); }, input,
                              AveragePool2dGrad(g, input.shape(), a)),
              "");
  }
}

TEST_F(GradientCheckNn, GlobalPooling) {
  NDArray input = Apart({2, 3, 4, 3});
  const NDArray g = Random({2, 3});
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(GlobalMaxPool2d(input), g); }, input,
                            GlobalMaxPool2dGrad(input, GlobalMaxPool2d(input), g)),
            "");
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(GlobalAveragePool2d(input), g); }, input,
                            GlobalAveragePool2dGrad(g, input.shape())),
            "");
}

TEST_F(GradientCheckNn, SoftmaxOverEachAxis) {
  for (int axis = 0; axis < 3; ++axis) {
    NDArray x = Random({3, 4, 2});
    const NDArray g = Random(x.shape());
    EXPECT_EQ(GradientProblem([&] { return WeightedSum(Softmax(x, axis), g); }, x,
                              SoftmaxGrad(Softmax(x, axis), g, axis)),
              "");
    EXPECT_EQ(GradientProblem([&] { return WeightedSum(LogSoftmax(x, axis), g); }, x,
                              LogSoftmaxGrad(LogSoftmax(x, axis), g, axis)),
              "");
  }
}

TEST_F(GradientCheckNn, Losses) {
  NDArray x = Random({4, 5});
  const NDArray targets = RandomUniform({4, 5}, 0, 1, 9), ones = Ones({4});
  NDArray gradient = Empty({4, 5});
  DenseCrossEntropyGradInto(DenseCrossEntropy(x, targets).probabilities, targets, 0.25, gradient);
  EXPECT_EQ(GradientProblem(
                [&] { return 0.25 * WeightedSum(DenseCrossEntropy(x, targets).loss, ones); }, x,
                gradient),
            "");
  MeanSquaredErrorGradInto(x, targets, 0.25, gradient);
  EXPECT_EQ(GradientProblem([&] { return 0.25 * WeightedSum(MeanSquaredError(x, targets), ones); },
                            x, gradient),
            "");
  BinaryCrossEntropyGradInto(x, targets, 2, gradient);
  EXPECT_EQ(GradientProblem([&] { return 2 * WeightedSum(BinaryCrossEntropy(x, targets), ones); },
                            x, gradient),
            "");
}

TEST_F(GradientCheckNn, Normalization) {
  for (const bool batch : {true, false}) {
    NDArray x = Random({3, 4, 5}), scale = Random({5}), shift = Random({5});
    const NDArray g = Random(x.shape());
    auto forward = [&] {
      return batch ? BatchNorm(x, scale, shift, {0.01}) : LayerNorm(x, scale, shift, {0.01});
    };
    auto loss = [&] { return WeightedSum(forward().output, g); };
    const Normalized n = forward();
    const NormalizationGradients d =
        batch ? BatchNormGrad(x, scale, n.mean, n.inverse_deviation, g)
              : LayerNormGrad(x, scale, n.mean, n.inverse_deviation, g);
    EXPECT_EQ(GradientProblem(loss, x, d.input), "") << batch;
    EXPECT_EQ(GradientProblem(loss, scale, d.scale), "") << batch;
    EXPECT_EQ(GradientProblem(loss, shift, d.shift), "") << batch;
  }
}

}  // namespace
}  // namespace tidepool
