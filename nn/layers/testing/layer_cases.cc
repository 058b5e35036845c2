#include "tidepool/nn/layers/testing/layer_cases.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/cross_attention.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/multi_head_attention.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/layers/transformer_block.h"

namespace tidepool::nn {
namespace {

constexpr RecurrentOptions kLast{.output = RecurrentOutput::kLast};
constexpr RecurrentOptions kReversed{.reversed = true};

DenseOptions OfSteps() {
  DenseOptions options;
  options.last_axis = true;
  return options;
}

std::vector<LayerCase> AllCases() {
  const Shape steps{6, 4}, image{7, 6, 3}, volume{5, 4, 6, 2};
  std::vector<LayerCase> cases;
  const auto add = [&](std::string name, AnyLayer layer, std::vector<Shape> inputs) -> LayerCase& {
    cases.push_back({std::move(name), std::move(layer), std::move(inputs)});
    return cases.back();
  };
  const auto sequence = [&](std::string name, AnyLayer layer) -> LayerCase& {
    LayerCase& c = add(std::move(name), std::move(layer), {steps});
    c.is_sequence = true;
    return c;
  };
  add("dense", Dense(5, Activation::kTanh), {{4}});
  sequence("dense_steps", Dense(5, Activation::kGelu, OfSteps()));
  sequence("activation", ActivationLayer(Activation::kSwish));
  sequence("prelu", PRelu());
  add("prelu_shared", PRelu(0.1, true), {image});
  sequence("scaling", Scaling());
  add("scaling_only", Scaling(false), {image});
  sequence("l2_norm", L2Normalization(0.01));
  sequence("batch_norm", BatchNormalization()).by_batch = true;
  sequence("layer_norm", LayerNormalization(0.01));
  sequence("rms_norm", RmsNormalization(0.01));
  add("group_norm", GroupNormalization(2, 0.01), {steps});
  sequence("dropout", DropoutLayer(0.3)).by_batch = true;
  add("dropout_spatial", DropoutLayer(0.3, true), {image}).by_batch = true;
  // Convolutions.
  sequence("conv1d", Conv1D(5, {3}, Activation::kTanh, Conv1D::Same({3})));
  sequence("conv1d_causal", Conv1D(4, {2}, Activation::kIdentity, Conv1D::Causal(2, 2)));
  sequence("conv1d_stride",
           Conv1D(6, {3}, Activation::kIdentity,
                  {.stride = {2}, .before = {1}, .behind = {0}, .groups = 2, .bias = false}));
  add("conv2d", Conv2D(4, 3, 2, Activation::kTanh), {image});
  add("depthwise_conv2d", DepthwiseConv2D(2, 3, 3, Activation::kTanh, Conv2D::SamePadding(3)),
      {image});
  add("conv3d",
      Conv3D(3, {2, 3, 2}, Activation::kTanh,
             {.stride = {1, 1, 2}, .before = {1, 0, 1}, .behind = {0, 1, 1}}),
      {volume});
  add("conv3d_groups",
      Conv3D(4, {2, 2, 2}, Activation::kIdentity, {.dilation = {2, 1, 1}, .groups = 2}), {volume});
  sequence("conv1d_transpose",
           Conv1DTranspose(5, {3}, Activation::kTanh,
                           {.stride = {2}, .before = {1}, .behind = {1}, .output_padding = {1}}));
  add("conv2d_transpose",
      Conv2DTranspose(
          4, {3, 2}, Activation::kIdentity,
          {.stride = {2, 1}, .before = {1, 0}, .behind = {1, 0}, .output_padding = {1, 0}}),
      {image});
  add("conv3d_transpose",
      Conv3DTranspose(4, {2, 3, 2}, Activation::kTanh, {.stride = {2, 1, 1}, .groups = 2}),
      {volume});
  // Pooling.
  sequence("max_pool1d", MaxPool1D({2}));
  sequence("average_pool1d", AveragePool1D({3}, {.stride = {2}, .before = {1}, .behind = {1}}));
  add("max_pool2d", MaxPool2D(), {image});
  add("average_pool2d",
      AveragePool2D({3, 2},
                    {.stride = {2, 2}, .before = {1, 0}, .behind = {1, 0}, .count_padding = true}),
      {image});
  add("max_pool3d",
      MaxPool3D({2, 2, 3}, {.stride = {1, 2, 2}, .before = {1, 0, 1}, .behind = {1, 0, 1}}),
      {volume});
  add("average_pool3d",
      AveragePool3D({2, 2, 3}, {.stride = {2, 1, 2}, .before = {1, 1, 1}, .behind = {1, 1, 1}}),
      {volume});
  sequence("global_max", GlobalPooling(PoolingKind::kMax));
  sequence("global_average", GlobalPooling());
  sequence("global_sum", GlobalPooling(PoolingKind::kSum));
  add("global_average_volume", GlobalPooling(), {volume});
  // Sequences.
  sequence("lstm", Lstm(3));
  sequence("lstm_last", Lstm(3, kLast));
  sequence("lstm_reversed", Lstm(3, kReversed));
  sequence("gru", Gru(3));
  sequence("gru_last", Gru(3, kLast));
  sequence("gru_reversed", Gru(3, kReversed));
  sequence("simple_rnn", SimpleRnn(3));
  sequence("simple_rnn_relu",
           SimpleRnn(3, {.output = RecurrentOutput::kLast, .reversed = true}, true));
  sequence("bidirectional", Bidirectional(Lstm(3)));
  sequence("bidirectional_add", Bidirectional(Gru(3), BidirectionalMerge::kAdd));
  sequence("bidirectional_last", Bidirectional(SimpleRnn(3, kLast), BidirectionalMerge::kAverage));
  sequence("last_time_step", LastTimeStep());
  sequence("time_distributed", TimeDistributed(Dense(3, Activation::kTanh)));
  sequence("reverse", Reverse());
  sequence("multi_head_attention", MultiHeadAttention(2));
  sequence("transformer_block", TransformerBlock(2, 6, {.causal = true}));
  add("cross_attention", CrossAttention(2), {steps, {5, 4}});
  add("cross_attention_values", CrossAttention(3, {.width = 6}), {{3, 4}, {5, 2}, {5, 3}});
  add("cross_attention_key_mask", CrossAttention(2, {.key_mask = true}), {steps, {5, 4}, {5}});
  LayerCase& embedding = add("embedding", Embedding(7, 4), {{6}});
  embedding.entries = 7;
  embedding.is_sequence = true;
  add("embedding_masks", Embedding(7, 4, {.mask_index = 0}), {{6}}).entries = 7;
  sequence("position_embedding", PositionEmbedding());
  sequence("sinusoidal_positions", SinusoidalPositions());
  // Merging and shapes.
  for (const auto& [name, merge] :
       std::vector<std::pair<const char*, MergeKind>>{{"add", MergeKind::kAdd},
                                                      {"multiply", MergeKind::kMultiply},
                                                      {"average", MergeKind::kAverage},
                                                      {"max", MergeKind::kMax}}) {
    add(absl::StrCat("merge_", name), Merge(merge), {steps, steps, steps});
  }
  add("merge_subtract", Merge(MergeKind::kSubtract), {steps, steps});
  add("merge_concat", Merge(MergeKind::kConcat), {{6, 4}, {6, 2}, {6, 1}});
  add("merge_concat_first", Merge(MergeKind::kConcat, 0), {{6, 4}, {2, 4}});
  sequence("reshape", ReshapeLayer({3, -1}));
  add("flatten", Flatten(), {image});
  sequence("flatten_steps", Flatten());
  add("permute", Permute({2, 0, 1}), {image});
  sequence("permute_steps", Permute({1, 0}));
  add("repeat_vector", RepeatVector(3), {{4}});
  sequence("zero_padding", ZeroPadding({1, 2}));
  add("zero_padding_image", ZeroPadding({1, 0, 2, 1}), {image});
  add("zero_padding_volume", ZeroPadding({1, 0, 2, 1, 0, 1}), {volume});
  sequence("cropping", Cropping({1, 2}));
  add("cropping_image", Cropping({1, 0, 2, 1}), {image});
  add("cropping_volume", Cropping({1, 0, 2, 1, 0, 1}), {volume});
  sequence("upsampling", Upsampling({2}));
  add("upsampling_image", Upsampling({2, 3}), {image});
  add("upsampling_volume", Upsampling({2, 1, 3}), {volume});
  sequence("resize", Resize({9}));
  add("resize_image", Resize({9, 4}, ResizeMode::kCubic, true), {image});
  add("resize_volume", Resize({7, 3, 9}), {volume});
  add("resize_volume_corners", Resize({2, 6, 6}, ResizeMode::kLinear, true), {volume});
  add("resize_volume_nearest", Resize({3, 7, 6}, ResizeMode::kNearest), {volume});
  return cases;
}

}  // namespace

const std::vector<LayerCase>& LayerCases() {
  static const auto* const cases = new std::vector<LayerCase>(AllCases());
  return *cases;
}

std::vector<LayerCase> RandomLayerCases(uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  const auto from = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const auto flip = [&] { return from(0, 1) == 1; };
  std::vector<LayerCase> cases;
  for (int i = 0; i < count; ++i) {
    LayerCase c;
    const Shape steps{from(1, 9), from(1, 5)};
    c.inputs = {steps};
    c.is_sequence = true;
    const int64_t groups = steps[1] % 2 == 0 ? from(1, 2) : 1,
                  kernel = from(1, std::min<int64_t>(3, steps[0]));
    const RecurrentOptions options{
        .output = flip() ? RecurrentOutput::kLast : RecurrentOutput::kSequence, .reversed = flip()};
    switch (i % 6) {
      case 0:
        c.layer = Conv1D(groups * from(1, 3), {kernel}, Activation::kTanh,
                         {.stride = {from(1, 3)},
                          .before = {from(0, 2)},
                          .behind = {from(0, 2)},
                          .groups = groups,
                          .bias = flip()});
        break;
      case 1:
        c.layer = Conv1DTranspose(groups * from(1, 3), {3}, Activation::kTanh,
                                  {.stride = {2},
                                   .before = {from(0, 1)},
                                   .output_padding = {from(0, 1)},
                                   .groups = groups});
        break;
      case 2:
        c.layer = MaxPool1D({kernel}, {.stride = {from(1, 3)}, .before = {from(0, kernel - 1)}});
        break;
      case 3:
        c.layer = Lstm(from(1, 5), options, 0.5);
        break;
      case 4:
        c.layer = Gru(from(1, 5), options);
        break;
      default:
        c.layer = AveragePool1D(
            {kernel},
            {.stride = {from(1, 3)}, .behind = {from(0, kernel - 1)}, .count_padding = flip()});
    }
    c.name = absl::StrCat("random_", i, "_", c.layer->Kind());
    cases.push_back(std::move(c));
  }
  return cases;
}

LayerArrays ArraysFor(const LayerCase& c, DType dtype, int64_t batch, bool masked, uint64_t seed) {
  LayerArrays arrays;
  uint64_t stream = 0;
  for (const Shape& shape : c.inputs) {
    std::vector<int64_t> dims = {batch};
    dims.insert(dims.end(), shape.span().begin(), shape.span().end());
    const Shape all(absl::MakeConstSpan(dims));
    arrays.inputs.push_back(c.entries > 0 ? RandomIntegers(all, 0, c.entries, seed, ++stream)
                                          : RandomUniform(all, -1, 1, dtype, seed, ++stream));
  }
  // A mask of keys is of zeros and ones.
  if (c.name == "cross_attention_key_mask")
    arrays.inputs.back() = RandomBernoulli({batch, c.inputs.back()[0]}, 0.6, seed, ++stream, dtype);
  for (const ParameterSpec& spec : c.layer->ParametersOf(c.inputs)) {
    NDArray parameter = RandomUniform(spec.shape, -0.7, 0.7, dtype, seed, ++stream);
    if (spec.name == "running_variance") parameter = parameter + 1.0;
    arrays.parameters.push_back(std::move(parameter));
  }
  if (!masked) return arrays;
  const int64_t length = c.inputs[0][0];
  arrays.mask = Zeros({batch, length}, DType::kBool);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t steps_of = b == 0 ? length : b == 1 ? (length + 1) / 2 : b == 2 ? 0 : 1;
    for (int64_t t = 0; t < steps_of; ++t) arrays.mask.mutable_data<bool>()[b * length + t] = true;
  }
  return arrays;
}

NetworkConfig ConfigOf(const LayerCase& c) {
  NetworkConfig config;
  std::vector<std::string> names;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    names.push_back(config.AddInput(absl::StrCat("x", i), c.inputs[i],
                                    c.entries > 0 ? DType::kInt64 : DType::kFloat32));
  }
  config.outputs = {config.Add(c.layer, names, "layer")};
  return config;
}

}  // namespace tidepool::nn
