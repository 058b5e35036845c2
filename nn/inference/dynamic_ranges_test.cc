// 8 bits of dense layers with ranges that each example brings: the computation beside one of our own, what an example owes to
// those beside it, graphs that are cut around such layers, refusals, the report, digits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/inference/quantisation_report.h"
#include "tidepool/nn/inference/testing/frozen_testing.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Layers = std::vector<AnyLayer>;

using DynamicRangesTest = FrozenTest;

FrozenOptions Dynamic(std::vector<int64_t> batches = {4, 1}) {
  return {.type = FrozenType::kInt8,
          .batches = std::move(batches),
          .ranges = QuantisedRanges::kDynamic};
}

Network Chain(const Shape& input, Layers layers) {
  Network network(input, std::move(layers), 11);
  Randomise(network, 3);
  return network;
}

// One dense layer of the graph, in double from its constants, of one example.
std::vector<float> Reference(const FrozenOp& op, const std::vector<float>& x) {
  const double low = *std::min_element(x.begin(), x.end()),
               high = *std::max_element(x.begin(), x.end());
  const double step = (high - low) / 255;
  std::vector<float> z;
  for (size_t unit = 0; unit < op.bias.size(); ++unit) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double number = low + step * std::nearbyint((x[i] - low) / step);
      sum += number * op.quantised_weight[unit * x.size() + i];
    }
    const double value = op.bias[unit] + sum * op.weight_scales[unit];
    z.push_back(static_cast<float>(op.relu ? std::max(value, 0.0) : value));
  }
  return z;
}

std::vector<float> RowOf(const std::vector<float>& values, int64_t row, int64_t width) {
  return {values.begin() + row * width, values.begin() + (row + 1) * width};
}

TEST_F(DynamicRangesTest, ItComputesWhatItSaysOfEachExample) {
  const Network network = Chain({70}, {Dense(33, Activation::kRelu), Dense(5)});
  const FrozenNetwork frozen(network, Dynamic());
  const std::vector<FrozenOp>& ops = frozen.graph().ops;
  ASSERT_EQ(ops.size(), 2u);
  for (const FrozenOp& op : ops) {
    EXPECT_TRUE(op.has_dynamic_range);
    EXPECT_TRUE(op.weight.empty());
    EXPECT_EQ(op.weight_scales.size(), op.bias.size());
  }
  NDArray x = RandomBatch(7, {70}, 2);
  x.Slice(0, 3, 4) *= 1000.0f;  // one that is far out
  x.Slice(0, 5, 6) *= 0.0f;
  const std::vector<float> values = x.ToVector<float>(), found = frozen.Run(x).ToVector<float>();
  for (int64_t row = 0; row < 7; ++row) {
    std::vector<float> expected = RowOf(values, row, 70);
    // All zeros have no step.
    expected = row == 5 ? std::vector<float>(ops[0].bias.begin(), ops[0].bias.end())
                        : Reference(ops[0], expected);
    for (float& value : expected) value = std::max(value, 0.0f);
    expected = Reference(ops[1], expected);
    // A number at the middle of two may be rounded otherwise in the first layer, which is a step of the second.
    EXPECT_LT(RelativeError(RowOf(found, row, 5), expected), 2e-3) << row;
  }
}

// Within a batch, in whatever company, by whatever runtime: the same bits.
TEST_F(DynamicRangesTest, AnExampleOwesNothingToThoseBesideIt) {
  const Network network = Chain({40}, {Dense(24, Activation::kRelu), Dense(6)});
  const FrozenNetwork frozen(network, Dynamic({8, 3, 1}));
  NDArray x = RandomBatch(12, {40}, 2);
  x.Slice(0, 4, 5) *= 1e6f;
  const std::vector<float> all = frozen.Run(x).ToVector<float>();
  for (int64_t row = 0; row < 12; ++row) {
    EXPECT_EQ(frozen.Run(x.Slice(0, row, row + 1)).ToVector<float>(), RowOf(all, row, 6)) << row;
  }
  const std::vector<float> behind = frozen.Run(x.Slice(0, 5, 12)).ToVector<float>();
  EXPECT_EQ(RowOf(behind, 0, 6), RowOf(all, 5, 6));
}

// Values that several stages take, from before and behind dense layers, and dense layers one behind the other.
TEST_F(DynamicRangesTest, GraphsAreCutAroundDenseLayersWhateverTheirBranches) {
  NetworkConfig config;
  const std::string image = config.AddInput("image", {6, 6, 3});
  const std::string conv = config.Add(Conv2D(4, 3, 3, Activation::kRelu), {image});
  const std::string first = config.Add(Dense(20, Activation::kSigmoid), {conv});
  const std::string second = config.Add(Dense(20, Activation::kRelu), {first});
  const std::string third = config.Add(Dense(20), {second});
  const std::string sum = config.Add(Merge(MergeKind::kAdd), {third, first}, "sum");
  const std::string product = config.Add(Merge(MergeKind::kMultiply), {sum, second}, "product");
  const std::string side = config.Add(Dense(20), {conv}, "side");
  const std::string all = config.Add(Merge(MergeKind::kAdd), {product, side, first}, "all");
  config.outputs = {config.Add(Dense(7, Activation::kElu), {all}, "last")};
  Network network(std::move(config), {.seed = 4});
  Randomise(network, 9);
  const NDArray x = RandomBatch(9, {6, 6, 3}, 5);
  const std::vector<float> expected = ByReference(network, x);
  FrozenOptions options = Dynamic();
  const FrozenNetwork frozen(network, options);
  const std::vector<float> found = frozen.Run(x).ToVector<float>();
  EXPECT_LT(RelativeError(found, expected), 0.03);
  EXPECT_GT(RelativeError(found, expected), 1e-5);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(frozen.Run(x).ToVector<float>(), found);
  // Of all layers but some in f32 likewise.
  const auto layers = static_cast<int>(network.config()->nodes.size());
  for (int bits = 0; bits < 1 << layers; bits += 3) {
    options.float_layers.clear();
    for (int layer = 0; layer < layers; ++layer) {
      if (bits >> layer & 1) options.float_layers.push_back(layer);
    }
    EXPECT_LT(RelativeError(FrozenNetwork(network, options).Run(x).ToVector<float>(), expected),
              0.03)
        << bits;
  }
}

TEST_F(DynamicRangesTest, AUnitOfLargeWeightsCostsTheOthersNothing) {
  Network network = Chain({50}, {Dense(20, Activation::kRelu), Dense(5)});
  NDArray weight = network.named_parameters()[0].value;
  weight.Slice(0, 3, 4) = Scalar(-600.0f);  // whose ReLU hides it
  const NDArray x = RandomUniform({50, 50}, 0, 1, 3, 3, Place::Heap());
  const QuantisationReport report = ReportQuantisation(network, Dynamic(), x);
  EXPECT_LT(report.error, 0.02) << report.ToString();
  FrozenOptions fixed{.type = FrozenType::kInt8};
  fixed.calibration = x;
  EXPECT_GT(ReportQuantisation(network, fixed, x).error, 10 * report.error);
}

TEST_F(DynamicRangesTest, TheReportKnowsWhichLayersAreIn8Bits) {
  const Network network({28, 28, 1}, LeNetLayers(10), 3);
  const NDArray x = RandomBatch(30, {28, 28, 1}, 2);
  FrozenOptions options = Dynamic();
  QuantisationReport report = ReportQuantisation(network, options, x);
  int in_bytes = 0;
  for (const QuantisationReport::Layer& layer : report.layers) {
    EXPECT_EQ(layer.is_quantised, layer.name.find("dense") != std::string::npos) << layer.name;
    EXPECT_EQ(layer.is_quantised, layer.error_alone > 0) << report.ToString();
    in_bytes += layer.is_quantised;
  }
  EXPECT_EQ(in_bytes, 2);
  EXPECT_LT(report.error, 0.01) << report.ToString();
  EXPECT_LT(report.weight_bytes, report.float_weight_bytes * 0.35);
  EXPECT_THAT(report.ToString(), testing::Not(HasSubstr("in steps of")));
  EXPECT_THAT(report.ToString(), HasSubstr("stays f32"));
  options.float_layers = {report.worst_layer};
  report = ReportQuantisation(network, options, x);
  EXPECT_FALSE(std::all_of(report.layers.begin(), report.layers.end(),
                           [](const auto& layer) { return layer.is_quantised; }));
}

// A layer's function is an operator of its own behind the product, which is the layer's too.
TEST_F(DynamicRangesTest, FloatLayersWithAnyFunctionAreF32AndTheReportKnows) {
  for (const Activation function :
       {Activation::kIdentity, Activation::kRelu, Activation::kLeakyRelu, Activation::kElu,
        Activation::kSigmoid, Activation::kSwish}) {
    const Network network = Chain({40}, {Dense(30, function), Dense(5)});
    const NDArray x = RandomBatch(20, {40}, 6);
    FrozenOptions options = Dynamic();
    const QuantisationReport all = ReportQuantisation(network, options, x);
    ASSERT_EQ(all.layers.size(), 2u);
    EXPECT_TRUE(all.layers[0].is_quantised && all.layers[1].is_quantised) << all.ToString();
    EXPECT_GT(all.layers[0].error_alone, 0) << all.ToString();
    EXPECT_LT(all.layers[1].error_alone, all.error * 1.0001) << all.ToString();
    options.float_layers = {0};
    const QuantisationReport one = ReportQuantisation(network, options, x);
    EXPECT_FALSE(one.layers[0].is_quantised) << one.ToString();
    EXPECT_DOUBLE_EQ(one.error, all.layers[1].error_alone);
    options.float_layers = {0, 1};
    EXPECT_EQ(FrozenNetwork(network, options).Run(x).ToVector<float>(),
              FrozenNetwork(network, {.batches = {4, 1}}).Run(x).ToVector<float>());
  }
}

// Samples are not asked for, so that they may have gone.
TEST_F(DynamicRangesTest, PredictorsNeedNoSamples) {
  Model model("mlp", 4, std::make_unique<Network>(Chain({30}, {Dense(20), Dense(4)})));
  NoopTranslator translator;
  Predictor<NDList, NDList> predictor(model, translator);
  const NDArray x = RandomBatch(4, {30}, 8);
  {
    NDManager manager = NDManager::NewRoot("samples");
    FrozenOptions options = Dynamic({4});
    options.calibration = x.Dup();
    manager.Attach(options.calibration);
    predictor.set_engine(EngineUse::kAlways, options);
  }
  model.network->parameters() *= 0.5;
  predictor.Predict({x});
  EXPECT_EQ(predictor.why_not_engine(), "");
}

// Predictors share by options: static and dynamic ranges are not the same ones.
TEST_F(DynamicRangesTest, PredictorsTakeThem) {
  Model model("mlp", 4, std::make_unique<Network>(Chain({30}, {Dense(20), Dense(4)})));
  NoopTranslator translator;
  Predictor<NDList, NDList> dynamic(model, translator), fixed(model, translator);
  const NDArray x = RandomBatch(4, {30}, 8);
  FrozenOptions options = Dynamic({4});
  options.calibration = x;  // not asked for
  dynamic.set_engine(EngineUse::kAlways, options);
  options.ranges = QuantisedRanges::kStatic;
  fixed.set_engine(EngineUse::kAlways, options);
  const std::vector<float> found = dynamic.Predict({x}).Single().ToVector<float>();
  EXPECT_EQ(dynamic.why_not_engine(), "");
  EXPECT_EQ(found, FrozenNetwork(*model.network, Dynamic({4})).Run(x).ToVector<float>());
  EXPECT_NE(fixed.Predict({x}).Single().ToVector<float>(), found);
}

TEST_F(DynamicRangesTest, WhatHasNoSuchRangesIsRefused) {
  const Network images = Chain({5, 5, 2}, {Conv2D(3, 2, 2)});
  EXPECT_THAT(WhyNot([&] { FrozenNetwork(images, Dynamic()); }), HasSubstr("none"));
  EXPECT_THAT(WhyNot([&] {
                ReportQuantisation(Chain({5, 5, 2}, {Conv2D(3, 2, 2), GlobalPooling()}), Dynamic(),
                                   RandomBatch(3, {5, 5, 2}, 1));
              }),
              HasSubstr("none"));
  const Network network = Chain({5, 5, 2}, {Conv2D(3, 2, 2), Dense(4)});
  const auto error_of = [](auto call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  FrozenOptions options = Dynamic();
  options.float_layers = {2};
  EXPECT_THAT(error_of([&] { FrozenNetwork(network, options); }),
              AllOf(HasSubstr("float_layers has 2"), HasSubstr("0 to 1")));
  const FrozenGraph graph = FrozenNetwork(network, Dynamic()).graph();
  ASSERT_TRUE(graph.ops.back().has_dynamic_range);
  FrozenGraph changed = graph;
  changed.ops[0].has_dynamic_range = true;
  EXPECT_THAT(error_of([&] { FrozenNetwork{changed}; }), HasSubstr("dense layers"));
  changed = graph;
  changed.ops.back().output = {1.0f, 0};
  EXPECT_THAT(error_of([&] { FrozenNetwork{changed}; }), HasSubstr("a dynamic range and a static"));
  changed = graph;
  changed.ops.back().weight_scales.pop_back();
  EXPECT_THAT(error_of([&] { FrozenNetwork{changed}; }),
              HasSubstr("3 scales of weights, expected 4"));
  changed = graph;
  changed.ops.back().weight_scales[1] = 0;
  EXPECT_THAT(error_of([&] { FrozenNetwork{changed}; }), HasSubstr("of scale 0"));
  changed = graph;
  changed.ops.back().quantised_weight.pop_back();
  EXPECT_THAT(error_of([&] { FrozenNetwork{changed}; }), HasSubstr("191 weights"));
  changed = graph;
  changed.ops.erase(changed.ops.begin());
  changed.ops[0].input_shape = changed.input_shape = {0};
  changed.ops[0].weight_shape = {4, 0};
  changed.ops[0].quantised_weight.clear();
  EXPECT_THAT(error_of([&] { FrozenNetwork{changed}; }), HasSubstr("takes nothing"));
  changed = graph;
  changed.is_half = true;
  changed.ops.erase(changed.ops.begin());
  changed.ops[0].input_shape = changed.input_shape = {48};
  EXPECT_THAT(error_of([&] { FrozenNetwork{changed}; }), HasSubstr("16-bit floats"));
}

}  // namespace
}  // namespace tidepool::nn
