#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"

namespace tidepool::cuda {
namespace {

class Indexing : public CudaKernelTest {};

TEST_F(Indexing, RandomCases) {
  for (const OpCode op : {OpCode::kGather, OpCode::kOneHot, OpCode::kScatterAdd})
    CheckRandomCases(op, 15);
}

// Each index as often as is drawn, all the same one, and each once; around a tile of the sort.
TEST_F(Indexing, SumsOfManyUpdatesAreThoseOfTheirOrder) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
    for (const int64_t count : {1, 7, 1024, 1025, 3000}) {
      for (const int64_t size : {int64_t{1}, int64_t{13}, count}) {
        for (const int64_t inner : {1, 3, 8}) {
          OpCase c{OpCode::kScatterAdd,
                   dtype,
                   {RandomOperand(dtype, {2, count, inner}, 1),
                    RandomOperand(DType::kInt64, {count}, 2)},
                   {RandomOperand(dtype, {2, size, inner}, 3)},
                   {},
                   static_cast<double>(count)};
          for (int64_t i = 0; i < count; ++i) {
            int64_t& index = c.inputs[1].ints[i];
            index = size == count ? count - 1 - i : (index + 100) % size;
          }
          c.attributes = AxisAttributes{1};
          CheckCase(c);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::cuda
