#include "tidepool/nn/models.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"

namespace tidepool::nn {

std::vector<AnyLayer> LeNetLayers(int64_t classes) {
  return {Conv2D(20, 5, 5, Activation::kRelu), MaxPool2D(), Conv2D(50, 5, 5, Activation::kRelu),
          MaxPool2D(),                         Dense(500, Activation::kRelu), Dense(classes)};
}

std::vector<AnyLayer> MlpLayers(int64_t classes) {
  return {Dense(256, Activation::kRelu), Dense(128, Activation::kRelu), Dense(classes)};
}

std::vector<AnyLayer> LayersOf(const std::string& model, int64_t classes) {
  if (model == "lenet") return LeNetLayers(classes);
  if (model == "mlp") return MlpLayers(classes);
  ThrowInvalidArgument(absl::StrCat("model is \"", model, "\", expected lenet or mlp"));
}

}  // namespace tidepool::nn
