// Normalisation of dense rows by the root of their mean square.
#include "tidepool/backends/cuda/normalization/row_norm_calls.h"

namespace tidepool::cuda {
namespace {

template <typename T>
void RmsNorm(const KernelCall& call) {
  RunRowNorm<T, false>(call, nullptr, nullptr, call.outputs[1].as<Statistic<T>>());
}

template <typename T>
size_t RmsNormGradScratch(const KernelCall& call) {
  return RowNormGradScratch<T, false>(call);
}

template <typename T>
void RmsNormGrad(const KernelCall& call) {
  RunRowNormGrad<T, false>(call, nullptr, call.inputs[2].as<Statistic<T>>(), call.inputs[3].as<T>(),
                           call.outputs[1].as<T>(), nullptr);
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kRmsNorm, RmsNorm),
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kRmsNormGrad, RmsNormGrad, RmsNormGradScratch),
});

}  // namespace
}  // namespace tidepool::cuda
