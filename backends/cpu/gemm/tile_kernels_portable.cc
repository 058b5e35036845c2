// Tiles in plain C++ for any architecture: 4 x 8 floats fit the sixteen 4-float registers that
// both SSE2 and NEON have.
#include <string.h>

#include "tidepool/backends/cpu/gemm/tile_kernels.h"

namespace tidepool::cpu {
namespace {

template <typename T>
T* ByteOffset(T* pointer, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + bytes);
}

template <int kRows>
void Tile(const TileArgs* args) {
  float sums[kRows][kVectorFloats] = {};
  const float* b = args->b;
  for (const int64_t* segment = args->segments_begin; segment != args->segments_end; ++segment) {
    const float* a[kRows];
    for (int r = 0; r < kRows; ++r) a[r] = ByteOffset(args->a_rows[r], *segment);
    for (int64_t i = 0; i < args->segment_length; ++i) {
      for (int r = 0; r < kRows; ++r) {
        const float element = *a[r];
        for (int j = 0; j < kVectorFloats; ++j) sums[r][j] += element * b[j];
        a[r] = ByteOffset(a[r], args->a_step);
      }
      b = ByteOffset(b, args->b_step);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* c = ByteOffset(args->c_rows[r], args->c_offset);
    for (int64_t j = 0; j < args->tail; ++j) {
      float sum = sums[r][j];
      if (args->flags & kTileAccumulate) sum += c[j];
      if (args->bias != nullptr) sum += args->bias[j];
      // Keeps NaN, unlike std::max(0, sum).
      if ((args->flags & kTileRelu) && sum < 0.0f) sum = 0.0f;
      c[j] = sum;
    }
  }
}

void PackPanel(const float* source, int64_t row_stride, int64_t column_stride, int64_t depth,
               int64_t columns, int64_t width, float* destination) {
  for (int64_t i = 0; i < depth; ++i) {
    float* row = destination + i * width;
    for (int64_t j = 0; j < columns; ++j) row[j] = source[i * row_stride + j * column_stride];
    for (int64_t j = columns; j < width; ++j) row[j] = 0.0f;
  }
}

void StoreTransposed(const float* source, int64_t source_stride, int64_t rows, int64_t columns,
                     const float* bias, int64_t flags, float* c, int64_t ldc) {
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      float sum = source[i * source_stride + j];
      if (flags & kTileAccumulate) sum += c[j * ldc + i];
      if (bias != nullptr) sum += bias[i];
      if ((flags & kTileRelu) && sum < 0.0f) sum = 0.0f;
      c[j * ldc + i] = sum;
    }
  }
}

void DotRows(const float* rows, int64_t row_stride, int64_t count, const float* x, int64_t depth,
             float* sums) {
  for (int64_t i = 0; i < count; ++i, rows += row_stride) {
    float parts[kVectorFloats] = {};
    int64_t k = 0;
    for (; k + kVectorFloats <= depth; k += kVectorFloats) {
      for (int q = 0; q < kVectorFloats; ++q) parts[q] += rows[k + q] * x[k + q];
    }
    for (; k < depth; ++k) parts[k % kVectorFloats] += rows[k] * x[k];
    sums[i] = 0.0f;
    for (float part : parts) sums[i] += part;
  }
}

void CombineRows(const float* rows, int64_t row_stride, int64_t columns, const float* x,
                 int64_t x_stride, int64_t depth, float* sums) {
  for (int64_t k = 0; k < depth; ++k, rows += row_stride, x += x_stride) {
    for (int64_t j = 0; j < columns; ++j) sums[j] += *x * rows[j];
  }
}

}  // namespace

const TileKernels& PortableTileKernels() {
  static constexpr TileKernels kKernels = {
      "portable",
      /*max_vectors=*/1,
      /*usual_vectors=*/1,
      /*max_rows=*/{0, 4, 0, 0, 0},
      {{}, {nullptr, Tile<1>, Tile<2>, Tile<3>, Tile<4>}, {}, {}},
      PackPanel,
      StoreTransposed,
      DotRows,
      CombineRows,
  };
  return kKernels;
}

}  // namespace tidepool::cpu
