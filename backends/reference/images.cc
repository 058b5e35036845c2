// Resizing, and convolution of three dimensions with its gradients, by their definitions in the wide type.
#include <vector>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/resize_taps.h"

namespace tidepool {
namespace {

// visit(taps of the row, taps of the column, batch, row, column, channel) for each element of the output.
template <typename Visit>
void ForEachTap(const ResizeAttributes& a, const TensorRef& input, const TensorRef& output,
                Visit visit) {
  for (int64_t i = 0; i < output.dims[1]; ++i) {
    const ResizeTaps down = TapsOf(a, input.dims[1], output.dims[1], i);
    for (int64_t j = 0; j < output.dims[2]; ++j) {
      const ResizeTaps along = TapsOf(a, input.dims[2], output.dims[2], j);
      for (int64_t b = 0; b < output.dims[0]; ++b) {
        for (int64_t c = 0; c < output.dims[3]; ++c) visit(down, along, b, i, j, c);
      }
    }
  }
}

template <typename T>
void Resize2d(const KernelCall& call) {
  const TensorRef &input = call.inputs[0], &output = call.outputs[0];
  ForEachTap(call.attrs<ResizeAttributes>(), input, output,
             [&](const ResizeTaps& down, const ResizeTaps& along, int64_t b, int64_t i, int64_t j,
                 int64_t c) {
               Wide<T> sum = 0;
               for (int r = 0; r < down.count; ++r) {
                 for (int s = 0; s < along.count; ++s) {
                   sum += static_cast<Wide<T>>(down.weights[r]) *
                          static_cast<Wide<T>>(along.weights[s]) *
                          static_cast<Wide<T>>(At<T>(input, b, down.places[r], along.places[s], c));
                 }
               }
               At<T>(output, b, i, j, c) = Narrow<T>(sum);
             });
}

template <typename T>
void Resize2dGrad(const KernelCall& call) {
  const TensorRef &gradient = call.inputs[0], &input = call.outputs[0];
  std::vector<Wide<T>> sums(input.NumElements());
  ForEachTap(call.attrs<ResizeAttributes>(), input, gradient,
             [&](const ResizeTaps& down, const ResizeTaps& along, int64_t b, int64_t i, int64_t j,
                 int64_t c) {
               for (int r = 0; r < down.count; ++r) {
                 for (int s = 0; s < along.count; ++s) {
                   sums[((b * input.dims[1] + down.places[r]) * input.dims[2] + along.places[s]) *
                            input.dims[3] +
                        c] += static_cast<Wide<T>>(down.weights[r]) *
                              static_cast<Wide<T>>(along.weights[s]) *
                              static_cast<Wide<T>>(At<T>(gradient, b, i, j, c));
                 }
               }
             });
  size_t at = 0;
  for (int64_t b = 0; b < input.dims[0]; ++b) {
    for (int64_t i = 0; i < input.dims[1]; ++i) {
      for (int64_t j = 0; j < input.dims[2]; ++j) {
        for (int64_t c = 0; c < input.dims[3]; ++c)
          At<T>(input, b, i, j, c) = Narrow<T>(sums[at++]);
      }
    }
  }
}

// visit(batch, out place, in place, filter, tap, channel of the filter, channel of the input) for each product of the
// convolution; padding is left out.
template <typename Visit>
void ForEachProduct(const Conv3dAttributes& a, const TensorRef& input, const TensorRef& filter,
                    const TensorRef& output, Visit visit) {
  const int64_t filters = filter.dims[0] / a.groups, channels = filter.dims[4];
  int64_t o[3], k[3], in[3];
  const auto inside = [&](int axis) {
    in[axis] = o[axis] * a.stride[axis] + k[axis] * a.dilation[axis] - a.pad_before[axis];
    return in[axis] >= 0 && in[axis] < input.dims[1 + axis];
  };
  for (o[0] = 0; o[0] < output.dims[1]; ++o[0]) {
    for (o[1] = 0; o[1] < output.dims[2]; ++o[1]) {
      for (o[2] = 0; o[2] < output.dims[3]; ++o[2]) {
        for (k[0] = 0; k[0] < filter.dims[1]; ++k[0]) {
          for (k[1] = 0; k[1] < filter.dims[2]; ++k[1]) {
            for (k[2] = 0; k[2] < filter.dims[3]; ++k[2]) {
              if (!inside(0) || !inside(1) || !inside(2)) continue;
              for (int64_t b = 0; b < output.dims[0]; ++b) {
                for (int64_t f = 0; f < filter.dims[0]; ++f) {
                  for (int64_t c = 0; c < channels; ++c)
                    visit(b, o, in, f, k, c, f / filters * channels + c);
                }
              }
            }
          }
        }
      }
    }
  }
}

// Sums of a dense array of the shape of `to`, narrowed into it.
template <typename T>
class Sums {
 public:
  explicit Sums(const TensorRef& to) : to_(to), sums_(to.NumElements()) {}
  Wide<T>& At(int64_t a, const int64_t* place, int64_t e) {
    return sums_[(((a * to_.dims[1] + place[0]) * to_.dims[2] + place[1]) * to_.dims[3] +
                  place[2]) *
                     to_.dims[4] +
                 e];
  }
  template <typename Finish>
  void Store(Finish finish) {
    size_t at = 0;
    int64_t p[3];
    for (int64_t a = 0; a < to_.dims[0]; ++a) {
      for (p[0] = 0; p[0] < to_.dims[1]; ++p[0]) {
        for (p[1] = 0; p[1] < to_.dims[2]; ++p[1]) {
          for (p[2] = 0; p[2] < to_.dims[3]; ++p[2]) {
            for (int64_t e = 0; e < to_.dims[4]; ++e) {
              T& element = tidepool::At<T>(to_, a, p[0], p[1], p[2], e);
              element = finish(sums_[at++], element, e);
            }
          }
        }
      }
    }
  }

 private:
  const TensorRef& to_;
  std::vector<Wide<T>> sums_;
};

template <typename T>
Wide<T> WideAt(const TensorRef& ref, int64_t a, const int64_t* place, int64_t e) {
  return static_cast<Wide<T>>(At<T>(ref, a, place[0], place[1], place[2], e));
}

template <typename T>
void Conv3d(const KernelCall& call) {
  const auto& a = call.attrs<Conv3dAttributes>();
  const TensorRef &input = call.inputs[0], &filter = call.inputs[1], &bias = call.inputs[2];
  Sums<T> sums(call.outputs[0]);
  ForEachProduct(a, input, filter, call.outputs[0],
                 [&](int64_t b, const int64_t* o, const int64_t* in, int64_t f, const int64_t* k,
                     int64_t c, int64_t of) {
                   sums.At(b, o, f) += WideAt<T>(input, b, in, of) * WideAt<T>(filter, f, k, c);
                 });
  sums.Store([&](Wide<T> sum, T, int64_t f) {
    if (bias.present) sum += static_cast<Wide<T>>(At<T>(bias, f));
    const T result = Narrow<T>(sum);
    return a.relu && result <= T{} ? T{} : result;
  });
}

template <typename T>
void Conv3dGradInput(const KernelCall& call) {
  const TensorRef &gradient = call.inputs[0], &filter = call.inputs[1];
  Sums<T> sums(call.outputs[0]);
  ForEachProduct(call.attrs<Conv3dAttributes>(), call.outputs[0], filter, gradient,
                 [&](int64_t b, const int64_t* o, const int64_t* in, int64_t f, const int64_t* k,
                     int64_t c, int64_t of) {
                   sums.At(b, in, of) += WideAt<T>(gradient, b, o, f) * WideAt<T>(filter, f, k, c);
                 });
  sums.Store([](Wide<T> sum, T, int64_t) { return Narrow<T>(sum); });
}

template <typename T>
void Conv3dGradFilter(const KernelCall& call) {
  const auto& a = call.attrs<Conv3dAttributes>();
  const TensorRef &input = call.inputs[0], &gradient = call.inputs[1];
  Sums<T> sums(call.outputs[0]);
  ForEachProduct(a, input, call.outputs[0], gradient,
                 [&](int64_t b, const int64_t* o, const int64_t* in, int64_t f, const int64_t* k,
                     int64_t c, int64_t of) {
                   sums.At(f, k, c) += WideAt<T>(input, b, in, of) * WideAt<T>(gradient, b, o, f);
                 });
  sums.Store([&](Wide<T> sum, T before, int64_t) {
    return Narrow<T>(a.accumulate ? sum + static_cast<Wide<T>>(before) : sum);
  });
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kResize2d, Resize2d),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kResize2dGrad, Resize2dGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kConv3d, Conv3d),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kConv3dGradInput, Conv3dGradInput),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kConv3dGradFilter, Conv3dGradFilter),
});

}  // namespace
}  // namespace tidepool
