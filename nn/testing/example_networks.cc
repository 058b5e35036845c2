#include "tidepool/nn/testing/example_networks.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

class Sum final : public Layer {
 public:
  std::string Kind() const override { return "test_sum"; }
  Shape OutputShapeOf(absl::Span<const Shape> inputs) const override { return inputs[0]; }
  NDArray ForwardOf(LayerContext&, absl::Span<const NDArray> inputs) const override {
    return inputs[0] + inputs[1];
  }
};

Conv2D Same(int64_t filters, Activation activation) {
  return Conv2D(filters, 3, 3, activation, Conv2D::SamePadding(3));
}

NetworkConfig ResidualConfig() {
  NetworkConfig config;
  std::string x =
      config.Add(Same(8, Activation::kRelu), {config.AddInput("image", {28, 28, 1})}, "stem");
  for (const char* block : {"a", "b"}) {
    const std::string name = block;
    const std::string first = config.Add(Same(8, Activation::kRelu), {x}, name + " first");
    const std::string second =
        config.Add(Same(8, Activation::kIdentity), {first}, name + " second");
    x = config.Add(Sum(), {second, x}, name + " sum");
    x = config.Add(ActivationLayer(), {x}, name + " relu");
    x = config.Add(MaxPool2D(), {x}, name + " pool");
  }
  config.outputs = {config.Add(Dense(10), {x}, "classes")};
  return config;
}

// With computations of its own between its parts, and a part that is called twice.
struct Program final : Block {
  Part first{*this, "first", Dense(64, Activation::kTanh)};
  Part middle{*this, "middle", Dense(64, Activation::kTanh)};
  Part out{*this, "out", Dense(10)};
  NDArray Forward(const NDArray& x) const override {
    const NDArray h = first(x);
    const NDArray twice = middle(middle(h));
    return out(Relu(twice + h) * 0.5);
  }
};

}  // namespace

Network ExampleNetwork(const std::string& name, const NetworkOptions& options) {
  if (name == "mlp") return Network(NetworkConfig::Sequential({28, 28, 1}, MlpLayers(10)), options);
  if (name == "lenet")
    return Network(NetworkConfig::Sequential({28, 28, 1}, LeNetLayers(10)), options);
  if (name == "residual") return Network(ResidualConfig(), options);
  if (name == "program")
    return Network({{"image", {28, 28, 1}}}, std::make_unique<Program>(), options);
  ThrowInvalidArgument(
      absl::StrCat("example network \"", name, "\", expected mlp, lenet, residual or program"));
}

}  // namespace tidepool::nn
