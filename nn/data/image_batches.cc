#include "tidepool/nn/data/image_batches.h"

#include <array>
#include <memory>

namespace tidepool::nn {

ImageBatches::ImageBatches(const LabelledImages& images, const Batching& batching)
    : ExampleIterator<DataSet>(std::make_shared<ImageExamples>(images), batching) {}

DataSet ImageExamples::Make(const ChosenExamples& which, const std::stop_token&) const {
  static const std::array<float, 256> kScaled = [] {
    std::array<float, 256> table;
    for (int i = 0; i < 256; ++i) table[i] = static_cast<float>(i) / 255.0f;
    return table;
  }();
  const int64_t pixels = images_.height * images_.width;
  DataSet batch{NDArray({which.size(), images_.height, images_.width, 1}, DType::kFloat32),
                NDArray({which.size()}, DType::kInt64)};
  float* features = batch.features.mutable_data<float>();
  int64_t* labels = batch.labels.mutable_data<int64_t>();
  for (int64_t i = 0; i < which.size(); ++i, features += pixels) {
    const int64_t source = which[i];
    const uint8_t* image = images_.pixels.data() + source * pixels;
    for (int64_t p = 0; p < pixels; ++p) features[p] = kScaled[image[p]];
    labels[i] = images_.labels[static_cast<size_t>(source)];
  }
  return batch;
}

}  // namespace tidepool::nn
