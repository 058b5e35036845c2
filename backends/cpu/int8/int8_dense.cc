#include "tidepool/backends/cpu/int8/int8_dense.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tidepool/backends/cpu/int8/int8_loops.h"

namespace tidepool::cpu {
namespace {

// Of inputs, whose products of at most 255 * 128 a sum of 32 bits holds.
constexpr int64_t kChunk = int64_t{1} << 16;
// Rows in 8 bits are to stay in the first-level cache beside the weights that pass.
constexpr int64_t kRowBytes = 24 << 10;
constexpr int64_t kMostRows = 64;
// Units whose sums wait to be scaled.
constexpr int64_t kStrip = 64;
// Its step's inverse is a float.
constexpr double kLeastRange = 1e-36;

int64_t StepsOf(int64_t inputs) { return (inputs + kInt8Step - 1) / kInt8Step; }

int64_t RowsAtOnce(int64_t inputs) {
  const int64_t bytes = StepsOf(std::min(inputs, kChunk)) * kInt8Step;
  return std::clamp<int64_t>(kRowBytes / bytes / kMostInt8Rows * kMostInt8Rows, kMostInt8Rows,
                             kMostRows);
}

RowRange RangeOf(float low, float high) {
  const double width = double{high} - low;
  if (!std::isfinite(width)) return {};
  if (!(width > kLeastRange)) return {low, 0, 0};
  const double step = width / 255;
  return {low, static_cast<float>(1 / step), step};
}

}  // namespace

int64_t Int8WeightSums(int64_t units, int64_t inputs) {
  return units * ((inputs + kChunk - 1) / kChunk);
}

void SumInt8Weights(const int8_t* weight, int64_t units, int64_t inputs, int32_t* sums) {
  for (int64_t begin = 0; begin < inputs; begin += kChunk) {
    const int64_t count = std::min(kChunk, inputs - begin);
    for (int64_t u = 0; u < units; ++u) {
      const int8_t* const row = weight + u * inputs + begin;
      int32_t sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += row[i];
      *sums++ = sum;
    }
  }
}

size_t Int8ScratchBytes(int64_t inputs) {
  return static_cast<size_t>(RowsAtOnce(inputs) * StepsOf(std::min(inputs, kChunk)) * kInt8Step);
}

void RunInt8Dense(const Int8Dense& dense, const Int8Loops& loops, int64_t batch, const float* x,
                  float* z, void* scratch) {
  auto* const rows = static_cast<uint8_t*>(scratch);
  const int64_t units = dense.units, inputs = dense.inputs, at_once = RowsAtOnce(inputs);
  RowRange ranges[kMostRows];
  for (int64_t first = 0; first < batch; first += at_once) {
    const int64_t count = std::min(at_once, batch - first);
    for (int64_t r = 0; r < count; ++r) {
      float low, high;
      loops.extremes(x + (first + r) * inputs, inputs, &low, &high);
      ranges[r] = RangeOf(low, high);
    }
    const int32_t* weight_sums = dense.weight_sums;
    for (int64_t begin = 0; begin < inputs; begin += kChunk, weight_sums += units) {
      const int64_t width = std::min(kChunk, inputs - begin), steps = StepsOf(width),
                    stride = steps * kInt8Step;
      for (int64_t r = 0; r < count; ++r) {
        uint8_t* const row = rows + r * stride;
        loops.quantise(x + (first + r) * inputs + begin, width, ranges[r], row);
        std::memset(row + width, 0, static_cast<size_t>(stride - width));
      }
      for (int64_t strip = 0; strip < units; strip += kStrip) {
        const int64_t wide = std::min(kStrip, units - strip);
        for (int64_t r = 0; r < count; r += kMostInt8Rows) {
          const int tall = static_cast<int>(std::min<int64_t>(kMostInt8Rows, count - r));
          int32_t sums[kMostInt8Rows][kStrip], tile[kMostInt8Rows * kInt8Units];
          for (int64_t u = 0; u < wide;) {
            const int some = u + kInt8Units <= wide ? kInt8Units : 1;
            loops.products(rows + r * stride, stride, tall,
                           dense.weight + (strip + u) * inputs + begin, inputs, some, steps, tile);
            for (int i = 0; i < tall; ++i)
              std::memcpy(&sums[i][u], tile + i * kInt8Units,
                          sizeof(int32_t) * static_cast<size_t>(some));
            u += some;
          }
          for (int i = 0; i < tall; ++i) {
            float* const to = z + (first + r + i) * units + strip;
            loops.scale(sums[i], weight_sums + strip, dense.scales + strip, ranges[r + i],
                        begin == 0 ? dense.bias + strip : to, wide, to);
          }
        }
      }
    }
    if (!dense.relu) continue;
    for (float* at = z + first * units; at < z + (first + count) * units; ++at)
      *at = *at > 0 ? *at : 0;
  }
}

}  // namespace tidepool::cpu
