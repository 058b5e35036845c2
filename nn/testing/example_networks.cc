#include "tidepool/nn/testing/example_networks.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

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
  if (name == "residual") return Network(ResidualConfig({28, 28, 1}, 10, {8, 16}), options);
  if (name == "program")
    return Network({{"image", {28, 28, 1}}}, std::make_unique<Program>(), options);
  ThrowInvalidArgument(
      absl::StrCat("example network \"", name, "\", expected mlp, lenet, residual or program"));
}

}  // namespace tidepool::nn
