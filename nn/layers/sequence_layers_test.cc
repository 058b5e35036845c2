// Layers of normalisation and attention: gradients against central differences, shapes they refuse, training.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/testing/gradient_check.h"
#include "tidepool/nn/layers/multi_head_attention.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

std::vector<AnyLayer> Layers() {
  std::vector<AnyLayer> layers;
  layers.push_back(std::make_unique<LayerNormalization>(0.01));
  layers.push_back(std::make_unique<RmsNormalization>(0.01));
  layers.push_back(std::make_unique<GroupNormalization>(2, 0.01));
  layers.push_back(std::make_unique<MultiHeadAttention>(2));
  layers.push_back(std::make_unique<MultiHeadAttention>(4, /*causal=*/true, /*key_heads=*/2));
  return layers;
}

TEST(SequenceLayers, GradientsAgreeWithCentralDifferences) {
  const Shape example{5, 8};
  for (const auto& layer : Layers()) {
    SCOPED_TRACE(layer->Describe());
    uint64_t stream = 0;
    const auto random = [&](const Shape& shape) {
      return RandomUniform(shape, -1, 1, 11, ++stream);
    };
    NDArray x = random({3, 5, 8});
    std::vector<NDArray> parameters, gradients;
    for (const ParameterSpec& spec : layer->Parameters(example)) {
      parameters.push_back(random(spec.shape));
      gradients.push_back(Full(spec.shape, 77));  // written, not added to
    }
    const NDArray g = random({3, 5, 8});
    const auto forward = [&] {
      LayerContext context{.parameters = parameters, .training = true};
      return layer->Forward(context, x);
    };
    const auto loss = [&] { return WeightedSum(forward(), g); };
    GradientTape tape;
    tape.Watch(x);
    for (size_t i = 0; i < parameters.size(); ++i) tape.Watch(parameters[i], gradients[i]);
    const NDArray z = forward();
    tape.Backward({&z, 1}, {&g, 1});
    EXPECT_EQ(GradientProblem(loss, x, tape.Gradient(x)), "");
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(GradientProblem(loss, parameters[i], gradients[i]), "") << i;
    }
  }
}

TEST(SequenceLayers, AnElementDoesNotSeeThoseBehindIt) {
  const MultiHeadAttention layer(2, /*causal=*/true);
  std::vector<NDArray> parameters;
  uint64_t stream = 0;
  for (const ParameterSpec& spec : layer.Parameters({4, 6})) {
    parameters.push_back(RandomUniform(spec.shape, -1, 1, 5, ++stream));
  }
  LayerContext context{.parameters = parameters};
  NDArray x = RandomUniform({1, 4, 6}, -1, 1, 5, 99);
  const std::vector<float> before = layer.Forward(context, x).ToVector<float>();
  x.mutable_data<float>()[3 * 6] += 1;  // of the last element
  const std::vector<float> after = layer.Forward(context, x).ToVector<float>();
  EXPECT_EQ(std::vector<float>(before.begin(), before.begin() + 18),
            std::vector<float>(after.begin(), after.begin() + 18));
  EXPECT_NE(before, after);
}

TEST(SequenceLayers, ParametersStartAsTheySay) {
  std::vector<AnyLayer> layers;
  layers.push_back(std::make_unique<RmsNormalization>());
  layers.push_back(std::make_unique<MultiHeadAttention>(2));
  layers.push_back(std::make_unique<GroupNormalization>(2));
  Network network({3, 4}, std::move(layers), /*seed=*/3);
  EXPECT_EQ(
      network.Describe(),
      "input [3, 4]; rms_norm 1e-05; multi_head_attention 2 heads; group_norm 2 groups 1e-05");
  for (const NamedParameter& parameter : network.named_parameters()) {
    const std::vector<float> values = parameter.value.ToVector<float>();
    if (parameter.name.find("scale") != std::string::npos) {
      EXPECT_EQ(values, std::vector<float>(4, 1.0f)) << parameter.name;
    } else if (parameter.name.find("weight") == std::string::npos) {
      EXPECT_EQ(values, std::vector<float>(values.size())) << parameter.name;
    }
  }
  EXPECT_EQ(network.Output(RandomUniform({2, 3, 4}, -1, 1, 1)).shape(), (Shape{2, 3, 4}));
}

TEST(SequenceLayers, RefuseInputsThatDoNotFit) {
  const auto message = [](const Layer& layer, const Shape& input) {
    try {
      layer.OutputShape(input);
    } catch (const Error& error) {
      return std::string(error.message());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(message(GroupNormalization(3), {4, 8}),
              HasSubstr("layer [group_norm 3 groups 1e-05]: input shape [4, 8]"));
  EXPECT_THAT(message(GroupNormalization(0), {4, 8}), HasSubstr("a multiple of the groups"));
  EXPECT_THAT(message(LayerNormalization(), {}), HasSubstr("expected a last axis"));
  EXPECT_THAT(message(MultiHeadAttention(3), {4, 8}),
              HasSubstr("layer [multi_head_attention 3 heads]: input shape [4, 8]"));
  EXPECT_THAT(message(MultiHeadAttention(4, false, 3), {4, 8}), HasSubstr("3 key heads"));
  EXPECT_THAT(message(MultiHeadAttention(2), {8}), HasSubstr("expected [length, width]"));
}

}  // namespace
}  // namespace tidepool::nn
