// Convolutions of f64 images: patches of some pixels at a time are gathered into rows (im2col), and the
// rows multiplied with the filters by GemmF64, a group after the other. The gradient of the input is the
// product with the filters, added back to where the patches came from; that of the filters adds up over
// the pieces, in their order. The same bits for any number of threads.
//
// Not the algorithm of f32, whose products read patches out of the image as they go (gemm/correlation.h) or
// along the channels in vectors of floats (depthwise.h): GemmF64 takes matrices.
#include <algorithm>
#include <cstdint>

#include "tidepool/backends/cpu/conv2d_call.h"
#include "tidepool/backends/cpu/gemm/gemm_f64.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

// Of gathered patches: they should still be in the second cache when they are multiplied.
constexpr int64_t kPatchBytes = 256 << 10;
constexpr int64_t kLeastPixels = 64;

struct Convolution {
  Conv2dProblem p;
  int64_t groups, channels, filters;  // of the whole operands
  int64_t group_channels, group_filters;
  int64_t out_width, image_pixels, pixels;  // of the output
  int64_t patch;                            // elements of one
  int64_t piece;                            // pixels gathered at once
  // The patches are the pixels themselves.
  bool pointwise;

  Convolution(const TensorRef& x, const TensorRef& filter, const Conv2dAttributes& a)
      : p(MakeConv2dProblem(x, filter, a)) {
    groups = a.groups;
    channels = p.in_channels;
    filters = p.out_channels;
    group_channels = channels / groups;
    group_filters = filters / groups;
    out_width = p.OutWidth();
    image_pixels = p.OutHeight() * out_width;
    pixels = p.batch * image_pixels;
    patch = p.kernel_height * p.kernel_width * group_channels;
    const int64_t fit =
        kPatchBytes / static_cast<int64_t>(sizeof(double)) / std::max<int64_t>(patch, 1);
    piece = std::min(std::max(fit, kLeastPixels), std::max<int64_t>(pixels, 1));
    pointwise = groups == 1 && p.kernel_height == 1 && p.kernel_width == 1 &&
                p.stride_height == 1 && p.stride_width == 1 && p.pad_top == 0 &&
                p.pad_bottom == 0 && p.pad_left == 0 && p.pad_right == 0;
  }
  int64_t filter_elements() const { return group_filters * patch; }
  size_t patch_bytes() const {
    return (static_cast<size_t>(piece * patch) * sizeof(double) + 63) / 64 * 64;
  }

  // visit(first element of the pixel's channels in the input or -1 outside, element of the patch) for
  // each tap of an output pixel.
  template <typename Visit>
  void ForEachTap(int64_t pixel, int64_t group, Visit visit) const {
    const int64_t image = pixel / image_pixels;
    const int64_t row = pixel % image_pixels / out_width, column = pixel % out_width;
    int64_t to = 0;
    for (int64_t r = 0; r < p.kernel_height; ++r) {
      const int64_t y = row * p.stride_height + r * p.dilation_height - p.pad_top;
      for (int64_t s = 0; s < p.kernel_width; ++s, to += group_channels) {
        const int64_t x = column * p.stride_width + s * p.dilation_width - p.pad_left;
        const bool inside = y >= 0 && y < p.in_height && x >= 0 && x < p.in_width;
        visit(inside
                  ? ((image * p.in_height + y) * p.in_width + x) * channels + group * group_channels
                  : -1,
              to);
      }
    }
  }

  // patches [count, patch] of the pixels from `first` on.
  void Gather(const double* x, int64_t group, int64_t first, int64_t count, Threads threads,
              double* patches) const {
    ParallelFor(threads, count, 16, count * patch, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ForEachTap(first + i, group, [&](int64_t from, int64_t to) {
          double* const tap = patches + i * patch + to;
          if (from < 0) {
            std::fill_n(tap, group_channels, 0.0);
          } else {
            std::copy_n(x + from, group_channels, tap);
          }
        });
      }
    });
  }
  void ScatterAdd(const double* patches, int64_t group, int64_t first, int64_t count,
                  double* x) const {
    for (int64_t i = 0; i < count; ++i) {
      ForEachTap(first + i, group, [&](int64_t to, int64_t from) {
        if (to < 0) return;
        const double* const tap = patches + i * patch + from;
        for (int64_t c = 0; c < group_channels; ++c) x[to + c] += tap[c];
      });
    }
  }
};

// body(group, first pixel, number of pixels)
template <typename Body>
void ForEachPiece(const Convolution& g, Body body) {
  for (int64_t group = 0; group < g.groups; ++group) {
    for (int64_t first = 0; first < g.pixels; first += g.piece) {
      body(group, first, std::min(g.piece, g.pixels - first));
    }
  }
}

void* Behind(void* scratch, size_t bytes) { return static_cast<char*>(scratch) + bytes; }

// ---- forward --------------------------------------------------------------------------------

Convolution ForwardOf(const KernelCall& call) {
  return Convolution(call.inputs[0], call.inputs[1], call.attrs<Conv2dAttributes>());
}

size_t ForwardScratch(const KernelCall& call) {
  const Convolution g = ForwardOf(call);
  return g.patch_bytes() +
         GemmF64ScratchBytes(g.piece, g.group_filters, g.patch, call.threads.count);
}

void RunForward(const KernelCall& call) {
  const Convolution g = ForwardOf(call);
  const double *x = call.inputs[0].as<double>(), *filter = call.inputs[1].as<double>();
  const double* bias = call.inputs[2].present ? call.inputs[2].as<double>() : nullptr;
  auto* const patches = static_cast<double*>(call.scratch);
  const std::shared_ptr<ThreadPool> pool = PoolOf(call.threads);
  ForEachPiece(g, [&](int64_t group, int64_t first, int64_t count) {
    if (!g.pointwise) g.Gather(x, group, first, count, call.threads, patches);
    GemmF64Problem product{};
    product.m = count, product.n = g.group_filters, product.k = g.patch;
    product.a = g.pointwise ? x + first * g.channels : patches;
    product.a_row_stride = g.patch, product.a_col_stride = 1;
    product.b = filter + group * g.filter_elements();
    product.b_row_stride = 1, product.b_col_stride = g.patch;
    product.c = call.outputs[0].as<double>() + first * g.filters + group * g.group_filters;
    product.ldc = g.filters;
    if (bias != nullptr) product.bias = bias + group * g.group_filters;
    product.relu = call.attrs<Conv2dAttributes>().relu;
    GemmF64(product, Behind(patches, g.patch_bytes()), pool.get());
  });
}

// ---- gradient of the input ------------------------------------------------------------------

Convolution GradInputOf(const KernelCall& call) {
  return Convolution(call.outputs[0], call.inputs[1], call.attrs<Conv2dAttributes>());
}

size_t GradInputScratch(const KernelCall& call) {
  const Convolution g = GradInputOf(call);
  return g.patch_bytes() +
         GemmF64ScratchBytes(g.piece, g.patch, g.group_filters, call.threads.count);
}

void RunGradInput(const KernelCall& call) {
  const Convolution g = GradInputOf(call);
  const double *dy = call.inputs[0].as<double>(), *filter = call.inputs[1].as<double>();
  double* dx = call.outputs[0].as<double>();
  auto* const patches = static_cast<double*>(call.scratch);
  const std::shared_ptr<ThreadPool> pool = PoolOf(call.threads);
  if (!g.pointwise) std::fill_n(dx, call.outputs[0].NumElements(), 0.0);
  ForEachPiece(g, [&](int64_t group, int64_t first, int64_t count) {
    GemmF64Problem product{};
    product.m = count, product.n = g.patch, product.k = g.group_filters;
    product.a = dy + first * g.filters + group * g.group_filters;
    product.a_row_stride = g.filters, product.a_col_stride = 1;
    product.b = filter + group * g.filter_elements();
    product.b_row_stride = g.patch, product.b_col_stride = 1;
    product.c = g.pointwise ? dx + first * g.channels : patches;
    product.ldc = g.patch;
    GemmF64(product, Behind(patches, g.patch_bytes()), pool.get());
    if (!g.pointwise) g.ScatterAdd(patches, group, first, count, dx);
  });
}

// ---- gradient of the filters ----------------------------------------------------------------

Convolution GradFilterOf(const KernelCall& call) {
  return Convolution(call.inputs[0], call.outputs[0], call.attrs<Conv2dAttributes>());
}

size_t GradFilterScratch(const KernelCall& call) {
  const Convolution g = GradFilterOf(call);
  return g.patch_bytes() +
         GemmF64ScratchBytes(g.group_filters, g.patch, g.piece, call.threads.count);
}

void RunGradFilter(const KernelCall& call) {
  const Convolution g = GradFilterOf(call);
  const double *x = call.inputs[0].as<double>(), *dy = call.inputs[1].as<double>();
  double* dfilter = call.outputs[0].as<double>();
  const bool accumulate = call.attrs<Conv2dAttributes>().accumulate;
  if (!accumulate && g.pixels == 0) std::fill_n(dfilter, call.outputs[0].NumElements(), 0.0);
  auto* const patches = static_cast<double*>(call.scratch);
  const std::shared_ptr<ThreadPool> pool = PoolOf(call.threads);
  ForEachPiece(g, [&](int64_t group, int64_t first, int64_t count) {
    if (!g.pointwise) g.Gather(x, group, first, count, call.threads, patches);
    GemmF64Problem product{};
    product.m = g.group_filters, product.n = g.patch, product.k = count;
    product.a = dy + first * g.filters + group * g.group_filters;
    product.a_row_stride = 1, product.a_col_stride = g.filters;
    product.b = g.pointwise ? x + first * g.channels : patches;
    product.b_row_stride = g.patch, product.b_col_stride = 1;
    product.c = dfilter + group * g.filter_elements();
    product.ldc = g.patch;
    product.accumulate = accumulate || first > 0;
    GemmF64(product, Behind(patches, g.patch_bytes()), pool.get());
  });
}

constexpr Kernel Cpu(OpCode op, void (*run)(const KernelCall&),
                     size_t (*scratch_bytes)(const KernelCall&)) {
  Kernel kernel{op, DeviceType::kHost, DType::kFloat64, "cpu", 10, run};
  kernel.scratch_bytes = scratch_bytes;
  return kernel;
}

const KernelRegistrar registrar({
    Cpu(OpCode::kConv2d, &RunForward, &ForwardScratch),
    Cpu(OpCode::kConv2dGradInput, &RunGradInput, &GradInputScratch),
    Cpu(OpCode::kConv2dGradFilter, &RunGradFilter, &GradFilterScratch),
});

}  // namespace
}  // namespace tidepool::cpu
