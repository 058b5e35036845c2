// A batch: features and labels of one step.
#ifndef TIDEPOOL_NN_DATA_BATCH_H_
#define TIDEPOOL_NN_DATA_BATCH_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

struct Batch {
  NDArray features;  // [batch, ...] f32
  NDArray labels;    // [batch] i64
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_BATCH_H_
