// Batches of labelled grey images, shuffled anew each epoch.
#ifndef TIDEPOOL_NN_DATA_IMAGE_BATCHES_H_
#define TIDEPOOL_NN_DATA_IMAGE_BATCHES_H_

#include <cstdint>
#include <vector>

#include "tidepool/nn/data/batch.h"
#include "tidepool/nn/data/digits.h"

namespace tidepool::nn {

class ImageBatches {
 public:
  // `images` must outlive it. Throws kInvalidArgument when batch_size is below 1.
  ImageBatches(const LabelledImages& images, int64_t batch_size);

  // The order of `epoch`, a pure function of (seed, epoch).
  void Shuffle(uint64_t seed, uint64_t epoch);

  int64_t size() const { return (images_.count + batch_size_ - 1) / batch_size_; }
  // Batch `index`: features [n, height, width, 1] in 0..1 and labels [n], made in the current
  // place; n is the batch size but for the last batch.
  Batch Make(int64_t index) const;

 private:
  const LabelledImages& images_;
  int64_t batch_size_;
  std::vector<int32_t> order_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_IMAGE_BATCHES_H_
