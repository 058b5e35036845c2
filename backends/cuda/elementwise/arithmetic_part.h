// Arithmetic of two operands, every second operator of operators/arithmetic.inc from TIDEPOOL_PART on. Included by one
// source for each part.
#ifndef TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_ARITHMETIC_PART_H_
#define TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_ARITHMETIC_PART_H_

#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/backends/cuda/framework/math.h"

namespace tidepool::cuda {
namespace {

using namespace operator_list;  // NOLINT: the rows' words

enum {
#define TIDEPOOL_OPERATOR(Name, ...) kPlaceOf##Name,
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#undef TIDEPOOL_OPERATOR
};

template <int kPlace, typename Formula, DTypeSet kTypes>
void AddOfPart([[maybe_unused]] OpCode op) {
  if constexpr (kPlace % 2 == TIDEPOOL_PART) AddFunctionOfTwo<Formula, kTypes>(op);
}

const bool registered = [] {
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddOfPart<kPlaceOf##Name, Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#undef TIDEPOOL_OPERATOR
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_ARITHMETIC_PART_H_
