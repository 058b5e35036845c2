// Networks that are no chains of products: what is folded, what is refused, in f32, in 16-bit floats and in 8 bits, beside the
// reference's kernels.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/inference/quantisation_report.h"
#include "tidepool/nn/inference/testing/frozen_testing.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Kind = FrozenOp::Kind;

using FrozenGraphTest = FrozenTest;

std::vector<Kind> KindsOf(const FrozenGraph& graph) {
  std::vector<Kind> kinds;
  for (const FrozenOp& op : graph.ops) kinds.push_back(op.kind);
  return kinds;
}

Network Chain(const Shape& input, std::vector<AnyLayer> layers) {
  Network network(input, std::move(layers), 11);
  Randomise(network, 3);
  return network;
}

TEST_F(FrozenGraphTest, ResidualNetworksAreFoldedIntoProductsAndSums) {
  Network network(ResidualConfig({12, 12, 1}, 10, {8, 12}));
  Randomise(network, 1);
  const FrozenNetwork frozen(network, {.batches = {4, 1}});
  EXPECT_THAT(KindsOf(frozen.graph()),
              testing::ElementsAre(Kind::kConv2d, Kind::kConv2d, Kind::kConv2d, Kind::kAdd,
                                   Kind::kConv2d, Kind::kConv2d, Kind::kConv2d, Kind::kAdd,
                                   Kind::kGlobalAverage, Kind::kDense));
  const NDArray x = RandomBatch(7, network.input_shape(), 1);
  EXPECT_LT(RelativeError(frozen.Run(x).ToVector<float>(), ByReference(network, x)), 1e-5);
}

TEST_F(FrozenGraphTest, AValueThatOthersTakeIsNotFoldedAway) {
  // Both the sum before its ReLU and the convolution before its normalisation are used again.
  NetworkConfig config;
  std::string x = config.AddInput("image", {6, 7, 4});
  const std::string conv =
      config.Add(Conv2D(4, 3, 3, Activation::kIdentity, Conv2D::SamePadding(3)), {x}, "conv");
  const std::string norm = config.Add(BatchNormalization(), {conv}, "norm");
  const std::string sum = config.Add(Merge(MergeKind::kAdd), {conv, norm, x}, "sum");
  const std::string relu = config.Add(ActivationLayer(), {sum}, "relu");
  const std::string product = config.Add(Merge(MergeKind::kMultiply), {relu, sum}, "product");
  const std::string first = config.Add(ActivationLayer(), {x}, "first");
  config.outputs = {config.Add(Merge(MergeKind::kAdd), {product, first}, "end")};
  Network network(std::move(config));
  Randomise(network, 2);
  const FrozenNetwork frozen(network, {.batches = {3}});
  EXPECT_THAT(
      KindsOf(frozen.graph()),
      testing::UnorderedElementsAre(Kind::kConv2d, Kind::kConv2d, Kind::kAdd, Kind::kFunction,
                                    Kind::kMultiply, Kind::kFunction, Kind::kAdd));
  const NDArray in = RandomBatch(5, network.input_shape(), 1);
  EXPECT_LT(RelativeError(frozen.Run(in).ToVector<float>(), ByReference(network, in)), 1e-5);
}

TEST_F(FrozenGraphTest, NorIsOneThatHasOtherNames) {
  // The convolution is taken as it is, and under the name of a dropout by a normalisation and by a ReLU.
  for (const bool is_norm : {false, true}) {
    NetworkConfig config;
    const std::string x = config.AddInput("image", {6, 7, 4});
    const std::string conv =
        config.Add(Conv2D(4, 3, 3, Activation::kIdentity, Conv2D::SamePadding(3)), {x}, "conv");
    const std::string same = config.Add(DropoutLayer(), {conv}, "same");
    const std::string again = config.Add(Merge(MergeKind::kAdd), {same}, "again");  // of one
    const std::string changed = is_norm ? config.Add(BatchNormalization(), {again}, "changed")
                                        : config.Add(ActivationLayer(), {again}, "changed");
    config.outputs = {config.Add(Merge(MergeKind::kAdd), {changed, conv}, "sum")};
    Network network(std::move(config));
    Randomise(network, 2);
    const FrozenNetwork frozen(network, {.batches = {3}});
    EXPECT_EQ(frozen.graph().ops.size(), 3u);
    const NDArray in = RandomBatch(5, network.input_shape(), 1);
    EXPECT_LT(RelativeError(frozen.Run(in).ToVector<float>(), ByReference(network, in)), 1e-5);
  }
}

// Says that it is something, with the parameters that it is told.
class Claims final : public Layer {
 public:
  Claims(FrozenOp::Kind kind, std::vector<Shape> shapes, Shape output)
      : kind_(kind), shapes_(std::move(shapes)), output_(output) {}
  std::string Kind() const override { return "claims"; }
  Shape OutputShape(const Shape&) const override { return output_; }
  std::vector<ParameterSpec> Parameters(const Shape&) const override {
    std::vector<ParameterSpec> specs;
    for (const Shape& shape : shapes_)
      specs.push_back({.name = absl::StrCat("p", specs.size()), .shape = shape});
    return specs;
  }
  NDArray Forward(LayerContext&, const NDArray& input) const override { return input; }
  bool ToFrozen(FrozenOp& op) const override {
    op.kind = kind_;
    return true;
  }

 private:
  FrozenOp::Kind kind_;
  std::vector<Shape> shapes_;
  Shape output_;
};

TEST_F(FrozenGraphTest, LayersThatAreNotWhatTheySayAreRefused) {
  const auto refused = [](const Shape& input, Claims layer) {
    try {
      FrozenNetwork(Network(input, {AnyLayer(std::move(layer))}, 3));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.what();
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refused({4}, Claims(Kind::kDense, {}, {3})),
              HasSubstr("kind [claims] has 0 parameters"));
  EXPECT_THAT(refused({4}, Claims(Kind::kDense, {{3, 4}, {3}, {3}}, {3})),
              HasSubstr("has 3 parameters"));
  EXPECT_THAT(refused({4}, Claims(Kind::kDense, {{4, 3}, {4}}, {3})),
              HasSubstr("has weights [4, 3], expected [units, 4]"));
  EXPECT_THAT(refused({4}, Claims(Kind::kDense, {{3, 4}, {4}}, {3})),
              HasSubstr("12 weights and 4 biases"));
  EXPECT_THAT(refused({4}, Claims(Kind::kDense, {{3, 4}, {3}}, {5})),
              HasSubstr("gives [5], expected [3]"));
  EXPECT_THAT(refused({5, 5, 4}, Claims(Kind::kConv2d, {{3, 4}}, {5})),
              HasSubstr("expected four axes"));
  EXPECT_THAT(refused({4}, Claims(Kind::kMaxPool2d, {}, {2})),
              HasSubstr("expected [height, width, channels]"));
  EXPECT_THAT(refused({5, 5, 4}, Claims(Kind::kMaxPool2d, {}, {5, 5, 4})),
              HasSubstr("gives [5, 5, 4], expected [2, 2, 4]"));
  EXPECT_THAT(refused({4}, Claims(Kind::kPRelu, {{3}}, {4})),
              HasSubstr("has 3 slopes, expected 4"));
  EXPECT_THAT(refused({4}, Claims(Kind::kNormalisation, {{4}, {4}, {4}, {3}}, {4})),
              HasSubstr("has 4 parameters"));
  EXPECT_THAT(refused({4}, Claims(Kind::kReshape, {}, {5})), HasSubstr("gives [5], expected [4]"));
  EXPECT_THAT(refused({4}, Claims(Kind::kAdd, {{4}}, {4})), HasSubstr("has 1 parameters"));
  EXPECT_THAT(refused({4}, Claims(Kind::kSoftmax, {}, {2})), HasSubstr("gives [2], expected [4]"));
}

TEST_F(FrozenGraphTest, WhatHasNoCounterpartIsRefusedByName) {
  EXPECT_THAT(WhyNot([] { FrozenNetwork(Chain({4}, {Dense(3, Activation::kTanh)})); }),
              AllOf(HasSubstr("layer 0 [dense 3 tanh]"),
                    HasSubstr("the function tanh is nothing that engines know")));
  EXPECT_THAT(WhyNot([] {
                FrozenNetwork(Chain({4, 6}, {Dense(3, Activation::kRelu, {.last_axis = true})}));
              }),
              HasSubstr("each step of a sequence"));
  EXPECT_THAT(WhyNot([] { FrozenNetwork(Chain({4}, {BatchNormalization()})); }),
              HasSubstr("follows no product"));
  EXPECT_THAT(WhyNot([] {
                FrozenNetwork(Chain({6, 6, 2}, {GlobalPooling(PoolingKind::kMax)}));
              }),
              HasSubstr("but the average of images"));
  EXPECT_THAT(WhyNot([] { FrozenNetwork(Chain({4}, {DropoutLayer()})); }),
              HasSubstr("computes nothing"));
  PoolingOptions<2> padded{.before = {1, 1}, .count_padding = true};
  EXPECT_THAT(WhyNot([&] {
                FrozenNetwork(Chain({6, 6, 2}, {AveragePool2D({2, 2}, padded)}));
              }),
              HasSubstr("XNNPACK's averages do not count padding"));
  NetworkConfig two;
  two.outputs = {
      two.Add(Merge(MergeKind::kAdd), {two.AddInput("a", {3}), two.AddInput("b", {3})}, "sum")};
  EXPECT_THAT(WhyNot([&] { FrozenNetwork{Network(two)}; }), HasSubstr("2 inputs and 1 outputs"));
  NetworkConfig maximum;
  const std::string x = maximum.AddInput("a", {3});
  maximum.outputs = {
      maximum.Add(Merge(MergeKind::kMax), {x, maximum.Add(Dense(3), {x}, "dense")}, "largest")};
  EXPECT_THAT(WhyNot([&] { FrozenNetwork{Network(maximum)}; }), HasSubstr("merged by other means"));
  EXPECT_THAT(WhyNot([] {
                FrozenNetwork(Network(NetworkConfig::Sequential({4}, {Dense(3)}),
                                      {.dtype = DType::kFloat64}));
              }),
              HasSubstr("parameters of f64"));
  for (const Activation function : {Activation::kElu, Activation::kSigmoid, Activation::kSoftmax}) {
    EXPECT_THAT(WhyNot([&] {
                  FrozenNetwork(Chain({4}, {Dense(3), ActivationLayer(function)}),
                                {.type = FrozenType::kFloat16});
                }),
                HasSubstr("in 16-bit floats"));
  }
}

TEST_F(FrozenGraphTest, SixteenBitFloatsAreNearF32) {
  Network network(ResidualConfig({12, 12, 1}, 10, {8, 12}));
  Randomise(network, 1);
  const Network lenet({28, 28, 1}, LeNetLayers(10), 3);
  const Network others =
      Chain({9, 9, 3}, {Conv2D(6, 3, 3, Activation::kLeakyRelu), PRelu(), BatchNormalization(),
                        MaxPool2D(), Flatten(), ActivationLayer(), Dense(12), Dense(5)});
  for (const Network* of : std::initializer_list<const Network*>{&network, &lenet, &others}) {
    const FrozenNetwork frozen(*of, {.type = FrozenType::kFloat16, .batches = {4, 1}});
    const FrozenNetwork whole(*of, {.batches = {4, 1}});
    const NDArray x = RandomBatch(7, of->input_shape(), 1);
    const std::vector<float> found = frozen.Run(x).ToVector<float>(), exact = ByReference(*of, x);
    EXPECT_LT(RelativeError(found, exact), 0.02) << of->Describe();
    EXPECT_GT(RelativeError(found, exact), 1e-6) << "f32 has computed it: " << of->Describe();
  }
}

TEST_F(FrozenGraphTest, ResidualNetworksInEightBits) {
  Network network(ResidualConfig({12, 12, 1}, 10, {8, 12}));
  Randomise(network, 1);
  FrozenOptions options{.type = FrozenType::kInt8, .batches = {4}};
  options.calibration = RandomBatch(200, network.input_shape(), 5);
  const NDArray x = RandomBatch(60, network.input_shape(), 6);
  const FrozenNetwork frozen(network, options);
  for (const FrozenOp& op : frozen.graph().ops) EXPECT_TRUE(op.is_quantised()) << op.name;
  EXPECT_LT(RelativeError(frozen.Run(x).ToVector<float>(), ByReference(network, x)), 0.1);
  const QuantisationReport report = ReportQuantisation(network, options, x);
  ASSERT_EQ(report.layers.size(), 10u);
  EXPECT_LT(report.error, 0.1) << report.ToString();
  EXPECT_GT(report.error, 1e-4) << report.ToString();
  // Float anywhere, so that sums have one input of each kind.
  for (const QuantisationReport::Layer& layer : report.layers) {
    options.float_layers = {layer.number};
    const FrozenNetwork mended(network, options);
    EXPECT_EQ(std::count_if(mended.graph().ops.begin(), mended.graph().ops.end(),
                            [](const FrozenOp& op) { return !op.is_quantised(); }),
              1)
        << layer.name;
    EXPECT_LT(RelativeError(mended.Run(x).ToVector<float>(), ByReference(network, x)), 0.1)
        << layer.name;
  }
}

TEST_F(FrozenGraphTest, WhatStaysF32InEightBitsStandsBetweenWhatDoesNot) {
  const Network network =
      Chain({9, 9, 3}, {Conv2D(8, 3, 3, Activation::kElu), AveragePool2D(), Conv2D(6, 2, 2),
                        PRelu(), Flatten(), Dense(12, Activation::kSigmoid), Dense(7),
                        ActivationLayer(Activation::kSoftmax)});
  FrozenOptions options{.type = FrozenType::kInt8, .batches = {4}};
  options.calibration = RandomBatch(200, network.input_shape(), 5);
  const FrozenNetwork frozen(network, options);
  int quantised = 0;
  for (const FrozenOp& op : frozen.graph().ops) quantised += op.is_quantised();
  EXPECT_EQ(quantised, 3);  // the second convolution, flattening and the last dense layer
  const NDArray x = RandomBatch(9, network.input_shape(), 6);
  EXPECT_LT(RelativeError(frozen.Run(x).ToVector<float>(), ByReference(network, x)), 0.1);
}

}  // namespace
}  // namespace tidepool::nn
