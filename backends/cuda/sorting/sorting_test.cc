#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {
namespace {

class Sorting : public CudaKernelTest {};

TEST_F(Sorting, RandomCases) {
  for (const OpCode op : {OpCode::kSort, OpCode::kArgSort, OpCode::kTopK}) CheckRandomCases(op, 15);
}
TEST_F(Sorting, RandomCasesOfSums) { CheckRandomCases(OpCode::kCumSum, 25); }

// Values with many equals; a few NaN.
OperandValues Tied(DType dtype, const Shape& shape) {
  OperandValues values = RandomOperand(dtype, shape, 5);
  for (double& value : values.reals) value = std::round(value * 8) / 8;
  if (values.reals.size() > 100) {
    for (const size_t i : {3, 4, 99}) values.reals[i] = std::numeric_limits<double>::quiet_NaN();
  }
  return values;
}

TEST_F(Sorting, LinesAroundTilesAndRuns) {
  for (const int64_t size :
       {1, 2, 3, 31, 32, 33, 128, 129, 512, 513, 1023, 1024, 1025, 2048, 2049, 4096, 4097, 5000}) {
    for (const bool descending : {false, true}) {
      OpCase c{OpCode::kArgSort,
               DType::kFloat32,
               {Tied(DType::kFloat32, {2, size})},
               {ResultOperand(DType::kInt64, {2, size})},
               {},
               1};
      c.attributes = SortAttributes{1, descending};
      CheckCase(c);
      c.op = OpCode::kSort;
      c.outputs = {ResultOperand(DType::kFloat32, {2, size})};
      CheckCase(c);
    }
  }
}

TEST_F(Sorting, LinesAcrossTheInnermostAxis) {
  OpCase c{OpCode::kSort,
           DType::kInt32,
           {RandomOperand(DType::kInt32, {2, 1500, 3}, 6)},
           {ResultOperand(DType::kInt32, {2, 1500, 3})},
           {},
           1};
  c.attributes = SortAttributes{1, true};
  CheckCase(c);
}

TEST_F(Sorting, TheLargestOfLongLines) {
  for (const int64_t size : {300, 3000, 5000}) {
    for (const int64_t k : {int64_t{1}, int64_t{7}, size}) {
      OpCase c{OpCode::kTopK,
               DType::kFloat64,
               {Tied(DType::kFloat64, {2, size})},
               {ResultOperand(DType::kFloat64, {2, k}), ResultOperand(DType::kInt64, {2, k})},
               {},
               1};
      c.attributes = AxisAttributes{1};
      CheckCase(c);
    }
  }
}

TEST_F(Sorting, CumulativeSumsOfEveryLengthAroundTilesAndChunks) {
  for (const int64_t size : {1, 64, 65, 1023, 1024, 1025, 2049, 4096, 10001}) {
    for (const int mode : {0, 1, 2, 3}) {
      CumSumAttributes a;
      a.axis = 1;
      a.reverse = (mode & 1) != 0;
      a.exclusive = (mode & 2) != 0;
      OpCase c{OpCode::kCumSum,
               DType::kFloat32,
               {RandomOperand(DType::kFloat32, {3, size}, 7)},
               {ResultOperand(DType::kFloat32, {3, size})},
               {},
               static_cast<double>(size)};
      c.attributes = a;
      CheckCase(c);
    }
  }
}

// Of every type in pieces that are 16 bytes and others, in every order.
TEST_F(Sorting, CumulativeSumsOfEveryType) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat64, DType::kInt8,
                            DType::kInt32, DType::kInt64, DType::kBool}) {
    const bool is_float =
        dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat64;
    if (KernelRegistry::Find(OpCode::kCumSum, DeviceType::kCuda, dtype).empty()) continue;
    const DType sums = is_float ? dtype : DType::kInt64;
    for (const Shape& shape : {Shape{2, 200}, Shape{2, 4099}, Shape{1, 20000}, Shape{2, 300, 3}}) {
      for (const int mode : {0, 1, 2, 3}) {
        OpCase c{OpCode::kCumSum,
                 dtype,
                 {RandomOperand(dtype, shape, 7)},
                 {ResultOperand(sums, shape)},
                 {},
                 static_cast<double>(shape[1])};
        c.attributes = CumSumAttributes{1, (mode & 1) != 0, (mode & 2) != 0};
        CheckCase(c);
      }
    }
  }
}

// A thread per line, and as many lines as that takes.
TEST_F(Sorting, CumulativeSumsOfManyLines) {
  OpCase c{OpCode::kCumSum,
           DType::kInt8,
           {RandomOperand(DType::kInt8, {2, 70, 4100}, 8)},
           {ResultOperand(DType::kInt64, {2, 70, 4100})},
           {},
           1};
  c.attributes = CumSumAttributes{1, true, false};
  CheckCase(c);
}

// Lines of a type each, in its own order; several lines side by side, and the numbers between which keys are shifted.
TEST_F(Sorting, LongLinesOfEveryType) {
  for (int d = 0; d < kDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (KernelRegistry::Find(OpCode::kSort, DeviceType::kCuda, dtype).empty()) continue;
    for (const Shape& shape :
         {Shape{3, 200}, Shape{2, 600, 2}, Shape{1, 3000}, Shape{3, 1500}, Shape{2, 1200, 2},
          Shape{1, 5000}, Shape{2, 4100}, Shape{2, 4200, 2}}) {
      for (const bool descending : {false, true}) {
        OpCase c{OpCode::kSort,
                 dtype,
                 {RandomOperand(dtype, shape, 7)},
                 {ResultOperand(dtype, shape)},
                 {},
                 1};
        for (size_t i = 0; i + 40 < c.inputs[0].reals.size(); i += 40) {
          constexpr double kInfinity = std::numeric_limits<double>::infinity();
          constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
          constexpr double kEnds[] = {kInfinity, -kInfinity, kNaN, -kNaN, 0.0, -0.0, kNaN};
          c.inputs[0].reals[i] = kEnds[i / 40 % 7];
        }
        c.attributes = SortAttributes{1, descending};
        CheckCase(c);
        c.op = OpCode::kArgSort;
        c.outputs = {ResultOperand(DType::kInt64, shape)};
        CheckCase(c);
      }
    }
  }
}

// To the bit those of the exchanges one after the other.
TEST_F(Sorting, PermutationsOfEverySize) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    for (const int64_t size : {1, 2, 3, 4, 5, 31, 100, 1024, 1025, 1026, 5000, 20000}) {
      for (uint64_t seed = 0; seed < (size < 10 ? 20 : 2); ++seed) {
        OpCase c{OpCode::kRandomPermutation, dtype, {}, {ResultOperand(dtype, {size})}, {}, 1};
        PermutationAttributes a;
        a.seed = seed;
        a.stream = 3;
        c.attributes = a;
        CheckCase(c);
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::cuda
