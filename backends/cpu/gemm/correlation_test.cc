#include "tidepool/backends/cpu/gemm/correlation.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/guarded_array.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"

namespace tidepool::cpu {
namespace {

constexpr uint64_t kSeed = 5150;

Correlation RandomCorrelation(std::mt19937_64& random) {
  const auto uniform = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  return {.batch = uniform(1, 3),
          .in_height = uniform(1, 9),
          .in_width = uniform(1, 9),
          .in_channels = uniform(0, 5) == 0 ? uniform(300, 900) : uniform(1, 20),
          .out_height = uniform(1, 9),
          .out_width = uniform(1, 9),
          .out_channels = uniform(1, 40),
          .kernel_height = uniform(1, 4),
          .kernel_width = uniform(1, 4),
          .stride_height = uniform(1, 2),
          .stride_width = uniform(1, 2),
          .pad_top = uniform(-2, 3),
          .pad_left = uniform(-2, 3),
          .dilation_height = uniform(1, 2),
          .dilation_width = uniform(1, 2)};
}

TEST(CorrelationTest, GroupsCoverEveryInnerPositionInOrder) {
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    const Correlation c = RandomCorrelation(random);
    const int64_t row_floats = c.SpanWidth() * c.in_channels;
    ReductionGroup group;
    int64_t position = 0;
    while (NextGroup(c, row_floats, &group)) {
      ASSERT_EQ(group.position, position) << "seed " << kSeed << " round " << round;
      ASSERT_EQ(group.depth, group.count * group.length);
      ASSERT_GE(group.count, 1);
      ASSERT_LE(group.count, ReductionGroup::kMaxSegments);
      ASSERT_LE(group.depth, kMaxBlockDepth);
      for (int64_t i = 0; i < group.depth; ++i, ++position) {
        const int64_t tap = position / c.in_channels;
        const int64_t expected = tap / c.kernel_width * c.dilation_height * row_floats +
                                 tap % c.kernel_width * c.dilation_width * c.in_channels +
                                 position % c.in_channels;
        ASSERT_EQ(group.offsets[i / group.length] / 4 + i % group.length, expected)
            << "seed " << kSeed << " round " << round << " position " << position;
      }
    }
    ASSERT_EQ(position, c.Depth());
  }
}

TEST(CorrelationTest, ViewsShowTheInputAndZerosAroundIt) {
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    const Correlation c = RandomCorrelation(random);
    GuardedArray x(c.batch * c.in_height * c.in_width * c.in_channels);
    x.Randomize(random);
    const int64_t row = std::uniform_int_distribution<int64_t>(0, c.OutputRows() - 1)(random);
    const int64_t rows = std::uniform_int_distribution<int64_t>(1, c.OutputRows() - row)(random);
    GuardedArray buffer(ViewBufferFloats(c, rows));
    int64_t next = row;
    ForEachImageView(
        c, x.data(), row, rows, /*kernel_plane=*/0, buffer.data(),
        [&](int64_t first, int64_t count, ImageView view) {
          ASSERT_EQ(first, next);
          next += count;
          const int64_t image = first / c.out_height, oh = first % c.out_height;
          ASSERT_LE(oh + count, c.out_height);
          for (int64_t h = 0; h < c.SpanHeight(count); ++h) {
            for (int64_t w = 0; w < c.SpanWidth(); ++w) {
              const int64_t ih = oh * c.stride_height + h - c.pad_top, iw = w - c.pad_left;
              const bool inside = ih >= 0 && ih < c.in_height && iw >= 0 && iw < c.in_width;
              for (int64_t channel : {int64_t{0}, c.in_channels - 1}) {
                const float expected =
                    inside ? x[((image * c.in_height + ih) * c.in_width + iw) * c.in_channels +
                               channel]
                           : 0.0f;
                ASSERT_EQ(view.origin[h * view.row_floats + w * c.in_channels + channel], expected)
                    << "seed " << kSeed << " round " << round << " at " << h << "," << w;
              }
            }
          }
        });
    ASSERT_EQ(next, row + rows);
    ASSERT_TRUE(buffer.FrontIntact());
  }
}

TEST(TileBlockTest, PanelsCoverTheColumns) {
  for (const TileKernels* kernels : {&PortableTileKernels(), &SelectedTileKernels()}) {
    for (int64_t columns = 0; columns < 200; ++columns) {
      int64_t column = 0, panels = 0;
      while (column < columns) {
        ASSERT_EQ(PanelColumn(*kernels, columns, panels), column) << columns;
        const int64_t width = NextPanelWidth(*kernels, columns - column);
        ASSERT_LE(width, kernels->max_vectors * kVectorFloats);
        ASSERT_LT(width - (columns - column), kVectorFloats) << "a panel that is mostly padding";
        column += width;
        ++panels;
      }
      ASSERT_EQ(PanelCount(*kernels, columns), panels) << columns;
      ASSERT_EQ(PanelColumn(*kernels, columns, panels), columns);
    }
  }
}

TEST(TileBlockTest, EvenPiecesStayBelowTheLimit) {
  for (int64_t total = 0; total < 1000; ++total) {
    const int64_t piece = EvenPiece(total, 240, 12);
    ASSERT_LE(piece, 240);
    if (total > 0) {
      ASSERT_EQ(CeilDiv(total, piece), CeilDiv(total, 240)) << total;
    }
  }
}

}  // namespace
}  // namespace tidepool::cpu
