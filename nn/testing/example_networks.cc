#include "tidepool/nn/testing/example_networks.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/layers/transformer_block.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

// A layer of one's own: x at a scale that is learned, for each element.
class Scaled final : public Layer {
 public:
  std::string Kind() const override { return "test_scaled"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  std::vector<ParameterSpec> Parameters(const Shape& input) const override {
    return {{.name = "scale", .shape = input, .initializer = Initializer::Ones()}};
  }
  NDArray Forward(LayerContext& context, const NDArray& x) const override {
    return x * context.parameters[0];
  }
};

// A loss of one's own: cross-entropy, and large outputs cost.
NDArray PenalisedLoss(absl::Span<const NDArray> outputs, const NetworkInputs& given) {
  return SoftmaxCrossEntropy(outputs[0], given.labels[0]).loss + Sum(Square(outputs[0]), 1) * 0.01;
}

// With computations of its own between its parts, a layer of its own, and a part that is called
// twice.
struct Program final : Block {
  Part first{*this, "first", Dense(64, Activation::kTanh)};
  Part middle{*this, "middle", Dense(64, Activation::kTanh)};
  Part scale{*this, "scale", Scaled()};
  Part out{*this, "out", Dense(10)};
  NDArray Forward(const NDArray& x) const override {
    const NDArray h = scale(first(x));
    const NDArray twice = middle(middle(h));
    return out(Relu(twice + h) * 0.5);
  }
};

}  // namespace

Network ExampleNetwork(const std::string& name, const NetworkOptions& options, int64_t size) {
  const Shape image{size, size, 1};
  if (name == "mlp") return Network(NetworkConfig::Sequential(image, MlpLayers(10)), options);
  if (name == "lenet") return Network(NetworkConfig::Sequential(image, LeNetLayers(10)), options);
  if (name == "residual") return Network(ResidualConfig(image, 10, {8, 16}), options);
  if (name == "program") {
    Network network({{"image", image}}, std::make_unique<Program>(), options);
    network.set_loss(&PenalisedLoss);
    return network;
  }
  if (name == "autoencoder") {
    const Conv2DTranspose::Options twice{
        .stride = {2, 2}, .before = {1, 1}, .behind = {1, 1}, .output_padding = {1, 1}};
    constexpr int64_t kFilters = 6, kCode = 8;
    const int64_t quarter = size / 4;
    Network network(
        NetworkConfig::Sequential(
            image, {Conv2D(kFilters, 3, 3, Activation::kRelu, Conv2D::SamePadding(3, 2)),
                    Conv2D(2 * kFilters, 3, 3, Activation::kRelu, Conv2D::SamePadding(3, 2)),
                    Dense(kCode), Dense(quarter * quarter * 2 * kFilters, Activation::kRelu),
                    ReshapeLayer({quarter, quarter, 2 * kFilters}),
                    Conv2DTranspose(kFilters, {3, 3}, Activation::kRelu, twice),
                    Conv2DTranspose(1, {3, 3}, Activation::kIdentity, twice)}),
        options);
    network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& given) {
      return BinaryCrossEntropy(outputs[0], given.features[0]);
    });
    return network;
  }
  // The rows of an image one behind the other.
  const ReshapeLayer rows({size, size});
  if (name == "lstm") {
    return Network(
        NetworkConfig::Sequential(
            image, {rows, Lstm(12), Lstm(8, {.output = RecurrentOutput::kLast}), Dense(10)}),
        options);
  }
  if (name == "transformer") {
    return Network(NetworkConfig::Sequential(
                       image, {rows, Dense(16, Activation::kIdentity, {.last_axis = true}),
                               PositionEmbedding(), TransformerBlock(2), LayerNormalization(),
                               GlobalPooling(), Dense(10)}),
                   options);
  }
  ThrowInvalidArgument(
      absl::StrCat("example network \"", name,
                   "\", expected mlp, lenet, residual, program, lstm, transformer or autoencoder"));
}

}  // namespace tidepool::nn
