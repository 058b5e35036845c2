// Attributes of softmax, losses and normalisation. See attributes.h.
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_NN_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_NN_H_

#include <cstdint>

namespace tidepool {

// Softmax, its logarithm and their gradients.
struct SoftmaxAttributes {
  int axis = 0;  // from 0
};

// Gradients of losses: of scale * sum of the losses.
struct LossGradAttributes {
  double scale = 1;
};

// Of Huber's loss and its gradient: where the square becomes a line.
struct HuberAttributes {
  double delta = 1;
};

// Of connectionist temporal classification and its gradient.
struct CtcAttributes {
  int64_t blank = 0;           // the class that stands for no label
  bool zero_infinity = false;  // labels that the input is too short for cost 0 instead of infinity
};

// Batch and layer normalisation: Z = (X - mean) / sqrt(variance + epsilon) * scale + shift.
struct NormalizationAttributes {
  double epsilon = 1e-5;
};

// Of groups of neighbouring channels of each item of the batch.
struct GroupNormAttributes {
  double epsilon = 1e-5;
  int64_t groups = 1;
};

// running = (1 - momentum) * running + momentum * batch, where the variance of a batch of `count`
// elements is that of the population it stands for: divided by count - 1.
struct RunningAverageAttributes {
  double momentum = 0.1;
  double epsilon = 1e-5;  // as that of the batch
  int64_t count = 1;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_NN_H_
