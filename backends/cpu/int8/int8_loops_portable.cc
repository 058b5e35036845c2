#include "tidepool/backends/cpu/int8/int8_loops.h"

namespace tidepool::cpu {
namespace {

#include "tidepool/backends/cpu/int8/int8_loops.inc"

void Products(const uint8_t* x, int64_t x_stride, int rows, const int8_t* w, int64_t w_stride,
              int units, int64_t steps, int32_t* sums) {
  for (int r = 0; r < rows; ++r) {
    for (int u = 0; u < units; ++u) {
      const uint8_t* const a = x + r * x_stride;
      const int8_t* const b = w + u * w_stride;
      int32_t sum = 0;
      for (int64_t i = 0; i < steps * kInt8Step; ++i) sum += int32_t{a[i]} * int32_t{b[i]};
      sums[r * kInt8Units + u] = sum;
    }
  }
}

}  // namespace

const Int8Loops kPortableInt8Loops = {"portable", &Extremes, &Quantise, &Products, &Scale};

}  // namespace tidepool::cpu
