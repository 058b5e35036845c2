// Random arrays besides RandomUniform and RandomNormal of creation.h. Element i (row-major) is a pure
// function of (seed, stream, i), the same on every device and for every number of threads;
// kernel/random_numbers.h has the formulas. Give each use a stream of its own.
//
// Results are made in `place`. Need a linked backend. Errors: kInvalidArgument naming what was found
// and expected.
#ifndef TIDEPOOL_NDARRAY_OPS_RANDOM_H_
#define TIDEPOOL_NDARRAY_OPS_RANDOM_H_

#include <cstdint>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Ones with this probability (rounded to a multiple of 2^-32), zeros otherwise: bool, u8 or floats.
NDArray RandomBernoulli(const Shape& shape, double probability, uint64_t seed, uint64_t stream = 0,
                        DType dtype = DType::kBool, Place place = Place::Current());

// Integers in [low, high), i32 or i64. By multiplication of 64 bits (i32) or 128 (i64): no number is
// likelier than another by more than 2^-32 (i32) or 2^-64 (i64) of its probability.
NDArray RandomIntegers(const Shape& shape, int64_t low, int64_t high, uint64_t seed,
                       uint64_t stream = 0, DType dtype = DType::kInt64,
                       Place place = Place::Current());

// 0 .. count - 1 in random order, i32 or i64: a Fisher-Yates shuffle, on one thread.
NDArray RandomPermutation(int64_t count, uint64_t seed, uint64_t stream = 0,
                          DType dtype = DType::kInt64, Place place = Place::Current());

// The slices of x along `axis` in the order of RandomPermutation.
NDArray Shuffle(const NDArray& x, uint64_t seed, uint64_t stream = 0, int axis = 0);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_RANDOM_H_
