// Networks that are graphs and programs.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/testing/residual.h"

namespace tidepool::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

double Gradients(Network& network, const NetworkInputs& inputs) {
  WorkspaceScope scope(network.training_workspace());
  return network.ComputeGradients(inputs);
}

// Central differences in f64, of every fifth parameter.
void ExpectRightGradients(Network& network, const NetworkInputs& inputs) {
  ASSERT_EQ(network.dtype(), DType::kFloat64);
  Gradients(network, inputs);
  const std::vector<double> gradients = network.gradients().ToVector<double>();
  double* const parameters = network.parameters().mutable_data<double>();
  const double step = 1e-6;
  for (size_t i = 0; i < gradients.size(); i += 5) {
    const double before = parameters[i];
    network.set_step(0);
    parameters[i] = before + step;
    const double above = Gradients(network, inputs);
    network.set_step(0);
    parameters[i] = before - step;
    const double below = Gradients(network, inputs);
    parameters[i] = before;
    ASSERT_NEAR(gradients[i], (above - below) / (2 * step), 1e-6 + 1e-5 * std::abs(gradients[i]))
        << "element " << i;
  }
}

NetworkOptions InDouble(uint64_t seed = 3) {
  NetworkOptions options;
  options.seed = seed;
  options.dtype = DType::kFloat64;
  return options;
}

TEST(NetworkGraph, AGraphAndAProgramAreOneNetwork) {
  Network graph(SmallResidualConfig(), {.seed = 3});
  Network program({{"image", {6, 6, 1}}}, std::make_unique<ResidualProgram>(), {.seed = 3});
  EXPECT_EQ(graph.named_parameters().size(), 17u);
  EXPECT_EQ(NamesOf(graph)[3], "1_first.filter");
  EXPECT_EQ(NamesOf(graph)[10], "classes.bias");
  EXPECT_EQ(NamesOf(graph)[11], "stem_norm.running_mean");
  EXPECT_EQ(NamesOf(program)[3], "stage.first.convolution.filter");
  EXPECT_EQ(graph.parameters().ToVector<float>(), program.parameters().ToVector<float>());
  const NetworkInputs inputs = Images(7);
  EXPECT_EQ(graph.Output(inputs.features[0]).ToVector<float>(),
            program.Output(inputs.features[0]).ToVector<float>());
  EXPECT_EQ(Gradients(graph, inputs), Gradients(program, inputs));
  EXPECT_EQ(graph.gradients().ToVector<float>(), program.gradients().ToVector<float>());
  EXPECT_EQ(graph.layers().size(), 0u);
  EXPECT_EQ(Network({4}, MlpLayers(2)).layers().size(), 3u);
  EXPECT_THAT(graph.Describe(), HasSubstr("\"1_sum\" of 1_second_norm, stem_relu: merge add"));
}

TEST(NetworkGraph, GradientsAgreeWithCentralDifferences) {
  Network graph(SmallResidualConfig(), InDouble());
  ExpectRightGradients(graph, Images(3, DType::kFloat64));
}

TEST(NetworkGraph, AResidualNetworkHalvesTheImageInEachStageButTheFirst) {
  EXPECT_THAT(MessageOf([] { ResidualConfig({8, 8, 1}, 3, {}); }), HasSubstr("no channels"));
  const NetworkConfig config = ResidualConfig({9, 8, 1}, 3, {2, 4, 8});
  Network network(config, InDouble());
  const NetworkInputs inputs{{RandomUniform({4, 9, 8, 1}, 0, 1, DType::kFloat64, 5)},
                             {RandomIntegers({4}, 0, 3, 6)},
                             {},
                             {}};
  ExpectRightGradients(network, inputs);
  NetworkConfig stages = config;  // what comes out of the last one
  stages.nodes.resize(stages.nodes.size() - 2);
  stages.outputs = {"3_relu"};
  EXPECT_EQ(Network(stages).output_shape(), (Shape{3, 2, 8}));
}

TEST(NetworkGraph, ValuesGoWithTheirLastUse) {
  NetworkConfig config;
  std::string last = config.AddInput("x", {64}), first;
  for (int i = 0; i < 9; ++i) {
    last = config.Add(ActivationLayer(Activation::kTanh), {last});
    if (i == 0) first = last;
  }
  config.outputs = {config.Add(Merge(), {last, first})};
  Network graph(config);
  const NDArray x = RandomUniform({32, 64}, -1, 1, 1);
  for (int i = 0; i < 4; ++i) {
    graph.Infer([&] { return x; }, [](const NDArray&) {});
  }
  // The first value is there to the end; of the others two at a time.
  EXPECT_EQ(graph.inference_workspace().stats().live_lower_bound_bytes,
            3u * 32 * 64 * sizeof(float));
}

TEST(NetworkGraph, GraphsThatCannotBeAreNamed) {
  const auto message = [](const std::function<void(NetworkConfig&)>& change) {
    NetworkConfig config = SmallResidualConfig();
    change(config);
    return MessageOf([&] { Network network(config); });
  };
  EXPECT_EQ(message([](NetworkConfig&) {}), "nothing was thrown");
  EXPECT_THAT(message([](NetworkConfig& c) { c.nodes[3].inputs = {"1_second"}; }),
              AllOf(HasSubstr("in a circle"), HasSubstr("\"1_first\", \"1_first_norm\"")));
  EXPECT_THAT(message([](NetworkConfig& c) { c.nodes[1].name = "stem"; }),
              HasSubstr("layer 1 is called \"stem\", as another one is"));
  EXPECT_THAT(message([](NetworkConfig& c) { c.outputs = {"clases"}; }),
              HasSubstr("an output is \"clases\""));
  EXPECT_THAT(message([](NetworkConfig& c) { c.outputs = {"1_sum"}; }),
              HasSubstr("no output and no other layer takes"));
  EXPECT_THAT(message([](NetworkConfig& c) { c.AddInput("more", {2}); }),
              HasSubstr("input \"more\": no layer takes it"));
  EXPECT_THAT(message([](NetworkConfig& c) { c.nodes[2].layer = AnyLayer(); }),
              HasSubstr("layer 2 is null"));
  EXPECT_THAT(message([](NetworkConfig& c) { c.nodes[2].inputs.clear(); }),
              HasSubstr("layer \"stem_relu\" has no inputs"));
  EXPECT_THAT(message([](NetworkConfig& c) {
                c.nodes[0].inputs = {"image", "image"};
              }),
              HasSubstr("2 inputs, expected one"));
  EXPECT_THAT(
      message([](NetworkConfig& c) {
        c.nodes[8].inputs = {"1_second_norm", "image"};
      }),
      AllOf(HasSubstr("layer \"1_sum\""),
            HasSubstr("input shape [6, 6, 1], expected that of the first input, [6, 6, 4]")));
  EXPECT_THAT(message([](NetworkConfig& c) { c.nodes[6].tied["filter"] = "classes.weight"; }),
              HasSubstr("expected a parameter of a layer that stands before it"));
  EXPECT_THAT(message([](NetworkConfig& c) { c.nodes[6].tied["filter"] = "stem.filter"; }),
              HasSubstr("which is [4, 3, 3, 1], expected trained ones of shape [4, 3, 3, 4]"));
  EXPECT_THAT(message([](NetworkConfig& c) { c.nodes[6].tied["weight"] = "stem.filter"; }),
              HasSubstr("it is no parameter of"));
  // What would have no elements: kernels and initial values are made for some.
  EXPECT_THAT(
      message([](NetworkConfig& c) {
        c.inputs[0].shape = {8, 8, 0};
      }),
      HasSubstr(
          "network: inputs[0]: input \"image\" is of shape [8, 8, 0], expected sizes from 1"));
}

TEST(NetworkGraph, ConfigurationsInAnyOrder) {
  NetworkConfig config = SmallResidualConfig();
  std::swap(config.nodes[0], config.nodes[4]);
  Network network(config, InDouble());
  ExpectRightGradients(network, Images(2, DType::kFloat64));
}

Conv2D Same() { return Conv2D(4, 3, 3, Activation::kRelu, Conv2D::SamePadding(3)); }

TEST(NetworkGraph, TiedParametersAreOneArray) {
  NetworkConfig config = SmallResidualConfig();
  config.nodes[6].tied = {{"filter", "1_first.filter"}};
  Network tied(config, InDouble());
  EXPECT_EQ(NamesOf(tied).size(), 16u);
  ExpectRightGradients(tied, Images(3, DType::kFloat64));

  struct Tied : Block {
    Part stem{*this, "stem", Same()};
    Part twice{*this, "twice", Same()};
    Part classes{*this, "classes", Dense(3)};
    NDArray Forward(const NDArray& x) const override { return classes(twice(twice(stem(x)))); }
  };
  Network program({{"image", {6, 6, 1}}}, std::make_unique<Tied>(), InDouble());
  EXPECT_EQ(NamesOf(program).size(), 6u);
  ExpectRightGradients(program, Images(3, DType::kFloat64));
}

TEST(NetworkGraph, BatchNormalizationKeepsAveragesBesideItsParameters) {
  Network network({5}, {Dense(4), BatchNormalization(0.5), ActivationLayer(), Dense(3)}, 7);
  EXPECT_EQ(network.named_parameters().back().name, "1.batch_norm.running_variance");
  EXPECT_FALSE(network.named_parameters().back().is_trained);
  EXPECT_EQ(network.NumParameters(), 5 * 4 + 4 + 4 + 4 + 4 * 3 + 3);
  EXPECT_EQ(network.gradients().shape(), network.parameters().shape());
  EXPECT_EQ(network.arrays().NumElements(), network.parameters().NumElements() + 2 * 16);
  const NDArray x = RandomNormal({64, 5}, 1, 2, 1), labels = RandomIntegers({64}, 0, 3, 2);
  const NDArray first = network.Output(x);
  NetworkInputs inputs{{x}, {labels}, {}, {}};
  for (int i = 0; i < 20; ++i) Gradients(network, inputs);
  const NDArray mean = network.named_parameters()[network.named_parameters().size() - 2].value;
  const NDArray h = MatMul(x, network.named_parameters()[0].value, {.transpose_y = true});
  const std::vector<float> found = mean.ToVector<float>(), expected = Mean(h, 0).ToVector<float>();
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], expected[i], 1e-4);
  EXPECT_NE(first.ToVector<float>(), network.Output(x).ToVector<float>());
  // Inference is by the averages: an example's result is its own.
  const std::vector<float> all = network.Output(x).ToVector<float>(),
                           one = network.Output(x.Slice(0, 0, 1)).ToVector<float>();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(one[i], all[i], 1e-5);
}

TEST(NetworkGraph, LayersComputeIn16BitsAndParametersStayFloat) {
  NetworkOptions options{.seed = 3};
  options.compute_type = DType::kBFloat16;
  {
    Network graph(SmallResidualConfig(), options);
    Network program({{"image", {6, 6, 1}}}, std::make_unique<ResidualProgram>(), options);
    Gradients(graph, Images(8));
    Gradients(program, Images(8));
    EXPECT_EQ(program.gradients().ToVector<float>(), graph.gradients().ToVector<float>());
  }
  // Without normalisation, which divides differences of what was rounded.
  const NetworkConfig config = NetworkConfig::Sequential({6, 6, 1}, {Same(), Same(), Dense(3)});
  Network narrow(config, options), wide(config, {.seed = 3});
  const NetworkInputs inputs = Images(8);
  EXPECT_NEAR(Gradients(narrow, inputs), Gradients(wide, inputs), 0.02);
  EXPECT_EQ(narrow.gradients().dtype(), DType::kFloat32);
  const std::vector<float> found = narrow.gradients().ToVector<float>(),
                           expected = wide.gradients().ToVector<float>();
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += std::pow(found[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  EXPECT_GT(difference, 0);
  EXPECT_LT(std::sqrt(difference / size), 0.1);
}

// Two inputs, two outputs, a loss of the program's.
TEST(NetworkGraph, SeveralInputsAndOutputs) {
  NetworkConfig config;
  const std::string a = config.AddInput("a", {4}), b = config.AddInput("b", {4});
  const std::string shared = config.Add(Merge(), {a, b}, "sum");
  config.Add(Dense(3), {shared}, "classes");
  config.Add(Dense(2, Activation::kTanh), {shared}, "place");
  config.outputs = {"classes", "place"};
  Network network(config, InDouble());
  EXPECT_THAT(MessageOf([&] {
                network.Output(Zeros({2, 4}, DType::kFloat64));
              }),
              HasSubstr("it has 2 inputs and 2 outputs"));
  const auto random = [](const Shape& shape, uint64_t seed) {
    return RandomUniform(shape, -1, 1, DType::kFloat64, seed);
  };
  const NetworkInputs inputs{{random({6, 4}, 1), random({6, 4}, 2)},
                             {RandomIntegers({6}, 0, 3, 3), random({6, 2}, 4)},
                             {},
                             {}};
  EXPECT_THAT(MessageOf([&] { Gradients(network, inputs); }),
              HasSubstr("2 outputs and 2 arrays of labels"));
  network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& given) {
    return SoftmaxCrossEntropy(outputs[0], given.labels[0]).loss +
           MeanSquaredError(outputs[1], given.labels[1]) * 0.5;
  });
  ExpectRightGradients(network, inputs);
  const Arrays outputs = network.Run(inputs.features);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[1].shape(), (Shape{6, 2}));
  EXPECT_THAT(MessageOf([&] { network.Run({inputs.features[0]}); }),
              HasSubstr("1 inputs, expected 2"));
  EXPECT_THAT(MessageOf([&] {
                network.Run({inputs.features[0], random({5, 4}, 1)});
              }),
              HasSubstr("batches of 6 and 5 examples"));
  EXPECT_THAT(MessageOf([&] {
                network.Run({inputs.features[0], random({6, 3}, 1)});
              }),
              HasSubstr("features of \"b\" have shape [6, 3], expected [batch] + [4]"));
}

struct Unreached : Block {
  Part used{*this, "used", Dense(3)};
  Part forgotten{*this, "forgotten", Dense(3)};
  NDArray Forward(const NDArray& x) const override { return used(x); }
};
struct TwoSizes : Block {
  Part part{*this, "part", Dense(3)};
  NDArray Forward(const NDArray& x) const override { return part(part(x)); }
};
struct Scaled : Block {
  Part part{*this, "part", Dense(3)};
  BlockParameter scale{*this, "scale", {3}, Initializer::Constant(2)};
  NDArray Forward(const NDArray& x) const override { return part(x) * scale(); }
};

TEST(NetworkBlock, MistakesAreNamed) {
  const auto message = [](std::unique_ptr<Block> block) {
    return MessageOf([&] { Network network({{"x", {4}}}, std::move(block)); });
  };
  EXPECT_THAT(message(std::make_unique<Unreached>()),
              HasSubstr("block member [forgotten] is not called by Forward()"));
  EXPECT_THAT(message(std::make_unique<TwoSizes>()),
              HasSubstr("block member [part]: inputs of shape [3] want other parameters than those "
                        "of shape [4]"));
  EXPECT_THAT(message(std::make_unique<Block>()), HasSubstr("neither Forward() nor ForwardOf()"));
  EXPECT_THAT(message(nullptr), HasSubstr("the block is null"));
  Scaled alone;
  EXPECT_THAT(MessageOf([&] {
                alone.Forward(Zeros({1, 4}));
              }),
              HasSubstr("called outside of a call of its network"));
  EXPECT_THAT(MessageOf([&] { Block::is_training(); }), HasSubstr("no network is being called"));
  EXPECT_THAT(MessageOf([&] { Part again(alone, "part", Dense(1)); }),
              HasSubstr("the outermost block: two members are called \"part\""));
  EXPECT_THAT(MessageOf([&] { Part dotted(alone, "a.b", Dense(1)); }),
              HasSubstr("expected a name without dots"));
  EXPECT_THAT(MessageOf([&] { Part null(alone, "null", AnyLayer()); }),
              HasSubstr("the layer is null"));
}

TEST(NetworkBlock, ParametersWithoutLayers) {
  Network network({{"x", {4}}}, std::make_unique<Scaled>(), InDouble());
  EXPECT_EQ(NamesOf(network), (std::vector<std::string>{"part.weight", "part.bias", "scale"}));
  EXPECT_EQ(network.named_parameters()[2].value.ToVector<double>(), std::vector<double>(3, 2.0));
  ExpectRightGradients(
      network,
      {{RandomUniform({5, 4}, -1, 1, DType::kFloat64, 1)}, {RandomIntegers({5}, 0, 3, 2)}, {}, {}});
}

TEST(NetworkBlock, AnErrorInForwardNamesTheMemberAndLeavesTheNetworkUsable) {
  struct Failing : Block {
    explicit Failing(bool* fails) : fails(fails) {}
    bool* fails;
    Part part{*this, "part", Dense(3)};
    NDArray Forward(const NDArray& x) const override {
      const NDArray h = part(x);
      return *fails ? MatMul(h, h) : h;
    }
  };
  bool fails = false;
  Network network({{"x", {4}}}, std::make_unique<Failing>(&fails));
  const NetworkInputs inputs{
      {RandomUniform({5, 4}, -1, 1, 1)}, {RandomIntegers({5}, 0, 3, 2)}, {}, {}};
  const double loss = Gradients(network, inputs);
  fails = true;
  EXPECT_THAT(MessageOf([&] { Gradients(network, inputs); }), HasSubstr("matmul"));
  fails = false;
  EXPECT_EQ(Gradients(network, inputs), loss);
  EXPECT_EQ(network.training_workspace().stats().leaked_arrays, 0);
}

// Two series of different lengths, each with the mask of its own: what is behind the ends changes
// neither outputs nor gradients, whichever input it is of, and a mask is of its input alone.
TEST(NetworkGraph, EachInputHasItsMask) {
  NetworkConfig config;
  const std::string a = config.AddInput("a", {5, 3}), b = config.AddInput("b", {7, 2});
  const std::string of_a = config.Add(Lstm(4, {.output = RecurrentOutput::kLast}), {a}, "of a");
  const std::string of_b =
      config.Add(GlobalPooling(), {config.Add(Gru(6), {b}, "of b")}, "pooled b");
  config.outputs = {config.Add(
      Dense(3), {config.Add(Merge(MergeKind::kConcat), {of_a, of_b}, "both")}, "classes")};
  NetworkOptions options;
  options.seed = 4;
  Network network(std::move(config), options);
  NDArray first = RandomUniform({4, 5, 3}, -1, 1, 1), second = RandomUniform({4, 7, 2}, -1, 1, 2);
  NDArray mask_a = Ones({4, 5}), mask_b = Ones({4, 7});
  mask_a.Slice(0, 0, 1).Slice(1, 2, 5) = 0;
  mask_b.Slice(0, 1, 3).Slice(1, 3, 7) = 0;
  const auto run = [&](const Arrays& masks) {
    Network::RunOptions run_options;
    run_options.masks = masks;
    return network.Run({first, second}, run_options)[0].ToVector<float>();
  };
  const auto gradients = [&] {
    network.ComputeGradients(
        {{first, second}, {RandomIntegers({4}, 0, 3, 6)}, {mask_a, mask_b}, {}});
    return network.gradients().ToVector<float>();
  };
  const std::vector<float> expected = run({mask_a, mask_b}), expected_gradients = gradients();
  const std::vector<float> without = run({}), a_alone = run({mask_a}),
                           b_alone = run({NDArray(), mask_b});
  EXPECT_NE(expected, without);
  EXPECT_NE(expected, a_alone);
  EXPECT_NE(expected, b_alone);
  for (size_t i = 0; i < 12; ++i) {  // example 0 is shorter in a, 1 and 2 in b, 3 in none
    EXPECT_EQ(a_alone[i] == without[i], i / 3 != 0) << i;
    EXPECT_EQ(b_alone[i] == without[i], i / 3 == 0 || i / 3 == 3) << i;
  }
  first.Slice(0, 0, 1).Slice(1, 2, 5) = NAN;
  second.Slice(0, 1, 3).Slice(1, 3, 7) = NAN;
  EXPECT_EQ(run({mask_a, mask_b}), expected);
  EXPECT_EQ(gradients(), expected_gradients);
}

}  // namespace
}  // namespace tidepool::nn
