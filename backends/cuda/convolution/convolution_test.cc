#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/matmul/cublas.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool::cuda {
namespace {

class Convolution : public CudaKernelTest {};

constexpr OpCode kAll[] = {OpCode::kConv2d, OpCode::kConv2dGradInput, OpCode::kConv2dGradFilter};

TEST_F(Convolution, RandomCases) { CheckRandomCases(OpCode::kConv2d, 30); }
TEST_F(Convolution, RandomCasesOfTheInputsGradient) {
  CheckRandomCases(OpCode::kConv2dGradInput, 30);
}
TEST_F(Convolution, RandomCasesOfTheFiltersGradient) {
  CheckRandomCases(OpCode::kConv2dGradFilter, 30);
}

struct Sizes {
  int64_t batch, height, width, channels, filters, kernel, groups = 1;
};

// Whether elements are whole numbers.
bool rounded = false;

OperandValues Operand(DType dtype, const Shape& shape, uint64_t seed) {
  OperandValues values = RandomOperand(dtype, shape, seed);
  if (!rounded) return values;
  for (double& value : values.reals) value = std::round(value * 16);
  return values;
}

void CheckSizes(OpCode op, DType dtype, const Sizes& s, const Conv2dAttributes& attributes) {
  Conv2dAttributes a = attributes;
  a.groups = s.groups;
  auto out = [&](int64_t in, int64_t pads, int64_t stride, int64_t dilation) {
    return (in + pads - dilation * (s.kernel - 1) - 1) / stride + 1;
  };
  const Shape input{s.batch, s.height, s.width, s.channels};
  const Shape filter{s.filters, s.kernel, s.kernel, s.channels / s.groups};
  const Shape output{
      s.batch, out(s.height, a.pad_top + a.pad_bottom, a.stride_height, a.dilation_height),
      out(s.width, a.pad_left + a.pad_right, a.stride_width, a.dilation_width), s.filters};
  OpCase c{op, dtype, {}, {}, {}, 1};
  if (op == OpCode::kConv2d) {
    c.inputs = {Operand(dtype, input, 1), Operand(dtype, filter, 2),
                Operand(dtype, {s.filters}, 3)};
    c.outputs = {ResultOperand(dtype, output)};
    c.inner = static_cast<double>(filter.NumElements() / s.filters) + 1;
  } else if (op == OpCode::kConv2dGradInput) {
    c.inputs = {Operand(dtype, output, 1), Operand(dtype, filter, 2)};
    c.outputs = {ResultOperand(dtype, input)};
    c.inner = static_cast<double>(s.kernel * s.kernel * s.filters);
  } else {
    c.inputs = {Operand(dtype, input, 1), Operand(dtype, output, 2)};
    c.outputs = {a.accumulate ? Operand(dtype, filter, 3) : ResultOperand(dtype, filter)};
    c.inner = static_cast<double>(output.NumElements() / s.filters) + 1;
  }
  c.attributes = a;
  CheckCase(c);
}

// Sizes around tiles of 64 and slices of 16, in rows, columns and the summed axis.
TEST_F(Convolution, TilesAndSlices) {
  Conv2dAttributes same;
  same.pad_top = same.pad_bottom = same.pad_left = same.pad_right = 1;
  for (const OpCode op : kAll) {
    CheckSizes(op, DType::kFloat32, {1, 8, 8, 16, 64, 3}, same);
    CheckSizes(op, DType::kFloat32, {1, 9, 7, 17, 65, 3}, same);
    CheckSizes(op, DType::kFloat64, {2, 5, 13, 65, 31, 1}, {});
    CheckSizes(op, DType::kFloat16, {1, 8, 8, 15, 33, 3}, same);
  }
}

// Enough output pixels for parts of the sum over them.
TEST_F(Convolution, SumsOverPixelsInParts) {
  Conv2dAttributes a;
  CheckSizes(OpCode::kConv2dGradFilter, DType::kFloat32, {2, 30, 31, 3, 4, 2}, a);
  a.accumulate = true;
  CheckSizes(OpCode::kConv2dGradFilter, DType::kFloat32, {2, 30, 31, 3, 4, 2}, a);
  CheckSizes(OpCode::kConv2dGradFilter, DType::kFloat64, {1, 40, 41, 6, 6, 3, 6}, a);
}

TEST_F(Convolution, GroupsLargeEnoughForTiles) {
  Conv2dAttributes a;
  a.stride_height = 2;
  for (const OpCode op : kAll) {
    CheckSizes(op, DType::kFloat32, {1, 9, 8, 48, 34, 3, 2}, a);
  }
}

// Enough tiles of 64 x 64 for two turns on a device: the plans take tiles of 128 x 32, 128 x 64 and 128 x 128 instead.
TEST_F(Convolution, TilesOfEveryShape) {
  for (const int64_t narrow : {32, 64, 140}) {
    CheckSizes(OpCode::kConv2d, DType::kFloat32, {1, 130, 65, 2, narrow, 1}, {});
    CheckSizes(OpCode::kConv2dGradInput, DType::kFloat32, {1, 130, 65, narrow, 2, 1}, {});
    CheckSizes(OpCode::kConv2dGradFilter, DType::kFloat32, {1, 2, 1, 8320, narrow, 1}, {});
  }
}

// Tensor cores: both kinds of tiles, slices and parts that are not whole, groups; channels and filters that come 16 bytes at
// a time, and those that do not.
void CheckTensorTiles(DType dtype, int64_t access) {
  Conv2dAttributes same;
  same.pad_top = same.pad_bottom = same.pad_left = same.pad_right = 1;
  Conv2dAttributes stride = same;
  stride.stride_height = 2, stride.dilation_width = 2;
  for (const OpCode op : kAll) {
    CheckSizes(op, dtype, {1, 9, 7, 2 * access, 9 * access, 3}, same);
    CheckSizes(op, dtype, {1, 9, 7, 2 * access + 1, 9 * access, 3}, same);
    CheckSizes(op, dtype, {1, 9, 7, 2 * access, 4 * access + 1, 3}, stride);
    CheckSizes(op, dtype, {1, 5, 6, 3, 17, 3}, stride);
    CheckSizes(op, dtype, {2, 12, 12, 4 * access, 8 * access, 3, 2}, stride);
  }
  CheckSizes(OpCode::kConv2d, dtype, {1, 12, 12, access, 130, 1}, {});
  CheckSizes(OpCode::kConv2dGradInput, dtype, {1, 12, 12, 136, access, 1}, {});
  CheckSizes(OpCode::kConv2dGradFilter, dtype, {1, 24, 24, 17 * access, 136, 1}, {});
  same.accumulate = true;
  CheckSizes(OpCode::kConv2dGradFilter, dtype, {1, 24, 24, access, access, 3}, same);
}

TEST_F(Convolution, TensorCoresOf16Bits) {
  CheckTensorTiles(DType::kFloat16, 8);
  CheckTensorTiles(DType::kBFloat16, 8);
}

// Of whole numbers below 2^11, which TF32 has, products and sums are exact: the same bits as in f32.
TEST_F(Convolution, TensorCoresOfTf32) {
  const bool before = Cublas::tf32();
  Cublas::set_tf32(true);
  rounded = true;
  CheckTensorTiles(DType::kFloat32, 4);
  rounded = false;
  Cublas::set_tf32(before);
}

}  // namespace
}  // namespace tidepool::cuda
