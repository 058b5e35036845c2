// Gradients of every loss, through a tape, against central differences in double: plain, weighted
// and masked.
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/losses/loss.h"

namespace tidepool::nn {
namespace {

constexpr DType kF64 = DType::kFloat64, kI64 = DType::kInt64;
constexpr double kStep = 1e-5;

// Of the sum of the losses with weights that differ, and of the mean.
double Value(const Loss& loss, const NDArray& x, const NDArray& labels, const NDArray* mask,
             bool of_mean) {
  if (of_mean) return loss.Mean(x, labels, mask).Item<double>();
  const NDArray weights = Linspace(0.5, 2, x.dim(0), kF64);
  return Sum(loss.Of(x, labels, mask) * weights).Item<double>();
}

void Check(const Loss& loss, const NDArray& start, const NDArray& labels, const NDArray* mask) {
  for (const bool of_mean : {false, true}) {
    SCOPED_TRACE(loss.ToString() + (of_mean ? ", mean" : ", each") +
                 (mask != nullptr ? ", masked" : ""));
    NDArray x = start.Dup();
    GradientTape tape;
    tape.Watch(x);
    const NDArray weights = Linspace(0.5, 2, x.dim(0), kF64);
    tape.Backward(of_mean ? loss.Mean(x, labels, mask) : Sum(loss.Of(x, labels, mask) * weights));
    const std::vector<double> gradient = tape.Gradient(x).ToVector<double>();
    for (int64_t i = 0; i < x.NumElements(); ++i) {
      double* const element = x.mutable_data<double>() + i;
      const double kept = *element;
      const auto at = [&](double value) {
        x.mutable_data<double>()[i] = value;
        return Value(loss, x, labels, mask, of_mean);
      };
      const double numeric = (at(kept + kStep) - at(kept - kStep)) / (2 * kStep);
      x.mutable_data<double>()[i] = kept;
      EXPECT_NEAR(gradient[static_cast<size_t>(i)], numeric, 1e-8 * (1 + std::abs(numeric))) << i;
    }
  }
}

std::vector<LossConfig> Configs() {
  std::vector<LossConfig> configs;
  for (int kind = 0; kind < static_cast<int>(LossKind::kCtc); ++kind)
    configs.push_back({.kind = static_cast<LossKind>(kind)});
  configs.push_back({.kind = LossKind::kHuber, .delta = 0.4});
  configs.push_back({.label_smoothing = 0.3});
  configs.push_back({.class_weights = {1, 0.5, 2, 0}});
  configs.push_back({.label_smoothing = 0.3, .class_weights = {1, 0.5, 2, 0}});
  configs.push_back({.kind = LossKind::kBinaryCrossEntropy, .label_smoothing = 0.3});
  return configs;
}

TEST(LossGradients, AgreeWithCentralDifferences) {
  const Shape shape{3, 5, 4};
  const NDArray x = RandomNormal(shape, 0, 1, kF64, 7);
  const NDArray shares = Softmax(RandomNormal(shape, 0, 1, kF64, 8));
  const NDArray classes = Remainder(Arange(0, 15, 1, kI64) * 3, 4).Reshape({3, 5});
  const NDArray frames = RandomUniform({3, 5}, -0.5, 1, kF64, 9),
                weights = Where(frames < 0, 0, frames);
  const NDArray examples = FromValues(absl::MakeConstSpan(std::vector<double>{0.5, 0, 2}), {3});
  for (const LossConfig& config : Configs()) {
    const Loss loss(config);
    for (const NDArray* const mask : {static_cast<const NDArray*>(nullptr), &weights, &examples}) {
      Check(loss, x, shares, mask);
      if (loss.labels() == LabelForm::kClasses) Check(loss, x, classes, mask);
    }
  }
}

TEST(LossGradients, OfAlignments) {
  const NDArray x = RandomNormal({4, 6, 4}, 0, 1, kF64, 17);
  const std::vector<int64_t> of = {2, 2, 1, 1, 3, -1, 3, -1, -1, -1, -1, -1};
  const NDArray labels = FromValues(absl::MakeConstSpan(of), {4, 3});
  const NDArray mask =
      Arange(0, 6, 1, kI64).Reshape({1, 6}) <
      FromValues(absl::MakeConstSpan(std::vector<int64_t>{6, 2, 4, 3}), {4}).Reshape({4, 1});
  for (const bool zero_infinity : {false, true}) {
    const Loss loss({.kind = LossKind::kCtc, .zero_infinity = zero_infinity});
    Check(loss, x, labels, nullptr);
    Check(loss, x, labels, &mask);
  }
}

// Smoothed labels are partly of classes that have weights; those of the labels are what the mean is of.
TEST(LossGradient, OfWeightsWhoseSumIsZeroIsZero) {
  const NDArray output = FromValues<double>({0.1, 0.5, -0.3}, {1, 3});
  const NDArray labels = FromValues<int64_t>({0}, {1}), mask = FromValues<double>({3}, {1});
  for (const double smoothing : {0.0, 0.3}) {
    const Loss loss({.label_smoothing = smoothing, .class_weights = {0, 2, 1}});
    for (const NDArray* of : {static_cast<const NDArray*>(nullptr), &mask}) {
      GradientTape tape;
      tape.Watch(output);
      const NDArray mean = loss.Mean(output, labels, of);
      EXPECT_EQ(mean.Item<double>(), 0) << smoothing;
      tape.Backward(mean);
      EXPECT_EQ(NormInf(tape.Gradient(output)).Item<double>(), 0) << smoothing;
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
