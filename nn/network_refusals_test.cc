// What networks are given that does not fit, and what becomes of it: masks, losses, layers of one's own, replicas.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
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
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/losses/loss.h"
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

double Gradients(Network& network, const NetworkInputs& inputs) {
  WorkspaceScope scope(network.training_workspace());
  return network.ComputeGradients(inputs);
}

NDArray Labels(int64_t batch) { return Zeros({batch}, DType::kInt64); }

TEST(NetworkMasks, AreOfTheirInputsFirstTwoAxes) {
  Network network({5, 4}, {Lstm(3, {.output = RecurrentOutput::kLast}), Dense(3)});
  const NDArray x = RandomUniform({2, 5, 4}, -1, 1, 1);
  for (const Shape& shape : {Shape{2, 4}, Shape{3, 5}, Shape{5, 2}, Shape{10}, Shape{0, 5},
                             Shape{2, 5, 1}, Shape{2}, Shape{}}) {
    const auto refused =
        AllOf(HasSubstr("the mask of input \"input\""), HasSubstr("has shape " + shape.ToString()),
              HasSubstr("expected [batch, length], [2, 5]"));
    EXPECT_THAT(MessageOf([&] { network.Run({x}, {.masks = {Ones(shape)}}); }), refused);
    EXPECT_THAT(MessageOf([&] {
                  Gradients(network, {{x}, {Labels(2)}, {Ones(shape)}, {}});
                }),
                refused);
  }
  EXPECT_THAT(MessageOf([&] {
                network.Run({x}, {.masks = {NDArray(), Ones({2, 5})}});
              }),
              HasSubstr("2 masks of 1 inputs"));
  Gradients(network, {{x}, {Labels(2)}, {Ones({2, 5})}, {}});
}

TEST(NetworkMasks, OfLabelsAreTheFirstAxesOfTheOutput) {
  Network network({4}, {Dense(3)});
  const NDArray x = RandomUniform({5, 4}, -1, 1, 1);
  for (const Shape& shape : {Shape{7}, Shape{4}, Shape{5, 2}, Shape{5, 3, 1}, Shape{}}) {
    EXPECT_THAT(MessageOf([&] {
                  Gradients(network, {{x}, {Labels(5)}, {}, {Ones(shape)}});
                }),
                AllOf(HasSubstr("the mask of labels 0 has shape " + shape.ToString()),
                      HasSubstr("[5] + [3]")));
  }
}

// As a Loss of that kind has it; labels that it leaves out may be anything.
TEST(NetworkMasks, OfLabelsAreAppliedByTheDefaultLoss) {
  Network network({4}, {Dense(3)}, 7), other({4}, {Dense(3)}, 7);
  other.set_loss(Loss(LossKind::kSoftmaxCrossEntropy));
  NDArray labels = Labels(5), mask = Ones({5});
  labels.mutable_data<int64_t>()[3] = 77;
  mask.mutable_data<float>()[3] = 0;
  mask.mutable_data<float>()[1] = 0.5;
  const NetworkInputs inputs{{RandomUniform({5, 4}, -1, 1, 1)}, {labels}, {}, {mask}};
  EXPECT_EQ(Gradients(network, inputs), Gradients(other, inputs));
  EXPECT_EQ(network.gradients().ToVector<float>(), other.gradients().ToVector<float>());
  EXPECT_EQ(Gradients(network, {inputs.features, {Labels(5)}, {}, {Zeros({5})}}), 0);
  EXPECT_THAT(MessageOf([&] {
                Gradients(network, {inputs.features, {labels}, {}, {}});
              }),
              HasSubstr("77"));
}

// Of outputs for each step: with a mask and without, and labels are looked at as those of whole examples are.
TEST(NetworkMasks, TheDefaultLossIsOfEachStep) {
  const auto make = [] { return Network({3, 4}, {TimeDistributed(Dense(5))}, 7); };
  Network network = make(), other = make();
  other.set_loss(Loss(LossKind::kSoftmaxCrossEntropy));
  const NDArray x = RandomUniform({2, 3, 4}, -1, 1, 1), labels = Full({2, 3}, 4, DType::kInt64);
  for (const Arrays& masks : {Arrays{}, Arrays{Ones({2, 3})}, Arrays{Ones({2})}}) {
    const NetworkInputs inputs{{x}, {labels}, {}, masks};
    EXPECT_EQ(Gradients(network, inputs), Gradients(other, inputs));
    EXPECT_EQ(network.gradients().ToVector<float>(), other.gradients().ToVector<float>());
  }
  NDArray wrong = labels.Dup(), mask = Ones({2, 3});
  wrong.mutable_data<int64_t>()[4] = 77;
  EXPECT_THAT(MessageOf([&] { Gradients(network, {{x}, {wrong}, {}, {}}); }), HasSubstr("77"));
  EXPECT_THAT(MessageOf([&] { Gradients(network, {{x}, {wrong}, {}, {mask}}); }), HasSubstr("77"));
  mask.mutable_data<float>()[4] = 0;
  EXPECT_GT(Gradients(network, {{x}, {wrong}, {}, {mask}}), 0);
  const NDArray first = FromValues<float>({1, 0}, {2});
  EXPECT_GT(Gradients(network, {{x}, {wrong}, {}, {first}}), 0);
}

TEST(NetworkLoss, IsANumberForEachExample) {
  Network network({4}, {Dense(3)});
  const NetworkInputs inputs{{RandomUniform({5, 4}, -1, 1, 1)}, {Labels(5)}, {}, {}};
  const auto message = [&](LossFunction loss) {
    network.set_loss(std::move(loss));
    return MessageOf([&] { Gradients(network, inputs); });
  };
  EXPECT_THAT(
      message([](absl::Span<const NDArray> o, const NetworkInputs&) { return Sum(o[0]); }),
      HasSubstr("the loss is f32 [], expected a floating-point number for each example, [5]"));
  EXPECT_THAT(message([](absl::Span<const NDArray> o, const NetworkInputs&) { return o[0]; }),
              HasSubstr("the loss is f32 [5, 3]"));
  EXPECT_THAT(message([](absl::Span<const NDArray>, const NetworkInputs&) { return NDArray(); }),
              HasSubstr("loss"));
  Network plain({4}, {Dense(3)});
  EXPECT_THAT(MessageOf([&] {
                WorkspaceScope scope(plain.training_workspace());
                plain.QueueGradients({inputs.features, {}, {}, {}}, [](const NDArray&) {});
              }),
              HasSubstr("no labels"));
}

class Own final : public Layer {
 public:
  explicit Own(std::function<NDArray(const NDArray&)> forward) : forward_(std::move(forward)) {}
  std::string Kind() const override { return "own"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& x) const override { return forward_(x); }

 private:
  std::function<NDArray(const NDArray&)> forward_;
};

TEST(OwnLayers, WhatTheyReturnIsCheckedThere) {
  const auto message = [](std::function<NDArray(const NDArray&)> forward) {
    Network network({4}, {Dense(4), Own(std::move(forward)), Dense(3)});
    return MessageOf([&] { network.Output(Ones({5, 4})); });
  };
  const auto returned = [](const std::string& what) {
    return AllOf(HasSubstr("layer \"1.own\""), HasSubstr("its Forward() returned " + what));
  };
  EXPECT_THAT(message([](const NDArray&) { return NDArray(); }),
              returned("an undefined array, expected [5] + [4]"));
  EXPECT_THAT(message([](const NDArray& x) { return x.Slice(1, 0, 2); }),
              returned("f32 [5, 2], expected [5] + [4]"));
  EXPECT_THAT(message([](const NDArray& x) { return x.Slice(0, 0, 1); }), returned("f32 [1, 4]"));
  EXPECT_THAT(message([](const NDArray& x) { return Cast(x, DType::kFloat64); }),
              returned("f64 [5, 4], expected f32 [5] + [4]"));
  EXPECT_EQ(message([](const NDArray& x) { return x; }), "nothing was thrown");
}

TEST(NetworkSizes, WhatCannotBeMadeIsNamed) {
  const auto message = [](const std::string& shape, const std::string& layer) {
    return MessageOf([&] {
      Network(NetworkFromJson("{\"inputs\":[{\"name\":\"x\",\"shape\":" + shape +
                              "}],\"layers\":[" + layer + "]}"));
    });
  };
  EXPECT_THAT(message("[1,1,1,1,1,1,1,1]", R"({"kind":"activation"})"),
              AllOf(HasSubstr("input \"x\""), HasSubstr("at most 7 axes")));
  EXPECT_THAT(message("[2147483647]", R"({"kind":"dense","units":2147483647})"),
              HasSubstr("layer \"0.dense\""));
  EXPECT_THAT(
      message(
          "[4]",
          R"({"kind":"dense","units":3,"weight_initializer":"uniform","weight_initializer_value":-1})"),
      AllOf(HasSubstr("\"0.dense.weight\""), HasSubstr("expected a value from 0")));
  EXPECT_THAT(message("[1073741824]", R"({"kind":"dense","units":1048576})"),
              AllOf(HasSubstr(
                  "elements of parameters, of which \"0.dense.weight\", [1048576, 1073741824]")));
}

TEST(NetworkMoves, OntoItselfLeavesItAsItIs) {
  Network network({4}, {Dense(3)}, 7);
  const std::vector<float> before = network.Output(Ones({2, 4})).ToVector<float>();
  Network& same = network;
  network = std::move(same);
  EXPECT_EQ(network.Output(Ones({2, 4})).ToVector<float>(), before);
}

TEST(NetworkReplicas, ThatShareParametersEndWhereTheseAreLaidOutAnew) {
  Network network({4}, {Dense(8), Dense(3)}, 7);
  Network shared = network.NewReplica(Network::ReplicaParameters::kShared, 1);
  shared.Output(Ones({2, 4}));
  const std::string frozen[] = {"0.*"};
  network.SetFrozen(frozen);
  EXPECT_THAT(MessageOf([&] {
                shared.Output(Ones({2, 4}));
              }),
              HasSubstr("expected a replica made afterwards"));
  EXPECT_THAT(MessageOf([&] {
                Gradients(shared, {{Ones({2, 4})}, {Labels(2)}, {}, {}});
              }),
              HasSubstr("expected a replica made afterwards"));
  Network again = network.NewReplica(Network::ReplicaParameters::kShared, 1);
  EXPECT_EQ(again.Output(Ones({2, 4})).ToVector<float>(),
            network.Output(Ones({2, 4})).ToVector<float>());
}

// Two layers whose activations are computed again in the backward pass, or not.
struct Twice : Block {
  explicit Twice(bool again) : again_(again) {}
  NDArray Forward(const NDArray& x) const override {
    const auto segment = [this](absl::Span<const NDArray> in) -> std::vector<NDArray> {
      return {second_(norm_(first_(in[0])))};
    };
    return last_(again_ ? Recomputed(segment, {&x, 1})[0] : segment({&x, 1})[0]);
  }

 private:
  bool again_;
  Part first_{*this, "first", Dense(6, Activation::kTanh)},
      norm_{*this, "norm", BatchNormalization()},
      second_{*this, "second", Dense(5, Activation::kRelu)}, last_{*this, "last", Dense(3)};
};

TEST(NetworkBlocks, SegmentsAreComputedAgain) {
  for (const WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kSingle,
                                   WorkspaceMode::kSeparate, WorkspaceMode::kNone}) {
    NetworkOptions options;
    options.seed = 3;
    options.mode = mode;
    Network kept({{"x", {4}}}, std::make_unique<Twice>(false), options),
        again({{"x", {4}}}, std::make_unique<Twice>(true), options);
    for (uint64_t step = 0; step < 4; ++step) {
      const NetworkInputs inputs{{RandomUniform({5, 4}, -1, 1, step)}, {Labels(5)}, {}, {}};
      EXPECT_EQ(Gradients(again, inputs), Gradients(kept, inputs));
      EXPECT_EQ(again.gradients().ToVector<float>(), kept.gradients().ToVector<float>());
      EXPECT_EQ(again.beside().ToVector<float>(), kept.beside().ToVector<float>());
    }
  }
}

// Parameters without layers, and those of layers that are used elsewhere, are of the type that layers compute by: products with them do
// not go back to the parameters'.
struct Scales final : Block {
  NDArray Forward(const NDArray& x) const override {
    const NDArray h = first(x) * scale();
    types = {x.dtype(), h.dtype(), scale().dtype(), first.parameter(0).dtype(), average().dtype()};
    return last(h);
  }
  Part first{*this, "first", Dense(4)};
  BlockParameter scale{*this, "scale", {4}, Initializer::Ones()};
  BlockParameter average{*this, "average", ParameterSpec{.shape = {4}, .is_trained = false}};
  Part last{*this, "last", Dense(3)};
  mutable std::vector<DType> types;
};

TEST(NetworkBlocks, ParametersAreOfTheTypeThatLayersComputeBy) {
  for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
    auto block = std::make_unique<Scales>();
    const Scales& scales = *block;
    NetworkOptions options;
    options.seed = 3;
    Network plain({{"x", {4}}}, std::make_unique<Scales>(), options);
    options.compute_type = type;
    Network network({{"x", {4}}}, std::move(block), options);
    const NetworkInputs inputs{{RandomUniform({5, 4}, -1, 1, 1)}, {Labels(5)}, {}, {}};
    EXPECT_NEAR(Gradients(network, inputs), Gradients(plain, inputs), 0.02);
    // State is written to where it lies.
    EXPECT_EQ(scales.types, (std::vector<DType>{type, type, type, type, DType::kFloat32}));
    const std::vector<float> found = network.gradients().ToVector<float>(),
                             expected = plain.gradients().ToVector<float>();
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 0.02) << i;
    for (const NamedParameter& parameter : network.named_parameters()) {
      if (parameter.name != "scale") continue;
      EXPECT_GT(Sum(Abs(network.gradients().Slice(0, parameter.begin, parameter.begin + 4)))
                    .Item<float>(),
                0);
    }
  }
}

// Makes members when it is called again, of which the network knows nothing.
struct LateMembers : Block {
  Part first{*this, "first", Dense(4)};
  mutable int calls = 0;
  mutable std::unique_ptr<Part> part;
  mutable std::unique_ptr<BlockParameter> parameter;
  NDArray Forward(const NDArray& x) const override {
    auto& here = const_cast<LateMembers&>(*this);
    if (++calls == 2) part = std::make_unique<Part>(here, "part", Dense(4));
    if (calls == 3) parameter = std::make_unique<BlockParameter>(here, "parameter", Shape{4});
    if (calls == 2) return (*part)(first(x));
    if (calls == 3) return first(x) + (*parameter)();
    if (calls == 4) return first(x) + part->parameter(0);
    return first(x);
  }
};

TEST(NetworkBlocks, MembersThatTheNetworkWasMadeWithoutAreRefused) {
  Network network({{"x", {4}}}, std::make_unique<LateMembers>());
  const NDArray x = RandomUniform({3, 4}, -1, 1, 1);
  for (const char* const member : {"[part]", "[parameter]", "[part]"}) {
    EXPECT_THAT(MessageOf([&] { network.Output(x); }),
                AllOf(HasSubstr(std::string("block member ") + member),
                      HasSubstr("it was not there when the network was made")));
  }
  EXPECT_EQ(network.Output(x).shape(), Shape({3, 4}));
}

// One function for each, and what it gives on its n-th call.
struct Returns : Block {
  Part part{*this, "part", Dense(4)};
  std::function<NDArray(const Returns&, const NDArray& x, int call)> forward;
  mutable int calls = 0;
  explicit Returns(decltype(forward) f) : forward(std::move(f)) {}
  NDArray Forward(const NDArray& x) const override { return forward(*this, x, ++calls); }
};

TEST(NetworkBlocks, WhatTheyReturnIsCheckedThere) {
  const auto message = [](decltype(Returns::forward) forward,
                          std::vector<InputConfig> inputs = {{"x", {4}}}) {
    return MessageOf([&] {
      Network network(std::move(inputs), std::make_unique<Returns>(std::move(forward)));
      network.Output(RandomUniform({3, 4}, -1, 1, 1));
    });
  };
  EXPECT_THAT(message([](const Returns& b, const NDArray& x, int) { return Sum(b.part(x), 0); }),
              HasSubstr("output 0 of the block has shape [4] for a batch of one example"));
  EXPECT_THAT(message([](const Returns& b, const NDArray& x, int call) {
                return call > 1 ? b.part(x).Slice(1, 0, 2) : b.part(x);
              }),
              HasSubstr("output 0 of the block has shape [3, 2], expected [3] + [4]"));
  EXPECT_THAT(message([](const Returns& b, const NDArray& x, int call) {
                return call > 1 ? b.part(x).Slice(0, 0, 2) : b.part(x);
              }),
              HasSubstr("output 0 of the block has shape [2, 4], expected [3] + [4]"));
  EXPECT_THAT(message([](const Returns& b, const NDArray& x, int call) {
                return call > 1 ? NDArray() : b.part(x);
              }),
              HasSubstr("output 0 of the block is undefined"));
  EXPECT_THAT(message([](const Returns& b, const NDArray& x, int) {
                const NDArray weight = b.part.parameter(0);
                return b.part(x) + Sum(weight);
              }),
              HasSubstr("parameter 0 before the first call of it"));
  const auto first = [](const Returns& b, const NDArray& x, int) { return b.part(x); };
  EXPECT_THAT(message(first, {{"x", {4}}, {"x", {4}}}), HasSubstr("two inputs are called \"x\""));
  EXPECT_THAT(message(first, {{"x", {4}}, {"", {4}}}), HasSubstr("input 1 has no name"));
}

TEST(NetworkStates, OfAnotherTypeAreRefused) {
  for (const bool converts : {false, true}) {
    NetworkOptions options;
    if (converts) options.compute_type = DType::kBFloat16;
    Network network(NetworkConfig::Sequential({5, 4}, {Lstm(3)}), options);
    const NDArray x = RandomUniform({2, 5, 4}, -1, 1, 1);
    const auto run = [&](DType type) {
      std::vector<NDArray> states = {Zeros({2, 3}, type), Zeros({2, 3}, type)};
      return MessageOf([&] { network.Run({x}, {.states = &states}); });
    };
    EXPECT_THAT(run(DType::kFloat64),
                HasSubstr(converts ? "network: state 0 is f64, expected f32 or bf16"
                                   : "network: state 0 is f64, expected f32"));
    EXPECT_THAT(run(DType::kInt64), HasSubstr("state 0 is i64, expected f32"));
    EXPECT_EQ(run(DType::kFloat32), "nothing was thrown");
    EXPECT_EQ(run(DType::kBFloat16),
              converts ? "nothing was thrown" : "network: state 0 is bf16, expected f32");
    // Those that it makes itself go in again.
    std::vector<NDArray> states = network.NewStates();
    for (int i = 0; i < 2; ++i) network.Run({x}, {.states = &states});
  }
}

}  // namespace
}  // namespace tidepool::nn
