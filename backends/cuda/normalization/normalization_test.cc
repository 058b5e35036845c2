#include <algorithm>
#include <cmath>

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
  for (const OpCode op :
       {OpCode::kLayerNorm, OpCode::kLayerNormGrad, OpCode::kRmsNorm, OpCode::kRmsNormGrad}) {
    CheckRandomCases(op, 40);
  }
}

OpCase ForwardCase(OpCode op, DType dtype, int64_t rows, int64_t columns) {
  const int64_t statistics = op == OpCode::kBatchNorm ? columns : rows;
  const DType type = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  OpCase c{op,
           dtype,
           {RandomOperand(dtype, {rows, columns}, 1), RandomOperand(dtype, {columns}, 2),
            RandomOperand(dtype, {columns}, 3)},
           {ResultOperand(dtype, {rows, columns}), ResultOperand(type, {statistics}),
            ResultOperand(type, {statistics})},
           {},
           10};
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
  for (const int64_t channels :
       {3, 8}) {  // deviations far smaller than what a mean in float is rounded by
    OpCase close = ForwardCase(OpCode::kBatchNorm, DType::kFloat32, 3000, channels);
    for (double& x : close.inputs[0].reals) x = static_cast<float>(640 + x * 0.01);
    CheckCase(close);
  }
}

OpCase GradCase(OpCode op, DType dtype, int64_t rows, int64_t columns) {
  const int64_t statistics = op == OpCode::kBatchNormGrad ? columns : rows;
  const DType type = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  OpCase c{op,
           dtype,
           {RandomOperand(dtype, {rows, columns}, 1), RandomOperand(dtype, {columns}, 2),
            RandomOperand(type, {statistics}, 3), RandomOperand(type, {statistics}, 4),
            RandomOperand(dtype, {rows, columns}, 5)},
           {ResultOperand(dtype, {rows, columns}), ResultOperand(dtype, {columns}),
            ResultOperand(dtype, {columns})},
           {},
           static_cast<double>(std::max<int64_t>(8, rows))};
  for (double& inverse : c.inputs[3].reals) inverse = std::abs(inverse) + 0.5;
  return c;
}

// Columns by 16 bytes and by elements, in parts and at once.
TEST_F(Normalization, ColumnsOfEveryCount) {
  for (const int64_t channels : {1, 4, 6, 16, 24, 100, 136, 300}) {
    for (const int64_t rows : {1, 5, 130, 2000}) {
      if (rows * channels > 100000) continue;
      CheckCase(ForwardCase(OpCode::kBatchNorm, DType::kFloat16, rows, channels));
      CheckCase(GradCase(OpCode::kBatchNormGrad, DType::kFloat32, rows, channels));
      CheckCase(GradCase(OpCode::kBatchNormGrad, DType::kBFloat16, rows, channels));
    }
  }
}

// By one thread, parts of a warp, several warps and a block; by 16 bytes and by elements; in pieces.
constexpr int64_t kRowSizes[] = {1,    2,    3,    8,    31,   32,   33,   64,
                                 100,  128,  129,  512,  513,  1000, 1024, 1025,
                                 1536, 3000, 4096, 4104, 5001, 8192, 17000};

TEST_F(Normalization, RowsOfEveryLengthAroundWarpsAndBlocks) {
  for (const int64_t size : kRowSizes) {
    CheckCase(ForwardCase(OpCode::kLayerNorm, DType::kFloat32, 5, size));
    CheckCase(ForwardCase(OpCode::kLayerNorm, DType::kBFloat16, 2, size));
    CheckCase(GradCase(OpCode::kLayerNormGrad, DType::kFloat32, 5, size));
    CheckCase(GradCase(OpCode::kLayerNormGrad, DType::kFloat16, 3, size));
    CheckCase(GradCase(OpCode::kLayerNormGrad, DType::kFloat64, 3, size));
    OpCase rms = ForwardCase(OpCode::kLayerNorm, DType::kFloat32, 3, size);
    rms.op = OpCode::kRmsNorm;
    rms.inputs.pop_back();
    rms.outputs.pop_back();
    CheckCase(rms);
    OpCase rms_grad = GradCase(OpCode::kLayerNormGrad, DType::kBFloat16, 3, size);
    rms_grad.op = OpCode::kRmsNormGrad;
    rms_grad.inputs.erase(rms_grad.inputs.begin() + 2);
    rms_grad.outputs.pop_back();
    CheckCase(rms_grad);
  }
}

// More rows than blocks that add up the gradients of scale and shift.
TEST_F(Normalization, ManyRows) {
  CheckCase(GradCase(OpCode::kLayerNormGrad, DType::kFloat32, 20001, 3));
  CheckCase(GradCase(OpCode::kLayerNormGrad, DType::kFloat32, 1203, 256));
}

// The deviations are far smaller than what a mean in float is rounded by.
TEST_F(Normalization, RowsOfAMeanFarAboveTheDeviation) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t size : {2, 7, 640, 9000}) {
      if (dtype == DType::kFloat64 && size > 1000)
        continue;  // the reference's own mean is no better
      OpCase c = ForwardCase(OpCode::kLayerNorm, dtype, 3, size);
      VisitDType(dtype, [&](auto t) {
        for (double& x : c.inputs[0].reals) x = static_cast<decltype(t)>(640 + x * 0.01);
      });
      CheckCase(c);
    }
  }
}

}  // namespace
}  // namespace tidepool::cuda
