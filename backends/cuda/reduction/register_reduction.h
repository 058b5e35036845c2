// Registration of a reduction's kernels, for .cu files.
#ifndef TIDEPOOL_BACKENDS_CUDA_REDUCTION_REGISTER_REDUCTION_H_
#define TIDEPOOL_BACKENDS_CUDA_REDUCTION_REGISTER_REDUCTION_H_

#include "tidepool/backends/cuda/reduction/reduce_kernel.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"

namespace tidepool::cuda {

template <typename Op>
ReducePlan PlanOf(const KernelCall& call) {
  int width = 1;
  if constexpr (requires { requires Op::kColumns; }) width = kRunWidth<Op>;
  return MakeReducePlan(call.inputs[0], call.attrs<ReduceAttributes>().axes, call.outputs[0],
                        width);
}

template <typename Op>
size_t ReductionScratch(const KernelCall& call) {
  return ReduceScratchBytes<Op>(PlanOf<Op>(call));
}

template <typename Op>
void RunReduction(const KernelCall& call) {
  const ReducePlan plan = PlanOf<Op>(call);
  Reduce(Op(call, plan), plan, call.scratch, StreamOf(call));
}

// Op<T> for the types of the set; it is made from the call and its plan.
template <template <typename> typename Op, DTypeSet kTypes>
void RegisterReduction(OpCode op) {
  for (int i = 0; i < kDTypes; ++i) {
    VisitDType(static_cast<DType>(i), [op](auto t) {
      using T = decltype(t);
      constexpr DType kType = DTypeOf<T>::value;
      if constexpr (Contains(kTypes & kComputedTypes, kType)) {
        KernelRegistry::Global().Add(
            CudaKernel(op, kType, &RunReduction<Op<T>>, &ReductionScratch<Op<T>>, true));
      }
    });
  }
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_REDUCTION_REGISTER_REDUCTION_H_
