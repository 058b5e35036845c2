#include <cstdint>

#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#endif

namespace tidepool::cuda {
namespace {

class Chain : public CudaKernelTest {};

// clip(relu(x + y) * w, -1, 1), as far as there are operands.
OpCase ChainCase(DType dtype, const Shape& shape, const Shape& y, const Shape& w, int operands) {
  ElementwiseChainAttributes a;
  if (operands > 0) a.steps[a.count++] = {OpCode::kAdd, 1};
  a.steps[a.count++] = {OpCode::kRelu};
  if (operands > 1) a.steps[a.count++] = {OpCode::kSubtract, 2, true};
  a.steps[a.count++] = {OpCode::kClip, 0, false, -0.7, 0.7};
  OpCase c{OpCode::kElementwiseChain,
           dtype,
           {RandomOperand(dtype, shape, 1), RandomOperand(dtype, y, 2), RandomOperand(dtype, w, 3)},
           {ResultOperand(dtype, shape)},
           {},
           4};
  c.inputs[1].present = operands > 0;
  c.inputs[2].present = operands > 1;
  c.attributes = a;
  return c;
}

TEST_F(Chain, RandomCases) { CheckRandomCases(OpCode::kElementwiseChain, 80); }

TEST_F(Chain, DenseBroadcastAndSingleOperandsOfAllSizesAroundVectors) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t size : {1, 3, 4, 7, 8, 9, 255, 1024, 1031}) {
      for (int operands = 0; operands < 3; ++operands) {
        CheckCase(ChainCase(dtype, {size}, {size}, {size}, operands));
        CheckCase(ChainCase(dtype, {3, size}, {size}, {1}, operands));
        CheckCase(ChainCase(dtype, {2, size, 3}, {size, 1}, {2, 1, 3}, operands));
      }
    }
  }
}

#if defined(TIDEPOOL_CUDA_EMULATED)
TEST_F(Chain, IsOneKernel) {
  const OpCase c = ChainCase(DType::kFloat32, {40, 50}, {50}, {40, 50}, 2);
  EmulatedCuda::Get().Finish();
  const int64_t before = EmulatedCuda::Get().counters().kernels;
  CheckCase(c);  // twice, and written over X and W
  EXPECT_EQ(EmulatedCuda::Get().counters().kernels - before, 4);
}
#endif

}  // namespace
}  // namespace tidepool::cuda
