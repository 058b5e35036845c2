// Layer normalisation of dense rows.
#include "tidepool/backends/cuda/normalization/row_norm_calls.h"

namespace tidepool::cuda {
namespace {

template <typename T>
void LayerNorm(const KernelCall& call) {
  using S = Statistic<T>;
  RunRowNorm<T, true>(call, call.inputs[2].as<T>(), call.outputs[1].as<S>(),
                      call.outputs[2].as<S>());
}

template <typename T>
size_t LayerNormGradScratch(const KernelCall& call) {
  return RowNormGradScratch<T, true>(call);
}

template <typename T>
void LayerNormGrad(const KernelCall& call) {
  using S = Statistic<T>;
  RunRowNormGrad<T, true>(call, call.inputs[2].as<S>(), call.inputs[3].as<S>(),
                          call.inputs[4].as<T>(), call.outputs[1].as<T>(), call.outputs[2].as<T>());
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLayerNorm, LayerNorm),
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kLayerNormGrad, LayerNormGrad, LayerNormGradScratch),
});

}  // namespace
}  // namespace tidepool::cuda
