// Values of the reference, against numbers worked out by hand and loops written another way: the
// contract tests of all other backends rest on it.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/philox.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/updaters.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsNan;
using ::testing::Pointwise;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

NDArray F(std::vector<float> values, const Shape& shape) { return FromValues(values, shape); }
NDArray F(std::vector<float> values) { return F(values, {static_cast<int64_t>(values.size())}); }
NDArray I(std::vector<int64_t> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }
std::vector<int64_t> Ints(const NDArray& x) { return x.ToVector<int64_t>(); }

NDArray Random(const Shape& shape, uint64_t seed) { return RandomUniform(shape, -1, 1, seed); }

TEST(Reference, FloatArithmetic) {
  const NDArray x = F({1, -2, kInf, 0}), y = F({4, 0, kInf, -0.0f});
  EXPECT_THAT(Values(x + y), ElementsAre(5, -2, kInf, 0));
  EXPECT_THAT(Values(x - y), ElementsAre(-3, -2, IsNan(), 0));
  EXPECT_THAT(Values(x * y), ElementsAre(4, 0, kInf, 0));
  EXPECT_THAT(Values(x / y), ElementsAre(0.25, -kInf, IsNan(), IsNan()));
}

TEST(Reference, IntegerArithmeticWrapsAndTruncates) {
  EXPECT_THAT(Ints(I({INT64_MAX, 2}) + I({1, 3})), ElementsAre(kLowest, 5));
  EXPECT_THAT(Ints(I({kLowest, 2}) - I({1, 3})), ElementsAre(INT64_MAX, -1));
  EXPECT_THAT(Ints(I({INT64_MAX, 2}) * I({2, 3})), ElementsAre(-2, 6));
  EXPECT_THAT(Ints(I({7, -7, kLowest, kLowest}) / I({2, 2, -1, 1})),
              ElementsAre(3, -3, kLowest, kLowest));
}

TEST(Reference, ScaleShift) {
  EXPECT_THAT(Values(ScaleShift(F({1, 2, kNaN}), 0.5, -1)), ElementsAre(-0.5, 0, IsNan()));
  // Exact beyond 2^53 for whole numbers, truncated otherwise.
  const int64_t large = (int64_t{1} << 60) + 1;
  EXPECT_THAT(Ints(ScaleShift(I({large, 3}), 2, 1)), ElementsAre(2 * large + 1, 7));
  EXPECT_THAT(Ints(ScaleShift(I({3, -3}), 0.5, 0)), ElementsAre(1, -1));
}

TEST(Reference, ReluAndItsGradient) {
  EXPECT_THAT(Values(Relu(F({-1, 2, -0.0f, kNaN, kInf, -kInf}))),
              ElementsAre(0, 2, 0, IsNan(), kInf, 0));
  NDArray dx = Empty({4});
  ReluGradInto(F({0, 1, kNaN, 2}), F({5, 6, 7, kNaN}), dx);
  EXPECT_THAT(Values(dx), ElementsAre(0, 6, 0, IsNan()));
}

TEST(Reference, MatMulInAllForms) {
  const NDArray x = F({1, 2, 3, 4, 5, 6}, {2, 3}), y = F({1, -1, 0, 2, 1, 0}, {3, 2});
  EXPECT_THAT(Values(MatMul(x, y)), ElementsAre(4, 3, 10, 6));
  const NDArray bias = F({10, -5});
  MatMulAttributes a;
  EXPECT_THAT(Values(MatMul(x, y, a, &bias)), ElementsAre(14, -2, 20, 1));
  a.relu = true;
  EXPECT_THAT(Values(MatMul(x, y, a, &bias)), ElementsAre(14, 0, 20, 1));
  a.relu = false;
  a.accumulate = true;
  NDArray z = F({1, 1, 1, 1}, {2, 2});
  MatMulInto(x, y, z, a);
  EXPECT_THAT(Values(z), ElementsAre(5, 4, 11, 7));
  a = {};
  a.transpose_x = true;
  EXPECT_THAT(Values(MatMul(x.Transpose().Dup(), y, a)), ElementsAre(4, 3, 10, 6));
  a.transpose_y = true;
  EXPECT_THAT(Values(MatMul(x.Transpose().Dup(), y.Transpose().Dup(), a)),
              ElementsAre(4, 3, 10, 6));
}

TEST(Reference, MatMulWithoutInnerIsBias) {
  const NDArray bias = F({1, 2});
  EXPECT_THAT(Values(MatMul(Empty({2, 0}), Empty({0, 2}), {}, &bias)), ElementsAre(1, 2, 1, 2));
}

TEST(Reference, Conv2dByHand) {
  // One 3x3 image of one channel, a 2x2 filter.
  const NDArray image = F({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1});
  const NDArray filter = F({1, 0, 0, -1}, {1, 2, 2, 1});
  Conv2dAttributes a;
  EXPECT_THAT(Values(Conv2d(image, filter, nullptr, a)), ElementsAre(-4, -4, -4, -4));
  a.pad_top = a.pad_left = 1;
  const NDArray bias = F({1});
  EXPECT_THAT(Values(Conv2d(image, filter, &bias, a)),
              ElementsAre(0, -1, -2, -3, -3, -3, -6, -3, -3));
  a = {};
  a.dilation_height = a.dilation_width = 2;
  EXPECT_THAT(Values(Conv2d(image, filter, nullptr, a)), ElementsAre(-8));
}

// The convolution in scatter form, each input element added where it is used; the gradients as its
// adjoints.
TEST(Reference, Conv2dInScatterFormAndItsAdjoints) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    auto pick = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    Conv2dAttributes a;
    a.stride_height = pick(1, 3), a.stride_width = pick(1, 3);
    a.pad_top = pick(0, 2), a.pad_bottom = pick(0, 2);
    a.pad_left = pick(0, 2), a.pad_right = pick(0, 2);
    a.dilation_height = pick(1, 2), a.dilation_width = pick(1, 2);
    const NDArray x = Random({pick(1, 2), pick(5, 8), pick(5, 8), pick(1, 3)}, 2 * round);
    const NDArray w = Random({pick(1, 4), pick(1, 3), pick(1, 3), x.dim(3)}, 2 * round + 1);
    const NDArray z = Conv2d(x, w, nullptr, a);
    std::vector<double> expected(z.NumElements());
    for (int64_t n = 0; n < x.dim(0); ++n) {
      for (int64_t row = 0; row < x.dim(1); ++row) {
        for (int64_t column = 0; column < x.dim(2); ++column) {
          for (int64_t r = 0; r < w.dim(1); ++r) {
            for (int64_t s = 0; s < w.dim(2); ++s) {
              const int64_t i = row + a.pad_top - r * a.dilation_height;
              const int64_t j = column + a.pad_left - s * a.dilation_width;
              if (i < 0 || j < 0 || i % a.stride_height != 0 || j % a.stride_width != 0) continue;
              if (i / a.stride_height >= z.dim(1) || j / a.stride_width >= z.dim(2)) continue;
              for (int64_t f = 0; f < w.dim(0); ++f) {
                for (int64_t c = 0; c < x.dim(3); ++c) {
                  expected[((n * z.dim(1) + i / a.stride_height) * z.dim(2) + j / a.stride_width) *
                               z.dim(3) +
                           f] += static_cast<double>(x.At<float>({n, row, column, c})) *
                                 w.At<float>({f, r, s, c});
                }
              }
            }
          }
        }
      }
    }
    EXPECT_THAT(Values(z), Pointwise(FloatNear(1e-5f), expected)) << "round " << round;
    // <g, conv(x, w)> = <conv_grad_input(g, w), x> = <conv_grad_filter(x, g), w>
    const NDArray g = Random(z.shape(), 1000 + round);
    const NDArray dx = Conv2dGradInput(g, w, x.shape(), a);
    NDArray dw = Empty(w.shape());
    Conv2dGradFilterInto(x, g, dw, a);
    const float forward = Sum(g * z).Item<float>();
    EXPECT_NEAR(Sum(dx * x).Item<float>(), forward, 1e-4) << "round " << round;
    EXPECT_NEAR(Sum(dw * w).Item<float>(), forward, 1e-4) << "round " << round;
  }
}

TEST(Reference, MaxPoolTakesTheFirstLargestAndNaN) {
  const NDArray image =
      F({1, 5, 5, 2, 3, kNaN, 0, 0, -1, -1, -2, -3, -1, -1, -4, -kInf}, {1, 4, 4, 1});
  const Pool2dAttributes a;
  const NDArray z = MaxPool2d(image, a);
  EXPECT_THAT(Values(z), ElementsAre(IsNan(), 5, -1, -2));
  EXPECT_THAT(Values(MaxPool2dGrad(image, z, F({1, 2, 3, 4}, {1, 2, 2, 1}), a)),
              ElementsAre(0, 0, 2, 0, 0, 1, 0, 0, 3, 0, 4, 0, 0, 0, 0, 0));
}

TEST(Reference, MaxPoolGradientOfOverlappingWindowsAndRelu) {
  Pool2dAttributes a{2, 2, 1, 1, false};
  const NDArray image = F({0, 0, 0, 0, 9, 0, 0, 0, 0}, {1, 3, 3, 1});
  const NDArray z = MaxPool2d(image, a), g = F({1, 2, 3, 4}, {1, 2, 2, 1});
  EXPECT_THAT(Values(MaxPool2dGrad(image, z, g, a)), ElementsAre(0, 0, 0, 0, 10, 0, 0, 0, 0));
  a.relu_grad = true;
  const NDArray zeros = Zeros({1, 3, 3, 1});
  EXPECT_THAT(Values(MaxPool2dGrad(zeros, MaxPool2d(zeros, a), g, a)),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(Reference, SoftmaxAndCrossEntropy) {
  const NDArray x = F({0, std::log(3.0f), 1000, 1000, kNaN, 1}, {3, 2});
  EXPECT_THAT(Values(Softmax(x)), ElementsAre(FloatNear(0.25f, 1e-7f), FloatNear(0.75f, 1e-7f), 0.5,
                                              0.5, IsNan(), IsNan()));
  const NDArray labels = I({1, 0});
  const CrossEntropy result = SoftmaxCrossEntropy(x.Slice(0, 0, 2), labels);
  EXPECT_NEAR(result.loss.At<float>({0}), std::log(4.0 / 3), 1e-7);
  EXPECT_NEAR(result.loss.At<float>({1}), std::log(2.0), 1e-7);
  NDArray gradient = Empty({2, 2});
  SoftmaxCrossEntropyGradInto(result.probabilities, labels, 2, gradient);
  EXPECT_THAT(Values(gradient), Pointwise(FloatNear(1e-6f), {0.5, -0.5, -1.0, 1.0}));
}

TEST(Reference, LossOfAnUnlikelyLabelIsNotInfinite) {
  const NDArray loss = SoftmaxCrossEntropy(F({0, -500}, {1, 2}), I({1})).loss;
  EXPECT_EQ(loss.At<float>({0}), 500);
}

TEST(Reference, Updaters) {
  NDArray p = F({1, 2});
  SgdUpdate(F({0.5, -1}), p, {.learning_rate = 0.1, .l2 = 0.5});
  EXPECT_THAT(Values(p), Pointwise(FloatNear(1e-6f), {0.9, 2.0}));
  NDArray velocity = F({0.2, 0});
  p = F({1, 1});
  NesterovsUpdate(F({1, -2}), p, velocity, {.learning_rate = 0.1, .momentum = 0.5});
  EXPECT_THAT(Values(velocity), Pointwise(FloatNear(1e-6f), {0.0, 0.2}));
  EXPECT_THAT(Values(p), Pointwise(FloatNear(1e-6f), {0.9, 1.3}));
  // The first step of Adam has length learning_rate, whatever the gradient.
  NDArray first = Zeros({2}), second = Zeros({2});
  p = F({1, 1});
  AdamUpdate(F({1e-3, -40}), p, first, second, {.learning_rate = 0.01});
  EXPECT_THAT(Values(p), Pointwise(FloatNear(1e-5f), {0.99, 1.01}));
  EXPECT_THAT(Values(first), Pointwise(FloatNear(1e-6f), {1e-4, -4.0}));
  EXPECT_THAT(Values(second), Pointwise(FloatNear(1e-6f), {1e-9, 1.6}));
  // What the numbers leave out leaves everything as it is.
  for (const float skip : {1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> were[] = {Values(p), Values(first), Values(second)};
    const NDArray numbers = F({0.1, 1e-8, 0.5, 1, skip});
    const float infinity = std::numeric_limits<float>::infinity();
    AdamUpdate(F({infinity, 1}), p, first, second, {}, &numbers);
    RmsPropUpdate(F({1, infinity}), p, second, {}, &numbers);
    NesterovsUpdate(F({1, infinity}), p, first, {}, &numbers);
    SgdUpdate(F({1, infinity}), p, {}, &numbers);
    EXPECT_EQ(Values(p), were[0]);
    EXPECT_EQ(Values(first), were[1]);
    EXPECT_EQ(Values(second), were[2]);
  }
}

TEST(Reference, RandomElementsAreFunctionsOfTheirNumber) {
  const NDArray uniform = RandomUniform({3, 3}, 2, 4, 11, 5);
  const NDArray normal = RandomNormal({7}, 1, 3, 11, 5);
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(uniform.At<float>({i / 3, i % 3}),
              UniformTransform(2, 4)(Philox(11, 5, i / 4).word[i % 4]));
  }
  for (int64_t i = 0; i < 7; ++i) {
    const PhiloxWords words = Philox(11, 5, i / 4);
    float pair[2];
    NormalPair(words.word[i % 4 / 2 * 2], words.word[i % 4 / 2 * 2 + 1], 1, 3, pair);
    EXPECT_EQ(normal.At<float>({i}), pair[i % 2]);
  }
}

}  // namespace
}  // namespace tidepool
