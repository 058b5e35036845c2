// Loops of neural network operators over contiguous floats, compiled once for AVX2 and FMA and once
// for any processor. NetworkLoops() gives the table for this machine. Those of f64 are compiled for any processor
// alone: what they wait for is libm and long double, and without FMA their bits are the same on all of x86-64.
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
  void (*lstm_row)(const T* gates, const T* cell, T* output, T* next_cell, T* activations,
                   int64_t n);
  void (*lstm_grad_row)(const T* activations, const T* cell, const T* next_cell, const T* doutput,
                        const T* dnext_cell, T* dgates, T* dcell, int64_t n);
  void (*gru_row)(const T* input_gates, const T* hidden_gates, const T* hidden, T* next_hidden,
                  T* activations, int64_t n);
  void (*gru_grad_row)(const T* activations, const T* hidden_gates, const T* hidden, const T* dnext,
                       T* dinput_gates, T* dhidden_gates, T* dhidden, int64_t n);
};

// What elements of T are added up in, and what formulas are computed in where rounding to T would show.
template <typename T>
struct Wider;
template <>
struct Wider<float> {
  using Sum = double;
  using Term = float;
};
template <>
struct Wider<double> {
  using Sum = long double;
  using Term = long double;
};

// Those that f64 has as well as f32, by the same source.
template <typename T>
struct LayerLoops {
  using Sum = typename Wider<T>::Sum;

  // ---- pooling: one image a call. NaN wins in the maximum ----
  void (*max_pool)(const PoolGeometry& geometry, const T* x, T* y);
  void (*max_pool_grad)(const PoolGeometry& geometry, bool relu, const T* x, const T* y,
                        const T* dy, T* dx);
  void (*average_pool)(const PoolGeometry& geometry, bool count_padding, const T* x, T* y);
  void (*average_pool_grad)(const PoolGeometry& geometry, bool count_padding, const T* dy, T* dx);

  // ---- softmax: n elements `stride` apart for each of `width` neighbouring columns. z may be x,
  // dx either operand. stride 1: one column ----
  void (*softmax_rows)(const T* x, T* z, int64_t n, int64_t rows);  // of rows without gaps
  void (*softmax)(const T* x, T* z, int64_t n, int64_t stride, int64_t width);
  void (*log_softmax)(const T* x, T* z, int64_t n, int64_t stride, int64_t width);
  void (*softmax_grad_rows)(const T* z, const T* dz, T* dx, int64_t n, int64_t rows);
  void (*softmax_grad)(const T* z, const T* dz, T* dx, int64_t n, int64_t stride, int64_t width);
  void (*log_softmax_grad)(const T* z, const T* dz, T* dx, int64_t n, int64_t stride,
                           int64_t width);

  // ---- losses: one row of n. Gradients may be written over an operand ----
  // z = softmax(x), not over x; returns log(sum(exp(x - largest))).
  Sum (*probabilities)(const T* x, T* z, int64_t n, T* largest);
  void (*cross_entropy_grad)(const T* probabilities, int64_t label, T scale, T* gradient,
                             int64_t n);
  T (*dense_cross_entropy)(const T* x, const T* target, T* probabilities, int64_t n);
  void (*dense_cross_entropy_grad)(const T* probabilities, const T* target, T scale, T* gradient,
                                   int64_t n);
  Sum (*squared_error)(const T* x, const T* target, int64_t n);  // sum
  void (*squared_error_grad)(const T* x, const T* target, T scale, T* gradient,
                             int64_t n);                                // scale * (x - target)
  Sum (*binary_cross_entropy)(const T* x, const T* target, int64_t n);  // sum
  void (*binary_cross_entropy_grad)(const T* x, const T* target, T scale, T* gradient, int64_t n);
  Sum (*absolute_error)(const T* x, const T* target, int64_t n);  // sum
  void (*absolute_error_grad)(const T* x, const T* target, T scale, T* gradient, int64_t n);
  Sum (*huber_error)(const T* x, const T* target, T delta, int64_t n);  // sum
  void (*huber_error_grad)(const T* x, const T* target, T delta, T scale, T* gradient, int64_t n);
};

struct NnLoops : LayerLoops<float> {
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
  // Of rows without gaps: a mean and an inverse deviation each. Adds to dscale and dshift.
  void (*row_norm_grad)(const float* x, const float* dz, const float* scale, const float* means,
                        const float* inverses, float* dx, float* dscale, float* dshift, int64_t n,
                        int64_t rows);
  // The same without a mean: by the root of the mean square.
  void (*row_rms_grad)(const float* x, const float* dz, const float* scale, const float* inverses,
                       float* dx, float* dscale, int64_t n, int64_t rows);
  double (*row_squares)(const float* x, int64_t n);  // their sum
  void (*row_scale)(const float* x, float factor, const float* scale, float* z, int64_t n);

  // ---- depthwise convolution: filters [kernel height, kernel width, channels] ----
  // One row of outputs; y_pixel and y_channel floats lie between those of y. bias may be null.
  void (*depthwise_row)(const DepthwiseGeometry& geometry, const float* x, const float* filter,
                        const float* bias, bool relu, int64_t out_row, float* y, int64_t y_pixel,
                        int64_t y_channel);
  // Adds an image's gradient to dx, tap by tap.
  void (*depthwise_scatter)(const DepthwiseGeometry& geometry, const float* dy, const float* filter,
                            float* dx);
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
extern const LayerLoops<double> kLayerLoopsF64;
// LayerLoopsOf<float>() or LayerLoopsOf<double>().
template <typename T>
const LayerLoops<T>& LayerLoopsOf();
template <>
inline const LayerLoops<float>& LayerLoopsOf<float>() {
  return NetworkLoops();
}
template <>
inline const LayerLoops<double>& LayerLoopsOf<double>() {
  return kLayerLoopsF64;
}
extern const NnLoops kAvx2NnLoops, kAvx512NnLoops;  // x86-64 only

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_NN_LOOPS_H_
