// How parameters start: the range and deviation of each kind, and the fans that layers give it.
#include "tidepool/nn/layers/initializer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/multi_head_attention.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {
namespace {

struct Moments {
  double mean = 0, deviation = 0, least = 0, most = 0;
  // Shares of the numbers within one and two of the deviations that were asked for.
  double within_one = 0, within_two = 0;
};

Moments MomentsOf(const std::vector<double>& numbers, double asked) {
  const double count = static_cast<double>(numbers.size());
  Moments m{.least = numbers[0], .most = numbers[0]};
  for (const double x : numbers) {
    m.mean += x / count;
    m.least = std::min(m.least, x);
    m.most = std::max(m.most, x);
    m.within_one += (std::abs(x) <= asked ? 1 : 0) / count;
    m.within_two += (std::abs(x) <= 2 * asked ? 1 : 0) / count;
  }
  for (const double x : numbers) m.deviation += (x - m.mean) * (x - m.mean) / count;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

std::vector<double> Drawn(Initializer initializer, DType dtype = DType::kFloat64) {
  // 100,000 numbers, whose fans are neither the shape's nor each other's.
  const ParameterSpec spec{.name = "weight",
                           .shape = {400, 250},
                           .initializer = initializer,
                           .fan_in = 30,
                           .fan_out = 70};
  return Cast(DrawInitial(spec, dtype, 11, 2), DType::kFloat64).ToVector<double>();
}

constexpr double kGlorot = 0.1414213562373095;  // sqrt(2 / (30 + 70))
constexpr double kHe = 0.2581988897471611;      // sqrt(2 / 30)
constexpr double kLecun = 0.18257418583505536;  // sqrt(1 / 30)
// Of a normal distribution without what lies beyond two deviations.
constexpr double kTruncated = 0.8796256610342398;

TEST(Initializer, UniformKindsHaveTheirRangeAndDeviation) {
  const std::pair<Initializer, double> kinds[] = {
      {Initializer::Uniform(0.25), 0.25 / std::sqrt(3.0)},
      {Initializer::GlorotUniform(), kGlorot},
      {Initializer::HeUniform(), kHe},
      {{InitializerKind::kLecunUniform, 1}, kLecun},
      {{InitializerKind::kGlorotUniform, 0.5}, 0.5 * kGlorot},
      {{InitializerKind::kHeUniform, 2}, 2 * kHe},
      {{InitializerKind::kLecunUniform, 3}, 3 * kLecun}};
  for (const auto& [initializer, deviation] : kinds) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(initializer.kind) << " " << deviation);
      const Moments m = MomentsOf(Drawn(initializer, dtype), deviation);
      const double bound = std::sqrt(3.0) * deviation;
      EXPECT_NEAR(m.mean, 0, 5 * deviation / std::sqrt(100000.0));
      EXPECT_NEAR(m.deviation, deviation, 0.01 * deviation);
      EXPECT_GE(m.least, -bound * (1 + 1e-6));
      EXPECT_LE(m.most, bound * (1 + 1e-6));
      EXPECT_LT(m.least, -0.999 * bound);
      EXPECT_GT(m.most, 0.999 * bound);
    }
  }
}

TEST(Initializer, NormalKindsHaveTheirDeviationAndTails) {
  const std::pair<Initializer, double> kinds[] = {{Initializer::Normal(0.3), 0.3},
                                                  {{InitializerKind::kGlorotNormal, 1}, kGlorot},
                                                  {{InitializerKind::kHeNormal, 1}, kHe},
                                                  {{InitializerKind::kLecunNormal, 1}, kLecun},
                                                  {{InitializerKind::kHeNormal, 0.5}, 0.5 * kHe}};
  for (const auto& [initializer, deviation] : kinds) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(initializer.kind) << " " << deviation);
      const Moments m = MomentsOf(Drawn(initializer, dtype), deviation);
      EXPECT_NEAR(m.mean, 0, 5 * deviation / std::sqrt(100000.0));
      EXPECT_NEAR(m.deviation, deviation, 0.01 * deviation);
      EXPECT_NEAR(m.within_one, 0.6827, 0.01);
      EXPECT_NEAR(m.within_two, 0.9545, 0.005);
      EXPECT_LT(m.least, -3.5 * deviation);
      EXPECT_GT(m.most, 3.5 * deviation);
    }
  }
}

// Made by Newton's steps, whose last ones are needed near the two ends.
TEST(Initializer, TruncatedNormalEndsAtTwoDeviations) {
  const double deviation = 0.2;
  std::vector<double> numbers = Drawn({InitializerKind::kTruncatedNormal, deviation});
  const Moments m = MomentsOf(numbers, deviation);
  EXPECT_NEAR(m.mean, 0, 5 * deviation / std::sqrt(100000.0));
  EXPECT_NEAR(m.deviation, kTruncated * deviation, 0.01 * deviation);
  EXPECT_NEAR(m.within_one, 0.6827 / 0.9545, 0.01);
  EXPECT_GE(m.least, -2 * deviation * (1 + 1e-12));
  EXPECT_LE(m.most, 2 * deviation * (1 + 1e-12));
  EXPECT_LT(m.least, -1.995 * deviation);
  EXPECT_GT(m.most, 1.995 * deviation);
  // Each at its quantile of the truncated distribution, by as much as 100,000 numbers may miss it.
  std::sort(numbers.begin(), numbers.end());
  for (size_t i = 0; i < numbers.size(); i += 100) {
    const double share =
        0.5 + std::erf(numbers[i] / deviation / std::sqrt(2.0)) / (2 * std::erf(std::sqrt(2.0)));
    ASSERT_NEAR(share, static_cast<double>(i) / 100000.0, 0.007) << i;
  }
}

TEST(Initializer, ConstantsAreConstant) {
  for (const double value : {-1.5, 0.0, 2.0})
    EXPECT_THAT(Drawn(Initializer::Constant(value)), testing::Each(value));
  EXPECT_THAT(Drawn(Initializer::Uniform(0)), testing::Each(0.0));
}

// ---- fans ----

// The first parameter of a layer without activation is all ones and biases are zeros: an output of
// ones is the number of its terms, and one input of 1 among zeros adds 1 to each output it is in.
void ExpectFansAreWhatTheLayerComputes(const Layer& layer, const Shape& input) {
  SCOPED_TRACE(layer.Describe());
  const std::vector<ParameterSpec> specs = layer.Parameters(input);
  std::vector<NDArray> parameters;
  for (const ParameterSpec& spec : specs)
    parameters.push_back(parameters.empty() ? Ones(spec.shape) : Zeros(spec.shape));
  std::vector<int64_t> dims = {1};
  dims.insert(dims.end(), input.span().begin(), input.span().end());
  const auto outputs = [&](const NDArray& x) {
    LayerContext context;
    context.parameters = parameters;
    return layer.Forward(context, x).ToVector<float>();
  };
  const std::vector<float> of_ones = outputs(Ones(Shape(dims)));
  EXPECT_EQ(static_cast<double>(specs[0].fan_in),
            *std::max_element(of_ones.begin(), of_ones.end()));
  NDArray one = Zeros(Shape(dims));
  // In the middle, where no border cuts the window.
  int64_t middle = 0;
  for (const int64_t size : input.span()) middle = middle * size + size / 2;
  one.mutable_data<float>()[middle] = 1;
  double taken = 0;
  for (const float output : outputs(one)) taken += output;
  EXPECT_EQ(static_cast<double>(specs[0].fan_out), taken);
}

template <int kAxes>
ConvolutionOptions<kAxes> Grouped(int64_t groups) {
  ConvolutionOptions<kAxes> options;
  options.groups = groups;
  return options;
}

TEST(Initializer, FansAreWhatLayersCompute) {
  ExpectFansAreWhatTheLayerComputes(Dense(7), {5});
  ExpectFansAreWhatTheLayerComputes(Dense(7), {2, 3, 2});
  ExpectFansAreWhatTheLayerComputes(Dense(7, Activation::kIdentity, {.last_axis = true}), {4});
  Conv2dAttributes groups;
  groups.groups = 2;
  ExpectFansAreWhatTheLayerComputes(Conv2D(6, 3, 5), {9, 11, 4});
  ExpectFansAreWhatTheLayerComputes(Conv2D(6, 3, 5, Activation::kIdentity, groups), {9, 11, 4});
  ExpectFansAreWhatTheLayerComputes(DepthwiseConv2D(3, 3, 5), {9, 11, 4});
  ExpectFansAreWhatTheLayerComputes(Conv1D(6, {3}), {9, 4});
  ExpectFansAreWhatTheLayerComputes(Conv1D(6, {3}, Activation::kIdentity, Grouped<1>(2)), {9, 4});
  ExpectFansAreWhatTheLayerComputes(Conv3D(6, {3, 1, 3}), {7, 5, 7, 4});
  ExpectFansAreWhatTheLayerComputes(Conv3D(6, {3, 1, 3}, Activation::kIdentity, Grouped<3>(2)),
                                    {7, 5, 7, 4});
  ExpectFansAreWhatTheLayerComputes(Conv1DTranspose(6, {3}), {9, 4});
  ExpectFansAreWhatTheLayerComputes(Conv2DTranspose(6, {3, 5}), {9, 11, 4});
  ExpectFansAreWhatTheLayerComputes(
      Conv2DTranspose(6, {3, 5}, Activation::kIdentity, Grouped<2>(2)), {9, 11, 4});
  ExpectFansAreWhatTheLayerComputes(Conv3DTranspose(6, {3, 1, 3}), {7, 5, 7, 4});
}

std::pair<int64_t, int64_t> FansOf(const ParameterSpec& spec) {
  return {spec.fan_in, spec.fan_out};
}

TEST(Initializer, FansOfCellsTablesAndAttention) {
  using Fans = std::pair<int64_t, int64_t>;
  // Of each gate by itself.
  for (const AnyLayer& layer : {AnyLayer(Lstm(5)), AnyLayer(Gru(5)), AnyLayer(SimpleRnn(5))}) {
    SCOPED_TRACE(layer->Describe());
    const std::vector<ParameterSpec> specs = layer->Parameters({4, 3});
    EXPECT_EQ(FansOf(specs[0]), (Fans{3, 5}));
    EXPECT_EQ(FansOf(specs[1]), (Fans{5, 5}));
  }
  const std::vector<ParameterSpec> both = Bidirectional(Lstm(5)).Parameters({4, 3});
  EXPECT_EQ(FansOf(both[0]), (Fans{3, 5}));
  EXPECT_EQ(FansOf(both[both.size() / 2]), (Fans{3, 5}));
  EXPECT_EQ(FansOf(TimeDistributed(Dense(7)).Parameters({4, 3})[0]), (Fans{3, 7}));
  EXPECT_EQ(FansOf(Embedding(9, 4).Parameters({6})[0]), (Fans{9, 4}));
  // Queries, keys and values are three products.
  const std::vector<ParameterSpec> attention = MultiHeadAttention(2).Parameters({5, 8});
  EXPECT_EQ(FansOf(attention[0]), (Fans{8, 8}));
  EXPECT_EQ(FansOf(attention[2]), (Fans{8, 8}));
}

// The gates of a cell are drawn one by one, each by the fans of one.
TEST(Initializer, NetworksDrawByFansOfTheirLayers) {
  const auto deviation = [](const NDArray& array) {
    return MomentsOf(Cast(array, DType::kFloat64).ToVector<double>(), 1).deviation;
  };
  Network dense(NetworkConfig::Sequential({200}, {Dense(300, Activation::kRelu), Dense(100)}), {});
  const double he = std::sqrt(2.0 / 200), glorot = std::sqrt(2.0 / 400);
  EXPECT_NEAR(deviation(dense.named_parameters()[0].value), he, 0.02 * he);
  EXPECT_NEAR(deviation(dense.named_parameters()[2].value), glorot, 0.02 * glorot);
  Network cells(NetworkConfig::Sequential({4, 150}, {Lstm(100)}), {});
  const double gate = std::sqrt(2.0 / 250);
  for (int64_t i = 0; i < 4; ++i) {
    const NDArray weight = cells.named_parameters()[0].value.Slice(0, 100 * i, 100 * (i + 1));
    EXPECT_NEAR(deviation(weight.Dup()), gate, 0.03 * gate) << i;
  }
  Network image(
      NetworkConfig::Sequential({8, 8, 32}, {Conv2D(64, 3, 3, Activation::kRelu),
                                             Conv2DTranspose(32, {3, 3}, Activation::kRelu)}),
      {});
  const double first = std::sqrt(2.0 / (9 * 32)), second = std::sqrt(2.0 / (9 * 64));
  EXPECT_NEAR(deviation(image.named_parameters()[0].value), first, 0.02 * first);
  EXPECT_NEAR(deviation(image.named_parameters()[2].value), second, 0.02 * second);
}

TEST(Initializer, WhatCannotBeIsRefused) {
  const auto refused = [](Initializer initializer, int64_t in, int64_t out) {
    const ParameterSpec spec{
        .name = "w", .shape = {2}, .initializer = initializer, .fan_in = in, .fan_out = out};
    try {
      DrawInitial(spec, DType::kFloat32, 1, 1);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refused(Initializer::Uniform(-1), 1, 1), testing::HasSubstr("value from 0"));
  EXPECT_THAT(refused(Initializer::Auto(), 1, 1), testing::HasSubstr("the layer has chosen"));
  EXPECT_THAT(refused(Initializer::HeUniform(), 0, 1), testing::HasSubstr("fan in 0"));
  EXPECT_THAT(refused(Initializer::Normal(std::nan("")), 1, 1), testing::HasSubstr("finite"));
}

}  // namespace
}  // namespace tidepool::nn
