#include <limits>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

class Softmax : public CudaKernelTest {};

constexpr OpCode kForward[] = {OpCode::kSoftmax, OpCode::kLogSoftmax};
constexpr OpCode kBackward[] = {OpCode::kSoftmaxGrad, OpCode::kLogSoftmaxGrad};

OpCase SoftmaxCase(OpCode op, DType dtype, const Shape& shape, int axis) {
  OpCase c{op, dtype, {RandomOperand(dtype, shape, 3)}, {ResultOperand(dtype, shape)}, {}, 1};
  if (op == OpCode::kSoftmaxGrad || op == OpCode::kLogSoftmaxGrad) {
    c.inputs.push_back(RandomOperand(dtype, shape, 4));
    c.inner = static_cast<double>(shape[axis]);
  }
  c.attributes = SoftmaxAttributes{axis};
  return c;
}

TEST_F(Softmax, RandomCases) {
  for (const OpCode op : kForward) CheckRandomCases(op, 40);
  for (const OpCode op : kBackward) CheckRandomCases(op, 40);
}

TEST_F(Softmax, LinesOfEveryLengthAroundWarpsAndBlocks) {
  for (const int64_t size :
       {1, 2, 31, 32, 33, 64, 127, 128, 129, 512, 513, 1024, 1025, 5000, 5001, 9000}) {
    for (const OpCode op : kForward) {
      CheckCase(SoftmaxCase(op, DType::kFloat32, {5, size}, 1));
      CheckCase(SoftmaxCase(op, DType::kFloat16, {3, size}, 1));
      CheckCase(SoftmaxCase(op, DType::kFloat64, {2, size, 9}, 1));
    }
    for (const OpCode op : kBackward) CheckCase(SoftmaxCase(op, DType::kFloat32, {3, size}, 1));
  }
}

TEST_F(Softmax, LargeAndInfiniteLogits) {
  for (const OpCode op : kForward) {
    for (const double special :
         {1e4, -1e4, std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      for (const int64_t size : {7, 300, 2000, 9001}) {
        OpCase c = SoftmaxCase(op, DType::kFloat32, {2, size}, 1);
        c.inputs[0].reals[size / 2] = special;
        CheckCase(c);
        for (int64_t i = 0; i < size; ++i) c.inputs[0].reals[i] = special;
        CheckCase(c);
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::cuda
