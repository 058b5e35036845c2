#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

class Losses : public CudaKernelTest {};

TEST_F(Losses, RandomCasesOfCrossEntropy) {
  for (const OpCode op : {OpCode::kSoftmaxCrossEntropy, OpCode::kSoftmaxCrossEntropyGrad,
                          OpCode::kDenseCrossEntropy, OpCode::kDenseCrossEntropyGrad}) {
    CheckRandomCases(op, 40);
  }
}
TEST_F(Losses, RandomCasesOfMeansOfRows) {
  for (const OpCode op :
       {OpCode::kSquaredError, OpCode::kSquaredErrorGrad, OpCode::kBinaryCrossEntropy,
        OpCode::kBinaryCrossEntropyGrad, OpCode::kAbsoluteError, OpCode::kAbsoluteErrorGrad,
        OpCode::kHuberError, OpCode::kHuberErrorGrad}) {
    CheckRandomCases(op, 40);
  }
}

TEST_F(Losses, ManyClasses) {
  for (const int64_t classes : {1, 4, 31, 33, 64, 512, 513, 1000, 4000, 5003, 9000}) {
    OpCase c{OpCode::kSoftmaxCrossEntropy,
             DType::kFloat32,
             {RandomOperand(DType::kFloat32, {3, classes}, 1), {{3}, DType::kInt64, true, {}, {}}},
             {ResultOperand(DType::kFloat32, {3}), ResultOperand(DType::kFloat32, {3, classes})},
             {},
             static_cast<double>(classes)};
    c.inputs[1].ints = {0, classes - 1, classes / 2};
    CheckCase(c);
    c.op = OpCode::kDenseCrossEntropy;
    c.inputs[1] = RandomOperand(DType::kFloat32, {3, classes}, 2);
    CheckCase(c);
    OpCase of_targets{OpCode::kDenseCrossEntropyGrad, DType::kFloat32, c.inputs, {c.outputs[1]}, {},
                      static_cast<double>(classes)};
    of_targets.attributes = LossGradAttributes{0.5};
    CheckCase(of_targets);
  }
}

// A mean over so many elements that it is made in parts.
TEST_F(Losses, LongRows) {
  for (const OpCode op : {OpCode::kSquaredError, OpCode::kBinaryCrossEntropy}) {
    OpCase c{op,
             DType::kFloat32,
             {RandomOperand(DType::kFloat32, {2, 100, 400}, 1),
              RandomOperand(DType::kFloat32, {2, 100, 400}, 2)},
             {ResultOperand(DType::kFloat32, {2})},
             {},
             1};
    CheckCase(c);
  }
}

}  // namespace
}  // namespace tidepool::cuda
