// Convolutions of f32 images: on the blocked kernels of backends/cpu/gemm; depthwise ones in loops
// along the channels; other groups one after the other, each gathered into scratch.
#include <algorithm>
#include <cstdint>

#include "tidepool/backends/cpu/conv2d_call.h"
#include "tidepool/backends/cpu/depthwise.h"
#include "tidepool/backends/cpu/gemm/conv2d.h"
#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

// What the three operators share: x [.., channels], y [.., filters], and the problem of one group.
struct Groups {
  Conv2dProblem problem;
  int64_t groups, channels, filters, in_pixels, out_pixels;

  Groups(const TensorRef& x, const TensorRef& filter, const Conv2dAttributes& a) {
    problem = MakeConv2dProblem(x, filter, a);
    groups = a.groups;
    channels = x.dims[3];
    filters = filter.dims[0];
    problem.in_channels = channels / groups;
    problem.out_channels = filters / groups;
    in_pixels = problem.batch * problem.in_height * problem.in_width;
    out_pixels = problem.batch * problem.OutHeight() * problem.OutWidth();
  }
  bool one() const { return groups == 1; }
  bool depthwise() const { return groups > 1 && groups == channels; }
  // Copies of one group's input and output, each a multiple of 64 bytes.
  int64_t in_floats() const { return (in_pixels * problem.in_channels + 15) / 16 * 16; }
  int64_t out_floats() const { return (out_pixels * problem.out_channels + 15) / 16 * 16; }
  size_t copy_bytes() const {
    return static_cast<size_t>(in_floats() + out_floats()) * sizeof(float);
  }
  int64_t filter_floats() const {
    return problem.out_channels * problem.kernel_height * problem.kernel_width *
           problem.in_channels;
  }
};

// Channels [first, first + count) of pixels of `channels`, to or from pixels of `count`.
void Gather(const float* x, int64_t pixels, int64_t channels, int64_t first, int64_t count,
            float* part) {
  for (int64_t i = 0; i < pixels; ++i) {
    std::copy_n(x + i * channels + first, count, part + i * count);
  }
}
void Scatter(const float* part, int64_t pixels, int64_t channels, int64_t first, int64_t count,
             float* x) {
  for (int64_t i = 0; i < pixels; ++i) {
    std::copy_n(part + i * count, count, x + i * channels + first);
  }
}

// Calls body(group, input part, output part, rest of the scratch) for each group.
template <typename Body>
void ForEachGroup(const Groups& g, void* scratch, Body body) {
  float* in = static_cast<float*>(scratch);
  float* out = in + g.in_floats();
  for (int64_t group = 0; group < g.groups; ++group) body(group, in, out, out + g.out_floats());
}

Groups ForwardGroups(const KernelCall& call) {
  return Groups(call.inputs[0], call.inputs[1], call.attrs<Conv2dAttributes>());
}

size_t ForwardScratch(const KernelCall& call) {
  const Groups g = ForwardGroups(call);
  if (g.depthwise()) return DepthwiseForwardScratchBytes(g.problem, g.channels);
  const size_t bytes = Conv2dForwardScratchBytes(g.problem, call.threads.count);
  return g.one() ? bytes : bytes + g.copy_bytes();
}

void RunForward(const KernelCall& call) {
  const Groups g = ForwardGroups(call);
  const float* x = call.inputs[0].as<float>();
  const float* filter = call.inputs[1].as<float>();
  const float* bias = call.inputs[2].as<float>();
  float* y = call.outputs[0].as<float>();
  const bool relu = call.attrs<Conv2dAttributes>().relu;
  if (g.depthwise()) {
    DepthwiseForward(g.problem, g.channels, x, filter, bias, relu, y, call.scratch, call.threads);
    return;
  }
  const std::shared_ptr<ThreadPool> pool = PoolOf(call.threads);
  if (g.one()) {
    Conv2dForward(g.problem, x, filter, bias, relu, y, call.scratch, pool.get());
    return;
  }
  const int64_t in = g.problem.in_channels, out = g.problem.out_channels;
  ForEachGroup(g, call.scratch, [&](int64_t group, float* x_part, float* y_part, void* rest) {
    Gather(x, g.in_pixels, g.channels, group * in, in, x_part);
    Conv2dForward(g.problem, x_part, filter + group * g.filter_floats(),
                  bias == nullptr ? nullptr : bias + group * out, relu, y_part, rest, pool.get());
    Scatter(y_part, g.out_pixels, g.filters, group * out, out, y);
  });
}

Groups GradInputGroups(const KernelCall& call) {
  return Groups(call.outputs[0], call.inputs[1], call.attrs<Conv2dAttributes>());
}

size_t GradInputScratch(const KernelCall& call) {
  const Groups g = GradInputGroups(call);
  if (g.depthwise()) return DepthwiseGradInputScratchBytes(g.problem, g.channels);
  const size_t bytes = Conv2dGradInputScratchBytes(g.problem, call.threads.count);
  return g.one() ? bytes : bytes + g.copy_bytes();
}

void RunGradInput(const KernelCall& call) {
  const Groups g = GradInputGroups(call);
  const float* dy = call.inputs[0].as<float>();
  const float* filter = call.inputs[1].as<float>();
  float* dx = call.outputs[0].as<float>();
  if (g.depthwise()) {
    DepthwiseGradInput(g.problem, g.channels, dy, filter, dx, call.scratch, call.threads);
    return;
  }
  const std::shared_ptr<ThreadPool> pool = PoolOf(call.threads);
  if (g.one()) {
    Conv2dGradInput(g.problem, dy, filter, dx, call.scratch, pool.get());
    return;
  }
  const int64_t in = g.problem.in_channels, out = g.problem.out_channels;
  ForEachGroup(g, call.scratch, [&](int64_t group, float* dx_part, float* dy_part, void* rest) {
    Gather(dy, g.out_pixels, g.filters, group * out, out, dy_part);
    Conv2dGradInput(g.problem, dy_part, filter + group * g.filter_floats(), dx_part, rest,
                    pool.get());
    Scatter(dx_part, g.in_pixels, g.channels, group * in, in, dx);
  });
}

Groups GradFilterGroups(const KernelCall& call) {
  return Groups(call.inputs[0], call.outputs[0], call.attrs<Conv2dAttributes>());
}

size_t GradFilterScratch(const KernelCall& call) {
  const Groups g = GradFilterGroups(call);
  if (g.depthwise()) return DepthwiseGradFilterScratchBytes(g.problem, g.channels);
  const size_t bytes = Conv2dGradFilterScratchBytes(g.problem, call.threads.count);
  return g.one() ? bytes : bytes + g.copy_bytes();
}

void RunGradFilter(const KernelCall& call) {
  const Groups g = GradFilterGroups(call);
  const float* x = call.inputs[0].as<float>();
  const float* dy = call.inputs[1].as<float>();
  float* dfilter = call.outputs[0].as<float>();
  const bool accumulate = call.attrs<Conv2dAttributes>().accumulate;
  if (g.depthwise()) {
    DepthwiseGradFilter(g.problem, g.channels, x, dy, dfilter, accumulate, call.scratch,
                        call.threads);
    return;
  }
  const std::shared_ptr<ThreadPool> pool = PoolOf(call.threads);
  if (g.one()) {
    Conv2dGradFilter(g.problem, x, dy, dfilter, accumulate, call.scratch, pool.get());
    return;
  }
  const int64_t in = g.problem.in_channels, out = g.problem.out_channels;
  ForEachGroup(g, call.scratch, [&](int64_t group, float* x_part, float* dy_part, void* rest) {
    Gather(x, g.in_pixels, g.channels, group * in, in, x_part);
    Gather(dy, g.out_pixels, g.filters, group * out, out, dy_part);
    Conv2dGradFilter(g.problem, x_part, dy_part, dfilter + group * g.filter_floats(), accumulate,
                     rest, pool.get());
  });
}

const NetworkKernels registrar({
    {OpCode::kConv2d, &RunForward, &ForwardScratch},
    {OpCode::kConv2dGradInput, &RunGradInput, &GradInputScratch},
    {OpCode::kConv2dGradFilter, &RunGradFilter, &GradFilterScratch},
});

}  // namespace
}  // namespace tidepool::cpu
