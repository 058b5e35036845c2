// Gradients of pooling, softmax, losses and normalisation against central differences.
#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/recurrent.h"
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

TEST_F(GradientCheckNn, ConvolutionInGroups) {
  struct Form {
    int64_t groups, channels, filters;
  };
  for (const Form& form : {Form{2, 4, 6}, Form{3, 3, 3}, Form{3, 3, 6}}) {
    Conv2dAttributes a;
    a.groups = form.groups, a.stride_width = 2, a.pad_top = 1, a.dilation_height = 2;
    NDArray input = Random({2, 6, 5, form.channels});
    NDArray filter = Random({form.filters, 2, 3, form.channels / form.groups});
    const NDArray g = Random(Conv2dOutputShape(input.shape(), filter.shape(), a));
    auto loss = [&] { return WeightedSum(Conv2d(input, filter, nullptr, a), g); };
    NDArray filter_gradient = Empty(filter.shape());
    Conv2dGradFilterInto(input, g, filter_gradient, a);
    EXPECT_EQ(GradientProblem(loss, input, Conv2dGradInput(g, filter, input.shape(), a)), "");
    EXPECT_EQ(GradientProblem(loss, filter, filter_gradient), "");
  }
}

TEST_F(GradientCheckNn, TransposedConvolution) {
  Conv2dAttributes a;
  a.stride_height = 2, a.stride_width = 3, a.pad_top = 1, a.pad_right = 1, a.groups = 2;
  NDArray input = Random({2, 3, 4, 4}), filter = Random({4, 3, 2, 3}), bias = Random({6});
  const NDArray g = Random(Conv2dTransposeOutputShape(input.shape(), filter.shape(), a, {1, 2}));
  auto loss = [&] { return WeightedSum(Conv2dTranspose(input, filter, &bias, a, {1, 2}), g); };
  NDArray filter_gradient = Empty(filter.shape());
  Conv2dTransposeGradFilterInto(input, g, filter_gradient, a);
  EXPECT_EQ(GradientProblem(loss, input, Conv2dTransposeGradInput(g, filter, a)), "");
  EXPECT_EQ(GradientProblem(loss, filter, filter_gradient), "");
}

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
  EXPECT_EQ(
      GradientProblem([&] { return 0.25 * WeightedSum(DenseCrossEntropy(x, targets).loss, ones); },
                      x, gradient),
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
    const NormalizationGradients d = batch
                                         ? BatchNormGrad(x, scale, n.mean, n.inverse_deviation, g)
                                         : LayerNormGrad(x, scale, n.mean, n.inverse_deviation, g);
    EXPECT_EQ(GradientProblem(loss, x, d.input), "") << batch;
    EXPECT_EQ(GradientProblem(loss, scale, d.scale), "") << batch;
    EXPECT_EQ(GradientProblem(loss, shift, d.shift), "") << batch;
  }
}

// Two steps, so that every path through the states counts.
TEST_F(GradientCheckNn, LstmSteps) {
  NDArray x = Random({3, 2}), h = Random({3, 4}), c = Random({3, 4});
  LstmWeights w{Random({16, 2}), Random({16, 4}), Random({16})};
  const NDArray g = Random({3, 4}), of_cell = Random({3, 4});
  auto loss = [&] {
    const LstmStepResult first = LstmStep(x, h, c, w);
    const LstmStepResult second = LstmStep(x, first.output, first.cell, w);
    return WeightedSum(second.output, g) + WeightedSum(second.cell, of_cell);
  };
  const LstmStepResult first = LstmStep(x, h, c, w);
  const LstmStepResult second = LstmStep(x, first.output, first.cell, w);
  LstmWeights dw{Zeros({16, 2}), Zeros({16, 4}), Zeros({16})};
  const LstmStepGradients d2 =
      LstmStepGrad(x, first.output, first.cell, w, second, g, &of_cell, dw);
  const LstmStepGradients d1 = LstmStepGrad(x, h, c, w, first, d2.output, &d2.cell, dw);
  EXPECT_EQ(GradientProblem(loss, x, d1.input + d2.input), "");
  EXPECT_EQ(GradientProblem(loss, h, d1.output), "");
  EXPECT_EQ(GradientProblem(loss, c, d1.cell), "");
  EXPECT_EQ(GradientProblem(loss, w.input, dw.input), "");
  EXPECT_EQ(GradientProblem(loss, w.recurrent, dw.recurrent), "");
  EXPECT_EQ(GradientProblem(loss, w.bias, dw.bias), "");
}

TEST_F(GradientCheckNn, LstmWithoutAGradientOfTheCell) {
  NDArray x = Random({2, 3}), h = Random({2, 2}), c = Random({2, 2});
  const LstmWeights w{Random({8, 3}), Random({8, 2}), Random({8})};
  const NDArray g = Random({2, 2});
  LstmWeights dw{Zeros({8, 3}), Zeros({8, 2}), Zeros({8})};
  const LstmStepGradients d = LstmStepGrad(x, h, c, w, LstmStep(x, h, c, w), g, nullptr, dw);
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(LstmStep(x, h, c, w).output, g); }, c, d.cell),
            "");
}

TEST_F(GradientCheckNn, GruSteps) {
  NDArray x = Random({3, 2}), h = Random({3, 4});
  GruWeights w{Random({12, 2}), Random({12, 4}), Random({12}), Random({12})};
  const NDArray g = Random({3, 4});
  auto loss = [&] { return WeightedSum(GruStep(x, GruStep(x, h, w).output, w).output, g); };
  const GruStepResult first = GruStep(x, h, w), second = GruStep(x, first.output, w);
  GruWeights dw{Zeros({12, 2}), Zeros({12, 4}), Zeros({12}), Zeros({12})};
  const GruStepGradients d2 = GruStepGrad(x, first.output, w, second, g, dw);
  const GruStepGradients d1 = GruStepGrad(x, h, w, first, d2.hidden, dw);
  EXPECT_EQ(GradientProblem(loss, x, d1.input + d2.input), "");
  EXPECT_EQ(GradientProblem(loss, h, d1.hidden), "");
  EXPECT_EQ(GradientProblem(loss, w.input, dw.input), "");
  EXPECT_EQ(GradientProblem(loss, w.recurrent, dw.recurrent), "");
  EXPECT_EQ(GradientProblem(loss, w.input_bias, dw.input_bias), "");
  EXPECT_EQ(GradientProblem(loss, w.recurrent_bias, dw.recurrent_bias), "");
}

}  // namespace
}  // namespace tidepool
