// How many bytes an operator's attributes are: for kernels that run after the call is over.
#ifndef TIDEPOOL_BACKENDS_SIMULATED_ATTRIBUTES_SIZE_H_
#define TIDEPOOL_BACKENDS_SIMULATED_ATTRIBUTES_SIZE_H_

#include <cstddef>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/kernel/op_code.h"

namespace tidepool {

// 0: unknown here; such a call cannot outlive its caller.
constexpr size_t AttributesSize(OpCode op) {
  switch (op) {
    case OpCode::kFill: return sizeof(FillAttributes);
    case OpCode::kScaleShift: return sizeof(ScaleShiftAttributes);
    case OpCode::kClip: return sizeof(ClipAttributes);
    case OpCode::kElementwiseChain: return sizeof(ElementwiseChainAttributes);
    case OpCode::kMatMul: return sizeof(MatMulAttributes);
    case OpCode::kConv2d:
    case OpCode::kConv2dGradInput:
    case OpCode::kConv2dGradFilter: return sizeof(Conv2dAttributes);
    case OpCode::kMaxPool2d:
    case OpCode::kMaxPool2dGrad:
    case OpCode::kAveragePool2d:
    case OpCode::kAveragePool2dGrad: return sizeof(Pool2dAttributes);
    case OpCode::kSoftmax:
    case OpCode::kLogSoftmax:
    case OpCode::kSoftmaxGrad:
    case OpCode::kLogSoftmaxGrad: return sizeof(SoftmaxAttributes);
    case OpCode::kSoftmaxCrossEntropyGrad: return sizeof(CrossEntropyGradAttributes);
    case OpCode::kSgdUpdate: return sizeof(SgdAttributes);
    case OpCode::kNesterovsUpdate: return sizeof(NesterovsAttributes);
    case OpCode::kAdamUpdate: return sizeof(AdamAttributes);
    case OpCode::kRandomUniform:
    case OpCode::kRandomNormal: return sizeof(RandomAttributes);
    case OpCode::kDropout: return sizeof(DropoutAttributes);
    case OpCode::kSum:
    case OpCode::kMean:
    case OpCode::kMax:
    case OpCode::kMin: return sizeof(ReduceAttributes);
    default: return 0;
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_SIMULATED_ATTRIBUTES_SIZE_H_
