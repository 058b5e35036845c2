// Batch normalisation (Ioffe and Szegedy 2015), layer normalisation (Ba, Kiros and Hinton 2016), that of groups and
// that by the root of the mean square, with gradients: z = (x - mean) / sqrt(variance + epsilon) * scale + shift.
//
// Of a batch: statistics of each element of the last axis ("channel") over all other axes, so images
// are [batch, height, width, channels]. Of a layer: of the last axis, for each element of the
// others. The variance is that of the elements themselves, divided by their number.
//
// x: f32, f64, f16, bf16, rank 1 or more; scale and shift [size of the last axis] of x's type;
// statistics ("mean", "inverse_deviation" = 1 / sqrt(variance + epsilon), running averages) f64 for
// f64 and f32 otherwise. They are right for means far larger than the deviation (corrected two-pass
// sums). Results are in the current place. Of nothing they are NaN.
//
// Errors: kInvalidArgument naming operand, shape and type, and for a negative epsilon.
#ifndef TIDEPOOL_NDARRAY_OPS_NORMALIZATION_H_
#define TIDEPOOL_NDARRAY_OPS_NORMALIZATION_H_

#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// The type of statistics of arrays of `dtype`.
constexpr DType StatisticsType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

struct Normalized {
  NDArray output;             // as x
  NDArray mean;               // batch: [channels]; layer: x's shape without the last axis
  NDArray inverse_deviation;  // as mean
};
// Of the loss, with respect to x, scale and shift.
struct NormalizationGradients {
  NDArray input;  // as x
  NDArray scale;  // [size of the last axis]
  NDArray shift;  // [size of the last axis]
};

// In training, with the statistics of x.
Normalized BatchNorm(const NDArray& x, const NDArray& scale, const NDArray& shift,
                     const NormalizationAttributes& attributes = {});
// From what BatchNorm returned; how x reaches z through the statistics is part of the gradient.
NormalizationGradients BatchNormGrad(const NDArray& x, const NDArray& scale, const NDArray& mean,
                                     const NDArray& inverse_deviation,
                                     const NDArray& output_gradient);
// running = (1 - momentum) * running + momentum * batch, for the mean and for the variance, which is
// taken of the population the batch of `count` elements a channel stands for: times
// count / (count - 1). `epsilon` as given to BatchNorm.
void UpdateRunningAverages(const NDArray& mean, const NDArray& inverse_deviation,
                           const RunningAverageAttributes& attributes, NDArray& running_mean,
                           NDArray& running_variance);
// With given statistics.
NDArray BatchNormInference(const NDArray& x, const NDArray& scale, const NDArray& shift,
                           const NDArray& mean, const NDArray& variance,
                           const NormalizationAttributes& attributes = {});

// Of each line of the last axis by its own statistics; and the gradients, from what that returned.
Normalized LayerNorm(const NDArray& x, const NDArray& scale, const NDArray& shift,
                     const NormalizationAttributes& attributes = {});
NormalizationGradients LayerNormGrad(const NDArray& x, const NDArray& scale, const NDArray& mean,
                                     const NDArray& inverse_deviation,
                                     const NDArray& output_gradient);

// Zhang and Sennrich 2019: z = x / sqrt(mean of x * x over the last axis + epsilon) * scale.
struct RmsNormalized {
  NDArray output;       // as x
  NDArray inverse_rms;  // x's shape without the last axis
};
// Of the loss, with respect to x and scale.
struct RmsNormGradients {
  NDArray input;  // as x
  NDArray scale;  // [size of the last axis]
};
// The formula above; and the gradients, from what that returned.
RmsNormalized RmsNorm(const NDArray& x, const NDArray& scale,
                      const NormalizationAttributes& attributes = {});
RmsNormGradients RmsNormGrad(const NDArray& x, const NDArray& scale, const NDArray& inverse_rms,
                             const NDArray& output_gradient);

// Wu and He 2018: x [batch, ..., channels], whose channels are a multiple of the groups; statistics are those of the
// neighbouring channels of a group in one item, mean and inverse_deviation [batch, groups]. As many groups as channels:
// instance normalisation.
Normalized GroupNorm(const NDArray& x, const NDArray& scale, const NDArray& shift,
                     const GroupNormAttributes& attributes);
NormalizationGradients GroupNormGrad(const NDArray& x, const NDArray& scale, const NDArray& mean,
                                     const NDArray& inverse_deviation,
                                     const NDArray& output_gradient);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_NORMALIZATION_H_
