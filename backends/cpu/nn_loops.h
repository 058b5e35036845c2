// Loops of neural network operators over contiguous floats, compiled once for AVX2 and FMA and once
// for any processor. NetworkLoops() gives the table for this machine.
#ifndef TIDEPOOL_BACKENDS_CPU_NN_LOOPS_H_
#define TIDEPOOL_BACKENDS_CPU_NN_LOOPS_H_

#include <stdint.h>

namespace tidepool::cpu {

// One image: [height, width, channels].
struct PoolGeometry {
  int64_t in_height, in_width, channels, out_height, out_width;
  int64_t kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left;
};

// One image of a depthwise convolution, or a plane of one with several filters a channel. Padding may
// be negative.
struct DepthwiseGeometry {
  int64_t in_height, in_width, channels, out_height, out_width, kernel_height, kernel_width;
  int64_t stride_height, stride_width, pad_top, pad_left, dilation_height, dilation_width;
};

// Of recurrent cells: one row of n units; gates side by side, dnext_cell may be null.
template <typename T>
struct CellLoops {
  void (*lstm_row)(const T* gates, const T* cell, T* output, T* next_cell, T* activations, int64_t n);
  void (*lstm_grad_row)(const T* activations, const T* cell, const T* next_cell, const T* doutput, const T* dnext_cell,
                        T* dgates, T* dcell, int64_t n);
  void (*gru_row)(const T* input_gates, const T* hidden_gates, const T* hidden, T* next_hidden, T* activations, int64_t n);
  void (*gru_grad_row)(const T* activations, const T* hidden_gates, const T* hidden, const T* dnext, T* dinput_gates,
                       T* dhidden_gates, T* dhidden, int64_t n);
};

struct NnLoops {
  // ---- pooling: one image a call. NaN wins in the maximum ----
  void (*max_pool)(const PoolGeometry& geometry, const float* x, float* y);
  void (*max_pool_grad)(const PoolGeometry& geometry, bool relu, const float* x, const float* y,
                        const float* dy, float* dx);
  void (*average_pool)(const PoolGeometry& geometry, bool count_padding, const float* x, float* y);
  void (*average_pool_grad)(const PoolGeometry& geometry, bool count_padding, const float* dy,
                            float* dx);

  // ---- softmax: n elements `stride` apart for each of `width` neighbouring columns. z may be x,
  // dx either operand. stride 1: one column ----
  void (*softmax_rows)(const float* x, float* z, int64_t n, int64_t rows);  // of rows without gaps
  void (*softmax)(const float* x, float* z, int64_t n, int64_t stride, int64_t width);
  void (*log_softmax)(const float* x, float* z, int64_t n, int64_t stride, int64_t width);
  void (*softmax_grad_rows)(const float* z, const float* dz, float* dx, int64_t n, int64_t rows);
  void (*softmax_grad)(const float* z, const float* dz, float* dx, int64_t n, int64_t stride,
                       int64_t width);
  void (*log_softmax_grad)(const float* z, const float* dz, float* dx, int64_t n, int64_t stride,
                           int64_t width);

  // ---- losses: one row of n. Gradients may be written over an operand ----
  // z = softmax(x), not over x; returns log(sum(exp(x - largest))).
  double (*probabilities)(const float* x, float* z, int64_t n, float* largest);
  void (*cross_entropy_grad)(const float* probabilities, int64_t label, float scale,
                             float* gradient, int64_t n);
  float (*dense_cross_entropy)(const float* x, const float* target, float* probabilities,
                               int64_t n);
  void (*dense_cross_entropy_grad)(const float* probabilities, const float* target, float scale,
                                   float* gradient, int64_t n);
  double (*squared_error)(const float* x, const float* target, int64_t n);  // sum
  void (*squared_error_grad)(const float* x, const float* target, float scale, float* gradient,
                             int64_t n);  // scale * (x - target)
  double (*binary_cross_entropy)(const float* x, const float* target, int64_t n);  // sum
  void (*binary_cross_entropy_grad)(const float* x, const float* target, float scale,
                                    float* gradient, int64_t n);
  double (*absolute_error)(const float* x, const float* target, int64_t n);  // sum
  void (*absolute_error_grad)(const float* x, const float* target, float scale, float* gradient, int64_t n);
  double (*huber_error)(const float* x, const float* target, float delta, int64_t n);  // sum
  void (*huber_error_grad)(const float* x, const float* target, float delta, float scale, float* gradient, int64_t n);

  // ---- batch normalisation: `count` elements in rows of `wide`; the last may be shorter. Per
  // column: d = x - center ----
  void (*column_sums)(const float* x, int64_t count, int64_t wide, double* sums);  // added to
  void (*column_moments)(const float* x, const float* center, int64_t count, int64_t wide,
                         double* sums, double* squares);  // of d, added to
  void (*column_products)(const float* x, const float* center, const float* dz, int64_t count,
                          int64_t wide, double* sums, double* products);  // of dz, of dz * d
  void (*column_affine)(const float* x, const float* center, const float* factor,
                        const float* shift, int64_t count, int64_t wide, float* z);
  // dx = factor * dz - offset - slope * d
  void (*column_grad)(const float* x, const float* center, const float* dz, const float* factor,
                      const float* offset, const float* slope, int64_t count, int64_t wide,
                      float* dx);

  // ---- layer normalisation: one row of n ----
  void (*row_moments)(const float* x, int64_t n, double* mean, double* variance);
  // z = ((x - center) * factor + offset) * scale + shift
  void (*row_affine)(const float* x, float center, float factor, float offset, const float* scale,
                     const float* shift, float* z, int64_t n);
  // Adds to dscale and dshift.
  void (*row_norm_grad)(const float* x, const float* dz, const float* scale, float mean,
                        float inverse_deviation, float* dx, float* dscale, float* dshift,
                        int64_t n);
  // The same without a mean: by the root of the mean square.
  void (*row_rms_grad)(const float* x, const float* dz, const float* scale, float inverse_rms,
                       float* dx, float* dscale, int64_t n);
  double (*row_squares)(const float* x, int64_t n);  // their sum
  void (*row_scale)(const float* x, float factor, const float* scale, float* z, int64_t n);

  // ---- depthwise convolution: filters [kernel height, kernel width, channels] ----
  // One row of outputs; y_pixel and y_channel floats lie between those of y. bias may be null.
  void (*depthwise_row)(const DepthwiseGeometry& geometry, const float* x, const float* filter,
                        const float* bias, bool relu, int64_t out_row, float* y, int64_t y_pixel,
                        int64_t y_channel);
  // Adds an image's gradient to dx, tap by tap.
  void (*depthwise_scatter)(const DepthwiseGeometry& geometry, const float* dy,
                            const float* filter, float* dx);
  // Adds what one row of dy gives to dfilter.
  void (*depthwise_grad_filter_row)(const DepthwiseGeometry& geometry, const float* x,
                                    const float* dy, int64_t out_row, float* dfilter);

  CellLoops<float> cells;
  CellLoops<double> cells_f64;

  // ---- 16-bit floats as their bits, Float16 and BFloat16 ----
  void (*half_to_float)(const uint16_t* x, float* z, int64_t n);
  void (*float_to_half)(const float* x, uint16_t* z, int64_t n);
  void (*brain_to_float)(const uint16_t* x, float* z, int64_t n);
  void (*float_to_brain)(const float* x, uint16_t* z, int64_t n);
};

const NnLoops& NetworkLoops();
extern const NnLoops kPortableNnLoops;
extern const NnLoops kAvx2NnLoops, kAvx512NnLoops;  // x86-64 only

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_NN_LOOPS_H_
