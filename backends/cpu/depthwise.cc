#include "tidepool/backends/cpu/depthwise.h"

#include <algorithm>
#include <cstring>

#include "tidepool/backends/cpu/gemm/conv2d.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kMostPieces = 16;  // of the sum over outputs

int64_t Align(int64_t floats) { return (floats + 15) / 16 * 16; }
int64_t Taps(const Conv2dProblem& p) { return p.kernel_height * p.kernel_width; }
int64_t FilterFloats(const Conv2dProblem& p, int64_t channels) {
  return Align(p.out_channels * Taps(p) * channels);
}
int64_t OutPixels(const Conv2dProblem& p) { return p.batch * p.OutHeight() * p.OutWidth(); }
// Planes of dy, one for each filter of a channel; none for a single one, which is dy itself.
int64_t PlaneFloats(const Conv2dProblem& p, int64_t channels) {
  return p.out_channels == 1 ? 0 : Align(p.out_channels * OutPixels(p) * channels);
}

DepthwiseGeometry Geometry(const Conv2dProblem& p, int64_t channels) {
  return {p.in_height,     p.in_width,        channels,        p.OutHeight(),  p.OutWidth(),
          p.kernel_height, p.kernel_width,    p.stride_height, p.stride_width, p.pad_top,
          p.pad_left,      p.dilation_height, p.dilation_width};
}

// [channels, multiplier, taps] to [multiplier, taps, channels]; `flip` turns the taps round.
void PackFilter(const Conv2dProblem& p, int64_t channels, const float* filter, bool flip,
                float* packed) {
  const int64_t taps = Taps(p), multiplier = p.out_channels;
  for (int64_t j = 0; j < multiplier; ++j) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      float* to = packed + (j * taps + (flip ? taps - 1 - tap : tap)) * channels;
      for (int64_t c = 0; c < channels; ++c) to[c] = filter[(c * multiplier + j) * taps + tap];
    }
  }
}

// dy as planes [multiplier][pixels, channels].
const float* Planes(const Conv2dProblem& p, int64_t channels, const float* dy, float* planes,
                    Threads threads) {
  const int64_t multiplier = p.out_channels, pixels = OutPixels(p);
  if (multiplier == 1) return dy;
  ParallelFor(threads, pixels, 64, pixels * channels * multiplier, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < multiplier; ++j) {
        const float* from = dy + i * channels * multiplier + j;
        float* to = planes + (j * pixels + i) * channels;
        for (int64_t c = 0; c < channels; ++c) to[c] = from[c * multiplier];
      }
    }
  });
  return planes;
}

}  // namespace

// The filters, and a bias a plane.
size_t DepthwiseForwardScratchBytes(const Conv2dProblem& p, int64_t channels) {
  return static_cast<size_t>(FilterFloats(p, channels) + p.out_channels * channels) * sizeof(float);
}

void DepthwiseForward(const Conv2dProblem& p, int64_t channels, const float* x, const float* filter,
                      const float* bias, bool relu, float* y, void* scratch, Threads threads) {
  const DepthwiseGeometry g = Geometry(p, channels);
  const int64_t multiplier = p.out_channels, taps = Taps(p);
  float* packed = static_cast<float*>(scratch);
  PackFilter(p, channels, filter, false, packed);
  float* biases = nullptr;
  if (bias != nullptr) {
    biases = packed + FilterFloats(p, channels);
    for (int64_t i = 0; i < multiplier * channels; ++i) {
      biases[i % multiplier * channels + i / multiplier] = bias[i];
    }
  }
  const int64_t rows = p.batch * g.out_height, pixel = channels * multiplier;
  ParallelFor(threads, rows, 1, rows * g.out_width * pixel * taps, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / g.out_height;
      const float* in = x + image * g.in_height * g.in_width * channels;
      for (int64_t j = 0; j < multiplier; ++j) {
        NetworkLoops().depthwise_row(g, in, packed + j * taps * channels,
                                     biases == nullptr ? nullptr : biases + j * channels, relu,
                                     row % g.out_height, y + row * g.out_width * pixel + j, pixel,
                                     multiplier);
      }
    }
  });
}

size_t DepthwiseGradInputScratchBytes(const Conv2dProblem& p, int64_t channels) {
  return static_cast<size_t>(FilterFloats(p, channels) + PlaneFloats(p, channels)) * sizeof(float);
}

void DepthwiseGradInput(const Conv2dProblem& p, int64_t channels, const float* dy,
                        const float* filter, float* dx, void* scratch, Threads threads) {
  const DepthwiseGeometry g = Geometry(p, channels);
  const int64_t multiplier = p.out_channels, taps = Taps(p);
  const int64_t in_image = g.in_height * g.in_width * channels;
  const int64_t out_image = g.out_height * g.out_width * channels;
  const int64_t work = OutPixels(p) * channels * multiplier * taps;
  float* packed = static_cast<float*>(scratch);
  if (g.stride_height == 1 && g.stride_width == 1 && multiplier == 1) {
    // The convolution of dy with the filter turned round.
    PackFilter(p, channels, filter, true, packed);
    DepthwiseGeometry back = g;
    std::swap(back.in_height, back.out_height);
    std::swap(back.in_width, back.out_width);
    back.pad_top = (g.kernel_height - 1) * g.dilation_height - g.pad_top;
    back.pad_left = (g.kernel_width - 1) * g.dilation_width - g.pad_left;
    const int64_t rows = p.batch * g.in_height;
    ParallelFor(threads, rows, 1, work, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        NetworkLoops().depthwise_row(back, dy + row / g.in_height * out_image, packed, nullptr,
                                     false, row % g.in_height, dx + row * g.in_width * channels,
                                     channels, 1);
      }
    });
    return;
  }
  PackFilter(p, channels, filter, false, packed);
  const float* planes = Planes(p, channels, dy, packed + FilterFloats(p, channels), threads);
  ParallelFor(threads, p.batch, 1, work, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      std::memset(dx + image * in_image, 0, in_image * sizeof(float));
      for (int64_t j = 0; j < multiplier; ++j) {
        NetworkLoops().depthwise_scatter(g, planes + (j * p.batch + image) * out_image,
                                         packed + j * taps * channels, dx + image * in_image);
      }
    }
  });
}

size_t DepthwiseGradFilterScratchBytes(const Conv2dProblem& p, int64_t channels) {
  return static_cast<size_t>(kMostPieces * FilterFloats(p, channels) + PlaneFloats(p, channels)) *
         sizeof(float);
}

void DepthwiseGradFilter(const Conv2dProblem& p, int64_t channels, const float* x, const float* dy,
                         float* dfilter, bool accumulate, void* scratch, Threads threads) {
  const DepthwiseGeometry g = Geometry(p, channels);
  const int64_t multiplier = p.out_channels, taps = Taps(p);
  const int64_t filter_floats = FilterFloats(p, channels);
  const int64_t rows = p.batch * g.out_height, row_floats = g.out_width * channels;
  const int64_t piece = std::max<int64_t>(1, (rows + kMostPieces - 1) / kMostPieces);
  const int64_t pieces = (rows + piece - 1) / piece;
  float* sums = static_cast<float*>(scratch);
  const float* planes = Planes(p, channels, dy, sums + kMostPieces * filter_floats, threads);
  std::fill_n(sums, pieces * filter_floats, 0.0f);
  ParallelFor(threads, pieces, 1, OutPixels(p) * channels * multiplier * taps,
              [&](int64_t begin, int64_t end) {
                for (int64_t task = begin; task < end; ++task) {
                  const int64_t last = std::min(rows, (task + 1) * piece);
                  for (int64_t row = task * piece; row < last; ++row) {
                    const int64_t image = row / g.out_height;
                    for (int64_t j = 0; j < multiplier; ++j) {
                      NetworkLoops().depthwise_grad_filter_row(
                          g, x + image * g.in_height * g.in_width * channels,
                          planes + (j * rows + row) * row_floats, row % g.out_height,
                          sums + task * filter_floats + j * taps * channels);
                    }
                  }
                }
              });
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < multiplier; ++j) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        float& to = dfilter[(c * multiplier + j) * taps + tap];
        float sum = accumulate ? to : 0.0f;
        for (int64_t task = 0; task < pieces; ++task) {
          sum += sums[task * filter_floats + (j * taps + tap) * channels + c];
        }
        to = sum;
      }
    }
  }
}

}  // namespace tidepool::cpu
