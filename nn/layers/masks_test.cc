// What masks mean to layers, in numbers, and sequences of several runs of steps.
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/cross_attention.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/testing/layer_cases.h"

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
