#include "tidepool/nn/data/image_batches.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

// Image i is filled with the value i and labelled i % 3.
LabelledImages Numbered(int64_t count) {
  LabelledImages images;
  images.count = count;
  images.height = 2;
  images.width = 3;
  images.classes = 3;
  for (int64_t i = 0; i < count; ++i) {
    images.pixels.insert(images.pixels.end(), 6, static_cast<uint8_t>(i));
    images.labels.push_back(static_cast<uint8_t>(i % 3));
  }
  return images;
}

std::vector<int> OrderOf(const ImageBatches& batches) {
  std::vector<int> order;
  for (int64_t b = 0; b < batches.size(); ++b) {
    const Batch batch = batches.Make(b);
    for (int64_t i = 0; i < batch.labels.NumElements(); ++i) {
      const int image = static_cast<int>(batch.features.At<float>({i, 1, 2, 0}) * 255 + 0.5f);
      EXPECT_EQ(batch.labels.At<int64_t>({i}), image % 3);
      order.push_back(image);
    }
  }
  return order;
}

TEST(ImageBatches, EveryImageOncePerEpochWithItsLabel) {
  const LabelledImages images = Numbered(23);
  ImageBatches batches(images, 5);
  EXPECT_EQ(batches.size(), 5);
  EXPECT_EQ(batches.Make(4).features.shape(), Shape({3, 2, 3, 1}));
  std::vector<int> plain = OrderOf(batches);
  EXPECT_TRUE(std::is_sorted(plain.begin(), plain.end()));
  batches.Shuffle(7, 1);
  const std::vector<int> first = OrderOf(batches);
  batches.Shuffle(7, 2);
  const std::vector<int> second = OrderOf(batches);
  EXPECT_NE(first, second);
  EXPECT_NE(first, plain);
  std::vector<int> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, plain);
  batches.Shuffle(7, 1);
  EXPECT_EQ(OrderOf(batches), first);
}

TEST(ImageBatches, BadSizesAndIndicesAreErrors) {
  const LabelledImages images = Numbered(4);
  EXPECT_THROW(ImageBatches(images, 0), Error);
  ImageBatches batches(images, 2);
  EXPECT_THROW(batches.Make(2), Error);
  EXPECT_THROW(batches.Make(-1), Error);
}

}  // namespace
}  // namespace tidepool::nn
