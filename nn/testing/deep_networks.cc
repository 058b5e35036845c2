#include "tidepool/nn/testing/deep_networks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/layers/transformer_block.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::nn {
namespace {

Conv2D SameConv(int64_t filters, Activation activation) {
  return Conv2D(filters, 3, 3, activation, Conv2D::SamePadding(3, 1));
}

}  // namespace

Network DeepNetwork(const std::string& name, int depth, const NetworkOptions& options) {
  if (name == "residual") {
    NetworkConfig config;
    config.AddInput("image", {28, 28, 1});
    config.Add(SameConv(4, Activation::kIdentity), {"image"}, "stem");
    std::string x = "stem";
    for (int i = 0; i < depth; ++i) {
      const auto named = [&](const char* part) { return absl::StrCat("block", i, "_", part); };
      config.Add(BatchNormalization(), {x}, named("norm"));
      config.Add(ActivationLayer(Activation::kRelu), {named("norm")}, named("relu"));
      config.Add(SameConv(4, Activation::kIdentity), {named("relu")}, named("conv"));
      config.Add(Merge(MergeKind::kAdd), {x, named("conv")}, named("sum"));
      x = named("sum");
    }
    config.Add(GlobalPooling(), {x}, "pool");
    config.Add(Dense(10), {"pool"}, "out");
    config.outputs = {"out"};
    return Network(config, options);
  }
  std::vector<AnyLayer> layers;
  if (name == "convolutions") {
    for (int i = 0; i < depth; ++i) layers.push_back(SameConv(4, Activation::kRelu));
  } else if (name == "lstm") {
    layers.push_back(ReshapeLayer({28, 28}));
    for (int i = 0; i < depth; ++i) layers.push_back(Lstm(16));
  } else if (name == "transformer") {
    layers.push_back(ReshapeLayer({28, 28}));
    layers.push_back(Dense(16, Activation::kIdentity, {.last_axis = true}));
    layers.push_back(PositionEmbedding());
    for (int i = 0; i < depth; ++i) {
      layers.push_back(TransformerBlock(2));
      layers.push_back(DropoutLayer(0.1));
    }
  } else {
    ThrowInvalidArgument(absl::StrCat("deep network \"", name,
                                      "\", expected convolutions, residual, lstm or transformer"));
  }
  layers.push_back(GlobalPooling());
  layers.push_back(Dense(10));
  return Network(NetworkConfig::Sequential({28, 28, 1}, layers), options);
}

}  // namespace tidepool::nn
