// Every kind of layer: gradients, masks, JSON, backends, shapes they refuse.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/cross_attention.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/layer_kinds.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/layers/sequence_mask.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/layers/testing/layer_cases.h"
#include "tidepool/nn/layers/transformer_block.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network_json.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 3;
constexpr uint64_t kSeed = 17;

struct Called {
  NDArray output, mask;
};

Called Call(const LayerCase& c, const LayerArrays& arrays, bool training = true) {
  LayerContext context{
      .parameters = arrays.parameters, .training = training, .seed = 5, .stream = 7};
  context.mask = arrays.mask;
  Called called;
  called.output = c.layer->ForwardOf(context, arrays.inputs);
  if (context.mask.is_defined() && IsMaskOf(context.mask, called.output))
    called.mask = context.mask;
  return called;
}

// What a loss sees: steps that are ones.
NDArray Seen(const Called& called) {
  return called.mask.is_defined()
             ? Where(MaskOfRank(called.mask, called.output.rank()), called.output, 0)
             : called.output;
}

struct Gradients {
  NDArray output;
  std::vector<NDArray> inputs, parameters;
};

Gradients GradientsOf(const LayerCase& c, const LayerArrays& arrays) {
  GradientTape tape;
  for (const NDArray& x : arrays.inputs) {
    if (IsFloating(x.dtype())) tape.Watch(x);
  }
  for (const NDArray& p : arrays.parameters) tape.Watch(p);
  Gradients result;
  result.output = Seen(Call(c, arrays));
  const NDArray g = RandomUniform(result.output.shape(), -1, 1, result.output.dtype(), kSeed, 99);
  tape.Backward({&result.output, 1}, {&g, 1});
  for (const NDArray& x : arrays.inputs)
    result.inputs.push_back(IsFloating(x.dtype()) ? tape.Gradient(x) : NDArray());
  for (const NDArray& p : arrays.parameters) result.parameters.push_back(tape.Gradient(p));
  return result;
}

// Of at most `most` elements of `point`, evenly spread.
void ExpectGradient(const std::function<double()>& loss, NDArray point, const NDArray& gradient,
                    int64_t most, const std::string& what) {
  constexpr double kStep = 1e-6;
  const std::vector<double> found = gradient.ToVector<double>();
  double* const at = point.mutable_data<double>();
  const int64_t count = point.NumElements(), stride = std::max<int64_t>(1, count / most);
  for (int64_t i = 0; i < count; i += stride) {
    const double before = at[i];
    at[i] = before + kStep;
    const double above = loss();
    at[i] = before - kStep;
    const double below = loss();
    at[i] = before;
    const double expected = (above - below) / (2 * kStep);
    ASSERT_NEAR(found[static_cast<size_t>(i)], expected, 1e-7 + 1e-6 * std::abs(expected))
        << what << ", element " << i;
  }
}

void CheckGradients(const LayerCase& c, bool masked, int64_t most) {
  SCOPED_TRACE(c.name + (masked ? " masked" : "") + ": " + c.layer->Describe());
  const LayerArrays arrays = ArraysFor(c, DType::kFloat64, kBatch, masked, kSeed);
  const Gradients gradients = GradientsOf(c, arrays);
  const NDArray g = RandomUniform(gradients.output.shape(), -1, 1, DType::kFloat64, kSeed, 99);
  const auto loss = [&] { return Sum(Seen(Call(c, arrays)) * g).Item<double>(); };
  for (size_t i = 0; i < arrays.inputs.size(); ++i) {
    if (!gradients.inputs[i].is_defined() || (c.name == "cross_attention_key_mask" && i == 2))
      continue;
    ExpectGradient(loss, arrays.inputs[i], gradients.inputs[i], most, "input " + std::to_string(i));
  }
  const std::vector<ParameterSpec> specs = c.layer->ParametersOf(c.inputs);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].is_trained) continue;
    ExpectGradient(loss, arrays.parameters[i], gradients.parameters[i], most, specs[i].name);
  }
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

TEST(Layers, EveryKindIsTested) {
  std::set<std::string> kinds;
  for (const LayerCase& c : LayerCases()) kinds.insert(c.layer->Kind());
  const std::vector<std::string> all = LayerKinds();
  EXPECT_EQ(std::vector<std::string>(kinds.begin(), kinds.end()), all);
}

TEST(Layers, ShapesAreWhatTheySay) {
  for (const LayerCase& c : LayerCases()) {
    SCOPED_TRACE(c.name);
    const LayerArrays arrays = ArraysFor(c, DType::kFloat32, kBatch, false, kSeed);
    const NDArray output = Call(c, arrays, false).output;
    const Shape expected = c.layer->OutputShapeOf(c.inputs);
    EXPECT_EQ(output.dim(0), kBatch);
    EXPECT_EQ(Shape(output.shape().span().subspan(1)), expected);
    EXPECT_TRUE(output.is_dense());
  }
}

TEST(Layers, GradientsAgreeWithCentralDifferences) {
  for (const LayerCase& c : LayerCases()) {
    CheckGradients(c, false, 60);
    if (c.is_sequence) CheckGradients(c, true, 60);
  }
}

TEST(Layers, RandomConfigurations) {
  const uint64_t seed = 20;
  for (const LayerCase& c : RandomLayerCases(seed, 60)) {
    SCOPED_TRACE(seed);
    try {
      c.layer->OutputShapeOf(c.inputs);
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr("expected"));
      continue;
    }
    const LayerArrays arrays = ArraysFor(c, DType::kFloat32, 2, false, kSeed);
    EXPECT_EQ(Shape(Call(c, arrays).output.shape().span().subspan(1)),
              c.layer->OutputShapeOf(c.inputs))
        << c.layer->Describe();
    CheckGradients(c, false, 12);
    CheckGradients(c, true, 12);
  }
}

// All of sequences, and each function of activations.
std::vector<LayerCase> SequenceCases() {
  std::vector<LayerCase> cases;
  for (const LayerCase& c : LayerCases()) {
    if (c.is_sequence) cases.push_back(c);
  }
  for (size_t i = 0; i < ActivationNames().size(); ++i) {
    const auto function = static_cast<Activation>(i);
    cases.push_back({ActivationName(function), ActivationLayer(function), {{6, 4}}});
  }
  return cases;
}

// Whatever stands behind the end of sequences changes nothing, neither outputs nor gradients, and has no gradient itself: it may be
// what a function of the program's own made there, to whose parameters 0 * NaN would flow.
TEST(Layers, WhatAMaskLeavesOutIsNotSeen) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const LayerCase& c : SequenceCases()) {
    for (const double garbage :
         {1e6, 1e300, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
      SCOPED_TRACE(c.name + ": " + c.layer->Describe() + " " + std::to_string(garbage));
      LayerArrays arrays = ArraysFor(c, DType::kFloat64, 4, true, kSeed);
      const Gradients clean = GradientsOf(c, arrays);
      NDArray& x = arrays.inputs[0];
      const NDArray here = MaskOfRank(arrays.mask, x.rank());
      x = c.entries > 0 ? Where(here, x, Scalar(int64_t{-12345})) : Where(here, x, garbage);
      const Gradients dirty = GradientsOf(c, arrays);
      EXPECT_EQ(dirty.output.ToVector<double>(), clean.output.ToVector<double>());
      for (size_t i = 0; i < clean.parameters.size(); ++i) {
        EXPECT_EQ(dirty.parameters[i].ToVector<double>(), clean.parameters[i].ToVector<double>())
            << i;
      }
      if (!clean.inputs[0].is_defined()) continue;
      const NDArray some = Where(here, clean.inputs[0], 0);
      EXPECT_EQ(dirty.inputs[0].ToVector<double>(), some.ToVector<double>());
    }
  }
}

TEST(Layers, InferenceIsTrainingWithoutChance) {
  for (const LayerCase& c : LayerCases()) {
    SCOPED_TRACE(c.name);
    for (const bool masked : {false, true}) {
      if (masked && !c.is_sequence) continue;
      const LayerArrays arrays = ArraysFor(c, DType::kFloat64, kBatch, masked, kSeed);
      const std::vector<double> asked = Seen(Call(c, arrays, false)).ToVector<double>();
      GradientTape tape;  // kept arrays are written beside
      for (const NDArray& p : arrays.parameters) tape.Watch(p);
      const std::vector<double> trained = Seen(Call(c, arrays, true)).ToVector<double>();
      if (c.by_batch) {
        EXPECT_NE(trained, asked);
      } else {
        EXPECT_EQ(trained, asked);
      }
      EXPECT_EQ(c.layer->IsRandom(), c.layer->Kind() == "dropout");
    }
  }
}

TEST(Layers, BackendsAgree) {
  for (const LayerCase& c : LayerCases()) {
    for (const bool masked : {false, true}) {
      if (masked && !c.is_sequence) continue;
      SCOPED_TRACE(c.name);
      const LayerArrays arrays = ArraysFor(c, DType::kFloat32, 5, masked, kSeed);
      const Gradients fast = GradientsOf(c, arrays);
      const ScopedProvider reference("reference");
      const Gradients slow = GradientsOf(c, arrays);
      const auto expect = [](const NDArray& found, const NDArray& expected,
                             const std::string& what) {
        if (!expected.is_defined()) return;
        const std::vector<float> a = found.ToVector<float>(), b = expected.ToVector<float>();
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); ++i)
          ASSERT_NEAR(a[i], b[i], 2e-5f * (1 + std::abs(b[i]))) << what << " " << i;
      };
      expect(fast.output, slow.output, "output");
      for (size_t i = 0; i < slow.inputs.size(); ++i)
        expect(fast.inputs[i], slow.inputs[i], "input");
      for (size_t i = 0; i < slow.parameters.size(); ++i)
        expect(fast.parameters[i], slow.parameters[i], "parameter");
    }
  }
}

TEST(Layers, JsonAndBack) {
  for (const LayerCase& c : LayerCases()) {
    SCOPED_TRACE(c.name);
    const NetworkConfig config = ConfigOf(c);
    const std::string text = NetworkToJson(config);
    const NetworkConfig read = NetworkFromJson(text);
    EXPECT_EQ(NetworkToJson(read), text);
    Network before(config, {.seed = 4}), after(read, {.seed = 4});
    EXPECT_EQ(before.Describe(), after.Describe());
    EXPECT_EQ(before.arrays().ToVector<float>(), after.arrays().ToVector<float>());
    const LayerArrays arrays = ArraysFor(c, DType::kFloat32, 2, false, kSeed);
    const Arrays inputs(arrays.inputs.begin(), arrays.inputs.end());
    EXPECT_EQ(before.Run(inputs)[0].ToVector<float>(), after.Run(inputs)[0].ToVector<float>());
  }
}

TEST(Layers, MistakesInJsonWithinLayersAreNamed) {
  const auto message = [](const std::string& layer) {
    return MessageOf([&] {
      NetworkFromJson(R"({"inputs": [{"name": "x", "shape": [4, 2]}], "layers": [)" + layer + "]}");
    });
  };
  EXPECT_THAT(message(R"({"kind": "bidirectional"})"),
              HasSubstr("layers[0].layer: found nothing, expected a layer"));
  EXPECT_THAT(message(R"({"kind": "bidirectional", "layer": {"kind": "lstm"}})"),
              HasSubstr("layers[0].layer.units: found nothing"));
  EXPECT_THAT(message(R"({"kind": "bidirectional", "layer": {"kind": "lstn", "units": 3}})"),
              HasSubstr("layers[0].layer.kind: found \"lstn\""));
  EXPECT_THAT(
      message(R"({"kind": "time_distributed", "layer": {"kind": "lstm", "units": 3, "unit": 4}})"),
      HasSubstr("layers[0].layer.unit: found an unknown field"));
  EXPECT_THAT(message(R"({"kind": "conv1d", "filters": 3, "kernel": [3, 3]})"),
              HasSubstr("field \"kernel\" is [3,3], expected 1"));
  std::string deep = R"({"kind": "flatten"})";
  for (int i = 0; i < 40; ++i) deep = R"({"kind": "time_distributed", "layer": )" + deep + "}";
  EXPECT_THAT(message(deep), HasSubstr("expected at most 16 within one another"));
}

TEST(Layers, RefuseWhatDoesNotFit) {
  struct Refusal {
    AnyLayer layer;
    std::vector<Shape> inputs;
    const char* message;
  };
  const Refusal refusals[] = {
      {Lstm(3), {{4}}, "layer [lstm 3]: input shape [4], expected [length, width]"},
      {Gru(0),
       {{4, 2}},
       "layer [gru 0]: input shape [4, 2], expected [length, width], and at least one unit"},
      {Bidirectional(Dense(3)),
       {{4, 2}},
       "layer [bidirectional]: found dense 3, expected a recurrent layer"},
      {Bidirectional(), {{4, 2}}, "found no layer"},
      {TimeDistributed(), {{4, 2}}, "the layer is null"},
      {TimeDistributed(Merge(MergeKind::kSubtract)), {{4, 2}}, "1 inputs, expected at least 2"},
      {TimeDistributed(Conv1D(2, {3})),
       {{4, 2}},
       "layer [conv1d 2 of 3]: input shape [2], expected [length, channels]"},
      {LastTimeStep(), {{}}, "expected [length, ...]"},
      {Conv1D(4, {3}),
       {{2, 3}},
       "layer [conv1d 4 of 3]: input shape [2, 3], expected axes that hold the kernel"},
      {Conv1D(4, {3}, Activation::kRelu, {.groups = 2}), {{5, 3}}, "multiples of the groups"},
      {Conv3D(4, {3, 3, 3}), {{5, 5, 3}}, "expected [depth, height, width, channels]"},
      {Conv1D(4, {3}, Activation::kRelu, {.before = {-1}}), {{5, 3}}, "paddings of at least 0"},
      {Conv2DTranspose(4, {3, 3}, Activation::kIdentity, {.output_padding = {1, 0}}),
       {{5, 5, 3}},
       "less than the stride"},
      {DepthwiseConv2D(0, 3, 3), {{5, 5, 3}}, "a multiplier of at least 1"},
      {MaxPool1D({3}), {{2, 3}}, "axes that hold the kernel"},
      {MaxPool1D({2}, {.before = {2}}), {{4, 3}}, "found kernel 2, stride 2, padding 2 and 0"},
      {AveragePool3D(), {{4, 4, 3}}, "[depth, height, width, channels]"},
      {GlobalPooling(), {{4}}, "at least one axis before the channels"},
      {DropoutLayer(1), {{4}}, "rate 1, expected at least 0 and less than 1"},
      {DropoutLayer(0.5, true), {{4}}, "before the channels"},
      {Embedding(0, 3), {{4}}, "at least one entry"},
      {Embedding(3, 3, {.mask_index = 3}), {{4}}, "less than the entries"},
      {PositionEmbedding(), {{4}}, "[length, width]"},
      {Merge(),
       {{4}, {5}},
       "layer [merge add]: input shape [5], expected that of the first input, [4]"},
      {Merge(MergeKind::kSubtract), {{4}}, "1 inputs, expected at least 2"},
      {Merge(MergeKind::kConcat), {{4, 2}, {5, 2}}, "but 1"},
      {Merge(MergeKind::kConcat, 2), {{4, 2}, {4, 2}}, "an axis 2"},
      {ReshapeLayer({3, -1}), {{4}}, "as many elements"},
      {ReshapeLayer({-1, -1}), {{4}}, "of which one size may be -1"},
      {Permute({0, 0}), {{4, 2}}, "names each once"},
      {RepeatVector(0), {{4}}, "a count of at least 1"},
      {ZeroPadding({1, 2, 3}), {{4, 2}}, "two paddings"},
      {Cropping({3, 1}), {{4, 2}}, "axes of more elements than are taken away"},
      {Upsampling({0}), {{4, 2}}, "a factor of at least 1"},
      {Resize({3}, ResizeMode::kNearest, true), {{4, 2}}, "corners aligned"},
      {CrossAttention(2), {{4, 2}}, "1 inputs, expected queries, keys"},
      {CrossAttention(3), {{4, 2}, {3, 2}}, "a multiple of the heads, found 2"},
      {CrossAttention(2), {{4, 2}, {3, 2}, {5, 2}}, "values for 3 keys"},
      {CrossAttention(2, {.key_mask = true}), {{4, 2}, {3, 2}, {4}}, "a mask of 3 keys"},
      {TransformerBlock(3), {{4, 2}}, "a multiple of the heads"},
      {TransformerBlock(2, 4, {.dropout = 1}), {{4, 2}}, "a rate less than 1"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_THAT(MessageOf([&] { refusal.layer->OutputShapeOf(refusal.inputs); }),
                HasSubstr(refusal.message));
  }
}

}  // namespace
}  // namespace tidepool::nn
