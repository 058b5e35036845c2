// What makes images larger in frozen networks, and depthwise convolutions by their own layer: beside the reference, in f32,
// 16 bits and 8 bits, and what is refused.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/inference/testing/frozen_testing.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/shaping.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;
using Kind = FrozenOp::Kind;
using Options = Conv2DTranspose::Options;

using FrozenGrowingTest = FrozenTest;

Network Chain(const Shape& input, std::vector<AnyLayer> layers) {
  Network network(input, std::move(layers), 11);
  uint64_t seed = 3;
  for (const NamedParameter& parameter : network.named_parameters()) {
    NDArray value = parameter.value;  // biases are zeros at first
    if (value.rank() == 1)
      CopyInto(RandomUniform(value.shape(), 0.5, 1.5, seed++, 7, Place::Heap()), value);
  }
  return network;
}

double ErrorOf(const Network& network, const FrozenNetwork& frozen, const NDArray& x) {
  return RelativeError(frozen.Run(x).ToVector<float>(), ByReference(network, x));
}

TEST_F(FrozenGrowingTest, TransposedConvolutionsOfAnyKind) {
  std::mt19937 random(9);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int computed = 0;
  for (int i = 0; i < 90; ++i) {
    const int64_t groups = pick(0, 2) == 0 ? pick(2, 3) : 1;
    const Shape input{pick(1, 7), pick(1, 7), groups * pick(1, 5)};
    Options options{.stride = {pick(1, 3), pick(1, 3)},
                    .dilation = {pick(1, 2), pick(1, 2)},
                    .groups = groups,
                    .bias = pick(0, 2) > 0};
    const Conv2DTranspose::Sizes kernel = {pick(1, 4), pick(1, 4)};
    for (size_t axis = 0; axis < 2; ++axis) {
      options.output_padding[axis] = pick(0, options.stride[axis] - 1);
      const int64_t most = options.dilation[axis] * (kernel[axis] - 1);
      options.before[axis] = pick(0, most), options.behind[axis] = pick(0, most);
    }
    const auto function =
        static_cast<Activation>(pick(0, 1) ? Activation::kRelu : Activation::kIdentity);
    AnyLayer layer = Conv2DTranspose(groups * pick(1, 6), kernel, function, options);
    try {
      layer->OutputShape(input);
    } catch (const Error&) {
      continue;  // nothing is left of the output
    }
    const Network network = Chain(input, {std::move(layer)});
    const Shape output = network.output_shape();
    if (output[0] < options.stride[0] || output[1] < options.stride[1]) {
      EXPECT_THAT(WhyNot([&] { FrozenNetwork{network}; }),
                  HasSubstr("to fewer elements than the stride"));
      continue;
    }
    const FrozenNetwork frozen(network, {.batches = {4, 1}});
    EXPECT_EQ(frozen.graph().ops[0].kind, Kind::kConv2dTranspose);
    EXPECT_LT(ErrorOf(network, frozen, RandomBatch(5, input, 1)), 1e-5) << network.Describe();
    ++computed;
  }
  EXPECT_GT(computed, 40);
}

TEST_F(FrozenGrowingTest, ResizingLinearly) {
  for (const bool align_corners : {false, true}) {
    for (const auto& [from, to] :
         {std::pair<int64_t, int64_t>{3, 7}, {7, 3}, {1, 5}, {6, 6}, {9, 2}, {4, 8}}) {
      const Network network =
          Chain({from, 5, 3}, {Resize({to, 9}, ResizeMode::kLinear, align_corners)});
      EXPECT_LT(ErrorOf(network, FrozenNetwork(network, {.batches = {2}}),
                        RandomBatch(4, network.input_shape(), 1)),
                1e-5)
          << from << " to " << to << (align_corners ? ", corners aligned" : "");
    }
  }
}

// An autoencoder's second half, and depthwise convolutions as the layer of that name has them.
Network Decoder() {
  return Chain(
      {4, 4, 8},
      {DepthwiseConv2D(2, 3, 3, Activation::kRelu, Conv2D::SamePadding(3)),
       Conv2DTranspose(
           12, {3, 3}, Activation::kIdentity,
           Options{.stride = {2, 2}, .before = {1, 1}, .behind = {1, 1}, .output_padding = {1, 1}}),
       BatchNormalization(), ActivationLayer(), Resize({16, 16}),
       Conv2DTranspose(3, {2, 2}, Activation::kRelu, Options{.stride = {2, 2}})});
}

TEST_F(FrozenGrowingTest, ADecoderIsFoldedAndComputed) {
  const Network network = Decoder();
  const FrozenNetwork frozen(network, {.batches = {3}});
  std::vector<Kind> kinds;
  for (const FrozenOp& op : frozen.graph().ops) kinds.push_back(op.kind);
  EXPECT_THAT(kinds, testing::ElementsAre(Kind::kConv2d, Kind::kConv2dTranspose, Kind::kResize2d,
                                          Kind::kConv2dTranspose));
  EXPECT_TRUE(frozen.graph().ops[1].relu);  // behind a normalisation that went into its filters
  EXPECT_LT(ErrorOf(network, frozen, RandomBatch(7, network.input_shape(), 1)), 1e-5);
}

TEST_F(FrozenGrowingTest, InEightBits) {
  const Network network = Decoder();
  FrozenOptions options{.type = FrozenType::kInt8, .batches = {4}};
  options.calibration = RandomBatch(200, network.input_shape(), 5);
  const FrozenNetwork frozen(network, options);
  for (const FrozenOp& op : frozen.graph().ops) EXPECT_TRUE(op.is_quantised()) << op.name;
  const double error = ErrorOf(network, frozen, RandomBatch(20, network.input_shape(), 6));
  EXPECT_LT(error, 0.05);
  EXPECT_GT(error, 1e-4) << "f32 has computed it";
}

TEST_F(FrozenGrowingTest, InSixteenBits) {
  const Network network = Decoder();
  const FrozenNetwork frozen(network, {.type = FrozenType::kFloat16, .batches = {4}});
  const double error = ErrorOf(network, frozen, RandomBatch(9, network.input_shape(), 6));
  EXPECT_LT(error, 0.01);
  EXPECT_GT(error, 1e-6) << "f32 has computed it";
}

TEST_F(FrozenGrowingTest, WhatHasNoCounterpartIsRefusedByName) {
  EXPECT_THAT(WhyNot([] {
                FrozenNetwork(Chain({4, 4, 2}, {Upsampling({2, 2})}));
              }),
              HasSubstr("resizing to the nearest element"));
  for (const ResizeMode mode : {ResizeMode::kNearest, ResizeMode::kCubic}) {
    EXPECT_THAT(WhyNot([&] {
                  FrozenNetwork(Chain({4, 4, 2}, {Resize({8, 8}, mode)}));
                }),
                HasSubstr("XNNPACK resizes linearly alone"));
  }
  EXPECT_THAT(WhyNot([] {
                FrozenNetwork(Chain({4, 2}, {Resize({8})}));
              }),
              HasSubstr("resizing of other axes than two"));
  EXPECT_THAT(WhyNot([] {
                FrozenNetwork(Chain({4, 2}, {Conv1DTranspose(3, {2})}));
              }),
              HasSubstr("convolution of other axes than two"));
}

TEST_F(FrozenGrowingTest, GraphsByHandAreChecked) {
  const Network network = Decoder();
  const FrozenNetwork frozen(network);
  const auto refused = [&](const std::function<void(std::vector<FrozenOp>&)>& change) {
    FrozenGraph graph = frozen.graph();
    change(graph.ops);
    try {
      FrozenNetwork{graph};
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.what();
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refused([](auto& ops) { ops[1].output_padding[0] = 0; }),
              HasSubstr("gives [8, 8, 12], expected [7, 8, 12]"));
  EXPECT_THAT(refused([](auto& ops) {
                ops[1].weight_shape = {12, 3, 48};
              }),
              HasSubstr("expected four axes"));
  EXPECT_THAT(refused([](auto& ops) { ops[1].convolution.groups = 5; }),
              HasSubstr("has 12 filters, expected a multiple of 5 groups"));
  EXPECT_THAT(refused([](auto& ops) {
                ops[2].output_shape = {16, 16, 11};
              }),
              HasSubstr("expected [height, width, 12]"));
  EXPECT_THAT(refused([](auto& ops) { ops[0].weight[7] = NAN; }),
              HasSubstr("has a weight nan at 7, expected finite numbers"));
  EXPECT_THAT(refused([](auto& ops) { ops[1].bias[2] = INFINITY; }),
              HasSubstr("has a bias inf at 2, expected finite numbers"));
  EXPECT_THAT(refused([](auto& ops) {
                ops.push_back(ops[2]);
                ops.back().inputs = {1};
              }),
              HasSubstr("is taken by no other operator"));
}

TEST_F(FrozenGrowingTest, ScalesOfGraphsByHandAreChecked) {
  const Network network = Decoder();
  FrozenOptions options{.type = FrozenType::kInt8};
  options.calibration = RandomBatch(50, network.input_shape(), 5);
  const FrozenNetwork frozen(network, options);
  const auto refused = [&](const std::function<void(FrozenOp&)>& change) {
    FrozenGraph graph = frozen.graph();
    change(graph.ops[0]);
    try {
      FrozenNetwork{graph};
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.what();
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(refused([](FrozenOp&) {}), "no error");
  for (const float scale : {3e38f, 1e-30f}) {
    EXPECT_THAT(refused([&](FrozenOp& op) { op.output.scale = scale; }),
                HasSubstr("expected the first two by the last"));
  }
  for (const float scale : {NAN, INFINITY, 0.0f, -1.0f, 1e-40f}) {
    EXPECT_THAT(refused([&](FrozenOp& op) { op.weight_scales[0] = scale; }),
                HasSubstr("has weights of scale"))
        << scale;
    EXPECT_THAT(refused([&](FrozenOp& op) { op.input.scale = scale; }),
                HasSubstr("has an input of scale"))
        << scale;
  }
  EXPECT_THAT(refused([](FrozenOp& op) { op.output.zero_point = 128; }),
              HasSubstr("has an output of zero point 128"));
  EXPECT_THAT(refused([](FrozenOp& op) { op.input.zero_point = -129; }),
              HasSubstr("has an input of zero point -129"));
}

}  // namespace
}  // namespace tidepool::nn
