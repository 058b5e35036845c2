#include "tidepool/backends/cpu/gemm/conv2d.h"
#include "tidepool/backends/cpu/gemm/conv2d_check.h"
#include "tidepool/backends/cpu/gemm/correlation.h"

namespace tidepool::cpu {
namespace {

// The filter's order of inner positions is the correlation's.
struct ForwardFilter final : FilterPacker {
  const float* filter;
  int64_t depth;

  void Pack(const TileKernels& kernels, const ReductionGroup& group, int64_t column, int64_t valid,
            int64_t width, float* destination) const override {
    kernels.pack_panel(filter + column * depth + group.position, 1, depth, group.depth, valid,
                       width, destination);
  }
};

}  // namespace

size_t Conv2dForwardScratchBytes(const Conv2dProblem& problem, int threads) {
  CheckConv2d("Conv2dForwardScratchBytes", problem, "", "", "");
  return CorrelationScratchBytes(ForwardCorrelation(problem), threads);
}

void Conv2dForward(const Conv2dProblem& problem, const float* x, const float* filter,
                   const float* bias, bool relu, float* y, void* scratch, ThreadPool* pool) {
  CheckConv2d("Conv2dForward", problem, x, filter, y);
  if (problem.batch == 0) return;
  const Correlation correlation = ForwardCorrelation(problem);
  ForwardFilter packer;
  packer.filter = filter;
  packer.depth = correlation.Depth();
  RunCorrelation(correlation, x, packer, bias, relu, y, scratch, pool);
}

}  // namespace tidepool::cpu
