// Convolution of three dimensions. Of f32 in one group: by the blocked kernels (gemm/conv3d.h). Of f64 and in groups: by
// columns. What a run of output pixels sees is copied side by side, a product with the filter does the rest.
// Columns of one task are at most kColumns elements; nothing of the size of the volume is copied.
// Work is cut by shapes alone and partial sums are added in their order: the same bits for any number of threads.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "tidepool/backends/cpu/gemm/conv3d.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/typed_product.h"
#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kColumns = 1 << 16;  // elements
constexpr int64_t kMostShares = 8;     // partial gradients of a filter

struct Geometry {
  const Conv3dAttributes& a;
  int64_t batch, in[3], out[3], kernel[3], channels, filters;
  int64_t group_channels, group_filters, taps, inner, pixels, run,
      runs;  // runs of `run` pixels in an item

  Geometry(const KernelCall& call, const TensorRef& input, const TensorRef& filter,
           const TensorRef& output)
      : a(call.attrs<Conv3dAttributes>()),
        batch(input.dims[0]),
        channels(input.dims[4]),
        filters(filter.dims[0]),
        group_channels(filter.dims[4]),
        group_filters(filters / a.groups) {
    for (int i = 0; i < 3; ++i)
      in[i] = input.dims[1 + i], out[i] = output.dims[1 + i], kernel[i] = filter.dims[1 + i];
    taps = kernel[0] * kernel[1] * kernel[2];
    inner = taps * group_channels;
    pixels = out[0] * out[1] * out[2];
    run = std::clamp<int64_t>(kColumns / std::max<int64_t>(1, inner), 16,
                              std::max<int64_t>(16, pixels));
    runs = (pixels + run - 1) / run;
  }
  int64_t Work() const { return batch * pixels * inner * filters; }
  // visit(first element of the tap's channels in a pixel's columns, the pixel it sees of the item or -1).
  template <typename Visit>
  void ForEachTap(int64_t pixel, Visit visit) const {
    const int64_t o[3] = {pixel / (out[1] * out[2]), pixel / out[2] % out[1], pixel % out[2]};
    int64_t at = 0;
    const auto place = [&](int axis, int64_t tap) {
      const int64_t p = o[axis] * a.stride[axis] + tap * a.dilation[axis] - a.pad_before[axis];
      return p >= 0 && p < in[axis] ? p : -1;
    };
    for (int64_t d = 0; d < kernel[0]; ++d) {
      const int64_t depth = place(0, d);
      for (int64_t h = 0; h < kernel[1]; ++h) {
        const int64_t height = place(1, h);
        for (int64_t w = 0; w < kernel[2]; ++w, at += group_channels) {
          const int64_t width = place(2, w);
          const bool inside = depth >= 0 && height >= 0 && width >= 0;
          visit(at, inside ? (depth * in[1] + height) * in[2] + width : -1);
        }
      }
    }
  }
  // [count, inner]: what the pixels from `first` on see of a group of an item.
  template <typename T>
  void Gather(const T* item, int64_t group, int64_t first, int64_t count, T* columns) const {
    for (int64_t p = 0; p < count; ++p) {
      ForEachTap(first + p, [&](int64_t at, int64_t seen) {
        T* const to = columns + p * inner + at;
        if (seen < 0) {
          std::fill_n(to, group_channels, T(0));
        } else {
          std::copy_n(item + seen * channels + group * group_channels, group_channels, to);
        }
      });
    }
  }
};

template <typename Type, typename T = typename Type::T>
struct Slot {
  T* columns;
  void* products;
  size_t bytes;

  Slot(const Geometry& g, void* memory) {
    Parts parts(memory);
    columns = parts.Take<T>(g.run * g.inner);
    products = parts.Take<char>(
        static_cast<int64_t>(std::max({Type::ScratchBytes(g.run, g.group_filters, g.inner),
                                       Type::ScratchBytes(g.group_filters, g.inner, g.run),
                                       Type::ScratchBytes(g.run, g.inner, g.group_filters)})));
    bytes = parts.bytes();
  }
};

// task(index, slot) on the call's threads; slots lie behind `before` bytes of scratch.
template <typename Type, typename Task>
void RunTasks(const KernelCall& call, const Geometry& g, int64_t tasks, size_t before, Task task) {
  const std::shared_ptr<ThreadPool> pool =
      g.Work() < kMinParallelWork ? nullptr : PoolOf(call.threads);
  const size_t slot_bytes = Slot<Type>(g, nullptr).bytes;
  ParallelTasks(pool.get(), tasks, [&](int64_t index, int slot) {
    task(index, Slot<Type>(g, static_cast<char*>(call.scratch) + before +
                                  slot_bytes * static_cast<size_t>(slot)));
  });
}

Geometry OfForward(const KernelCall& call) {
  return {call, call.inputs[0], call.inputs[1], call.outputs[0]};
}
Geometry OfInput(const KernelCall& call) {
  return {call, call.outputs[0], call.inputs[1], call.inputs[0]};
}
Geometry OfFilter(const KernelCall& call) {
  return {call, call.inputs[0], call.outputs[0], call.inputs[1]};
}

template <typename Type, Geometry (*kGeometry)(const KernelCall&)>
size_t ScratchBytes(const KernelCall& call) {
  return Slot<Type>(kGeometry(call), nullptr).bytes * static_cast<size_t>(call.threads.count);
}

template <typename Type, typename T = typename Type::T>
void RunForward(const KernelCall& call) {
  const Geometry g = OfForward(call);
  const T *input = call.inputs[0].as<T>(), *filter = call.inputs[1].as<T>();
  const T* bias = call.inputs[2].present ? call.inputs[2].as<T>() : nullptr;
  T* const output = call.outputs[0].as<T>();
  RunTasks<Type>(
      call, g, g.batch * g.runs * g.a.groups, 0, [&](int64_t index, const Slot<Type>& slot) {
        const int64_t group = index % g.a.groups, first = index / g.a.groups % g.runs * g.run;
        const int64_t item = index / g.a.groups / g.runs, count = std::min(g.run, g.pixels - first);
        g.Gather(input + item * g.in[0] * g.in[1] * g.in[2] * g.channels, group, first, count,
                 slot.columns);
        typename Type::Problem p = {};
        p.m = count, p.n = g.group_filters, p.k = g.inner;
        p.a = slot.columns, p.a_row_stride = g.inner, p.a_col_stride = 1;
        p.b = filter + group * g.group_filters * g.inner, p.b_row_stride = 1,
        p.b_col_stride = g.inner;
        p.c = output + (item * g.pixels + first) * g.filters + group * g.group_filters,
        p.ldc = g.filters;
        p.bias = bias == nullptr ? nullptr : bias + group * g.group_filters, p.relu = g.a.relu;
        Type::Multiply(p, slot.products);
      });
}

// A task is a group of an item, whose windows may overlap.
template <typename Type, typename T = typename Type::T>
void RunGradInput(const KernelCall& call) {
  const Geometry g = OfInput(call);
  const T *gradient = call.inputs[0].as<T>(), *filter = call.inputs[1].as<T>();
  T* const input = call.outputs[0].as<T>();
  RunTasks<Type>(call, g, g.batch * g.a.groups, 0, [&](int64_t index, const Slot<Type>& slot) {
    const int64_t group = index % g.a.groups, item = index / g.a.groups,
                  places = g.in[0] * g.in[1] * g.in[2];
    T* const of_item = input + item * places * g.channels + group * g.group_channels;
    for (int64_t i = 0; i < places; ++i)
      std::fill_n(of_item + i * g.channels, g.group_channels, T(0));
    for (int64_t first = 0; first < g.pixels; first += g.run) {
      const int64_t count = std::min(g.run, g.pixels - first);
      Product<Type, T>(count, g.inner, g.group_filters,
                       {const_cast<T*>(gradient) + (item * g.pixels + first) * g.filters +
                            group * g.group_filters,
                        g.filters, 1},
                       {const_cast<T*>(filter) + group * g.group_filters * g.inner, g.inner, 1},
                       slot.columns, g.inner, false, slot.products);
      for (int64_t p = 0; p < count; ++p) {
        g.ForEachTap(first + p, [&](int64_t at, int64_t seen) {
          if (seen < 0) return;
          const T* const from = slot.columns + p * g.inner + at;
          T* const to = of_item + seen * g.channels;
          for (int64_t c = 0; c < g.group_channels; ++c) to[c] += from[c];
        });
      }
    }
  });
}

// Runs of pixels are shared out among few tasks, each with a gradient of the filter of its own.
struct Shares {
  int64_t shares, runs_of_share;
  explicit Shares(const Geometry& g) {
    const int64_t runs = g.batch * g.runs;
    shares = std::clamp<int64_t>(runs, 1, kMostShares);
    runs_of_share = (runs + shares - 1) / shares;
  }
};

template <typename Type, typename T = typename Type::T>
size_t FilterScratchBytes(const KernelCall& call) {
  const Geometry g = OfFilter(call);
  Parts parts(nullptr);
  parts.Take<T>(Shares(g).shares * g.filters * g.inner);
  return parts.bytes() + ScratchBytes<Type, &OfFilter>(call);
}

template <typename Type, typename T = typename Type::T>
void RunGradFilter(const KernelCall& call) {
  const Geometry g = OfFilter(call);
  const Shares s(g);
  const T *input = call.inputs[0].as<T>(), *gradient = call.inputs[1].as<T>();
  T* const filter = call.outputs[0].as<T>();
  Parts parts(call.scratch);
  const int64_t elements = g.filters * g.inner;
  T* const sums = parts.Take<T>(s.shares * elements);
  RunTasks<Type>(
      call, g, s.shares * g.a.groups, parts.bytes(), [&](int64_t index, const Slot<Type>& slot) {
        const int64_t group = index % g.a.groups, share = index / g.a.groups;
        T* const to = sums + share * elements + group * g.group_filters * g.inner;
        std::fill_n(to, g.group_filters * g.inner, T(0));
        const int64_t last = std::min(g.batch * g.runs, (share + 1) * s.runs_of_share);
        for (int64_t run = share * s.runs_of_share; run < last; ++run) {
          const int64_t item = run / g.runs, first = run % g.runs * g.run,
                        count = std::min(g.run, g.pixels - first);
          g.Gather(input + item * g.in[0] * g.in[1] * g.in[2] * g.channels, group, first, count,
                   slot.columns);
          const Matrix<T> rows{const_cast<T*>(gradient) + (item * g.pixels + first) * g.filters +
                                   group * g.group_filters,
                               g.filters, 1};
          Product<Type, T>(g.group_filters, g.inner, count, rows.Transposed(),
                           {slot.columns, g.inner, 1}, to, g.inner, true, slot.products);
        }
      });
  for (int64_t i = 0; i < elements; ++i) {
    T sum = g.a.accumulate ? filter[i] : T(0);
    for (int64_t share = 0; share < s.shares; ++share) sum += sums[share * elements + i];
    filter[i] = sum;
  }
}

// Of f32. Blocked kernels for one group; several have too few channels each for them, and would be copied whole.
Conv3dProblem ProblemOf(const Geometry& g) {
  const Conv3dAttributes& a = g.a;
  return {.plane = {.batch = g.batch,
                    .in_height = g.in[1],
                    .in_width = g.in[2],
                    .in_channels = g.channels,
                    .out_channels = g.filters,
                    .kernel_height = g.kernel[1],
                    .kernel_width = g.kernel[2],
                    .stride_height = a.stride[1],
                    .stride_width = a.stride[2],
                    .pad_top = a.pad_before[1],
                    .pad_bottom = a.pad_behind[1],
                    .pad_left = a.pad_before[2],
                    .pad_right = a.pad_behind[2],
                    .dilation_height = a.dilation[1],
                    .dilation_width = a.dilation[2]},
          .in_planes = g.in[0],
          .kernel_planes = g.kernel[0],
          .stride_planes = a.stride[0],
          .pad_front = a.pad_before[0],
          .pad_behind = a.pad_behind[0],
          .dilation_planes = a.dilation[0]};
}
bool OneGroup(const KernelCall& call) { return call.attrs<Conv3dAttributes>().groups == 1; }

template <Geometry (*kGeometry)(const KernelCall&), size_t (*kBlocked)(const Conv3dProblem&, int),
          size_t (*kColumns)(const KernelCall&)>
size_t F32Bytes(const KernelCall& call) {
  return OneGroup(call) ? kBlocked(ProblemOf(kGeometry(call)), call.threads.count) : kColumns(call);
}
void RunF32(const KernelCall& call) {
  if (!OneGroup(call)) return RunForward<OfF32>(call);
  const bool bias = call.inputs[2].present;
  Conv3dForward(ProblemOf(OfForward(call)), call.inputs[0].as<float>(), call.inputs[1].as<float>(),
                bias ? call.inputs[2].as<float>() : nullptr, call.attrs<Conv3dAttributes>().relu,
                call.outputs[0].as<float>(), call.scratch, PoolOf(call.threads).get());
}
void RunF32GradInput(const KernelCall& call) {
  if (!OneGroup(call)) return RunGradInput<OfF32>(call);
  Conv3dGradInput(ProblemOf(OfInput(call)), call.inputs[0].as<float>(), call.inputs[1].as<float>(),
                  call.outputs[0].as<float>(), call.scratch, PoolOf(call.threads).get());
}
void RunF32GradFilter(const KernelCall& call) {
  if (!OneGroup(call)) return RunGradFilter<OfF32>(call);
  Conv3dGradFilter(ProblemOf(OfFilter(call)), call.inputs[0].as<float>(),
                   call.inputs[1].as<float>(), call.outputs[0].as<float>(),
                   call.attrs<Conv3dAttributes>().accumulate, call.scratch,
                   PoolOf(call.threads).get());
}

constexpr Kernel OfDoubles(OpCode op, void (*run)(const KernelCall&),
                           size_t (*scratch)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat64, "cpu", 10, run, scratch};
}

const NetworkKernels of_f32({
    {OpCode::kConv3d, &RunF32,
     &F32Bytes<&OfForward, &Conv3dForwardScratchBytes, &ScratchBytes<OfF32, &OfForward>>},
    {OpCode::kConv3dGradInput, &RunF32GradInput,
     &F32Bytes<&OfInput, &Conv3dGradInputScratchBytes, &ScratchBytes<OfF32, &OfInput>>},
    {OpCode::kConv3dGradFilter, &RunF32GradFilter,
     &F32Bytes<&OfFilter, &Conv3dGradFilterScratchBytes, &FilterScratchBytes<OfF32>>},
});
const KernelRegistrar of_f64({
    OfDoubles(OpCode::kConv3d, &RunForward<OfF64>, &ScratchBytes<OfF64, &OfForward>),
    OfDoubles(OpCode::kConv3dGradInput, &RunGradInput<OfF64>, &ScratchBytes<OfF64, &OfInput>),
    OfDoubles(OpCode::kConv3dGradFilter, &RunGradFilter<OfF64>, &FilterScratchBytes<OfF64>),
});

}  // namespace
}  // namespace tidepool::cpu
