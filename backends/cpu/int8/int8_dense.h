// Dense layers in 8 bits with dynamic ranges: each row (an example) of f32 is put into 8 bits by its own least and largest number,
// multiplied with weights of 8 bits in 32-bit sums, and scaled back to f32. A row's result does not depend on the rows beside it,
// on the instruction set, or on threads.
//
// The weights are read as they are: [units, inputs], nothing is packed, so that all that compute by them share them.
#ifndef TIDEPOOL_BACKENDS_CPU_INT8_INT8_DENSE_H_
#define TIDEPOOL_BACKENDS_CPU_INT8_INT8_DENSE_H_

#include <cstddef>
#include <cstdint>

namespace tidepool::cpu {

struct Int8Loops;

// All arrays are the caller's.
struct Int8Dense {
  int64_t units = 0, inputs = 0;   // 1 or more each
  const int8_t* weight = nullptr;  // [units, inputs]; kReadableTailBytes behind it can be read
  const float* scales = nullptr;   // [units]: a weight is scale * number
  const float* bias = nullptr;     // [units]
  bool relu = false;
  const int32_t* weight_sums = nullptr;  // [Int8WeightSums(units, inputs)], by SumInt8Weights
};

// How many sums of weights there are: one for each unit, of each 65,536 inputs, whose products 32 bits hold.
int64_t Int8WeightSums(int64_t units, int64_t inputs);
void SumInt8Weights(const int8_t* weight, int64_t units, int64_t inputs, int32_t* sums);

// Of the memory that a call works in, whatever the batch.
size_t Int8ScratchBytes(int64_t inputs);

// z [batch, units] of x [batch, inputs], dense, on this thread alone, by `loops` (int8_loops.h). Takes no memory but `scratch`, of
// Int8ScratchBytes(inputs) at an address that is a multiple of 64. Numbers of a row that are closer together than 1e-36 count as the
// least of them; rows that are not finite give unspecified numbers.
void RunInt8Dense(const Int8Dense& dense, const Int8Loops& loops, int64_t batch, const float* x,
                  float* z, void* scratch);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_INT8_INT8_DENSE_H_
