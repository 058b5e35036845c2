// Reductions on the device against the reference: the contract's random shapes and strides, and
// sizes around lanes, blocks, parts and grids.
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {
namespace {

class Reduction : public CudaKernelTest {};

OpCase ReductionCase(OpCode op, DType x, DType z, const Shape& shape, uint32_t axes) {
  ReduceAttributes attributes;
  attributes.axes = axes;
  int64_t kept[kMaxRank];
  int rank = 0;
  OpCase c{op, x, {RandomOperand(x, shape, 7)}, {}, {}, 1};
  for (int i = 0; i < shape.rank(); ++i) {
    if (IsReduced(attributes, i)) {
      c.inner *= static_cast<double>(shape[i]);
    } else {
      kept[rank++] = shape[i];
    }
  }
  c.attributes = attributes;
  c.outputs = {ResultOperand(z, Shape(absl::Span<const int64_t>(kept, rank)))};
  return c;
}

TEST_F(Reduction, RandomCasesOfSums) {
  for (const OpCode op : {OpCode::kSum, OpCode::kMean, OpCode::kNorm1, OpCode::kNorm2}) {
    CheckRandomCases(op, 25);
  }
}
TEST_F(Reduction, RandomCasesOfMoments) {
  for (const OpCode op : {OpCode::kVariance, OpCode::kProd, OpCode::kLogSumExp}) {
    CheckRandomCases(op, 25);
  }
}
TEST_F(Reduction, RandomCasesOfExtremes) {
  for (const OpCode op : {OpCode::kMax, OpCode::kMin, OpCode::kNormInf, OpCode::kAny, OpCode::kAll,
                          OpCode::kArgMax, OpCode::kArgMin}) {
    CheckRandomCases(op, 25);
  }
}

TEST_F(Reduction, RowsOfEveryLengthAroundWarpsBlocksAndParts) {
  for (const int64_t size : {1, 2, 31, 32, 33, 127, 129, 1023, 1024, 1025, 4096, 8193, 70001}) {
    for (const int64_t rows : {1, 3}) {
      CheckCase(ReductionCase(OpCode::kSum, DType::kFloat32, DType::kFloat32, {rows, size}, 2));
      CheckCase(ReductionCase(OpCode::kArgMax, DType::kInt32, DType::kInt64, {rows, size}, 2));
      CheckCase(
          ReductionCase(OpCode::kVariance, DType::kFloat64, DType::kFloat64, {rows, size}, 2));
    }
  }
}

TEST_F(Reduction, ColumnsOfEveryCountAroundWarpsBlocksAndParts) {
  for (const int64_t columns : {1, 3, 31, 32, 33, 257}) {
    for (const int64_t rows : {1, 7, 64, 1025, 9000}) {
      if (rows * columns > 300000) continue;
      CheckCase(ReductionCase(OpCode::kMean, DType::kFloat16, DType::kFloat16, {rows, columns}, 1));
      CheckCase(ReductionCase(OpCode::kArgMin, DType::kFloat32, DType::kInt64, {rows, columns}, 1));
    }
  }
}

// Rows whose dense elements are read 16 bytes at a time, also where a row begins elsewhere.
TEST_F(Reduction, RunsOfEveryType) {
  for (int d = 0; d < kDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    if (KernelRegistry::Find(OpCode::kSum, DeviceType::kCuda, dtype).empty()) continue;
    for (const int64_t size : {15, 16, 17, 64, 255, 4095, 4096, 4097, 9000}) {
      CheckCase(ReductionCase(OpCode::kArgMax, dtype, DType::kInt64, {3, size}, 2));
      const DType sum = IsFloating(dtype) ? dtype : DType::kInt64;
      CheckCase(ReductionCase(OpCode::kSum, dtype, sum, {3, size}, 2));
    }
  }
}

// More outputs than a grid has blocks for.
TEST_F(Reduction, GridsLoop) {
  const int64_t rows = 2048 * 8 + 20;
  CheckCase(ReductionCase(OpCode::kMax, DType::kFloat64, DType::kFloat64, {rows, 34}, 2));
}

TEST_F(Reduction, AxesThatDoNotMerge) {
  CheckCase(ReductionCase(OpCode::kSum, DType::kFloat32, DType::kFloat32, {9, 4, 33, 5}, 0b0101));
  CheckCase(ReductionCase(OpCode::kSum, DType::kInt64, DType::kInt64, {3, 40, 3, 50}, 0b1010));
  CheckCase(
      ReductionCase(OpCode::kLogSumExp, DType::kFloat32, DType::kFloat32, {700, 3, 90}, 0b101));
}

TEST_F(Reduction, ALargeMeanDoesNotCancelInTheVariance) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64}) {
    const DType z = IsFloating(dtype) ? dtype : DType::kFloat64;
    OpCase c = ReductionCase(OpCode::kVariance, dtype, z, {5, 3000}, 2);
    for (double& value : c.inputs[0].reals) value = 1048576 + std::round(value * 64) / 64;
    for (int64_t& value : c.inputs[0].ints) value += int64_t{1} << 36;
    c.inner = 1;
    CheckCase(c);
  }
}

TEST_F(Reduction, NaNAndInfinitiesFarApart) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const OpCode op : {OpCode::kMax, OpCode::kMin, OpCode::kLogSumExp, OpCode::kSum,
                          OpCode::kVariance, OpCode::kNormInf}) {
    for (const double special : {nan, infinity, -infinity}) {
      for (const int64_t place : {0, 33, 5000, 19999}) {
        OpCase c = ReductionCase(op, DType::kFloat32, DType::kFloat32, {20000}, 1);
        c.inputs[0].reals[place] = special;
        CheckCase(c);
      }
    }
    OpCase all = ReductionCase(op, DType::kFloat32, DType::kFloat32, {3000}, 1);
    all.inputs[0].reals.assign(3000, -infinity);
    CheckCase(all);
  }
  OpCase first = ReductionCase(OpCode::kArgMin, DType::kFloat64, DType::kInt64, {20000}, 1);
  first.inputs[0].reals[17000] = first.inputs[0].reals[16999] = nan;
  CheckCase(first);
}

}  // namespace
}  // namespace tidepool::cuda
