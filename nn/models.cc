#include "tidepool/nn/models.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"

namespace tidepool::nn {

std::vector<std::unique_ptr<Layer>> LeNetLayers(int64_t classes) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<Conv2D>(20, 5, 5, Activation::kRelu));
  layers.push_back(std::make_unique<MaxPool2D>());
  layers.push_back(std::make_unique<Conv2D>(50, 5, 5, Activation::kRelu));
  layers.push_back(std::make_unique<MaxPool2D>());
  layers.push_back(std::make_unique<Dense>(500, Activation::kRelu));
  layers.push_back(std::make_unique<Dense>(classes));
  return layers;
}

std::vector<std::unique_ptr<Layer>> MlpLayers(int64_t classes) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<Dense>(256, Activation::kRelu));
  layers.push_back(std::make_unique<Dense>(128, Activation::kRelu));
  layers.push_back(std::make_unique<Dense>(classes));
  return layers;
}

std::vector<std::unique_ptr<Layer>> LayersOf(const std::string& model, int64_t classes) {
  if (model == "lenet") return LeNetLayers(classes);
  if (model == "mlp") return MlpLayers(classes);
  ThrowInvalidArgument(absl::StrCat("model is \"", model, "\", expected lenet or mlp"));
}

}  // namespace tidepool::nn
