#include "tidepool/nn/data/image_batches.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014). Our own, because the standard's distributions differ
// between libraries and an order must not.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace

ImageBatches::ImageBatches(const LabelledImages& images, int64_t batch_size)
    : images_(images), batch_size_(batch_size), order_(static_cast<size_t>(images.count)) {
  if (batch_size < 1) {
    ThrowInvalidArgument(absl::StrCat("batch size is ", batch_size, ", expected at least 1"));
  }
  std::iota(order_.begin(), order_.end(), 0);
}

void ImageBatches::Shuffle(uint64_t seed, uint64_t epoch) {
  SplitMix64 random(seed * 0xD1342543DE82EF95u + epoch + 1);
  std::iota(order_.begin(), order_.end(), 0);
  for (size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[random.Next() % i]);
  }
}

Batch ImageBatches::Make(int64_t index) const {
  static const std::array<float, 256> kScaled = [] {
    std::array<float, 256> table;
    for (int i = 0; i < 256; ++i) table[i] = static_cast<float>(i) / 255.0f;
    return table;
  }();
  const int64_t begin = index * batch_size_;
  const int64_t count = std::min(batch_size_, images_.count - begin);
  if (index < 0 || count < 1) {
    ThrowInvalidArgument(absl::StrCat("batch ", index, " of ", size()));
  }
  const int64_t pixels = images_.height * images_.width;
  Batch batch{NDArray({count, images_.height, images_.width, 1}, DType::kFloat32),
              NDArray({count}, DType::kInt64)};
  float* features = batch.features.mutable_data<float>();
  int64_t* labels = batch.labels.mutable_data<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t source = order_[begin + i];
    const uint8_t* image = images_.pixels.data() + source * pixels;
    for (int64_t p = 0; p < pixels; ++p) features[i * pixels + p] = kScaled[image[p]];
    labels[i] = images_.labels[source];
  }
  return batch;
}

}  // namespace tidepool::nn
