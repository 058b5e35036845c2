// What operators take besides arrays. A kernel reads the struct of its operator from
// KernelCall::attributes.
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_H_

#include <cstdint>

namespace tidepool {

struct FillAttributes {
  double value = 0;  // each element's, converted to the type
};

// Z = scale * X + shift. Of i64 arrays: exact and wrapping when scale and shift are whole numbers;
// otherwise computed in double and truncated.
struct ScaleShiftAttributes {
  // Of every element.
  double scale = 1;
  double shift = 0;
};

// Z[.., m, n] = op(X) op(Y) (+ bias[n]) (then max(0, .), NaN for NaN; of cuBLASLt's epilogue 0). X and Y
// have rank 2 or more; leading axes broadcast. Integers wrap around.
struct MatMulAttributes {
  bool transpose_x = false;    // X is [.., k, m]
  bool transpose_y = false;    // Y is [.., n, k]
  bool relu = false;           // of the sum, bias included
  bool accumulate = false;     // Z += instead of Z =
  bool y_is_constant = false;  // Y will be the same for many calls: packing it once pays
};

// Input [batch, height, width, channels], filter [filters, kernel height, kernel width,
// channels / groups], output [batch, out height, out width, filters]. Filters come in `groups` equal
// runs; those of run g see the input channels of run g only. groups == channels is the depthwise
// convolution.
struct Conv2dAttributes {
  // In elements of the image; padding counts as zeros.
  int64_t stride_height = 1, stride_width = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t dilation_height = 1, dilation_width = 1;

  bool relu = false;                // of the output, forward only
  bool accumulate = false;          // gradient of the filter only
  bool filter_is_constant = false;  // as MatMulAttributes::y_is_constant
  int64_t groups = 1;               // divides channels and filters
};

// Of maximum and average. Gradients of overlapping windows of the maximum are added in float (f64: in
// double) in the row-major order of the windows. Padding is smaller than the kernel: every window
// has an element of the image. It is never the largest.
struct Pool2dAttributes {
  // In elements of the image.
  int64_t kernel_height = 2, kernel_width = 2;
  int64_t stride_height = 2, stride_width = 2;
  // The input is the output of a ReLU: its gradient is applied in the same pass.
  bool relu_grad = false;

  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;  // beside the image
  // Of the average: padding counts as zeros; otherwise only elements of the image count.
  bool count_include_pad = true;
};

// gradient = scale * (probabilities - one_hot(labels)).
struct CrossEntropyGradAttributes {
  double scale = 1;  // 1 / rows for a mean
};

// Of all updates: what the formulas call g is clip(scale * gradient) + l2 * parameter + l1 * sign(parameter), where
// clip takes each element to [-clip, clip] (0: not at all; NaN stays) and scale is of the array of numbers
// (update_numbers.h), else 1.

// parameters -= learning_rate * g
struct SgdAttributes {
  // As the formulas have them.
  double learning_rate = 0.01;
  double l2 = 0;
  double l1 = 0;
  double clip = 0;
};

// velocity = momentum * velocity - learning_rate * g;
// parameters += momentum * velocity - learning_rate * g   (Sutskever et al. 2013, as in Keras)
// PyTorch's SGD(nesterov=True) is this for a learning rate that stays the same.
struct NesterovsAttributes {
  // As the formulas have them.
  double learning_rate = 0.1;
  double momentum = 0.9;
  double l2 = 0;
  double l1 = 0;
  double clip = 0;
};

// Duchi, Hazan and Singer 2011: sum += g^2; parameters -= learning_rate * g / (sqrt(sum) + epsilon).
struct AdaGradAttributes {
  // As the formulas have them.
  double learning_rate = 0.01;
  double epsilon = 1e-10;
  double l2 = 0;
  double l1 = 0;
  double clip = 0;
};

// Tieleman and Hinton 2012: mean_square = decay * mean_square + (1 - decay) * g^2;
// parameters -= learning_rate * g / (sqrt(mean_square) + epsilon). PyTorch calls decay alpha.
struct RmsPropAttributes {
  // As the formulas have them.
  double learning_rate = 0.01;
  double decay = 0.99;
  double epsilon = 1e-8;
  double l2 = 0;
  double l1 = 0;
  double clip = 0;
};

// Kingma and Ba 2015, with the bias corrections folded into the step size (end of their section 2):
// parameters -= learning_rate * sqrt(1 - beta2^step) / (1 - beta1^step) * m / (sqrt(v) + epsilon).
struct AdamAttributes {
  // As the formulas have them: m and v are running averages of g and g^2, which keep beta1 and
  // beta2 of themselves; l2 goes through the gradient.
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double l2 = 0;

  int64_t step = 1;  // of this update, from 1
  // Loshchilov and Hutter 2019 (AdamW): the parameters shrink by learning_rate * weight_decay of themselves first,
  // beside the gradient and not through it.
  double weight_decay = 0;

  // Of g, as above.
  double l1 = 0;
  double clip = 0;
};

// Element i is a pure function of (seed, stream, i): the same for any device and thread count.
struct RandomAttributes {
  uint64_t seed = 0;    // the program's
  uint64_t stream = 0;  // of it: calls with other numbers are independent of this one
  double low = 0;       // uniform: [low, high); normal: mean
  double high = 1;      // normal: standard deviation
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_H_
