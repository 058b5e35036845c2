// How many bytes an operator's attributes are: for kernels that run after the call is over.
#ifndef TIDEPOOL_BACKENDS_SIMULATED_ATTRIBUTES_SIZE_H_
#define TIDEPOOL_BACKENDS_SIMULATED_ATTRIBUTES_SIZE_H_

#include <cstddef>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/kernel/op_code.h"

namespace tidepool {

// 0: the operator takes none. Without a default, so that the compiler names an operator that is new;
// until it stands here its calls wait for their kernel.
constexpr size_t AttributesSize(OpCode op) {
  switch (op) {
    case OpCode::kFill: return sizeof(FillAttributes);
    case OpCode::kScaleShift: return sizeof(ScaleShiftAttributes);
    case OpCode::kClip: return sizeof(ClipAttributes);
    case OpCode::kElementwiseChain: return sizeof(ElementwiseChainAttributes);
    case OpCode::kLeakyRelu:
    case OpCode::kElu:
    case OpCode::kLeakyReluGrad:
    case OpCode::kEluGrad: return sizeof(AlphaAttributes);
    case OpCode::kGelu:
    case OpCode::kGeluGrad: return sizeof(GeluAttributes);
    case OpCode::kGather:
    case OpCode::kScatterAdd:
    case OpCode::kTopK: return sizeof(AxisAttributes);
    case OpCode::kOneHot: return sizeof(OneHotAttributes);
    case OpCode::kFlip: return sizeof(FlipAttributes);
    case OpCode::kTriangle: return sizeof(TriangleAttributes);
    case OpCode::kSort:
    case OpCode::kArgSort: return sizeof(SortAttributes);
    case OpCode::kCumSum: return sizeof(CumSumAttributes);
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
    case OpCode::kDenseCrossEntropyGrad:
    case OpCode::kSquaredErrorGrad:
    case OpCode::kBinaryCrossEntropyGrad: return sizeof(LossGradAttributes);
    case OpCode::kBatchNorm:
    case OpCode::kBatchNormInference:
    case OpCode::kLayerNorm: return sizeof(NormalizationAttributes);
    case OpCode::kBatchNormRunning: return sizeof(RunningAverageAttributes);
    case OpCode::kSgdUpdate: return sizeof(SgdAttributes);
    case OpCode::kNesterovsUpdate: return sizeof(NesterovsAttributes);
    case OpCode::kAdamUpdate: return sizeof(AdamAttributes);
    case OpCode::kRandomUniform:
    case OpCode::kRandomNormal: return sizeof(RandomAttributes);
    case OpCode::kRandomBernoulli: return sizeof(BernoulliAttributes);
    case OpCode::kRandomIntegers: return sizeof(RandomIntegersAttributes);
    case OpCode::kRandomPermutation: return sizeof(PermutationAttributes);
    case OpCode::kDropout: return sizeof(DropoutAttributes);
    case OpCode::kSum:
    case OpCode::kProd:
    case OpCode::kMean:
    case OpCode::kVariance:
    case OpCode::kNorm1:
    case OpCode::kNorm2:
    case OpCode::kNormInf:
    case OpCode::kLogSumExp:
    case OpCode::kMax:
    case OpCode::kMin:
    case OpCode::kAny:
    case OpCode::kAll:
    case OpCode::kArgMax:
    case OpCode::kArgMin: return sizeof(ReduceAttributes);
    case OpCode::kCopy:
    case OpCode::kAdd:
    case OpCode::kSubtract:
    case OpCode::kMultiply:
    case OpCode::kDivide:
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kPower:
    case OpCode::kRemainder:
    case OpCode::kEqual:
    case OpCode::kNotEqual:
    case OpCode::kLess:
    case OpCode::kLessEqual:
    case OpCode::kGreater:
    case OpCode::kGreaterEqual:
    case OpCode::kLogicalAnd:
    case OpCode::kLogicalOr:
    case OpCode::kLogicalXor:
    case OpCode::kLogicalNot:
    case OpCode::kIsNan:
    case OpCode::kIsFinite:
    case OpCode::kWhere:
    case OpCode::kNegate:
    case OpCode::kAbs:
    case OpCode::kSign:
    case OpCode::kSquare:
    case OpCode::kSqrt:
    case OpCode::kRsqrt:
    case OpCode::kReciprocal:
    case OpCode::kExp:
    case OpCode::kExpm1:
    case OpCode::kLog:
    case OpCode::kLog1p:
    case OpCode::kSin:
    case OpCode::kCos:
    case OpCode::kTanh:
    case OpCode::kSigmoid:
    case OpCode::kErf:
    case OpCode::kFloor:
    case OpCode::kCeil:
    case OpCode::kRound:
    case OpCode::kSoftplus:
    case OpCode::kRelu:
    case OpCode::kSwish:
    case OpCode::kReluGrad:
    case OpCode::kSigmoidGrad:
    case OpCode::kTanhGrad:
    case OpCode::kSwishGrad:
    case OpCode::kSoftplusGrad:
    case OpCode::kSoftmaxCrossEntropy:
    case OpCode::kDenseCrossEntropy:
    case OpCode::kSquaredError:
    case OpCode::kBinaryCrossEntropy:
    case OpCode::kBatchNormGrad:
    case OpCode::kLayerNormGrad:
    case OpCode::kLstmCell:
    case OpCode::kLstmCellGrad:
    case OpCode::kGruCell:
    case OpCode::kGruCellGrad: return 0;
  }
  return 0;
}

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_SIMULATED_ATTRIBUTES_SIZE_H_
