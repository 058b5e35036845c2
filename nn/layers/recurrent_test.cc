// Recurrent layers in networks: sequences in parts, truncated back-propagation, how they start,
// what they keep.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/initializer.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network_json.h"

namespace tidepool::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

NetworkOptions InDouble() {
  NetworkOptions options;
  options.seed = 3;
  options.dtype = DType::kFloat64;
  return options;
}

DenseOptions OfSteps() {
  DenseOptions options;
  options.last_axis = true;
  return options;
}

std::vector<AnyLayer> Stack() {
  return {Lstm(5), Gru(4), SimpleRnn(3), Dense(2, Activation::kIdentity, OfSteps())};
}
Network StackOf(int64_t length) {
  return Network(NetworkConfig::Sequential(Shape{length, 3}, Stack()), InDouble());
}

void ExpectNear(const NDArray& found, const NDArray& expected, double tolerance) {
  ASSERT_EQ(found.shape(), expected.shape());
  const std::vector<double> a = found.ToVector<double>(), b = expected.ToVector<double>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

NDArray Sequences(int64_t batch, int64_t length) {
  return RandomUniform({batch, length, 3}, -1, 1, DType::kFloat64, 5);
}

TEST(Recurrent, ASequenceInPartsIsTheWhole) {
  Network whole = StackOf(12), part = StackOf(4);
  const NDArray x = Sequences(3, 12);
  const NDArray expected = whole.Run({x})[0];
  std::vector<NDArray> states = part.NewStates(), outputs;
  ASSERT_EQ(states.size(), 4u);  // h and c, h, h
  for (int64_t t = 0; t < 12; t += 4) {
    Network::RunOptions options;
    options.states = &states;
    outputs.push_back(part.Run({x.Slice(1, t, t + 4).Dup()}, options)[0]);
  }
  ExpectNear(Concat(outputs, 1), expected, 1e-14);
  // With masks: a sequence that has ended keeps its state.
  NDArray mask = Ones({3, 12}, DType::kBool);
  mask.Slice(0, 1, 2).Slice(1, 6, 12) = 0;
  Network::RunOptions options;
  options.masks = {mask};
  const NDArray with_mask = whole.Run({x}, options)[0];
  states = part.NewStates();
  outputs.clear();
  for (int64_t t = 0; t < 12; t += 4) {
    Network::RunOptions in_part;
    in_part.states = &states;
    in_part.masks = {mask.Slice(1, t, t + 4).Dup()};
    outputs.push_back(part.Run({x.Slice(1, t, t + 4).Dup()}, in_part)[0]);
  }
  ExpectNear(Concat(outputs, 1), with_mask, 1e-14);
}

LossFunction SquaresOfOutputs() {
  return [](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
    return Sum((outputs[0] - inputs.labels[0]) * (outputs[0] - inputs.labels[0]), {1, 2});
  };
}

double Gradients(Network& network, const NetworkInputs& inputs,
                 std::vector<NDArray>* states = nullptr) {
  WorkspaceScope scope(network.training_workspace());
  return network.ComputeGradients(inputs, states);
}

// Within a part gradients are those of the whole whose state before the part is held.
TEST(Recurrent, TruncatedGradientsAreThoseOfThePart) {
  Network whole = StackOf(8), part = StackOf(4);
  const NDArray x = Sequences(3, 8), labels = RandomUniform({3, 8, 2}, -1, 1, DType::kFloat64, 6);
  // Outputs of the first part do not count: but gradients flow through it, so the parameters' are
  // taken by differences of the second part alone, the state being a constant.
  part.set_loss(SquaresOfOutputs());
  whole.set_loss(SquaresOfOutputs());
  std::vector<NDArray> states = part.NewStates();
  const auto of = [&](int64_t t) {
    return NetworkInputs{{x.Slice(1, t, t + 4).Dup()}, {labels.Slice(1, t, t + 4).Dup()}, {}, {}};
  };
  const double first = Gradients(part, of(0), &states);
  std::vector<NDArray> between;
  for (const NDArray& state : states) between.push_back(state.Detach().Dup());
  const double second = Gradients(part, of(4), &states);
  EXPECT_NEAR(first + second, Gradients(whole, {{x}, {labels}, {}, {}}), 1e-12);
  const std::vector<double> found = part.gradients().ToVector<double>();
  double* const parameters = part.parameters().mutable_data<double>();
  for (size_t i = 0; i < found.size(); i += 3) {
    const auto loss = [&](double value) {
      parameters[i] = value;
      std::vector<NDArray> start;
      for (const NDArray& state : between) start.push_back(state.Dup());
      Network::RunOptions options;
      options.states = &start;
      const NDArray d = part.Run({of(4).features[0]}, options)[0] - of(4).labels[0];
      return Sum(d * d).Item<double>() / 3;
    };
    const double at = parameters[i], above = loss(at + 1e-6), below = loss(at - 1e-6);
    parameters[i] = at;
    ASSERT_NEAR(found[i], (above - below) / 2e-6, 1e-6) << i;
  }
}

TEST(Recurrent, StatesOfTrainingStayWhereTheyAre) {
  Network network = StackOf(4);
  network.set_loss(SquaresOfOutputs());
  const NetworkInputs inputs{{Sequences(3, 4)}, {Zeros({3, 4, 2}, DType::kFloat64)}, {}, {}};
  std::vector<NDArray> states = network.NewStates();
  Gradients(network, inputs, &states);
  const void* const before = states[1].raw_data();
  const std::vector<double> values = states[1].ToVector<double>();
  Gradients(network, inputs, &states);
  EXPECT_EQ(states[1].raw_data(), before);
  EXPECT_NE(states[1].ToVector<double>(), values);
  std::vector<NDArray> wrong(3);
  EXPECT_THAT(MessageOf([&] { Gradients(network, inputs, &wrong); }),
              HasSubstr("network: 3 states, expected 4"));
  wrong.assign(4, Zeros({2, 5}, DType::kFloat64));
  EXPECT_THAT(MessageOf([&] { Gradients(network, inputs, &wrong); }),
              HasSubstr("state 0 has shape [2, 5], expected [3] + [5]"));
}

TEST(Recurrent, WeightsStartOrthogonalAndGatesOpen) {
  Network network({6, 3}, {Lstm(4, {}, 0.75), Gru(4)}, /*seed=*/2);
  std::vector<std::string> names;
  for (const NamedParameter& parameter : network.named_parameters())
    names.push_back(parameter.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"0.lstm.input_weight", "0.lstm.recurrent_weight",
                                      "0.lstm.bias", "1.gru.input_weight", "1.gru.recurrent_weight",
                                      "1.gru.bias", "1.gru.recurrent_bias"}));
  std::vector<float> bias(16, 0);
  for (int i = 4; i < 8; ++i) bias[static_cast<size_t>(i)] = 0.75f;
  EXPECT_EQ(network.named_parameters()[2].value.ToVector<float>(), bias);
  for (int gate = 0; gate < 4; ++gate) {
    const NDArray q = network.named_parameters()[1].value.Slice(0, 4 * gate, 4 * gate + 4);
    const std::vector<float> product = MatMul(q, q.Dup(), {.transpose_y = true}).ToVector<float>();
    for (int i = 0; i < 16; ++i)
      ASSERT_NEAR(product[static_cast<size_t>(i)], i % 5 == 0 ? 1 : 0, 1e-5) << gate;
  }
  // Gates start apart.
  const NDArray weight = network.named_parameters()[1].value;
  EXPECT_NE(weight.Slice(0, 0, 4).ToVector<float>(), weight.Slice(0, 4, 8).ToVector<float>());
}

// More rows than are done at once, in numbers that no group of them divides; wide ones, tall ones and squares, whose last rows
// lose nearly all of their length.
TEST(Recurrent, OrthogonalOfManyRows) {
  for (const Shape& shape :
       {Shape{131, 131}, Shape{101, 39}, Shape{33, 70}, Shape{64, 64}, Shape{1, 3}}) {
    ParameterSpec spec{.name = "weight", .shape = shape};
    spec.initializer = {InitializerKind::kOrthogonal, 2};
    const NDArray q = DrawInitial(spec, DType::kFloat64, 5, 1);
    const bool is_tall = shape[0] > shape[1];
    const std::vector<double> product =
        MatMul(q, q.Dup(), {.transpose_x = is_tall, .transpose_y = !is_tall}).ToVector<double>();
    const int64_t rows = std::min(shape[0], shape[1]);
    for (int64_t i = 0; i < rows * rows; ++i) {
      ASSERT_NEAR(product[static_cast<size_t>(i)], i % (rows + 1) == 0 ? 4 : 0, 1e-14)
          << shape.ToString() << ", element " << i;
    }
  }
}

TEST(Recurrent, AnOverwrittenOutputIsFound) {
  const Lstm layer(3);
  std::vector<NDArray> parameters;
  for (const ParameterSpec& spec : layer.Parameters({4, 2}))
    parameters.push_back(RandomUniform(spec.shape, -1, 1, 1));
  const NDArray x = RandomUniform({2, 4, 2}, -1, 1, 2);
  GradientTape tape;
  for (const NDArray& parameter : parameters) tape.Watch(parameter);
  LayerContext context{.parameters = parameters, .training = true};
  NDArray y = layer.Forward(context, x);
  y += 1.0;
  const NDArray loss = Sum(y);
  EXPECT_THAT(MessageOf([&] { tape.Backward(loss); }),
              AllOf(HasSubstr("Op [lstm] kept its output (f32 [2, 4, 3]"),
                    HasSubstr("Op [scale_shift] overwrote it")));
}

TEST(Recurrent, BackwardTwiceIsTheSameTwice) {
  for (const AnyLayer& layer : {AnyLayer(Lstm(3)), AnyLayer(Gru(3)), AnyLayer(SimpleRnn(3))}) {
    std::vector<NDArray> parameters;
    for (const ParameterSpec& spec : layer->Parameters({4, 2}))
      parameters.push_back(RandomUniform(spec.shape, -1, 1, 1));
    const NDArray x = RandomUniform({2, 4, 2}, -1, 1, 2);
    GradientTape tape;
    tape.Watch(x);
    LayerContext context{.parameters = parameters, .training = true};
    const NDArray loss = Sum(layer->Forward(context, x));
    tape.Backward({&loss, 1}, {}, /*keep=*/true);
    const std::vector<float> once = tape.Gradient(x).ToVector<float>();
    tape.Backward({&loss, 1}, {}, /*keep=*/true);
    const std::vector<float> twice = tape.Gradient(x).ToVector<float>();
    for (size_t i = 0; i < once.size(); ++i)
      ASSERT_FLOAT_EQ(twice[i], once[i]) << layer->Describe();
  }
}

// 50 steps of 2 layers of 128, of which each keeps its activations, cells and outputs.
TEST(Recurrent, WhatAStepKeeps) {
  const int64_t batch = 32, length = 50, units = 128;
  Network network({length, 28},
                  {Lstm(units), Lstm(units, {.output = RecurrentOutput::kLast}), Dense(10)});
  const NDArray x = RandomUniform({batch, length, 28}, -1, 1, 1),
                labels = RandomIntegers({batch}, 0, 10, 2);
  for (int i = 0; i < 4; ++i) Gradients(network, {{x}, {labels}, {}, {}});
  const WorkspaceStats stats = network.training_workspace().stats();
  const auto unit = static_cast<size_t>(batch * length * units) * sizeof(float);
  EXPECT_LT(stats.planned_peak_bytes, 14 * unit);
  EXPECT_EQ(stats.leaked_arrays, 0);
  // Inference keeps the output of the first layer, and a run of steps' gates.
  for (int i = 0; i < 3; ++i) network.Infer([&] { return x; }, [](const NDArray&) {});
  EXPECT_LT(network.inference_workspace().stats().planned_peak_bytes, 3 * unit);
}

TEST(Recurrent, ATiedTableLearnsOfBothUses) {
  NetworkConfig config;
  const std::string x = config.AddInput("words", {5}, DType::kInt64);
  config.Add(Embedding(7, 4), {x}, "embedding");
  config.Add(Lstm(4), {"embedding"}, "lstm");
  config.Add(Dense(7, Activation::kIdentity, OfSteps()), {"lstm"}, "words_again");
  config.nodes.back().tied = {{"weight", "embedding.table"}};
  config.outputs = {"words_again"};
  Network network(NetworkFromJson(NetworkToJson(config)), InDouble());
  network.set_loss(SquaresOfOutputs());
  const NetworkInputs inputs{{RandomIntegers({3, 5}, 0, 7, 1)},
                             {RandomUniform({3, 5, 7}, -1, 1, DType::kFloat64, 2)},
                             {},
                             {}};
  EXPECT_EQ(network.named_parameters().size(), 5u);  // table, three of lstm, bias
  Gradients(network, inputs);
  const std::vector<double> found = network.gradients().ToVector<double>();
  double* const parameters = network.parameters().mutable_data<double>();
  for (size_t i = 0; i < 28; ++i) {
    const double at = parameters[i];
    parameters[i] = at + 1e-6;
    const double above = Gradients(network, inputs);
    parameters[i] = at - 1e-6;
    const double below = Gradients(network, inputs);
    parameters[i] = at;
    ASSERT_NEAR(found[i], (above - below) / 2e-6, 1e-6) << i;
  }
}

TEST(DropoutLayer, DropsAsOftenAsItSaysAndScales) {
  const NDArray x = Ones({200, 10, 20});
  for (const bool spatial : {false, true}) {
    const DropoutLayer layer(0.25, spatial);
    LayerContext context{.training = true, .seed = 1, .stream = 2};
    const NDArray y = layer.Forward(context, x);
    EXPECT_NEAR(Mean(y).Item<float>(), 1, spatial ? 0.05 : 0.02);
    EXPECT_FLOAT_EQ(Max(y).Item<float>(), 1 / 0.75f);
    context.stream = 3;
    EXPECT_NE(layer.Forward(context, x).ToVector<float>(), y.ToVector<float>());
    // Whole channels at once.
    const NDArray first = y.Slice(1, 0, 1);
    const bool same = Max((y - first) * (y - first)).Item<float>() == 0;
    EXPECT_EQ(same, spatial);
    context.training = false;
    EXPECT_EQ(layer.Forward(context, x).raw_data(), x.raw_data());
  }
}

// Gradients flow through frozen ones: the same, and none of their own are computed.
TEST(Recurrent, FrozenOnesPassTheGradientsOfTrainedOnes) {
  const auto gradients = [](const AnyLayer& layer, bool last, std::vector<std::string> frozen) {
    NetworkOptions options = InDouble();
    options.frozen = std::move(frozen);
    std::vector<AnyLayer> layers = {Dense(4, Activation::kTanh, OfSteps()), layer};
    if (!last) layers.push_back(GlobalPooling());
    layers.push_back(Dense(3));
    Network network(NetworkConfig::Sequential(Shape{6, 3}, layers), options);
    NetworkInputs inputs{
        {RandomUniform({5, 6, 3}, -1, 1, DType::kFloat64, 1)}, {Zeros({5}, DType::kInt64)}, {}, {}};
    inputs.features_masks.push_back(
        FromValues(std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0,
                                       0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0},
                   {5, 6}));
    const WorkspaceScope scope(network.training_workspace());
    network.ComputeGradients(inputs);
    return network.gradients().Slice(0, 0, 3 * 4).ToVector<double>();  // of the first weight
  };
  constexpr RecurrentOutput kLast = RecurrentOutput::kLast;
  const std::vector<std::pair<AnyLayer, bool>> cases = {{Lstm(4), false},
                                                        {Lstm(4, {.output = kLast}), true},
                                                        {Gru(4), false},
                                                        {Gru(4, {.output = kLast}), true},
                                                        {SimpleRnn(4, {.output = kLast}), true},
                                                        {Bidirectional(Lstm(3)), false},
                                                        {Conv1DTranspose(4, {3}), false}};
  for (const auto& [layer, last] : cases) {
    const std::vector<double> all = gradients(layer, last, {}),
                              frozen = gradients(layer, last, {"1.*"});
    EXPECT_EQ(frozen, all) << layer->Describe();
    EXPECT_NE(all[0], 0) << layer->Describe();
  }
}

}  // namespace
}  // namespace tidepool::nn
