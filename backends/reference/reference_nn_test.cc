// Known answers of the reference: pooling, softmax, losses, normalisation. reference_test.cc has
// the older operators.
#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/recurrent.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

NDArray F(std::vector<float> values, const Shape& shape) { return FromValues(values, shape); }
NDArray F(std::vector<float> values) {
  return FromValues(values, {static_cast<int64_t>(values.size())});
}
NDArray D(std::vector<double> values, const Shape& shape) {
  return FromValues(absl::MakeConstSpan(values), shape);
}
constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
std::vector<float> Values(const NDArray& x) { return Cast(x, DType::kFloat32).ToVector<float>(); }

TEST(ReferenceMatMul, BatchesBroadcastAndVectorsAreRowsAndColumns) {
  const NDArray x = D({1, 2, 3, 4, 5, 6, 7, 8}, {2, 1, 2, 2}),
                y = D({1, 0, 0, 1, 0, 1, 1, 0}, {2, 2, 2});
  const NDArray z = MatMul(x, y);
  EXPECT_EQ(z.shape(), (Shape{2, 2, 2, 2}));
  EXPECT_THAT(z.ToVector<double>(), ElementsAre(1, 2, 3, 4, 2, 1, 4, 3, 5, 6, 7, 8, 6, 5, 8, 7));
  const NDArray v = D({1, 10}, {2});
  EXPECT_EQ(MatMul(v, v).shape(), Shape());
  EXPECT_EQ(MatMul(v, v).Item<double>(), 101);
  EXPECT_EQ(MatMul(v, x).shape(), (Shape{2, 1, 2}));
  EXPECT_THAT(MatMul(v, x).ToVector<double>(), ElementsAre(31, 42, 75, 86));
  EXPECT_EQ(MatMul(x, v).shape(), (Shape{2, 1, 2}));
  EXPECT_THAT(MatMul(x, v).ToVector<double>(), ElementsAre(21, 43, 65, 87));
  EXPECT_THAT(MatMul(x, v, {.transpose_x = true}).ToVector<double>(), ElementsAre(31, 42, 75, 86));
  NDArray into = D({1000, 1000}, {2});
  MatMulInto(v, y.Index(0, 1), into, {.accumulate = true});
  EXPECT_THAT(into.ToVector<double>(), ElementsAre(1010, 1001));
}

TEST(ReferenceMatMul, TypesRoundOnceAndIntegersWrap) {
  const std::vector<int32_t> a = {1 << 30, 3, -7, 2};
  const NDArray ints = FromValues(absl::MakeConstSpan(a), {2, 2});
  EXPECT_EQ(MatMul(ints, ints).ToVector<int32_t>(),
            (std::vector<int32_t>{-21, (int32_t{-1} << 30) + 6, (1 << 30) - 14, -17}));
  for (const DType dtype : kTypes) {
    // 1 + 2^-9 - 1: lost if the sum were rounded to bf16 on the way.
    const NDArray x = Cast(F({1, 0.001953125f, -1}, {3}), dtype), one = Cast(Ones({3}), dtype);
    EXPECT_EQ(Cast(MatMul(x, one), DType::kFloat32).Item<float>(), 0.001953125f);
  }
}

TEST(ReferenceConvolution, GroupsSeeTheirChannelsOnly) {
  for (const DType dtype : kTypes) {
    // Two pixels of four channels; each filter sums its group with weights 1 and 10.
    const NDArray x = Cast(F({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 2, 4}), dtype);
    const NDArray pairs = Cast(F({1, 10, 2, 20}, {2, 1, 1, 2}), dtype);
    Conv2dAttributes a;
    a.groups = 2;
    EXPECT_THAT(Values(Conv2d(x, pairs, nullptr, a)), ElementsAre(21, 86, 65, 174));
    // Depthwise with two filters a channel.
    a.groups = 4;
    const NDArray own = Cast(F({1, 2, 3, 4, 5, 6, 7, 8}, {8, 1, 1, 1}), dtype);
    EXPECT_THAT(Values(Conv2d(x, own, nullptr, a)),
                ElementsAre(1, 2, 6, 8, 15, 18, 28, 32, 5, 10, 18, 24, 35, 42, 56, 64));
  }
}

TEST(ReferenceConvolution, TransposedByHand) {
  const NDArray x = F({1, 2, 3, 4}, {1, 2, 2, 1}), w = F({1, 10, 100, 1000}, {1, 2, 2, 1});
  Conv2dAttributes a;
  EXPECT_THAT(Values(Conv2dTranspose(x, w, nullptr, a)),
              ElementsAre(1, 12, 20, 103, 1234, 2040, 300, 3400, 4000));
  a.stride_height = a.stride_width = 2;
  const NDArray bias = F({5});
  const NDArray z = Conv2dTranspose(x, w, &bias, a, {1, 0});
  EXPECT_EQ(z.shape(), (Shape{1, 5, 4, 1}));
  EXPECT_THAT(Values(z), ElementsAre(6, 15, 7, 25, 105, 1005, 205, 2005, 8, 35, 9, 45, 305, 3005,
                                     405, 4005, 5, 5, 5, 5));
}

TEST(ReferencePooling, AveragesCountPaddingOrNot) {
  for (const DType dtype : kTypes) {
    const NDArray image = Cast(F({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1}), dtype);
    Pool2dAttributes a{2, 2, 2, 2, false, 1, 0, 1, 0, true};
    EXPECT_THAT(Values(AveragePool2d(image, a)), ElementsAre(0.25, 1.25, 2.75, 7));
    a.count_include_pad = false;
    const NDArray z = AveragePool2d(image, a);
    EXPECT_EQ(z.dtype(), dtype);
    EXPECT_THAT(Values(z), ElementsAre(1, 2.5, 5.5, 7));
    const NDArray dz = Cast(F({1, 2, 4, 8}, {1, 2, 2, 1}), dtype);
    EXPECT_THAT(Values(AveragePool2dGrad(dz, image.shape(), a)),
                ElementsAre(1, 1, 1, 2, 2, 2, 2, 2, 2));
    a.count_include_pad = true;
    EXPECT_THAT(Values(AveragePool2dGrad(dz, image.shape(), a)),
                ElementsAre(0.25, 0.5, 0.5, 1, 2, 2, 1, 2, 2));
  }
}

TEST(ReferencePooling, PaddingIsNeverTheLargest) {
  for (const DType dtype : kTypes) {
    const NDArray image = Cast(F({-1, -2, -3, -4}, {1, 2, 2, 1}), dtype);
    const Pool2dAttributes a{2, 2, 1, 1, false, 1, 1, 1, 1, true};
    const NDArray z = MaxPool2d(image, a);
    EXPECT_THAT(Values(z), ElementsAre(-1, -1, -2, -1, -1, -2, -3, -3, -4));
    EXPECT_THAT(Values(MaxPool2dGrad(image, z, Cast(Ones({1, 3, 3, 1}), dtype), a)),
                ElementsAre(4, 2, 2, 1));
  }
}

TEST(ReferencePooling, GlobalOverWholeImages) {
  const NDArray image = F({1, 8, 2, 7, 3, 6, 4, 5, -1, -8, -2, -7, -3, -6, -4, -5}, {2, 2, 2, 2});
  EXPECT_EQ(GlobalMaxPool2d(image).shape(), (Shape{2, 2}));
  EXPECT_THAT(Values(GlobalMaxPool2d(image)), ElementsAre(4, 8, -1, -5));
  EXPECT_THAT(Values(GlobalAveragePool2d(image)), ElementsAre(2.5, 6.5, -2.5, -6.5));
  const NDArray dz = F({4, 8, 12, 16}, {2, 2});
  EXPECT_THAT(Values(GlobalAveragePool2dGrad(dz, image.shape())),
              ElementsAre(1, 2, 1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4));
  EXPECT_THAT(Values(GlobalMaxPool2dGrad(image, GlobalMaxPool2d(image), dz)),
              ElementsAre(0, 8, 0, 0, 0, 0, 4, 0, 12, 0, 0, 0, 0, 0, 0, 16));
}

TEST(ReferenceSoftmax, OverEachAxis) {
  const float third = std::log(3.0f);
  for (const DType dtype : kTypes) {
    const double tolerance = dtype == DType::kBFloat16 ? 4e-3 : 5e-4;
    const NDArray x = Cast(F({0, third, third, 0}, {2, 2}), dtype);
    for (const int axis : {0, 1, -1}) {
      EXPECT_THAT(Values(Softmax(x, axis)),
                  Pointwise(FloatNear(tolerance), {0.25, 0.75, 0.75, 0.25}));
      EXPECT_THAT(Values(LogSoftmax(x, axis)),
                  Pointwise(FloatNear(tolerance * 2),
                            {std::log(0.25), std::log(0.75), std::log(0.75), std::log(0.25)}));
    }
  }
  EXPECT_THAT(Softmax(D({0, 1000, 0, 0}, {2, 2}), 0).ToVector<double>(),
              Pointwise(DoubleNear(1e-15), {0.5, 1.0, 0.5, 0.0}));
}

TEST(ReferenceLosses, KnownAnswers) {
  const NDArray logits = D({0, std::log(3.0)}, {1, 2});
  const NDArray targets = D({0.5, 0.5}, {1, 2});
  const CrossEntropy dense = DenseCrossEntropy(logits, targets);
  EXPECT_NEAR(dense.loss.At<double>({0}), -0.5 * std::log(0.25) - 0.5 * std::log(0.75), 1e-15);
  NDArray gradient = Empty({1, 2}, DType::kFloat64);
  DenseCrossEntropyGradInto(dense.probabilities, targets, 2, gradient);
  EXPECT_THAT(gradient.ToVector<double>(), Pointwise(DoubleNear(1e-15), {-0.5, 0.5}));
  // A target of zero adds nothing even where the logit is -infinity.
  EXPECT_EQ(DenseCrossEntropy(F({0, -INFINITY}, {1, 2}), F({1, 0}, {1, 2})).loss.At<float>({0}), 0);

  const NDArray x = D({1, 2, 3, 5}, {2, 2}), y = D({1, 4, 3, 4}, {2, 2});
  EXPECT_THAT(MeanSquaredError(x, y).ToVector<double>(), ElementsAre(2, 0.5));
  NDArray of_squares = Empty({2, 2}, DType::kFloat64);
  MeanSquaredErrorGradInto(x, y, 3, of_squares);
  EXPECT_THAT(of_squares.ToVector<double>(), ElementsAre(0, -6, 0, 3));

  const NDArray sure = BinaryCrossEntropy(D({-800, 800, 0}, {3}), D({0, 1, 1}, {3}));
  EXPECT_THAT(sure.ToVector<double>(), Pointwise(DoubleNear(1e-15), {0.0, 0.0, std::log(2.0)}));
  EXPECT_EQ(BinaryCrossEntropy(D({-800}, {1}), D({1}, {1})).At<double>({0}), 800);
  NDArray of_logits = Empty({2}, DType::kFloat64);
  BinaryCrossEntropyGradInto(D({0, std::log(3.0)}, {2}), D({1, 0}, {2}), 4, of_logits);
  EXPECT_THAT(of_logits.ToVector<double>(), Pointwise(DoubleNear(1e-14), {-2.0, 3.0}));
}

TEST(ReferenceNormalization, ByHand) {
  const NDArray x = D({1, 10, 3, 30}, {2, 2});
  const NDArray scale = D({1, 2}, {2}), shift = D({0, 1}, {2});
  const Normalized batch = BatchNorm(x, scale, shift, {0.0});
  EXPECT_THAT(batch.mean.ToVector<double>(), ElementsAre(2, 20));
  EXPECT_THAT(batch.inverse_deviation.ToVector<double>(), Pointwise(DoubleNear(1e-15), {1.0, 0.1}));
  EXPECT_THAT(batch.output.ToVector<double>(),
              Pointwise(DoubleNear(1e-14), {-1.0, -1.0, 1.0, 3.0}));
  NDArray mean = D({0, 0}, {2}), variance = D({1, 1}, {2});
  UpdateRunningAverages(batch.mean, batch.inverse_deviation, {0.5, 0.0, 2}, mean, variance);
  EXPECT_THAT(mean.ToVector<double>(), ElementsAre(1, 10));
  EXPECT_THAT(variance.ToVector<double>(), Pointwise(DoubleNear(1e-12), {1.5, 100.5}));
  const NDArray z = BatchNormInference(x, scale, shift, D({1, 10}, {2}), D({4, 100}, {2}), {0.0});
  EXPECT_THAT(z.ToVector<double>(), Pointwise(DoubleNear(1e-14), {0.0, 1.0, 1.0, 5.0}));
  const Normalized layer = LayerNorm(x, scale, shift, {0.0});
  EXPECT_THAT(layer.mean.ToVector<double>(), ElementsAre(5.5, 16.5));
  EXPECT_THAT(layer.output.ToVector<double>(),
              Pointwise(DoubleNear(1e-14), {-1.0, 3.0, -1.0, 3.0}));
}

// What rounding would do to E[x^2] - E[x]^2, which in float is 0 or 8 here.
TEST(ReferenceNormalization, LargeMeans) {
  std::mt19937 random(3);
  std::normal_distribution<float> draw(1e4f, 1.0f);
  std::vector<float> values(4000);
  for (float& value : values) value = draw(random);
  double mean = 0, variance = 0;
  for (const float value : values) mean += value / 4000.0;
  for (const float value : values) variance += (value - mean) * (value - mean) / 4000;
  const NDArray one = Ones({1}), zero = Zeros({1});
  const Normalized batch = BatchNorm(F(values, {4000, 1}), one, zero, {0.0});
  const Normalized layer = LayerNorm(F(values, {1, 4000}), Ones({4000}), Zeros({4000}), {0.0});
  for (const Normalized* n : {&batch, &layer}) {
    EXPECT_NEAR(Values(n->inverse_deviation)[0], 1 / std::sqrt(variance), 1e-6);
    const std::vector<float> z = Values(n->output);
    for (int i = 0; i < 4000; i += 97) {
      EXPECT_NEAR(z[i], (values[i] - mean) / std::sqrt(variance), 1e-6);
    }
  }
}

TEST(ReferenceNormalization, StatisticsOf16BitFloatsAreF32) {
  const NDArray x = Cast(F({1, 2, 4, 9}, {4, 1}), DType::kBFloat16);
  const NDArray one = Cast(Ones({1}), DType::kBFloat16), zero = Cast(Zeros({1}), DType::kBFloat16);
  const Normalized n = BatchNorm(x, one, zero, {0.0});
  EXPECT_EQ(n.mean.dtype(), DType::kFloat32);
  EXPECT_EQ(n.mean.At<float>({0}), 4);
  EXPECT_FLOAT_EQ(n.inverse_deviation.At<float>({0}), 1 / std::sqrt(9.5f));
  EXPECT_THAT(Values(n.output), Pointwise(FloatNear(0.01f), {-0.973, -0.649, 0.0, 1.622}));
}

// Gates whose activations are round numbers: sigmoid(log 3) = 3/4, tanh(log(3) / 2) = 1/2.
TEST(ReferenceRecurrent, ByHandInTheirOrder) {
  const double third = std::log(3.0), half = third / 2;
  const LstmStepResult lstm = LstmCell(D({third, -third, half, third}, {1, 4}), D({2}, {1, 1}));
  EXPECT_THAT(lstm.activations.ToVector<double>(),
              Pointwise(DoubleNear(1e-15), {0.75, 0.25, 0.5, 0.75}));
  EXPECT_NEAR(lstm.cell.Item<double>(), 0.875, 1e-15);
  EXPECT_NEAR(lstm.output.Item<double>(), 0.75 * std::tanh(0.875), 1e-15);
  const GruCellResult gru =
      GruCell(D({third, -third, 0}, {1, 3}), D({0, 0, half / 0.75}, {1, 3}), D({4}, {1, 1}));
  EXPECT_THAT(gru.activations.ToVector<double>(), Pointwise(DoubleNear(1e-15), {0.75, 0.25, 0.5}));
  EXPECT_NEAR(gru.output.Item<double>(), 0.75 * 0.5 + 0.25 * 4, 1e-15);
  for (const DType dtype : kTypes) {
    const NDArray zeros = Cast(Zeros({2, 3}), dtype), hidden = Cast(F({8, 6}, {2, 1}), dtype);
    EXPECT_THAT(Values(GruCell(zeros, zeros, hidden).output), ElementsAre(4, 3));
  }
}

}  // namespace
}  // namespace tidepool
