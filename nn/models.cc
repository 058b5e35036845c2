#include "tidepool/nn/models.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/pooling.h"

namespace tidepool::nn {

std::vector<AnyLayer> LeNetLayers(int64_t classes) {
  return {Conv2D(20, 5, 5, Activation::kRelu), MaxPool2D(),
          Conv2D(50, 5, 5, Activation::kRelu), MaxPool2D(),
          Dense(500, Activation::kRelu),       Dense(classes)};
}

std::vector<AnyLayer> MlpLayers(int64_t classes) {
  return {Dense(256, Activation::kRelu), Dense(128, Activation::kRelu), Dense(classes)};
}

std::vector<AnyLayer> LayersOf(const std::string& model, int64_t classes) {
  if (model == "lenet") return LeNetLayers(classes);
  if (model == "mlp") return MlpLayers(classes);
  ThrowInvalidArgument(absl::StrCat("model is \"", model, "\", expected lenet or mlp"));
}

NetworkConfig ResidualConfig(const Shape& image, int64_t classes,
                             const std::vector<int64_t>& channels) {
  if (channels.empty()) {
    ThrowInvalidArgument("residual network: no channels, expected those of each stage");
  }
  NetworkConfig config;
  // The shift of the normalisation is the convolution's bias.
  const auto convolution = [&](int64_t filters, int64_t kernel, int64_t stride,
                               const std::string& x, const std::string& name) {
    config.Add(Conv2D(filters, kernel, kernel, Activation::kIdentity,
                      Conv2D::SamePadding(kernel, stride), {.bias = false}),
               {x}, name);
    return config.Add(BatchNormalization(), {name}, name + "_norm");
  };
  const auto relu = [&](const std::string& x, const std::string& name) {
    return config.Add(ActivationLayer(), {x}, name + "_relu");
  };
  std::string x = config.AddInput("image", image);
  x = relu(convolution(channels[0], 3, 1, x, "stem"), "stem");
  for (size_t i = 0; i < channels.size(); ++i) {
    const std::string stage = absl::StrCat(i + 1), first = stage + "_first";
    const int64_t stride = i == 0 ? 1 : 2;
    std::string y = relu(convolution(channels[i], 3, stride, x, first), first);
    y = convolution(channels[i], 3, 1, y, stage + "_second");
    if (i > 0) x = convolution(channels[i], 1, stride, x, stage + "_around");
    x = relu(config.Add(Merge(MergeKind::kAdd), {y, x}, stage + "_sum"), stage);
  }
  x = config.Add(GlobalPooling(), {x}, "mean");
  config.outputs = {config.Add(Dense(classes), {x}, "classes")};
  return config;
}

}  // namespace tidepool::nn
