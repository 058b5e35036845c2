// Pooling by its definition. Padding is left out: it is never the largest, and of an average it is
// counted or not. In the maximum NaN counts as largest, so it reaches the output; where windows
// overlap, its gradients are added in float (f64: in double) in the row-major order of the windows:
// the sum is the same on every backend.
#include <algorithm>
#include <type_traits>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool {
namespace {

struct Position {
  int64_t row, column;
};

// The part of a window that lies in the image.
struct Window {
  int64_t row, row_end, column, column_end;

  Window(const TensorRef& input, const Pool2dAttributes& a, int64_t i, int64_t j) {
    row = i * a.stride_height - a.pad_top;
    column = j * a.stride_width - a.pad_left;
    row_end = std::min(row + a.kernel_height, input.dims[1]);
    column_end = std::min(column + a.kernel_width, input.dims[2]);
    row = std::max<int64_t>(row, 0);
    column = std::max<int64_t>(column, 0);
  }
  int64_t Count() const { return (row_end - row) * (column_end - column); }
};

template <typename T>
bool Larger(T x, T y) {
  return x > y || (x != x && y == y);
}

// The first largest element of a window.
template <typename T>
Position Largest(const TensorRef& input, const Window& w, int64_t n, int64_t c) {
  Position best{w.row, w.column};
  for (int64_t row = w.row; row < w.row_end; ++row) {
    for (int64_t column = w.column; column < w.column_end; ++column) {
      if (Larger(At<T>(input, n, row, column, c), At<T>(input, n, best.row, best.column, c))) {
        best = {row, column};
      }
    }
  }
  return best;
}

template <typename Visit>
void ForEachElement(const TensorRef& ref, Visit visit) {
  for (int64_t n = 0; n < ref.dims[0]; ++n) {
    for (int64_t i = 0; i < ref.dims[1]; ++i) {
      for (int64_t j = 0; j < ref.dims[2]; ++j) {
        for (int64_t c = 0; c < ref.dims[3]; ++c) visit(n, i, j, c);
      }
    }
  }
}

// The windows, of `count`, that contain a position: those from first on, below end.
struct Windows {
  int64_t first, end;
};
Windows WindowsOf(int64_t position, int64_t kernel, int64_t stride, int64_t pad, int64_t count) {
  const int64_t shifted = position + pad;
  const int64_t first = shifted < kernel ? 0 : (shifted - kernel) / stride + 1;
  return {first, std::min(count, shifted / stride + 1)};
}

// visit(i, j, window) for each window with the position, in row-major order.
template <typename Visit>
void ForEachWindowOf(const TensorRef& input, const TensorRef& output, const Pool2dAttributes& a,
                     int64_t row, int64_t column, Visit visit) {
  const Windows rows = WindowsOf(row, a.kernel_height, a.stride_height, a.pad_top, output.dims[1]);
  const Windows columns =
      WindowsOf(column, a.kernel_width, a.stride_width, a.pad_left, output.dims[2]);
  for (int64_t i = rows.first; i < rows.end; ++i) {
    for (int64_t j = columns.first; j < columns.end; ++j) visit(i, j, Window(input, a, i, j));
  }
}

template <typename T>
void MaxPool2d(const KernelCall& call) {
  const auto& a = call.attrs<Pool2dAttributes>();
  const TensorRef& input = call.inputs[0];
  const TensorRef& output = call.outputs[0];
  ForEachElement(output, [&](int64_t n, int64_t i, int64_t j, int64_t c) {
    const Position p = Largest<T>(input, Window(input, a, i, j), n, c);
    At<T>(output, n, i, j, c) = At<T>(input, n, p.row, p.column, c);
  });
}

// Of windows that lie apart, over the input: each is read before it is written.
template <typename T>
void MaxPool2dGradOver(const Pool2dAttributes& a, const TensorRef& image,
                       const TensorRef& gradient) {
  ForEachElement(gradient, [&](int64_t n, int64_t i, int64_t j, int64_t c) {
    const Window w(image, a, i, j);
    const Position p = Largest<T>(image, w, n, c);
    const bool passes = !a.relu_grad || At<T>(image, n, p.row, p.column, c) > T(0.0f);
    for (int64_t row = w.row; row < w.row_end; ++row) {
      for (int64_t column = w.column; column < w.column_end; ++column)
        At<T>(image, n, row, column, c) = T(0.0f);
    }
    if (passes) {
      At<T>(image, n, p.row, p.column, c) =
          static_cast<T>(At<T>(gradient, n, i, j, c) + T(0.0f));  // a sum: never -0
    }
  });
  ForEachElement(image, [&](int64_t n, int64_t row, int64_t column, int64_t c) {
    if (row >= gradient.dims[1] * a.kernel_height || column >= gradient.dims[2] * a.kernel_width)
      At<T>(image, n, row, column, c) = T(0.0f);
  });
}

template <typename T>
void MaxPool2dGrad(const KernelCall& call) {
  using Total = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto& a = call.attrs<Pool2dAttributes>();
  const TensorRef& input = call.inputs[0];
  const TensorRef& gradient = call.inputs[2];
  const TensorRef& result = call.outputs[0];
  if (result.data == input.data) return MaxPool2dGradOver<T>(a, result, gradient);
  ForEachElement(result, [&](int64_t n, int64_t row, int64_t column, int64_t c) {
    Total total = 0;
    const bool passes = !a.relu_grad || At<T>(input, n, row, column, c) > T(0.0f);
    ForEachWindowOf(input, gradient, a, row, column, [&](int64_t i, int64_t j, const Window& w) {
      const Position p = Largest<T>(input, w, n, c);
      if (passes && p.row == row && p.column == column) {
        total += static_cast<Total>(At<T>(gradient, n, i, j, c));
      }
    });
    At<T>(result, n, row, column, c) = static_cast<T>(total);
  });
}

int64_t Divisor(const Pool2dAttributes& a, const Window& w) {
  return a.count_include_pad ? a.kernel_height * a.kernel_width : w.Count();
}

template <typename T>
void AveragePool2d(const KernelCall& call) {
  const auto& a = call.attrs<Pool2dAttributes>();
  const TensorRef& input = call.inputs[0];
  const TensorRef& output = call.outputs[0];
  ForEachElement(output, [&](int64_t n, int64_t i, int64_t j, int64_t c) {
    const Window w(input, a, i, j);
    Wide<T> sum = 0;
    for (int64_t row = w.row; row < w.row_end; ++row) {
      for (int64_t column = w.column; column < w.column_end; ++column) {
        sum += static_cast<Wide<T>>(At<T>(input, n, row, column, c));
      }
    }
    At<T>(output, n, i, j, c) = Narrow<T>(sum / static_cast<Wide<T>>(Divisor(a, w)));
  });
}

template <typename T>
void AveragePool2dGrad(const KernelCall& call) {
  const auto& a = call.attrs<Pool2dAttributes>();
  const TensorRef& gradient = call.inputs[0];
  const TensorRef& result = call.outputs[0];
  ForEachElement(result, [&](int64_t n, int64_t row, int64_t column, int64_t c) {
    Wide<T> sum = 0;
    ForEachWindowOf(result, gradient, a, row, column, [&](int64_t i, int64_t j, const Window& w) {
      sum +=
          static_cast<Wide<T>>(At<T>(gradient, n, i, j, c)) / static_cast<Wide<T>>(Divisor(a, w));
    });
    At<T>(result, n, row, column, c) = Narrow<T>(sum);
  });
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kMaxPool2d, MaxPool2d),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kMaxPool2dGrad, MaxPool2dGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kAveragePool2d, AveragePool2d),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kAveragePool2dGrad, AveragePool2dGrad),
});

}  // namespace
}  // namespace tidepool
