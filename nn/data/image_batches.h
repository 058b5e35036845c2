// Batches of labelled grey images, shuffled anew each epoch: an ExampleIterator.
#ifndef TIDEPOOL_NN_DATA_IMAGE_BATCHES_H_
#define TIDEPOOL_NN_DATA_IMAGE_BATCHES_H_

#include <cstdint>

#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/example_iterator.h"

namespace tidepool::nn {

// Features [n, height, width, 1] in 0 to 1, and labels [n]. `images` must outlive it.
class ImageExamples final : public Examples<DataSet> {
 public:
  explicit ImageExamples(const LabelledImages& images) : images_(images) {}
  int64_t count() const override { return images_.count; }
  DataSet Make(const ChosenExamples& which, const std::stop_token& stop) const override;

 private:
  const LabelledImages& images_;
};

// In the order of the files until Shuffle().
class ImageBatches final : public ExampleIterator<DataSet> {
 public:
  // Throws kInvalidArgument when batch_size is below 1.
  ImageBatches(const LabelledImages& images, int64_t batch_size)
      : ImageBatches(images, Batching{.batch_size = batch_size}) {}
  ImageBatches(const LabelledImages& images, const Batching& batching);
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_IMAGE_BATCHES_H_
