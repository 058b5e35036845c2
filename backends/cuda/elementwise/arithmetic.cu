// Sums, differences, products, extrema: exact up to one rounding. Integers modulo 2^bits.
#include "tidepool/backends/cuda/elementwise/basic_functions.h"
#include "tidepool/backends/cuda/elementwise/register.h"

namespace tidepool::cuda {
namespace {

const bool registered[] = {
    AddBinary<AddFunction>(OpCode::kAdd, NumberTypes()),
    AddBinary<SubtractFunction>(OpCode::kSubtract, NumberTypes()),
    AddBinary<MultiplyFunction>(OpCode::kMultiply, NumberTypes()),
    AddBinary<ExtremumFunction<true>>(OpCode::kMaximum, NumberTypes()),
    AddBinary<ExtremumFunction<false>>(OpCode::kMinimum, NumberTypes()),
};

}  // namespace
}  // namespace tidepool::cuda
