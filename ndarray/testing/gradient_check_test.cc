// The backward operators against central differences of the forward ones, on the reference.
#include "tidepool/ndarray/testing/gradient_check.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

class GradientCheck : public ::testing::Test {
 protected:
  NDArray Random(const Shape& shape) { return RandomUniform(shape, -1, 1, 42, ++stream_); }
  // Any two elements, and every element and zero, are at least 1/32 apart.
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

TEST_F(GradientCheck, FindsAWrongGradient) {
  NDArray x = Random({3, 4});
  const NDArray weights = Random({3, 4});
  auto loss = [&] { return WeightedSum(x, weights); };
  EXPECT_EQ(GradientProblem(loss, x, weights), "");
  NDArray wrong = weights.Dup();
  wrong.mutable_data<float>()[5] += 0.01f;
  EXPECT_THAT(GradientProblem(loss, x, wrong), HasSubstr("element 5 of shape [3, 4]: gradient"));
  wrong.mutable_data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(GradientProblem(loss, x, wrong), HasSubstr("element 5 of shape [3, 4]"));
  EXPECT_THAT(GradientProblem(loss, x, Random({4, 3})), HasSubstr("the gradient [4, 3]"));
}

TEST_F(GradientCheck, MatMulAllTransposesAndBias) {
  for (int form = 0; form < 4; ++form) {
    MatMulAttributes a;
    a.transpose_x = form % 2 != 0;
    a.transpose_y = form / 2 != 0;
    NDArray x = Random(a.transpose_x ? Shape{5, 3} : Shape{3, 5});
    NDArray y = Random(a.transpose_y ? Shape{4, 5} : Shape{5, 4});
    NDArray bias = Random({4});
    const NDArray g = Random({3, 4});
    auto loss = [&] { return WeightedSum(MatMul(x, y, a, &bias), g); };
    // dX = g Y^T, dY = X^T g, each transposed again if its operand was.
    const NDArray dx = a.transpose_x
                           ? MatMul(y, g, {.transpose_x = a.transpose_y, .transpose_y = true})
                           : MatMul(g, y, {.transpose_y = !a.transpose_y});
    const NDArray dy = a.transpose_y
                           ? MatMul(g, x, {.transpose_x = true, .transpose_y = a.transpose_x})
                           : MatMul(x, g, {.transpose_x = !a.transpose_x});
    NDArray dbias = Empty({4});
    SumToLastAxisInto(g, dbias);
    EXPECT_EQ(GradientProblem(loss, x, dx), "") << "form " << form;
    EXPECT_EQ(GradientProblem(loss, y, dy), "") << "form " << form;
    EXPECT_EQ(GradientProblem(loss, bias, dbias), "") << "form " << form;
  }
}

TEST_F(GradientCheck, Conv2d) {
  std::vector<Conv2dAttributes> forms(4);
  forms[1].stride_height = 2, forms[1].stride_width = 3;
  forms[1].pad_top = 1, forms[1].pad_bottom = 2, forms[1].pad_left = 2, forms[1].pad_right = 0;
  forms[2].dilation_height = 2, forms[2].dilation_width = 3;
  forms[2].pad_left = forms[2].pad_right = 1;
  forms[3].stride_height = forms[3].stride_width = 2;
  forms[3].dilation_height = 2, forms[3].pad_top = 2, forms[3].pad_bottom = 1;
  for (const Conv2dAttributes& a : forms) {
    NDArray input = Random({2, 6, 8, 2}), filter = Random({3, 3, 2, 2}), bias = Random({3});
    const NDArray g = Random(Conv2dOutputShape(input.shape(), filter.shape(), a));
    auto loss = [&] { return WeightedSum(Conv2d(input, filter, &bias, a), g); };
    NDArray filter_gradient = Empty(filter.shape());
    Conv2dGradFilterInto(input, g, filter_gradient, a);
    NDArray bias_gradient = Empty({3});
    SumToLastAxisInto(g, bias_gradient);
    EXPECT_EQ(GradientProblem(loss, input, Conv2dGradInput(g, filter, input.shape(), a)), "");
    EXPECT_EQ(GradientProblem(loss, filter, filter_gradient), "");
    EXPECT_EQ(GradientProblem(loss, bias, bias_gradient), "");
  }
}

TEST_F(GradientCheck, MaxPool2dAlsoWithOverlapAndBehindRelu) {
  for (const Pool2dAttributes& a :
       {Pool2dAttributes{2, 2, 2, 2, false}, Pool2dAttributes{3, 2, 1, 2, false},
        Pool2dAttributes{2, 3, 2, 1, true}}) {
    NDArray input = Apart({2, 5, 6, 2});
    const NDArray g = Random(MaxPool2dOutputShape(input.shape(), a));
    auto forward = [&] { return a.relu_grad ? Relu(input) : input; };
    auto loss = [&] { return WeightedSum(MaxPool2d(forward(), a), g); };
    const NDArray gradient = MaxPool2dGrad(forward(), MaxPool2d(forward(), a), g, a);
    EXPECT_EQ(GradientProblem(loss, input, gradient), "");
  }
}

TEST_F(GradientCheck, Relu) {
  NDArray x = Apart({40});
  const NDArray g = Random({40});
  NDArray dx = Empty({40});
  ReluGradInto(Relu(x), g, dx);
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(Relu(x), g); }, x, dx), "");
}

TEST_F(GradientCheck, SoftmaxCrossEntropy) {
  NDArray logits = Random({5, 7});
  const std::vector<int64_t> classes = {0, 6, 3, 3, 1};
  const NDArray labels = FromValues(absl::MakeConstSpan(classes), {5});
  const double scale = 1.0 / 5;
  const CrossEntropy result = SoftmaxCrossEntropy(logits, labels);
  NDArray gradient = Empty({5, 7});
  SoftmaxCrossEntropyGradInto(result.probabilities, labels, scale, gradient);
  auto loss = [&] {
    return scale * WeightedSum(SoftmaxCrossEntropy(logits, labels).loss, Ones({5}));
  };
  EXPECT_EQ(GradientProblem(loss, logits, gradient), "");
}

}  // namespace
}  // namespace tidepool
