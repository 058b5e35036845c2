#include "tidepool/nn/losses/loss.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool::nn {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr DType kF64 = DType::kFloat64, kI64 = DType::kInt64;

// As loss_values.py makes them.
NDArray Output(const Shape& shape) {
  return Sin(Arange(0, static_cast<double>(shape.NumElements()), 1, kF64).Reshape(shape) * 0.9 +
             0.3) *
         2.0;
}
NDArray Like(const Shape& shape) {
  return Sin(Arange(0, static_cast<double>(shape.NumElements()), 1, kF64).Reshape(shape) * 1.7);
}
NDArray Classes(const Shape& shape) {
  return Remainder(Arange(0, static_cast<double>(shape.NumElements()), 1, kI64) * 2, 5)
      .Reshape(shape);
}
NDArray MaskOf(const std::vector<int64_t>& lengths, int64_t time) {
  const auto batch = static_cast<int64_t>(lengths.size());
  return Arange(0, static_cast<double>(time), 1, kI64).Reshape({1, time}) <
         FromValues(absl::MakeConstSpan(lengths), {batch}).Reshape({batch, 1});
}

struct Case {
  LossConfig config;
  NDArray output, labels;
  NDArray mask;
};

const std::vector<double> kWeights = {1, 2, 0.5, 0, 3};

std::map<std::string, Case> Cases() {
  using enum LossKind;
  const Shape rows{12, 5}, frames{4, 6, 5}, pairs{4, 6};
  const NDArray mask = MaskOf({6, 4, 1, 0}, 6);
  const std::vector<int64_t> aligned = {1, 1, 2, 3, 1, -1, 2, -1, -1},
                             others = {0, 0, 1, 2, 0, -1, 1, -1, -1};
  const NDArray sequences = FromValues(absl::MakeConstSpan(aligned), {3, 3});
  const NDArray padded = Where(mask, Classes({4, 6}), int64_t{-100});
  // Behind each end of a sequence anything may stand.
  const NDArray spoiled = Where(mask, Like(pairs), std::numeric_limits<double>::quiet_NaN());
  return {
      {"softmax_cross_entropy", {{kSoftmaxCrossEntropy}, Output(rows), Classes({12}), {}}},
      {"softmax_cross_entropy_of_shares",
       {{kSoftmaxCrossEntropy}, Output(rows), Softmax(Like(rows)), {}}},
      {"smoothed", {{.label_smoothing = 0.2}, Output(rows), Classes({12}), {}}},
      {"weighted", {{.class_weights = kWeights}, Output(rows), Classes({12}), {}}},
      {"weighted_and_smoothed",
       {{.label_smoothing = 0.2, .class_weights = kWeights}, Output(rows), Classes({12}), {}}},
      {"masked", {{kSoftmaxCrossEntropy}, Output(frames), padded, mask}},
      {"masked_and_weighted", {{.class_weights = kWeights}, Output(frames), padded, mask}},
      {"binary_cross_entropy", {{kBinaryCrossEntropy}, Output(pairs), Square(Like(pairs)), {}}},
      {"squared_error", {{kSquaredError}, Output(pairs), Like(pairs), {}}},
      {"squared_error_masked", {{kSquaredError}, Output(pairs), spoiled, mask}},
      {"absolute_error", {{kAbsoluteError}, Output(pairs), Like(pairs), {}}},
      {"huber", {{.kind = kHuber, .delta = 0.7}, Output(pairs), Like(pairs), {}}},
      {"hinge", {{kHinge}, Output(pairs), Sign(Like(pairs)), {}}},
      {"kullback_leibler", {{kKullbackLeibler}, Output({4, 5}), Softmax(Like({4, 5})), {}}},
      {"poisson", {{kPoisson}, Output(pairs), Square(Like(pairs)), {}}},
      {"cosine_proximity", {{kCosineProximity}, Output(pairs), Like(pairs), {}}},
      {"ctc", {{kCtc}, Output({3, 7, 4}), sequences, MaskOf({7, 5, 4}, 7)}},
      {"ctc_last_is_blank",
       {{.kind = kCtc, .blank = 3},
        Output({3, 7, 4}),
        FromValues(absl::MakeConstSpan(others), {3, 3}),
        MaskOf({7, 5, 4}, 7)}},
  };
}

NDArray GradientOfMean(const Loss& loss, const NDArray& output, const NDArray& labels,
                       const NDArray* mask, double* mean) {
  GradientTape tape;
  tape.Watch(output);
  const NDArray value = loss.Mean(output, labels, mask);
  *mean = Cast(value, kF64).Item<double>();
  tape.Backward(value);
  return tape.Gradient(output);
}

TEST(LossValues, MeansAndGradientsAreThoseOfPyTorch) {
  const std::map<std::string, Case> cases = Cases();
  std::ifstream file("nn/losses/loss_values.txt");
  std::string line;
  size_t found = 0;
  for (; std::getline(file, line); ++found) {
    std::istringstream values(line);
    std::string name;
    double expected;
    values >> name >> expected;
    SCOPED_TRACE(name);
    ASSERT_EQ(cases.count(name), 1u);
    const Case& c = cases.at(name);
    const NDArray* const mask = c.mask.is_defined() ? &c.mask : nullptr;
    double mean;
    const std::vector<double> gradient =
        GradientOfMean(Loss(c.config), c.output, c.labels, mask, &mean).ToVector<double>();
    EXPECT_NEAR(mean, expected, 1e-13);
    for (size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_TRUE(values >> expected);
      EXPECT_NEAR(gradient[i], expected, 1e-13) << i;
    }
    EXPECT_FALSE(values >> expected);
    // In f32 likewise.
    const NDArray narrow =
        GradientOfMean(Loss(c.config), Cast(c.output, DType::kFloat32), c.labels, mask, &mean);
    EXPECT_EQ(narrow.dtype(), DType::kFloat32);
    const std::vector<float> rounded = narrow.ToVector<float>();
    for (size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(rounded[i], gradient[i], 1e-6) << i;
  }
  EXPECT_EQ(found, cases.size());
}

TEST(LossMasks, OfIsEachExamplesOwnMean) {
  const Loss loss(LossKind::kSquaredError);
  const NDArray x = FromValues(absl::MakeConstSpan(std::vector<double>{1, 2, 3, 4, 5, 6}), {2, 3}),
                zero = Zeros({2, 3}, kF64);
  EXPECT_EQ(loss.Of(x, zero).ToVector<double>(), (std::vector<double>{14.0 / 3, 77.0 / 3}));
  const NDArray mask =
      FromValues(absl::MakeConstSpan(std::vector<double>{1, 1, 0, 0.5, 0, 0.25}), {2, 3});
  EXPECT_EQ(loss.Of(x, zero, &mask).ToVector<double>(),
            (std::vector<double>{2.5, (8.0 + 9) / 0.75}));
  EXPECT_NEAR(loss.Mean(x, zero, &mask).Item<double>(), (1 + 4 + 8 + 9) / 2.75, 1e-14);
  // Weights of examples multiply.
  const NDArray weights = FromValues(absl::MakeConstSpan(std::vector<double>{0, 2}), {2});
  EXPECT_EQ(loss.Of(x, zero, &weights).ToVector<double>(), (std::vector<double>{0, 154.0 / 3}));
  EXPECT_NEAR(loss.Mean(x, zero, &weights).Item<double>(), 77.0 / 3, 1e-13);
}

// Of every kind: a sequence of which nothing counts has a loss of 0, and NaN there reaches nobody.
TEST(LossMasks, NothingMaskedMatters) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int k = 0; k <= static_cast<int>(LossKind::kCosineProximity); ++k) {
    const auto kind = static_cast<LossKind>(k);
    SCOPED_TRACE(LossName(kind));
    const Loss loss(kind);
    const NDArray mask = MaskOf({3, 0, 1}, 3);
    const bool classes = loss.labels() == LabelForm::kClasses;
    const auto frames = [&](double fill) {
      return Where(mask.Reshape({3, 3, 1}), Output({3, 3, 4}), fill);
    };
    const auto labels = [&](double fill) {
      return classes ? Where(mask, Zeros({3, 3}, kI64), static_cast<int64_t>(fill == 0 ? 1 : -1))
                     : Where(mask.Reshape({3, 3, 1}), Softmax(Like({3, 3, 4})), fill);
    };
    double clean, spoiled;
    const NDArray expected = GradientOfMean(loss, frames(0), labels(0), &mask, &clean);
    const NDArray found = GradientOfMean(loss, frames(nan), labels(nan), &mask, &spoiled);
    EXPECT_EQ(clean, spoiled);
    EXPECT_TRUE(std::isfinite(spoiled));
    EXPECT_EQ(expected.ToVector<double>(), found.ToVector<double>());
    EXPECT_EQ(loss.Of(frames(nan), labels(nan), &mask).At<double>({1}), 0);
    // All of it.
    const NDArray none = Zeros({3, 3}, DType::kBool);
    const NDArray zero =
        GradientOfMean(loss, Full({3, 3, 4}, nan, kF64), labels(nan), &none, &spoiled);
    EXPECT_EQ(spoiled, 0);
    EXPECT_THAT(zero.ToVector<double>(), Each(0));
  }
}

TEST(Loss, OfNoExamplesIsNothing) {
  for (int k = 0; k <= static_cast<int>(LossKind::kCtc); ++k) {
    const Loss loss(static_cast<LossKind>(k));
    SCOPED_TRACE(loss.ToString());
    const NDArray output = Zeros(loss.kind() == LossKind::kCtc ? Shape{0, 3, 4} : Shape{0, 4});
    const NDArray labels = loss.labels() == LabelForm::kClasses     ? Zeros({0}, kI64)
                           : loss.labels() == LabelForm::kSequences ? Zeros({0, 2}, kI64)
                                                                    : Zeros({0, 4});
    EXPECT_EQ(loss.Of(output, labels).shape(), Shape{0});
    EXPECT_EQ(loss.Mean(output, labels).Item<float>(), 0);
  }
}

// Of 1e30 in f32, whose square is no float: infinite where the loss is, never NaN.
TEST(Loss, OfHugeOutputs) {
  const NDArray x = FromValues(absl::MakeConstSpan(std::vector<float>{1e30f, -1e30f}), {1, 2});
  const NDArray t = Zeros({1, 2}),
                label = FromValues(absl::MakeConstSpan(std::vector<int64_t>{0}), {1});
  EXPECT_EQ(Loss(LossKind::kSoftmaxCrossEntropy).Of(x, label).At<float>({0}), 0);
  EXPECT_EQ(Loss(LossKind::kBinaryCrossEntropy).Of(x, t).At<float>({0}), 5e29f);
  EXPECT_EQ(Loss(LossKind::kSquaredError).Of(x, t).At<float>({0}), INFINITY);
  EXPECT_EQ(Loss(LossKind::kAbsoluteError).Of(x, t).At<float>({0}), 1e30f);
  EXPECT_NEAR(Loss(LossKind::kHuber).Of(x, t).At<float>({0}), 1e30f, 1e24f);
  EXPECT_EQ(Loss(LossKind::kHinge).Of(x, Ones({1, 2})).At<float>({0}), 5e29f);
  EXPECT_EQ(Loss(LossKind::kPoisson).Of(x, t).At<float>({0}), INFINITY);
  for (const LossKind kind :
       {LossKind::kBinaryCrossEntropy, LossKind::kAbsoluteError, LossKind::kHuber}) {
    double mean;
    for (const float g : GradientOfMean(Loss(kind), x, t, nullptr, &mean).ToVector<float>()) {
      EXPECT_TRUE(std::isfinite(g)) << LossName(kind);
    }
  }
}

TEST(Loss, NanStaysNan) {
  const NDArray x = Full({2, 3}, std::numeric_limits<float>::quiet_NaN());
  for (int k = 0; k < static_cast<int>(LossKind::kCtc); ++k) {
    const Loss loss(static_cast<LossKind>(k));
    const NDArray labels = loss.labels() == LabelForm::kClasses ? Zeros({2}, kI64) : Ones({2, 3});
    for (const float value : loss.Of(x, labels).ToVector<float>())
      EXPECT_TRUE(std::isnan(value)) << loss.ToString();
  }
}

TEST(Loss, DirectionsOfNothing) {
  const Loss loss(LossKind::kCosineProximity);
  double mean;
  const NDArray gradient =
      GradientOfMean(loss, Zeros({2, 3}, kF64), Ones({2, 3}, kF64), nullptr, &mean);
  EXPECT_EQ(mean, 1);
  EXPECT_THAT(gradient.ToVector<double>(), Each(0));
}

TEST(Loss, DirectionsOfShortVectors) {
  const Loss loss(LossKind::kCosineProximity);
  const NDArray x = FromValues<float>({3e-30f, 4e-30f}, {1, 2});
  const NDArray t = FromValues<float>({4e-30f, 3e-30f}, {1, 2});
  EXPECT_NEAR(loss.Of(x, t).At<float>({0}), 1 - 24.0 / 25, 1e-6);
  EXPECT_NEAR(loss.Of(x, x).At<float>({0}), 0, 1e-6);
  EXPECT_NEAR(loss.Of(x, -t * 1e30).At<float>({0}), 1 + 24.0 / 25, 1e-6);
}

// Examples that are none, as those that fill up a last batch, and such that count twice.
TEST(LossMasks, OfWholeSequences) {
  const Loss loss(LossKind::kCtc);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const NDArray all = Output({3, 5, 4}), labels = FromValues<int64_t>({1, 2, 3, -1, 2, 2}, {3, 2});
  const NDArray each = loss.Of(all, labels);
  const NDArray mask = FromValues<double>({2, 0, 1}, {3});
  const NDArray used = FromValues<bool>({true, false, true}, {3, 1, 1});
  const NDArray spoiled = Where(used, all, nan);
  const NDArray wrong = FromValues<int64_t>({1, 2, 77, -5, 2, 2}, {3, 2});
  const NDArray weighted = loss.Of(spoiled, wrong, &mask);
  EXPECT_EQ(weighted.ToVector<double>(),
            (std::vector<double>{2 * each.At<double>({0}), 0, each.At<double>({2})}));
  double mean;
  const NDArray gradient = GradientOfMean(loss, spoiled, wrong, &mask, &mean);
  EXPECT_NEAR(mean, (2 * each.At<double>({0}) + each.At<double>({2})) / 3, 1e-14);
  for (const double g : gradient.ToVector<double>()) EXPECT_TRUE(std::isfinite(g));
  EXPECT_THAT(gradient(1).ToVector<double>(), Each(0));
  EXPECT_NO_THROW(loss.CheckLabels(spoiled, wrong, &mask));
  EXPECT_FALSE(CatchStatus([&] { loss.CheckLabels(spoiled, wrong); }).ok());
}

// What does not fit is told by the loss, which knows what does.
TEST(LossMasks, OfMoreAxesThanLabelsLeaveNoneOut) {
  const Loss loss(LossKind::kSoftmaxCrossEntropy);
  const NDArray output = Output({2, 3}), labels = FromValues<int64_t>({0, 2}, {2});
  const NDArray mask = Zeros({2, 3});
  EXPECT_NO_THROW(loss.CheckLabels(output, labels, &mask));
  EXPECT_FALSE(CatchStatus([&] { loss.CheckLabels(output, labels + int64_t{5}, &mask); }).ok());
  EXPECT_THAT(CatchStatus([&] { loss.Of(output, labels, &mask); }).message(),
              testing::HasSubstr("mask has shape [2, 3]"));
}

TEST(Loss, SequencesThatDoNotFit) {
  const NDArray x = Output({1, 3, 4});
  const NDArray labels = FromValues(absl::MakeConstSpan(std::vector<int64_t>{1, 1, 2}), {1, 3});
  EXPECT_EQ(CatchStatus([&] { Loss(LossKind::kCtc).Of(x, labels); }).message(),
            "Op [ctc_loss]: example 0: its 3 labels need 4 frames and it has 3; expected as many, "
            "or zero_infinity");
  EXPECT_EQ(Loss(LossKind::kCtc).Of(x, labels, nullptr, Labels::kChecked).At<double>({0}),
            INFINITY);
  double mean;
  const Loss forgiving({.kind = LossKind::kCtc, .zero_infinity = true});
  const NDArray gradient = GradientOfMean(forgiving, x, labels, nullptr, &mean);
  EXPECT_EQ(mean, 0);
  EXPECT_THAT(gradient.ToVector<double>(), Each(0));
  // No frame is used: no label fits.
  const NDArray none = Zeros({1, 3}, DType::kBool);
  EXPECT_EQ(forgiving.Of(x, labels, &none).At<double>({0}), 0);
  EXPECT_FALSE(CatchStatus([&] { forgiving.CheckLabels(x, labels + int64_t{5}); }).ok());
}

TEST(Loss, NamesAndTexts) {
  for (int k = 0; k <= static_cast<int>(LossKind::kCtc); ++k) {
    const auto kind = static_cast<LossKind>(k);
    EXPECT_EQ(Loss::Named(LossName(kind)).kind(), kind);
  }
  EXPECT_EQ(CatchStatus([] { ParseLoss("mse"); }).message(),
            "loss is \"mse\", expected one of softmax_cross_entropy, binary_cross_entropy, "
            "squared_error, absolute_error, "
            "huber, hinge, kullback_leibler, poisson, cosine_proximity, ctc");
  EXPECT_EQ(Loss(LossKind::kHuber).ToString(), "huber(delta 1)");
  EXPECT_EQ(Loss({.label_smoothing = 0.1, .class_weights = {1, 2}}).ToString(),
            "softmax_cross_entropy(label smoothing 0.1, class weights 1 2)");
  EXPECT_EQ(Loss({.kind = LossKind::kCtc, .zero_infinity = true}).ToString(),
            "ctc(blank 0, zero infinity)");
  EXPECT_EQ(Loss(LossKind::kHinge), Loss::Named("hinge"));
  EXPECT_FALSE(Loss(LossKind::kHinge) == Loss(LossKind::kPoisson));
}

TEST(Loss, NumbersAndOperandsAreChecked) {
  const auto message = [](const std::function<void()>& call) {
    return std::string(CatchStatus(call).message());
  };
  EXPECT_EQ(message([] { Loss({.kind = LossKind::kHuber, .delta = 0}); }),
            "loss huber: delta 0, expected more than 0");
  EXPECT_THAT(message([] { Loss({.delta = 2}); }), HasSubstr("delta 2, expected 1 of other kinds"));
  EXPECT_THAT(message([] { Loss({.label_smoothing = 1.5}); }),
              HasSubstr("label_smoothing 1.5, expected 0 to 1"));
  EXPECT_THAT(message([] { Loss({.kind = LossKind::kHinge, .label_smoothing = 0.5}); }),
              HasSubstr("label_smoothing"));
  EXPECT_THAT(message([] {
                Loss({.class_weights = {1, -1}});
              }),
              HasSubstr("class_weights -1, expected 0 or more"));
  EXPECT_THAT(message([] { Loss({.blank = 1}); }), HasSubstr("blank 1"));
  const NDArray x = Zeros({2, 3}), labels = Zeros({2}, kI64);
  const Loss softmax(LossKind::kSoftmaxCrossEntropy), squares(LossKind::kSquaredError);
  EXPECT_EQ(message([&] { softmax.Of(x, Zeros({3}, kI64)); }),
            "loss softmax_cross_entropy: labels has shape [3] of i64, expected i64 [2] or like the "
            "output");
  EXPECT_THAT(message([&] { softmax.Of(x, Zeros({2}, DType::kInt32)); }), HasSubstr("of i32"));
  EXPECT_THAT(message([&] { softmax.Of(x, labels + int64_t{7}); }), HasSubstr("label 0 is 7"));
  EXPECT_THAT(message([&] { softmax.Of(Zeros({3}), labels); }),
              HasSubstr("expected floats [batch, ..., classes]"));
  EXPECT_THAT(message([&] {
                squares.Of(x, Zeros({2, 2}));
              }),
              HasSubstr("labels has shape [2, 2] of f32, expected [2, 3]"));
  const NDArray mask = Ones({3});
  EXPECT_THAT(message([&] { squares.Of(x, x, &mask); }),
              HasSubstr("mask has shape [3] of f32, expected what [2, 3] begins"));
  EXPECT_THAT(message([&] { softmax.Of(x, labels, &x); }), HasSubstr("mask has shape [2, 3]"));
  EXPECT_THAT(message([&] {
                Loss({.class_weights = {1, 2}}).Of(x, labels);
              }),
              HasSubstr("2 class weights, expected one"));
  EXPECT_THAT(message([&] { Loss(LossKind::kCtc).Of(x, labels); }),
              HasSubstr("expected floats [batch, time, classes]"));
}

// More positions than f16 counts, and sums that it has not.
TEST(Loss, MeansOf16BitFloatsAreMadeInWiderOnes) {
  using enum LossKind;
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    for (const LossConfig& config :
         {LossConfig{.kind = kSquaredError}, LossConfig{}, LossConfig{.class_weights = {2, 2}}}) {
      const Loss loss(config);
      const NDArray output = Full({7000, 10, 2}, 3, type);
      const NDArray labels =
          loss.kind() == kSquaredError ? Zeros({7000, 10, 2}, type) : Zeros({7000, 10}, kI64);
      const NDArray mask = Ones({7000, 10}, DType::kBool);
      const double expected = loss.kind() == kSquaredError ? 9 : std::log(2);
      GradientTape tape;
      tape.Watch(output);
      const NDArray mean = loss.Mean(output, labels, &mask);
      EXPECT_EQ(mean.dtype(), type);
      EXPECT_NEAR(Cast(mean, kF64).Item<double>(), expected, 0.01 * expected);
      tape.Backward(mean);
      const double gradient = Cast(tape.Gradient(output), kF64).At<double>({0, 0, 1});
      const double each = loss.kind() == kSquaredError ? 3 : 0.5;
      EXPECT_NEAR(gradient, each / 70000, 0.02 * each / 70000) << loss.ToString();
      const NDArray of = loss.Of(output, labels, &mask);
      EXPECT_EQ(of.dtype(), type);
    }
    const NDArray values = Full({1, 70000}, 2, type), weights = Full({1, 70000}, 3, type);
    const NDArray mean = WeightedMean(values, weights, {1});
    EXPECT_EQ(mean.dtype(), type);
    EXPECT_EQ(Cast(mean, kF64).At<double>({0}), 2);
  }
}

}  // namespace
}  // namespace tidepool::nn
