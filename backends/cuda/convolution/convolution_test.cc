#include <initializer_list>

#include "gtest/gtest.h"
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
    c.inputs = {RandomOperand(dtype, input, 1), RandomOperand(dtype, filter, 2),
                RandomOperand(dtype, {s.filters}, 3)};
    c.outputs = {ResultOperand(dtype, output)};
    c.inner = static_cast<double>(filter.NumElements() / s.filters) + 1;
  } else if (op == OpCode::kConv2dGradInput) {
    c.inputs = {RandomOperand(dtype, output, 1), RandomOperand(dtype, filter, 2)};
    c.outputs = {ResultOperand(dtype, input)};
    c.inner = static_cast<double>(s.kernel * s.kernel * s.filters);
  } else {
    c.inputs = {RandomOperand(dtype, input, 1), RandomOperand(dtype, output, 2)};
    c.outputs = {a.accumulate ? RandomOperand(dtype, filter, 3) : ResultOperand(dtype, filter)};
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

}  // namespace
}  // namespace tidepool::cuda
