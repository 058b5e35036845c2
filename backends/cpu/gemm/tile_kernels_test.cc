#include "tidepool/backends/cpu/gemm/tile_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/guarded_array.h"

namespace tidepool::cpu {
namespace {

constexpr uint64_t kSeed = 4711;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class TileKernelsTest : public testing::TestWithParam<const TileKernels*> {
 protected:
  const TileKernels& kernels() const { return *GetParam(); }
  std::mt19937_64 random_{kSeed};
};

TEST_P(TileKernelsTest, TableHasEveryTileUpToItsLimits) {
  ASSERT_LE(kernels().max_vectors, kMaxTileVectors);
  for (int vectors = 1; vectors <= kernels().max_vectors; ++vectors) {
    ASSERT_LE(kernels().max_rows[vectors], kMaxTileRows);
    for (int rows = 1; rows <= kernels().max_rows[vectors]; ++rows) {
      EXPECT_NE(kernels().tile[vectors][rows], nullptr) << rows << "x" << vectors;
    }
  }
}

// Every tile, every tail, segments of every length around the unrolling, scattered rows.
TEST_P(TileKernelsTest, TilesAgreeWithDoublePrecision) {
  for (int vectors = 1; vectors <= kernels().max_vectors; ++vectors) {
    for (int rows = 1; rows <= kernels().max_rows[vectors]; ++rows) {
      for (int64_t tail = 1; tail <= kVectorFloats; ++tail) {
        for (int64_t length : {0, 1, 3, 4, 5, 9}) {
          for (int64_t flags = 0; flags < 4; ++flags) {
            const int64_t segments = length % 3 + 1, width = vectors * kVectorFloats;
            const int64_t valid = width - kVectorFloats + tail, a_floats = 120;
            // Neighbours, elements of packed rows, and others; rows of B one behind the other or not.
            const int64_t a_step = std::array<int64_t, 3>{1, 2, 8}[(rows + tail) % 3];
            const int64_t b_step = width + (tail % 2) * 3;
            SCOPED_TRACE(testing::Message()
                         << "seed " << kSeed << ": " << rows << "x" << vectors << " tail " << tail
                         << " segments " << segments << " of " << length << " flags " << flags);
            GuardedArray a(rows * a_floats), b(segments * length * b_step), bias(width);
            GuardedArray c(rows * valid);
            for (GuardedArray* array : {&a, &b, &bias, &c}) array->Randomize(random_);
            const std::vector<float> before(c.data(), c.data() + c.size());
            // Segments in falling order; rows of C in reverse.
            const float* a_rows[kMaxTileRows];
            float* c_rows[kMaxTileRows];
            int64_t offsets[4];
            for (int64_t s = 0; s < segments; ++s) offsets[s] = (segments - 1 - s) * 20 * 4;
            for (int r = 0; r < rows; ++r) {
              a_rows[r] = a.data() + r * a_floats;
              c_rows[r] = c.data() + (rows - 1 - r) * valid - 1;
            }
            TileArgs args = {};
            args.a_rows = a_rows, args.a_step = a_step * sizeof(float);
            args.segments_begin = offsets, args.segments_end = offsets + segments;
            args.segment_length = length;
            args.b = b.data(), args.b_step = b_step * sizeof(float);
            args.c_rows = c_rows, args.c_offset = sizeof(float);
            args.bias = rows % 2 == 0 ? bias.data() : nullptr;
            args.tail = tail, args.tail_mask = TailMask(tail), args.flags = flags;
            kernels().tile[vectors][rows](&args);
            for (int r = 0; r < rows; ++r) {
              for (int64_t j = 0; j < valid; ++j) {
                const int64_t at = (rows - 1 - r) * valid + j;
                double sum =
                    (args.bias ? bias[j] : 0.0) + (flags & kTileAccumulate ? before[at] : 0.0);
                for (int64_t s = 0; s < segments; ++s) {
                  for (int64_t i = 0; i < length; ++i) {
                    sum += double{a_rows[r][offsets[s] / 4 + a_step * i]} *
                           b[(s * length + i) * b_step + j];
                  }
                }
                if (flags & kTileRelu) sum = std::max(sum, 0.0);
                ASSERT_NEAR(c[at], sum, 1e-5) << r << "," << j;
              }
            }
            ASSERT_TRUE(c.FrontIntact());
          }
        }
      }
    }
  }
}

TEST_P(TileKernelsTest, PackPanelCopiesAndPads) {
  for (int64_t width = 8; width <= kernels().max_vectors * kVectorFloats; width += 8) {
    for (int64_t columns = 1; columns <= width; ++columns) {
      for (int64_t depth : {0, 1, 7, 8, 9, 20}) {
        for (int layout = 0; layout < 3; ++layout) {
          const int64_t row_stride = layout == 0 ? columns + 1 : layout == 1 ? 1 : 3 * columns;
          const int64_t column_stride = layout == 0 ? 1 : layout == 1 ? depth + 2 : 3;
          GuardedArray source(
              depth == 0 ? 0 : (depth - 1) * row_stride + (columns - 1) * column_stride + 1);
          GuardedArray panel((depth * width + 15) / 16 * 16);
          source.Randomize(random_), panel.Fill(kNan);
          kernels().pack_panel(source.data(), row_stride, column_stride, depth, columns, width,
                               panel.data());
          for (int64_t i = 0; i < depth; ++i) {
            for (int64_t j = 0; j < width; ++j) {
              const float expected =
                  j < columns ? source[i * row_stride + j * column_stride] : 0.0f;
              ASSERT_EQ(panel[i * width + j], expected)
                  << i << "," << j << " of " << depth << "x" << columns << " layout " << layout;
            }
          }
        }
      }
    }
  }
}

TEST_P(TileKernelsTest, StoreTransposed) {
  for (int64_t rows : {1, 5, 8, 13, 16}) {
    for (int64_t columns : {1, 7, 8, 11}) {
      for (int64_t flags = 0; flags < 4; ++flags) {
        const int64_t stride = (columns + 7) / 8 * 8, ldc = rows + 3;
        GuardedArray source(rows * stride), bias(rows), c((columns - 1) * ldc + rows);
        for (GuardedArray* array : {&source, &bias, &c}) array->Randomize(random_);
        const std::vector<float> before(c.data(), c.data() + c.size());
        kernels().store_transposed(source.data(), stride, rows, columns, bias.data(), flags,
                                   c.data(), ldc);
        for (int64_t at = 0; at < static_cast<int64_t>(c.size()); ++at) {
          const int64_t j = at / ldc, i = at % ldc;
          if (i >= rows) {
            ASSERT_EQ(c[at], before[at]);
            continue;
          }
          float sum = source[i * stride + j];
          if (flags & kTileAccumulate) sum += before[at];
          sum += bias[i];
          if (flags & kTileRelu) sum = std::max(sum, 0.0f);
          ASSERT_EQ(c[at], sum) << i << "," << j;
        }
      }
    }
  }
}

TEST_P(TileKernelsTest, MatrixVectorKernels) {
  for (int64_t count : {1, 3, 4, 7, 8, 17, 40}) {
    for (int64_t depth : {0, 1, 5, 8, 15, 16, 17, 33, 100}) {
      const int64_t dot_stride = depth + 1, combine_stride = count + 2, x_stride = 3;
      GuardedArray rows(count == 0 || depth == 0 ? 0 : (count - 1) * dot_stride + depth);
      GuardedArray planes(depth == 0 ? 0 : (depth - 1) * combine_stride + count);
      GuardedArray x(depth), strided(depth == 0 ? 0 : (depth - 1) * x_stride + 1);
      GuardedArray dots(count), sums(count);
      for (GuardedArray* array : {&rows, &planes, &x, &strided, &sums}) array->Randomize(random_);
      const std::vector<float> before(sums.data(), sums.data() + count);
      kernels().dot_rows(rows.data(), dot_stride, count, x.data(), depth, dots.data());
      kernels().combine_rows(planes.data(), combine_stride, count, strided.data(), x_stride, depth,
                             sums.data());
      for (int64_t i = 0; i < count; ++i) {
        double dot = 0, sum = before[i];
        for (int64_t k = 0; k < depth; ++k) {
          dot += double{rows[i * dot_stride + k]} * x[k];
          sum += double{planes[k * combine_stride + i]} * strided[k * x_stride];
        }
        ASSERT_NEAR(dots[i], dot, 1e-4) << count << "," << depth;
        ASSERT_NEAR(sums[i], sum, 1e-4) << count << "," << depth;
      }
    }
  }
}

std::vector<const TileKernels*> Implementations() {
  const TileKernelsOfProcessor all = AllTileKernels();
  return {all.begin(), all.end()};
}

INSTANTIATE_TEST_SUITE_P(Kernels, TileKernelsTest, testing::ValuesIn(Implementations()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace tidepool::cpu
