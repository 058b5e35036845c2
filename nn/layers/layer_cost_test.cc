// What layers say that they take, held against what their operators count and what the ledger sees.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/operator_cost.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/cross_attention.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/layer_cost.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/multi_head_attention.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/layers/testing/layer_cases.h"
#include "tidepool/nn/layers/transformer_block.h"

namespace tidepool::nn {
namespace {

double counted = 0;

// Stands before all others, sees each call and leaves it to the next.
bool Count(const KernelCall& call) {
  counted += CostOf(call).operations;
  return false;
}
void Never(const KernelCall&) { ADD_FAILURE() << "a kernel that supports nothing ran"; }

void CountFromNowOn() {
  for (int op = 0; op < OperatorCount(); ++op) {
    for (int type = 0; type < kDTypes; ++type) {
      const auto code = static_cast<OpCode>(op);
      const auto dtype = static_cast<DType>(type);
      if (KernelRegistry::Find(code, DeviceType::kHost, dtype).empty()) continue;
      KernelRegistry::Global().Add(
          {code, DeviceType::kHost, dtype, "counting", 1000, &Never, nullptr, &Count, true});
    }
  }
}

struct Taken {
  double operations = 0, elements = 0;
};

// Of one example in inference.
Taken TakenBy(const LayerCase& c) {
  [[maybe_unused]] static const bool counts = (CountFromNowOn(), true);
  const LayerArrays arrays = ArraysFor(c, DType::kFloat32, 1, false, 3);
  LayerContext context{.parameters = arrays.parameters};
  counted = 0;
  PeakScope peak;
  const NDArray output = c.layer->ForwardOf(context, arrays.inputs);
  return {counted, static_cast<double>(peak.peak_in_use_bytes() - peak.start().in_use) / 4};
}

// Layers whose largest part is one that elements and parameters do not tell, or tell too much of.
std::vector<LayerCase> LargeCases() {
  std::vector<LayerCase> cases;
  const auto add = [&](AnyLayer layer, std::vector<Shape> inputs) {
    cases.push_back(
        {absl::StrCat("large ", layer->Describe()), std::move(layer), std::move(inputs)});
  };
  DenseOptions of_steps;
  of_steps.last_axis = true;
  add(Dense(300), {{40, 40, 3}});
  add(Dense(300, Activation::kIdentity, of_steps), {{100, 64}});
  add(Conv2D(16, 7, 7), {{60, 60, 8}});
  add(Conv2D(64, 16, 16, Activation::kIdentity, {.stride_height = 16, .stride_width = 16}),
      {{128, 128, 3}});
  add(DepthwiseConv2D(2, 9, 9), {{60, 60, 8}});
  add(DepthwiseConv2D(2, 9, 9, Activation::kIdentity, {.stride_height = 8, .stride_width = 8}),
      {{60, 60, 8}});
  add(Conv1D(32, {33}, Activation::kIdentity, {.stride = {16}}), {{500, 16}});
  add(Conv1D(32, {33}), {{500, 16}});
  add(Conv3D(8, {5, 5, 5}), {{20, 20, 20, 4}});
  add(Conv1DTranspose(32, {33}), {{500, 16}});
  add(Conv2DTranspose(16, {7, 7}), {{60, 60, 8}});
  add(Conv3DTranspose(4, {5, 5, 5}), {{20, 20, 20, 8}});
  Pool2dAttributes window;
  window.kernel_height = window.kernel_width = 30;
  window.stride_height = window.stride_width = 1;
  add(MaxPool2D(window), {{80, 80, 4}});
  add(AveragePool2D({30, 30}, {.stride = {1, 1}}), {{80, 80, 4}});
  add(MaxPool1D({200}, {.stride = {1}}), {{500, 16}});
  add(AveragePool1D({200}, {.stride = {1}}), {{500, 16}});
  // Both steps of three axes: a depth that is left out, and a large one.
  add(MaxPool3D({1, 9, 9}, {.stride = {400, 1, 1}}), {{400, 20, 20, 2}});
  add(MaxPool3D({1, 3, 3}, {.stride = {4000, 1, 1}, .before = {0, 2, 2}, .behind = {0, 2, 2}}),
      {{4000, 1, 1, 2}});
  add(MaxPool3D({200, 1, 1}, {.stride = {1, 1, 1}}), {{400, 9, 9, 2}});
  add(AveragePool3D({200, 3, 3}, {.stride = {1, 1, 1}}), {{400, 9, 9, 2}});
  add(GlobalPooling(), {{100, 100, 16}});
  add(MultiHeadAttention(2), {{600, 16}});
  add(MultiHeadAttention(4, false, 1), {{50, 256}});
  add(CrossAttention(2), {{400, 8}, {700, 8}});
  add(CrossAttention(2, {.width = 256}), {{20, 8}, {700, 8}});
  add(TransformerBlock(2), {{600, 16}});
  add(TransformerBlock(2, 5000), {{100, 16}});
  add(Lstm(128), {{100, 100}});
  add(Lstm(128, {.output = RecurrentOutput::kLast}), {{100, 100}});
  add(Gru(128), {{100, 100}});
  add(SimpleRnn(200), {{100, 100}});
  add(Bidirectional(Lstm(128)), {{100, 100}});
  add(TimeDistributed(MaxPool2D(window)), {{5, 60, 60, 2}});
  add(TimeDistributed(Dense(300)), {{50, 20, 20}});
  add(Embedding(5000, 64), {{300}});
  cases.back().entries = 5000;
  add(PositionEmbedding(), {{400, 64}});
  add(SinusoidalPositions(), {{400, 64}});
  add(Resize({300, 300}, ResizeMode::kCubic), {{20, 20, 4}});
  add(Resize({30, 40, 50}), {{60, 20, 20, 2}});
  add(Upsampling({1, 20, 20}), {{20, 10, 10, 2}});
  add(Upsampling({20, 1, 1}), {{20, 20, 20, 2}});
  add(Merge(MergeKind::kAdd), {{300, 300}, {300, 300}, {300, 300}});
  add(Permute({1, 0}), {{300, 300}});
  return cases;
}

// A layer of a kind that says nothing fails here where the default is not right for it: of each
// kind there is a case (layers_test, EveryKindIsTested).
TEST(LayerCost, CoversWhatOperatorsCountAndTheLedgerSees) {
  // Operators count a multiply-add as two, and an exponential as some ten.
  constexpr double kOperations = 24, kElements = 2, kSmall = 4096;
  std::vector<LayerCase> cases = LayerCases();
  for (LayerCase& c : LargeCases()) cases.push_back(std::move(c));
  for (const LayerCase& c : cases) {
    SCOPED_TRACE(c.name);
    const LayerCost cost = c.layer->CostOf(c.inputs);
    const Taken taken = TakenBy(c);
    EXPECT_LE(taken.operations, kOperations * cost.operations + kSmall);
    EXPECT_LE(taken.elements, kElements * cost.elements + kSmall);
  }
}

// Where one part outweighs the others what is said is near to what is: within four times what
// operators count (of which a multiply-add is two), and what steps add that hardly compute.
TEST(LayerCost, OfLargeLayersIsNear) {
  for (const LayerCase& c : LargeCases()) {
    SCOPED_TRACE(c.name);
    const LayerCost cost = c.layer->CostOf(c.inputs);
    const Taken taken = TakenBy(c);
    double least = ElementsOf(c.layer->OutputShapeOf(c.inputs));  // what moves elements counts none
    for (const Shape& input : c.inputs) least += ElementsOf(input);
    EXPECT_GE(8 * cost.operations, taken.operations);
    EXPECT_LE(cost.operations, 4 * std::max(taken.operations, least));
    EXPECT_LE(cost.elements, 4 * std::max(taken.elements, least));
  }
}

TEST(LayerCost, KindsWithinKindsAndOfOnesOwn) {
  class Window final : public Layer {
   public:
    std::string Kind() const override { return "window"; }
    Shape OutputShape(const Shape& input) const override { return input; }
    std::vector<ParameterSpec> Parameters(const Shape&) const override { return {{"p", {7}}}; }
  };
  const Shape input{5, 3};
  // By default each parameter at each place.
  EXPECT_EQ(Window().CostOf({&input, 1}).operations, 15 + 15 + 5 * 7);
  EXPECT_EQ(Window().CostOf({&input, 1}).elements, 15);
  const Shape sequence{4, 5, 3};
  EXPECT_EQ(TimeDistributed(Window()).CostOf({&sequence, 1}).operations, 4 * (15 + 15 + 5 * 7));
}

}  // namespace
}  // namespace tidepool::nn
