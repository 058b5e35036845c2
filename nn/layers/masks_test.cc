// What masks mean to layers, in numbers, and sequences of several runs of steps.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/cross_attention.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence_mask.h"
#include "tidepool/nn/layers/testing/layer_cases.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network_json.h"

namespace tidepool::nn {
namespace {

using Numbers = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Five steps, of which three are there.
struct Masked {
  NDArray x = FromValues(Numbers{1, 2, 3, kNaN, 100}, {1, 5, 1});
  LayerContext context;
  Masked() { context.mask = FromValues(Numbers{1, 1, 1, 0, 0}, {1, 5}); }
  Numbers Output(const Layer& layer) { return layer.Forward(context, x).ToVector<float>(); }
  Numbers Mask() const { return Cast(context.mask, DType::kFloat32).ToVector<float>(); }
};

TEST(Masks, PoolingCountsStepsThatAreThere) {
  Masked average, largest, global;
  EXPECT_EQ(average.Output(AveragePool1D({2}, {.stride = {1}})), (Numbers{1.5, 2.5, 3, 0}));
  EXPECT_EQ(average.Mask(), (Numbers{1, 1, 1, 0}));
  EXPECT_EQ(largest.Output(MaxPool1D({2}, {.stride = {1}})), (Numbers{2, 3, 3, 0}));
  EXPECT_EQ(largest.Mask(), (Numbers{1, 1, 1, 0}));
  EXPECT_EQ(global.Output(GlobalPooling()), (Numbers{2}));
  EXPECT_FALSE(global.context.mask.is_defined());
}

TEST(Masks, PaddingThatCountsIsCountedBesideStepsThatAreThere) {
  const auto pooled = [](const PoolingOptions<1>& options, const NDArray& mask) {
    LayerContext context;
    context.mask = mask;
    const NDArray x = FromValues(Numbers{6, 6, 6, 6}, {1, 4, 1});
    return AveragePool1D({3}, options).Forward(context, x).ToVector<float>();
  };
  PoolingOptions<1> options{.stride = {1}, .before = {1}, .behind = {2}, .count_padding = true};
  const NDArray all = Ones({1, 4}), two = FromValues(Numbers{1, 1, 0, 0}, {1, 4}),
                none = Zeros({1, 4}), last = FromValues(Numbers{0, 0, 0, 1}, {1, 4});
  EXPECT_EQ(pooled(options, NDArray()), (Numbers{4, 6, 6, 4, 2}));
  EXPECT_EQ(pooled(options, all), (Numbers{4, 6, 6, 4, 2}));
  // Windows are padding, 6, 6; 6, 6; 6; only padding; only padding.
  EXPECT_EQ(pooled(options, two), (Numbers{4, 6, 6, 0, 0}));
  EXPECT_EQ(pooled(options, last), (Numbers{0, 0, 6, 3, 2}));
  EXPECT_EQ(pooled(options, none), (Numbers{0, 0, 0, 0, 0}));
  options.count_padding = false;
  EXPECT_EQ(pooled(options, all), (Numbers{6, 6, 6, 6, 6}));
  EXPECT_EQ(pooled(options, two), (Numbers{6, 6, 6, 0, 0}));
}

// The sum of 900 steps, and the squares of a long vector, are more than f16 has.
TEST(Masks, AveragesAndLengthsOf16BitFloatsAreMadeInWiderOnes) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    LayerContext context;
    context.mask = Arange(0, 1000, 1, DType::kInt64).Reshape({1, 1000}) < 900;
    const NDArray pooled = GlobalPooling().Forward(context, Full({1, 1000, 2}, 100, type));
    EXPECT_EQ(pooled.dtype(), type);
    EXPECT_THAT(Cast(pooled, DType::kFloat64).ToVector<double>(), testing::ElementsAre(100, 100));
    NDArray x = Zeros({3, 4}, type);
    x(1) = 200;
    x(2) = 1;
    LayerContext none;
    const NDArray unit = L2Normalization().Forward(none, x);
    EXPECT_EQ(unit.dtype(), type);
    EXPECT_THAT(Cast(unit, DType::kFloat64).ToVector<double>(),
                testing::ElementsAre(0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5));
  }
}

TEST(Masks, ConvolutionsSeeZerosAndTellWhereTheyHaveSteps) {
  Masked masked;
  const std::vector<NDArray> parameters = {Ones({1, 3, 1})};
  masked.context.parameters = parameters;
  EXPECT_EQ(masked.Output(Conv1D(1, {3}, Activation::kIdentity,
                                 {.before = {1}, .behind = {1}, .bias = false})),
            (Numbers{3, 6, 5, 3, 0}));
  EXPECT_EQ(masked.Mask(), (Numbers{1, 1, 1, 1, 0}));
}

TEST(Masks, AnEmbeddingMasksItsIndex) {
  const Embedding layer(3, 2, {.mask_index = 1});
  NDArray table = FromValues(Numbers{1, 2, 3, 4, 5, 6}, {3, 2});
  GradientTape tape;
  tape.Watch(table);
  LayerContext context{.parameters = {&table, 1}};
  const NDArray y = layer.Forward(context, FromValues(std::vector<int64_t>{2, 1, 0}, {1, 3}));
  EXPECT_EQ(y.ToVector<float>(), (Numbers{5, 6, 0, 0, 1, 2}));
  EXPECT_EQ(Cast(context.mask, DType::kFloat32).ToVector<float>(), (Numbers{1, 0, 1}));
  tape.Backward(Sum(y));
  EXPECT_EQ(tape.Gradient(table).ToVector<float>(), (Numbers{1, 1, 0, 0, 1, 1}));
}

TEST(Masks, KeysThatAreNoneAreNotSeen) {
  const CrossAttention layer(2, {.key_mask = true});
  const LayerCase c{"keys", layer, {{2, 4}, {3, 4}, {3}}};
  LayerArrays arrays = ArraysFor(c, DType::kFloat32, 1, false, 3);
  arrays.inputs[2] = FromValues(Numbers{1, 0, 1}, {1, 3});
  LayerContext context{.parameters = arrays.parameters};
  const Numbers before = layer.ForwardOf(context, arrays.inputs).ToVector<float>();
  arrays.inputs[1].Slice(1, 1, 2) = kNaN;
  EXPECT_EQ(layer.ForwardOf(context, arrays.inputs).ToVector<float>(), before);
  // Nor do they count in the softmax: with the other keys alone it is the same.
  const LayerCase two{"two", CrossAttention(2), {{2, 4}, {2, 4}}};
  const NDArray keys = arrays.inputs[1].Slice(1, 0, 3, 2).Dup();
  const Numbers alone = two.layer->ForwardOf(context, {{arrays.inputs[0], keys}}).ToVector<float>();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(alone[i], before[i], 1e-5) << i;
}

// The loss, and then all gradients, of two sequences of four steps of two numbers, of which the
// second one has two, with `behind` behind its end.
Numbers LossAndGradients(const std::string& layers, float behind) {
  Network network(NetworkFromJson(R"({"inputs":[{"name":"x","shape":[4,2]}],"layers":[)" + layers +
                                  R"(,{"kind":"global_pool"},{"kind":"dense","units":3}]})"),
                  {.seed = 1});
  NDArray x = RandomNormal({2, 4, 2}, 0, 1, 4), mask = Ones({2, 4});
  x.Slice(0, 1, 2).Slice(1, 2, 4) = behind;
  mask.Slice(0, 1, 2).Slice(1, 2, 4) = 0;
  const NetworkInputs inputs{{x}, {FromValues(std::vector<int64_t>{0, 2}, {2})}, {mask}, {}};
  const WorkspaceScope scope(network.training_workspace());
  Numbers found = {static_cast<float>(network.ComputeGradients(inputs))};
  for (const float g : network.gradients().ToVector<float>()) found.push_back(g);
  return found;
}

TEST(Masks, WhatIsMergedIsReadToItsOwnEnd) {
  for (const std::string merge : {"add", "subtract", "multiply", "average", "max", "concat"}) {
    for (const char* of_x :
         {R"("kind":"dense","units":2,"last_axis":true)", R"("kind":"layer_norm")",
          R"("kind":"scaling")", R"("kind":"transformer_block","heads":1)",
          // The windows of these reach beyond the end, and so does their mask.
          R"("kind":"conv1d","filters":2,"kernel":3,"padding":1)"}) {
      for (const char* inputs : {R"(["f","x"])", R"(["x","f"])"}) {
        SCOPED_TRACE(merge + " " + of_x + " " + inputs);
        const std::string layers = std::string(R"({"name":"f",)") + of_x +
                                   R"(},{"kind":"merge","merge":")" + merge + R"(","inputs":)" +
                                   inputs + R"(},{"kind":"activation","function":"softmax"})";
        EXPECT_EQ(LossAndGradients(layers, kNaN), LossAndGradients(layers, 0.5f));
      }
    }
  }
  for (const char* inputs : {R"(["f","x"])", R"(["x","f"])", R"(["x","f","x"])"}) {
    SCOPED_TRACE(inputs);
    const std::string attention = std::string(R"({"name":"f","kind":"layer_norm"},)"
                                              R"({"kind":"cross_attention","heads":1,"inputs":)") +
                                  inputs + "}";
    EXPECT_EQ(LossAndGradients(attention, kNaN), LossAndGradients(attention, 0.5f));
  }
  // One behind the other there is no mask any more that would tell of the end.
  const std::string behind = R"({"name":"f","kind":"layer_norm"},{"kind":"merge","merge":"concat",)"
                             R"("axis":0,"inputs":["f","x"]})";
  EXPECT_EQ(LossAndGradients(behind, kNaN), LossAndGradients(behind, 0.5f));
}

// Gradients of the inputs of a layer of several, each with its own mask, and `behind` behind its end.
std::vector<std::vector<double>> GradientsOfInputs(const LayerCase& c, double behind) {
  const int64_t batch = 3;
  LayerArrays arrays = ArraysFor(c, DType::kFloat64, batch, false, 3);
  std::vector<NDArray> masks;
  for (size_t i = 0; i < arrays.inputs.size(); ++i) {
    NDArray& x = arrays.inputs[i];
    const int64_t length = x.dim(1);
    NDArray lengths =
        FromValues(std::vector<int64_t>{length, 2, static_cast<int64_t>(i)}, {batch, 1});
    masks.push_back(Arange(0, static_cast<double>(length), 1, DType::kInt64) < lengths);
    // The last input of this one is itself a mask of keys, of a number for each.
    if (x.rank() > 2) x = Where(MaskOfRank(masks[i], x.rank()), x, behind);
  }
  GradientTape tape;
  for (const NDArray& x : arrays.inputs) tape.Watch(x);
  LayerContext context{.parameters = arrays.parameters, .training = true};
  context.mask = masks[0];
  context.masks = masks;
  NDArray y = c.layer->ForwardOf(context, arrays.inputs);
  if (IsMaskOf(context.mask, y)) y = WithoutMasked(context.mask, y);
  tape.Backward(Sum(y * RandomUniform(y.shape(), -1, 1, DType::kFloat64, 4)));
  std::vector<std::vector<double>> found;
  for (size_t i = 0; i < arrays.inputs.size(); ++i) {
    const NDArray& x = arrays.inputs[i];
    const NDArray gradient = tape.Gradient(x);
    found.push_back(gradient.ToVector<double>());
    if (x.rank() <= 2) continue;
    const NDArray elsewhere = LogicalNot(MaskOfRank(masks[i], x.rank()));
    EXPECT_EQ(NormInf(Where(elsewhere, gradient, 0)).Item<double>(), 0) << c.name << " input " << i;
  }
  return found;
}

TEST(Masks, NoneOfSeveralInputsHasAGradientBehindItsEnd) {
  int several = 0;
  for (const LayerCase& c : LayerCases()) {
    if (c.inputs.size() < 2) continue;
    SCOPED_TRACE(c.name);
    ++several;
    const std::vector<std::vector<double>> expected = GradientsOfInputs(c, 0.5);
    for (const double behind : {1e300, HUGE_VAL, -HUGE_VAL, static_cast<double>(kNaN)})
      EXPECT_EQ(GradientsOfInputs(c, behind), expected) << behind;
  }
  EXPECT_GE(several, 10);
}

// Outputs of queries [1, 4, 4] and keys [1, 4, 4], each with a mask or without.
Numbers Attended(const NDArray& query_mask, const NDArray& key_mask, const NDArray& keys,
                 const std::string& inputs = R"("inputs":["q","k"])", const char* pooled = "") {
  const Network network(
      NetworkFromJson(R"({"inputs":[{"name":"q","shape":[4,4]},{"name":"k","shape":[4,4]}],)"
                      R"("layers":[{"kind":"cross_attention","heads":2,)" +
                      inputs + "}" + pooled + "]}"),
      {.seed = 1});
  Network::RunOptions options;
  options.masks = {query_mask, key_mask};
  return network.Run({RandomNormal({1, 4, 4}, 0, 1, 1), keys}, options)[0].ToVector<float>();
}

TEST(Masks, CrossAttentionSeesKeysToTheirOwnEnd) {
  const NDArray two = FromValues(Numbers{1, 1, 0, 0}, {1, 4});
  const NDArray three = FromValues(Numbers{1, 1, 1, 0}, {1, 4});
  const NDArray keys = RandomNormal({1, 4, 4}, 0, 1, 2);
  NDArray others = keys.Dup();
  others.Slice(1, 2, 4) = kNaN;
  const std::string of_values = R"("inputs":["q","k","k"])";
  for (const NDArray& query_mask : {NDArray(), three}) {
    for (const std::string& inputs : {std::string(R"("inputs":["q","k"])"), of_values}) {
      const Numbers found = Attended(query_mask, two, keys, inputs);
      EXPECT_EQ(Attended(query_mask, two, others, inputs), found);
      EXPECT_NE(Attended(query_mask, NDArray(), keys, inputs), found);
    }
  }
  // The keys' mask is not that of the queries: all of them are counted.
  const std::string inputs = R"("inputs":["q","k"])";
  const Numbers each = Attended(NDArray(), two, keys);
  const Numbers sum =
      Attended(NDArray(), two, keys, inputs, R"(,{"kind":"global_pool","pooling":"sum"})");
  for (size_t i = 0; i < sum.size(); ++i)
    EXPECT_NEAR(sum[i], each[i] + each[i + 4] + each[i + 8] + each[i + 12], 1e-5) << i;
}

// As part of a program of one's own, whose parameters would have it from here.
TEST(Masks, TheInputOfANetworkHasNoGradientBehindItsEnd) {
  for (const char* function : ActivationNames()) {
    const Network network(
        NetworkFromJson(absl::StrCat(R"({"inputs":[{"name":"x","shape":[4,2]}],"layers":[)",
                                     R"({"kind":"activation","function":")", function,
                                     R"("},{"kind":"dense","units":3,"last_axis":true}]})")),
        {.seed = 1});
    NDArray mask = Ones({2, 4});
    mask.Slice(0, 1, 2).Slice(1, 2, 4) = 0;
    std::vector<Numbers> found;
    for (const float behind : {0.5f, HUGE_VALF, kNaN}) {
      NDArray x = RandomNormal({2, 4, 2}, 0, 1, 4);
      x.Slice(0, 1, 2).Slice(1, 2, 4) = behind;
      GradientTape tape;
      tape.Watch(x);
      Network::RunOptions options{.training = true};
      options.masks = {mask};
      const Loss loss(LossKind::kSoftmaxCrossEntropy);
      tape.Backward(loss.Mean(network.Run({x}, options)[0], Zeros({2, 4}, DType::kInt64), &mask));
      found.push_back(tape.Gradient(x).ToVector<float>());
    }
    EXPECT_THAT(found, testing::Each(found[0])) << function;
    EXPECT_THAT(Numbers(found[0].end() - 4, found[0].end()), testing::Each(0)) << function;
  }
}

// Windows over steps and other axes see zeros there, and their filters nothing of what stands there.
TEST(Masks, WindowsOverSeveralAxesDoNotSeeWhatIsBehindTheEnd) {
  const std::string kernel2 = R"("kernel":[2,1])", kernel3 = R"("kernel":[2,1,1])";
  const std::vector<std::pair<std::string, int>> kinds = {
      {R"("conv2d","filters":2,)" + kernel2, 2},
      {R"("conv3d","filters":2,)" + kernel3, 3},
      {R"("depthwise_conv2d",)" + kernel2, 2},
      {R"("conv2d_transpose","filters":2,)" + kernel2, 2},
      {R"("conv3d_transpose","filters":2,)" + kernel3, 3},
      {R"("max_pool2d",)" + kernel2, 2},
      {R"("max_pool3d",)" + kernel3, 3},
      {R"("average_pool2d",)" + kernel2, 2},
      {R"("average_pool3d",)" + kernel3, 3}};
  for (const auto& [kind, axes] : kinds) {
    const std::string shape = axes == 2 ? "[4,2,1]" : "[4,1,2,1]";
    const Network network(
        NetworkFromJson(absl::StrCat(R"({"inputs":[{"name":"x","shape":)", shape,
                                     R"(}],"layers":[{"kind":)", kind,
                                     R"(},{"kind":"flatten"},{"kind":"dense","units":3}]})")),
        {.seed = 1});
    const NDArray mask = FromValues(Numbers{1, 1, 1, 1, 1, 1, 0, 0}, {2, 4});
    std::vector<Numbers> found;
    for (const float behind : {0.5f, 7.0f, HUGE_VALF, kNaN}) {
      NDArray x = RandomNormal(axes == 2 ? Shape({2, 4, 2, 1}) : Shape({2, 4, 1, 2, 1}), 0, 1, 4);
      x.Slice(0, 1, 2).Slice(1, 2, 4) = behind;
      GradientTape tape;
      tape.Watch(x);
      tape.Watch(network.parameters());
      Network::RunOptions options{.training = true};
      options.masks = {mask};
      const NDArray output = network.Run({x}, options)[0];
      tape.Backward(Loss(LossKind::kSoftmaxCrossEntropy).Mean(output, Zeros({2}, DType::kInt64)));
      Numbers& all = found.emplace_back();
      for (const NDArray& each : {output, tape.Gradient(x), tape.Gradient(network.parameters())}) {
        const Numbers values = each.ToVector<float>();
        all.insert(all.end(), values.begin(), values.end());
      }
      EXPECT_THAT(tape.Gradient(x).Slice(0, 1, 2).Slice(1, 2, 4).Dup().ToVector<float>(),
                  testing::Each(0))
          << kind;
    }
    EXPECT_THAT(found, testing::Each(found[0])) << kind;
  }
}

// The gradients of examples [begin, end): their inputs' if `of_input`, then those of the parameters.
std::vector<NDArray> GradientsOf(const AnyLayer& layer, const LayerArrays& all, const NDArray& g,
                                 int64_t begin, int64_t end, bool again, bool of_input = true) {
  const NDArray x = all.inputs[0].Slice(0, begin, end).Dup(), dz = g.Slice(0, begin, end).Dup();
  GradientTape tape;
  if (of_input) tape.Watch(x);
  for (const NDArray& parameter : all.parameters) tape.Watch(parameter);
  LayerContext context{.parameters = all.parameters, .training = true};
  if (all.mask.is_defined()) context.mask = all.mask.Slice(0, begin, end).Dup();
  const NDArray y = layer->Forward(context, x);
  if (again) tape.Backward({&y, 1}, {&dz, 1}, /*keep=*/true);
  tape.Backward({&y, 1}, {&dz, 1});
  std::vector<NDArray> found = {of_input ? tape.Gradient(x) : NDArray()};
  for (const NDArray& parameter : all.parameters) found.push_back(tape.Gradient(parameter));
  return found;
}

void ExpectNear(const NDArray& found, const NDArray& expected) {
  EXPECT_LT(NormInf(found - expected).Item<double>(), 1e-11);
}

// A run is of 256 rows at least: here five runs, of two steps each but the last. 26 examples are
// one run.
TEST(Recurrent, SequencesOfSeveralRunsAreThoseOfSmallerBatches) {
  const int64_t batch = 130, length = 9, part = 26;
  const NDArray g = RandomUniform({batch, length, 3}, -1, 1, DType::kFloat64, 6);
  for (const RecurrentOptions options : {RecurrentOptions{}, RecurrentOptions{.reversed = true}}) {
    for (const AnyLayer& layer :
         {AnyLayer(Lstm(3, options)), AnyLayer(Gru(3, options)), AnyLayer(SimpleRnn(3, options))}) {
      for (const bool masked : {false, true}) {
        SCOPED_TRACE(layer->Describe() + (masked ? " masked" : ""));
        const LayerCase c{"runs", layer, {{length, 2}}};
        const LayerArrays all = ArraysFor(c, DType::kFloat64, batch, masked, 5);
        const std::vector<NDArray> whole = GradientsOf(layer, all, g, 0, batch, false);
        const std::vector<NDArray> again = GradientsOf(layer, all, g, 0, batch, true);
        std::vector<NDArray> sum = GradientsOf(layer, all, g, 0, part, false);
        for (int64_t begin = 0; begin < batch; begin += part) {
          const std::vector<NDArray> of = GradientsOf(layer, all, g, begin, begin + part, false);
          ExpectNear(of[0], whole[0].Slice(0, begin, begin + part));
          for (size_t i = 1; begin > 0 && i < of.size(); ++i) sum[i] += of[i];
        }
        for (size_t i = 1; i < whole.size(); ++i) ExpectNear(sum[i], whole[i]);
        // A tape that keeps what it recorded gives the same again; both passes are added up.
        for (size_t i = 0; i < whole.size(); ++i) ExpectNear(again[i], whole[i]);
        // An input that is a constant has none, and the parameters theirs.
        const std::vector<NDArray> of_constant = GradientsOf(layer, all, g, 0, batch, false, false);
        for (size_t i = 1; i < whole.size(); ++i) ExpectNear(of_constant[i], whole[i]);
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
