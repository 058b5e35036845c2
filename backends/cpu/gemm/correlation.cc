#include "tidepool/backends/cpu/gemm/correlation.h"

#include <algorithm>

#include "tidepool/backends/cpu/gemm/conv3d.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"

namespace tidepool::cpu {

Correlation ForwardCorrelation(const Conv3dProblem& problem) {
  const Conv2dProblem& p = problem.plane;
  return {.batch = p.batch,
          .in_height = p.in_height,
          .in_width = p.in_width,
          .in_channels = p.in_channels,
          .out_height = p.OutHeight(),
          .out_width = p.OutWidth(),
          .out_channels = p.out_channels,
          .kernel_height = p.kernel_height,
          .kernel_width = p.kernel_width,
          .stride_height = p.stride_height,
          .stride_width = p.stride_width,
          .pad_top = p.pad_top,
          .pad_left = p.pad_left,
          .dilation_height = p.dilation_height,
          .dilation_width = p.dilation_width,
          .in_planes = problem.in_planes,
          .out_planes = problem.OutPlanes(),
          .kernel_planes = problem.kernel_planes,
          .stride_planes = problem.stride_planes,
          .pad_front = problem.pad_front,
          .dilation_planes = problem.dilation_planes};
}

bool NextGroup(const Correlation& c, int64_t row_floats, ReductionGroup* group) {
  const int64_t position = group->position + group->depth;
  if (position >= c.Depth()) return false;
  group->position = position;
  // A run is contiguous in the image: a filter row, or one of its columns when dilated.
  const bool whole_rows = c.dilation_width == 1;
  const int64_t run = whole_rows ? c.kernel_width * c.in_channels : c.in_channels;
  const auto run_offset = [&](int64_t index) {
    const int64_t row = whole_rows ? index : index / c.kernel_width;
    const int64_t column = whole_rows ? 0 : index % c.kernel_width;
    return row * c.dilation_height * row_floats + column * c.dilation_width * c.in_channels;
  };
  if (run > kMaxBlockDepth) {
    const int64_t within = position % run;
    group->length = std::min(EvenPiece(run, kMaxBlockDepth, 8), run - within);
    group->count = 1;
    group->offsets[0] = (run_offset(position / run) + within) * sizeof(float);
  } else {
    const int64_t runs = c.Depth() / run, first = position / run;
    const int64_t at_once =
        EvenPiece(runs, std::min<int64_t>(kMaxBlockDepth / run, ReductionGroup::kMaxSegments), 1);
    group->length = run;
    group->count = static_cast<int>(std::min(at_once, runs - first));
    for (int s = 0; s < group->count; ++s) {
      group->offsets[s] = run_offset(first + s) * sizeof(float);
    }
  }
  group->depth = group->length * group->count;
  return true;
}

int64_t ViewBufferFloats(const Correlation& c, int64_t rows) {
  if (!c.NeedsPadding()) return 0;
  // The images touched: whole ones, and a part at each end.
  const int64_t images = rows <= 1 ? 1 : std::min(rows, rows / c.out_height + 2);
  const int64_t extra = c.SpanHeight(1);
  return AlignFloats((rows * c.stride_height + images * extra) * c.SpanWidth() * c.in_channels);
}

void CopyPadded(const Correlation& c, const float* image, int64_t row, int64_t rows,
                float* destination) {
  const int64_t width = c.SpanWidth(), height = c.SpanHeight(rows);
  const int64_t left = std::clamp<int64_t>(c.pad_left, 0, width);
  const int64_t skip = std::max<int64_t>(-c.pad_left, 0);
  const int64_t copied = std::clamp<int64_t>(c.in_width - skip, 0, width - left);
  for (int64_t r = 0; r < height; ++r, destination += width * c.in_channels) {
    const int64_t source = row * c.stride_height + r - c.pad_top;
    if (source < 0 || source >= c.in_height) {
      std::fill_n(destination, width * c.in_channels, 0.0f);
      continue;
    }
    float* to = std::fill_n(destination, left * c.in_channels, 0.0f);
    to = std::copy_n(image + (source * c.in_width + skip) * c.in_channels, copied * c.in_channels,
                     to);
    std::fill_n(to, (width - left - copied) * c.in_channels, 0.0f);
  }
}

}  // namespace tidepool::cpu
