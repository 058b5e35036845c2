#include "tidepool/backends/cpu/gemm/conv2d_check.h"
#include "tidepool/backends/cpu/gemm/conv3d.h"
#include "tidepool/backends/cpu/gemm/correlation.h"

namespace tidepool::cpu {
namespace {

constexpr char kWhat[] = "convolution";

// The filter's order of inner positions is the correlation's.
struct ForwardFilter final : FilterPacker {
  const float* filter;
  int64_t depth, kernel_planes;

  void Pack(const TileKernels& kernels, int64_t kernel_plane, const ReductionGroup& group,
            int64_t column, int64_t valid, int64_t width, float* destination) const override {
    kernels.pack_panel(filter + (column * kernel_planes + kernel_plane) * depth + group.position, 1,
                       kernel_planes * depth, group.depth, valid, width, destination);
  }
};

}  // namespace

size_t Conv3dForwardScratchBytes(const Conv3dProblem& problem, int threads) {
  CheckConvolution(kWhat, problem, "", "", "");
  return CorrelationScratchBytes(ForwardCorrelation(problem), threads);
}

void Conv3dForward(const Conv3dProblem& problem, const float* x, const float* filter,
                   const float* bias, bool relu, float* y, void* scratch, ThreadPool* pool) {
  CheckConvolution(kWhat, problem, x, filter, y);
  if (problem.plane.batch == 0) return;
  const Correlation correlation = ForwardCorrelation(problem);
  ForwardFilter packer;
  packer.filter = filter;
  packer.depth = correlation.Depth();
  packer.kernel_planes = problem.kernel_planes;
  RunCorrelation(correlation, x, packer, bias, relu, y, scratch, pool);
}

size_t Conv2dForwardScratchBytes(const Conv2dProblem& problem, int threads) {
  return Conv3dForwardScratchBytes({problem}, threads);
}

void Conv2dForward(const Conv2dProblem& problem, const float* x, const float* filter,
                   const float* bias, bool relu, float* y, void* scratch, ThreadPool* pool) {
  Conv3dForward({problem}, x, filter, bias, relu, y, scratch, pool);
}

}  // namespace tidepool::cpu
