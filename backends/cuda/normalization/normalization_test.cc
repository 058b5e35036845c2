#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

class Normalization : public CudaKernelTest {};

TEST_F(Normalization, RandomCasesOfBatches) {
  for (const OpCode op : {OpCode::kBatchNorm, OpCode::kBatchNormInference, OpCode::kBatchNormGrad,
                          OpCode::kBatchNormRunning}) {
    CheckRandomCases(op, 40);
  }
}
TEST_F(Normalization, RandomCasesOfLayers) {
  for (const OpCode op : {OpCode::kLayerNorm, OpCode::kLayerNormGrad}) CheckRandomCases(op, 40);
}

OpCase ForwardCase(OpCode op, DType dtype, int64_t rows, int64_t columns) {
  const int64_t statistics = op == OpCode::kBatchNorm ? columns : rows;
  const DType type = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  OpCase c{op, dtype,
           {RandomOperand(dtype, {rows, columns}, 1), RandomOperand(dtype, {columns}, 2),
            RandomOperand(dtype, {columns}, 3)},
           {ResultOperand(dtype, {rows, columns}), ResultOperand(type, {statistics}),
            ResultOperand(type, {statistics})},
           {}, 10};
  c.attributes = NormalizationAttributes{1e-5};
  return c;
}

// Statistics that are made in parts; a mean far above the deviations.
TEST_F(Normalization, LargeBatches) {
  for (const int64_t channels : {1, 3, 40}) {
    OpCase c = ForwardCase(OpCode::kBatchNorm, DType::kFloat32, 20000 / channels, channels);
    CheckCase(c);
  }
  OpCase far = ForwardCase(OpCode::kBatchNorm, DType::kFloat64, 5000, 2);
  for (double& x : far.inputs[0].reals) x += 1000;
  far.inner = 1000;
  CheckCase(far);
}

TEST_F(Normalization, RowsOfEveryLengthAroundWarpsAndBlocks) {
  for (const int64_t size : {1, 2, 31, 33, 128, 129, 512, 513, 1024, 1025, 3000}) {
    CheckCase(ForwardCase(OpCode::kLayerNorm, DType::kFloat32, 5, size));
    CheckCase(ForwardCase(OpCode::kLayerNorm, DType::kBFloat16, 2, size));
  }
}

}  // namespace
}  // namespace tidepool::cuda
