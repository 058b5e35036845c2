#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"

namespace tidepool::cuda {
namespace {

class Pooling : public CudaKernelTest {};

// Paddings, strides, overlapping windows, ties and NaN are drawn by the contract's generator.
TEST_F(Pooling, RandomCasesOfTheMaximum) {
  CheckRandomCases(OpCode::kMaxPool2d, 40);
  CheckRandomCases(OpCode::kMaxPool2dGrad, 60);
}
TEST_F(Pooling, RandomCasesOfTheAverage) {
  CheckRandomCases(OpCode::kAveragePool2d, 40);
  CheckRandomCases(OpCode::kAveragePool2dGrad, 40);
}

}  // namespace
}  // namespace tidepool::cuda
