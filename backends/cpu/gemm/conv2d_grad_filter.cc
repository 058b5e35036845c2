// The filter gradient as a product whose inner dimension is the output pixels:
//   dfilter^T[position, co] = sum over pixels of x[pixel + position] * dy[pixel, co]
// Rows of a tile are filter positions, each a pointer into x; an output row is one segment, along
// which x advances by stride * channels. So x is never copied to im2col form.
#include <algorithm>

#include "tidepool/backends/cpu/gemm/conv2d.h"
#include "tidepool/backends/cpu/gemm/conv2d_check.h"
#include "tidepool/backends/cpu/gemm/correlation.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kMinParallelProducts = 64 * 64 * 64;
constexpr int64_t kMaxPixels = 256;     // inner positions per panel of dy
constexpr int64_t kMaxSegments = 64;    // output rows per panel of dy
constexpr int64_t kWantedTasks = 16;    // enough for a fair share per thread
constexpr int64_t kMaxPartialBytes = 4 << 20;
// Partial sums over less than this are not worth adding up.
constexpr int64_t kMinPixelsPerPart = 512;

// How the work is cut; by the shape alone, because parts decide the order of the additions.
struct Cut {
  Correlation c;
  int64_t depth, padded_channels;
  int64_t group_rows, groups;  // filter positions
  int64_t chunk_rows;          // output rows per panel of dy; wide rows are cut further
  int64_t part_rows, parts;    // output rows per partial sum

  explicit Cut(const Conv2dProblem& p) : c(ForwardCorrelation(p)) {
    depth = c.Depth();
    padded_channels = RoundUp(c.out_channels, kVectorFloats);
    group_rows = EvenPiece(depth, kMaxBlockRows, 12);
    groups = CeilDiv(depth, group_rows);
    chunk_rows = std::clamp<int64_t>(kMaxPixels / c.out_width, 1, kMaxSegments);
    const int64_t partial_bytes = depth * padded_channels * sizeof(float);
    const int64_t rows = std::max<int64_t>(c.OutputRows(), 1);
    parts = std::min({CeilDiv(kWantedTasks, groups), kMaxPartialBytes / partial_bytes,
                      rows * c.out_width / kMinPixelsPerPart});
    part_rows = RoundUp(CeilDiv(rows, std::max<int64_t>(parts, 1)), chunk_rows);
    parts = CeilDiv(rows, part_rows);
  }

  int64_t PartialFloats() const { return AlignFloats(depth * padded_channels); }
  int64_t PanelFloats() const {
    return AlignFloats(std::max(std::min(kMaxPixels, c.out_width), chunk_rows * c.out_width) *
                       kMaxPanelWidth);
  }
  int64_t SlotFloats() const { return PanelFloats() + ViewBufferFloats(c, chunk_rows); }
};

struct Job {
  const Cut& cut;
  const TileKernels& kernels;
  const float* x;
  const float* dy;

  // Adds `pixels` successive output pixels to the partial sums, or starts them.
  void RunPixels(const float* dy_pixels, int64_t pixels, const int64_t* segments,
                 int64_t segment_count, const float* const* a_rows, float* const* c_rows,
                 int64_t rows, bool first, float* panel) const {
    const Correlation& c = cut.c;
    TileArgs args = {};
    args.a_step = c.stride_width * c.in_channels * sizeof(float);
    args.segments_begin = segments;
    args.segments_end = segments + segment_count;
    args.segment_length = pixels / segment_count;
    args.flags = int64_t{!first} * kTileAccumulate;
    for (int64_t j = 0; j < c.out_channels;) {
      const int64_t width = NextPanelWidth(kernels, c.out_channels - j);
      kernels.pack_panel(dy_pixels + j, c.out_channels, 1, pixels,
                         std::min(width, c.out_channels - j), width, panel);
      args.b = panel;
      args.b_step = width * sizeof(float);
      args.c_offset = j * sizeof(float);
      SetPanelEdge(&args, width, width, nullptr, nullptr);
      RunTiles(kernels, width, rows, a_rows, c_rows, &args);
      j += width;
    }
  }

  // Filter positions [position, position + rows) over output rows [begin, end).
  void RunPart(int64_t position, int64_t rows, int64_t begin, int64_t end, float* partial,
               float* panel, float* buffer) const {
    const Correlation& c = cut.c;
    float* c_rows[kMaxBlockRows];
    for (int64_t r = 0; r < rows; ++r) c_rows[r] = partial + (position + r) * cut.padded_channels;
    bool first = true;
    for (int64_t row = begin; row < end; row += cut.chunk_rows) {
      const int64_t count = std::min(cut.chunk_rows, end - row);
      const float* a_rows[kMaxBlockRows];
      const float* base = nullptr;
      int64_t segments[kMaxSegments];
      int64_t segment_count = 0;
      ForEachImageView(c, x, row, count, buffer, [&](int64_t, int64_t n, ImageView view) {
        if (base == nullptr) {
          base = view.origin;
          SetRowPointers(base, view.row_floats, position, rows, a_rows);
        }
        for (int64_t r = 0; r < n; ++r) {
          segments[segment_count++] =
              (view.origin + r * c.stride_height * view.row_floats - base) * sizeof(float);
        }
      });
      const float* dy_rows = dy + row * c.out_width * c.out_channels;
      if (c.out_width <= kMaxPixels) {
        RunPixels(dy_rows, count * c.out_width, segments, segment_count, a_rows, c_rows, rows,
                  first, panel);
        first = false;
        continue;
      }
      // One wide row, in pieces.
      for (int64_t w = 0; w < c.out_width; w += kMaxPixels) {
        const int64_t offset = w * c.stride_width * c.in_channels * sizeof(float);
        RunPixels(dy_rows + w * c.out_channels, std::min(kMaxPixels, c.out_width - w), &offset, 1,
                  a_rows, c_rows, rows, first, panel);
        first = false;
      }
    }
  }

  void SetRowPointers(const float* base, int64_t row_floats, int64_t position, int64_t rows,
                      const float** a_rows) const {
    const Correlation& c = cut.c;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t channel = (position + r) % c.in_channels;
      const int64_t tap = (position + r) / c.in_channels;
      const int64_t kh = tap / c.kernel_width, kw = tap % c.kernel_width;
      a_rows[r] = base + kh * c.dilation_height * row_floats +
                  kw * c.dilation_width * c.in_channels + channel;
    }
  }
};

}  // namespace

size_t Conv2dGradFilterScratchBytes(const Conv2dProblem& p, int threads) {
  CheckConv2d("Conv2dGradFilterScratchBytes", p, "", "", "");
  const Cut cut(p);
  return (cut.parts * cut.PartialFloats() + std::max(threads, 1) * cut.SlotFloats()) *
         sizeof(float);
}

void Conv2dGradFilter(const Conv2dProblem& p, const float* x, const float* dy, float* dfilter,
                      bool accumulate, void* scratch, pthreadpool_t pool) {
  CheckConv2d("Conv2dGradFilter", p, dfilter, x, dy);
  const Cut cut(p);
  if (p.batch == 0) {
    if (!accumulate && dfilter != nullptr) {
      std::fill_n(dfilter, p.out_channels * cut.depth, 0.0f);
    }
    return;
  }
  const TileKernels& kernels = SelectedTileKernels();
  const Job job = {cut, kernels, x, dy};
  const int64_t output_rows = cut.c.OutputRows();
  if (output_rows * cut.c.out_width * cut.depth * p.out_channels < kMinParallelProducts) {
    pool = nullptr;
  }
  float* partials = static_cast<float*>(scratch);
  float* slots = partials + cut.parts * cut.PartialFloats();
  ParallelTasks(pool, cut.parts * cut.groups, [&](int64_t index, int slot) {
    const int64_t part = index / cut.groups;
    const int64_t position = index % cut.groups * cut.group_rows;
    const int64_t begin = part * cut.part_rows;
    float* panel = slots + slot * cut.SlotFloats();
    job.RunPart(position, std::min(cut.group_rows, cut.depth - position), begin,
                std::min(begin + cut.part_rows, output_rows),
                partials + part * cut.PartialFloats(), panel, panel + cut.PanelFloats());
  });
  ParallelTasks(pool, cut.groups, [&](int64_t group, int) {
    const int64_t position = group * cut.group_rows;
    const int64_t rows = std::min(cut.group_rows, cut.depth - position);
    float* sum = partials + position * cut.padded_channels;
    for (int64_t part = 1; part < cut.parts; ++part) {
      const float* more = sum + part * cut.PartialFloats();
      for (int64_t i = 0; i < rows * cut.padded_channels; ++i) sum[i] += more[i];
    }
    kernels.store_transposed(sum, cut.padded_channels, rows, p.out_channels, nullptr,
                             int64_t{accumulate} * kTileAccumulate, dfilter + position,
                             cut.depth);
  });
}

}  // namespace tidepool::cpu
