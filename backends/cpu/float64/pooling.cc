// Pooling of NHWC images of f64 and its gradients, an image a task. NaN counts as the largest; the first
// of equals is taken; gradients are added in the row-major order of the windows.
#include <algorithm>
#include <cstdint>

#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

// visit(window's pixels [row, row_end) x [column, column_end), number of the output pixel) for each
// window of an image.
template <typename Visit>
void ForEachWindow(const TensorRef& x, const TensorRef& y, const Pool2dAttributes& a, Visit visit) {
  for (int64_t i = 0; i < y.dims[1]; ++i) {
    const int64_t top = i * a.stride_height - a.pad_top;
    for (int64_t j = 0; j < y.dims[2]; ++j) {
      const int64_t left = j * a.stride_width - a.pad_left;
      visit(std::max<int64_t>(top, 0), std::min(top + a.kernel_height, x.dims[1]),
            std::max<int64_t>(left, 0), std::min(left + a.kernel_width, x.dims[2]),
            i * y.dims[2] + j);
    }
  }
}

// body(image) on several threads.
template <typename Body>
void ForEachImage(const KernelCall& call, const TensorRef& x, Body body) {
  ParallelFor(call.threads, x.dims[0], 1, x.NumElements() * 4, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) body(image);
  });
}

double* ImageOf(const TensorRef& ref, int64_t image) {
  return ref.as<double>() + image * ref.dims[1] * ref.dims[2] * ref.dims[3];
}

bool Larger(double x, double y) { return x > y || (x != x && y == y); }

void RunMaxPool(const KernelCall& call) {
  const TensorRef &in = call.inputs[0], &out = call.outputs[0];
  const int64_t channels = in.dims[3], width = in.dims[2];
  ForEachImage(call, in, [&](int64_t image) {
    const double* x = ImageOf(in, image);
    double* y = ImageOf(out, image);
    ForEachWindow(in, out, call.attrs<Pool2dAttributes>(),
                  [&](int64_t row, int64_t row_end, int64_t column, int64_t column_end, int64_t at) {
                    double* z = y + at * channels;
                    std::copy_n(x + (row * width + column) * channels, channels, z);
                    for (int64_t r = row; r < row_end; ++r) {
                      for (int64_t s = column; s < column_end; ++s) {
                        const double* pixel = x + (r * width + s) * channels;
                        for (int64_t c = 0; c < channels; ++c) {
                          z[c] = Larger(pixel[c], z[c]) ? pixel[c] : z[c];
                        }
                      }
                    }
                  });
  });
}

void RunMaxPoolGrad(const KernelCall& call) {
  const TensorRef &in = call.inputs[0], &gradient = call.inputs[2], &result = call.outputs[0];
  const auto& a = call.attrs<Pool2dAttributes>();
  const int64_t channels = in.dims[3], width = in.dims[2], pixels = in.dims[1] * width;
  ForEachImage(call, in, [&](int64_t image) {
    const double *x = ImageOf(in, image), *dy = ImageOf(gradient, image);
    double* dx = ImageOf(result, image);
    std::fill_n(dx, pixels * channels, 0.0);
    ForEachWindow(in, gradient, a,
                  [&](int64_t row, int64_t row_end, int64_t column, int64_t column_end, int64_t at) {
                    for (int64_t c = 0; c < channels; ++c) {
                      int64_t best = (row * width + column) * channels + c;
                      for (int64_t r = row; r < row_end; ++r) {
                        for (int64_t s = column; s < column_end; ++s) {
                          const int64_t here = (r * width + s) * channels + c;
                          if (Larger(x[here], x[best])) best = here;
                        }
                      }
                      if (!a.relu_grad || x[best] > 0) dx[best] += dy[at * channels + c];
                    }
                  });
  });
}

double Divisor(const Pool2dAttributes& a, int64_t pixels) {
  return static_cast<double>(a.count_include_pad ? a.kernel_height * a.kernel_width : pixels);
}

void RunAveragePool(const KernelCall& call) {
  const TensorRef &in = call.inputs[0], &out = call.outputs[0];
  const auto& a = call.attrs<Pool2dAttributes>();
  const int64_t channels = in.dims[3], width = in.dims[2];
  ForEachImage(call, in, [&](int64_t image) {
    const double* x = ImageOf(in, image);
    double* y = ImageOf(out, image);
    ForEachWindow(in, out, a,
                  [&](int64_t row, int64_t row_end, int64_t column, int64_t column_end, int64_t at) {
                    const double divisor = Divisor(a, (row_end - row) * (column_end - column));
                    for (int64_t c = 0; c < channels; ++c) {
                      long double sum = 0;
                      for (int64_t r = row; r < row_end; ++r) {
                        for (int64_t s = column; s < column_end; ++s) {
                          sum += x[(r * width + s) * channels + c];
                        }
                      }
                      y[at * channels + c] = static_cast<double>(sum / divisor);
                    }
                  });
  });
}

void RunAveragePoolGrad(const KernelCall& call) {
  const TensorRef &gradient = call.inputs[0], &result = call.outputs[0];
  const auto& a = call.attrs<Pool2dAttributes>();
  const int64_t channels = result.dims[3], width = result.dims[2];
  ForEachImage(call, result, [&](int64_t image) {
    const double* dy = ImageOf(gradient, image);
    double* dx = ImageOf(result, image);
    std::fill_n(dx, result.dims[1] * width * channels, 0.0);
    ForEachWindow(result, gradient, a,
                  [&](int64_t row, int64_t row_end, int64_t column, int64_t column_end, int64_t at) {
                    const double divisor = Divisor(a, (row_end - row) * (column_end - column));
                    for (int64_t r = row; r < row_end; ++r) {
                      for (int64_t s = column; s < column_end; ++s) {
                        double* pixel = dx + (r * width + s) * channels;
                        for (int64_t c = 0; c < channels; ++c) {
                          pixel[c] += dy[at * channels + c] / divisor;
                        }
                      }
                    }
                  });
  });
}

constexpr Kernel Cpu(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat64, "cpu", 10, run};
}

const KernelRegistrar registrar({
    Cpu(OpCode::kMaxPool2d, &RunMaxPool),
    Cpu(OpCode::kMaxPool2dGrad, &RunMaxPoolGrad),
    Cpu(OpCode::kAveragePool2d, &RunAveragePool),
    Cpu(OpCode::kAveragePool2dGrad, &RunAveragePoolGrad),
});

}  // namespace
}  // namespace tidepool::cpu
