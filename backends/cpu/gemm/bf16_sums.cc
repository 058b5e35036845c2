#include "tidepool/backends/cpu/gemm/bf16_sums.h"

#include <algorithm>

#include "tidepool/backends/cpu/gemm/tile_bf16.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kPanel = kBf16PanelColumns;
constexpr int64_t kMostRows = 16;

bool IsNan(uint16_t x) { return (x & 0x7fff) > 0x7f80; }

// Whether one of `count` vectors along the inner dimension has NaN, into `has`.
void FindNan(const uint16_t* vectors, int64_t stride, int64_t inner_stride, int64_t depth,
             int64_t count, uint8_t* has) {
  std::fill_n(has, count, uint8_t{0});
  const auto look = [](uint16_t x, uint8_t& found) { found |= IsNan(x) ? 1 : 0; };
  if (inner_stride == 1) {
    for (int64_t i = 0; i < count; ++i) {
      uint8_t found = 0;
      for (int64_t k = 0; k < depth; ++k) look(vectors[i * stride + k], found);
      has[i] = found;
    }
  } else {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t i = 0; i < count; ++i) look(vectors[i * stride + k * inner_stride], has[i]);
    }
  }
}

}  // namespace

void ReadBf16Sums(const GemmBf16Problem& p, const Bf16Block& block, int64_t panel_rows,
                  float* sums) {
  for (int64_t j = 0; j < block.columns; j += kPanel) {
    const int64_t valid = std::min(kPanel, block.columns - j);
    float* to = sums + j * panel_rows;
    for (int64_t r = 0; r < block.rows; ++r, to += kPanel) {
      const uint16_t* from = p.c + (block.row + r) * p.ldc + block.column + j;
      for (int64_t i = 0; i < kPanel; ++i) to[i] = i < valid ? Bf16Widened(from[i]) : 0.0f;
    }
  }
}

float SlowBf16Sum(const GemmBf16Problem& p, int64_t row, int64_t column) {
  const uint16_t* a = p.a + row * p.a_row_stride;
  const uint16_t* b = p.b + column * p.b_col_stride;
  float sum = p.accumulate ? Bf16Widened(p.c[row * p.ldc + column]) : 0.0f;
  for (int64_t k = 0; k < p.k; ++k)
    sum += Bf16Widened(a[k * p.a_col_stride]) * Bf16Widened(b[k * p.b_row_stride]);
  if (p.bias != nullptr) sum += Bf16Widened(p.bias[column]);
  return p.relu && sum < 0.0f ? 0.0f : sum;
}

void StoreBf16WithNan(const GemmBf16Problem& p, const Bf16Block& block, const uint16_t* results) {
  uint8_t in_row[kMostRows], in_column[kPanel];
  FindNan(p.a + block.row * p.a_row_stride, p.a_row_stride, p.a_col_stride, p.k, block.rows,
          in_row);
  FindNan(p.b + block.column * p.b_col_stride, p.b_col_stride, p.b_row_stride, p.k, block.columns,
          in_column);
  for (int64_t r = 0; r < block.rows; ++r) {
    for (int64_t i = 0; i < block.columns; ++i) {
      const uint16_t result = results[r * kPanel + i];
      const bool is_doubtful = IsNan(result) && in_row[r] == 0 && in_column[i] == 0;
      p.c[(block.row + r) * p.ldc + block.column + i] =
          is_doubtful ? Bf16Rounded(SlowBf16Sum(p, block.row + r, block.column + i)) : result;
    }
  }
}

}  // namespace tidepool::cpu
