#include "tidepool/backends/cpu/gemm/correlation.h"

#include <algorithm>

#include "tidepool/backends/cpu/gemm/conv3d.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kMinParallelProducts = 64 * 64 * 64;
// Filters below this many floats are packed by the calling thread.
constexpr int64_t kMinParallelPack = 1 << 15;

// Output rows that share one padded copy; about a block of pixels, whole images where they fit.
int64_t RowsPerTask(const Correlation& c) {
  int64_t rows = std::max<int64_t>(1, kMaxBlockRows / c.out_width);
  if (c.NeedsPadding()) rows = std::max(rows, std::min<int64_t>(c.out_height, 4));
  if (rows > c.out_height) rows = rows / c.out_height * c.out_height;
  return std::min(rows, std::max<int64_t>(c.OutputRows(), 1));
}

int64_t PackedPlaneFloats(const Correlation& c) {
  return AlignFloats(c.Depth() * RoundUp(c.out_channels, kVectorFloats));
}
int64_t PackedFilterFloats(const Correlation& c) { return c.kernel_planes * PackedPlaneFloats(c); }

struct Job {
  const Correlation& c;
  const TileKernels& kernels;
  const float* packed;  // per plane, per group, per panel: depth x width
  const float* bias;
  bool relu;
  float* y;
};

// A plane of the filter with what its sums begin with and end in.
struct FilterPlane {
  int64_t index;
  bool first, last;  // of those that the pixels see

  FilterPlane(const Correlation& c, int64_t output_plane, int64_t kernel_plane)
      : index(kernel_plane),
        first(kernel_plane == 0 || c.InputPlane(output_plane, kernel_plane - 1) < 0),
        last(kernel_plane + 1 == c.kernel_planes ||
             c.InputPlane(output_plane, kernel_plane + 1) < 0) {}
  bool operator==(const FilterPlane&) const = default;
};

// A block of output pixels, all in the view of one or more images, times panels [begin, end).
void RunPixels(const Job& job, const FilterPlane& plane, int64_t row_floats, int64_t pixels,
               const float* const* a_rows, float* const* c_rows, int64_t column_begin,
               int64_t column_end) {
  const Correlation& c = job.c;
  const float* const packed = job.packed + plane.index * PackedPlaneFloats(c);
  const int64_t padded_channels = RoundUp(c.out_channels, kVectorFloats);
  float padded_bias[kMaxPanelWidth];
  ReductionGroup group;
  while (NextGroup(c, row_floats, &group)) {
    const bool first = plane.first && group.position == 0;
    const bool last = plane.last && group.position + group.depth == c.Depth();
    TileArgs args = {};
    args.a_step = sizeof(float);
    args.segments_begin = group.offsets;
    args.segments_end = group.offsets + group.count;
    args.segment_length = group.length;
    args.flags = int64_t{!first} * kTileAccumulate + int64_t{last && job.relu} * kTileRelu;
    for (int64_t j = column_begin; j < column_end;) {
      const int64_t width = NextPanelWidth(job.kernels, c.out_channels - j);
      args.b = packed + group.position * padded_channels + j * group.depth;
      args.b_step = width * sizeof(float);
      args.c_offset = j * sizeof(float);
      SetPanelEdge(&args, std::min(width, c.out_channels - j), width,
                   first && job.bias != nullptr ? job.bias + j : nullptr, padded_bias);
      RunTiles(job.kernels, width, pixels, a_rows, c_rows, &args);
      j += width;
    }
  }
}

// What output pixels are that see nothing but padding.
void FillRows(const Job& job, int64_t row, int64_t rows, int64_t column_begin, int64_t column_end) {
  const Correlation& c = job.c;
  float* pixel = job.y + row * c.out_width * c.out_channels;
  for (int64_t i = 0; i < rows * c.out_width; ++i, pixel += c.out_channels) {
    for (int64_t j = column_begin; j < column_end; ++j) {
      const float value = job.bias == nullptr ? 0.0f : job.bias[j];
      pixel[j] = job.relu && value < 0 ? 0.0f : value;
    }
  }
}

bool SeesNothing(const Correlation& c, int64_t output_plane) {
  for (int64_t plane = 0; plane < c.kernel_planes; ++plane) {
    if (c.InputPlane(output_plane, plane) >= 0) return false;
  }
  return true;
}

// Gathers the pixels of a run of output rows into blocks.
void RunRows(const Job& job, const float* x, int64_t row, int64_t rows, int64_t column_begin,
             int64_t column_end, float* buffer) {
  const Correlation& c = job.c;
  const float* a_rows[kMaxBlockRows];
  float* c_rows[kMaxBlockRows];
  const int64_t pixel_step = c.stride_width * c.in_channels;
  for (int64_t kernel_plane = 0; kernel_plane < c.kernel_planes; ++kernel_plane) {
    int64_t pixels = 0, row_floats = 0;
    FilterPlane plane(c, row / c.out_height, kernel_plane);  // of the pixels gathered
    const auto flush = [&] {
      if (pixels > 0)
        RunPixels(job, plane, row_floats, pixels, a_rows, c_rows, column_begin, column_end);
      pixels = 0;
    };
    ForEachImageView(c, x, row, rows, kernel_plane, buffer,
                     [&](int64_t first, int64_t count, ImageView view) {
                       const FilterPlane next(c, first / c.out_height, kernel_plane);
                       if (next != plane) flush();
                       plane = next;
                       row_floats = view.row_floats;
                       for (int64_t r = 0; r < count; ++r) {
                         const float* from = view.origin + r * c.stride_height * row_floats;
                         float* to = job.y + (first + r) * c.out_width * c.out_channels;
                         for (int64_t i = 0; i < c.out_width; ++i) {
                           a_rows[pixels] = from + i * pixel_step;
                           c_rows[pixels] = to + i * c.out_channels;
                           if (++pixels == kMaxBlockRows) flush();
                         }
                       }
                     });
    flush();
  }
  for (int64_t end = row + rows; row < end;) {
    const int64_t plane = row / c.out_height, next = std::min(end, (plane + 1) * c.out_height);
    if (SeesNothing(c, plane)) FillRows(job, row, next - row, column_begin, column_end);
    row = next;
  }
}

}  // namespace

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

size_t CorrelationScratchBytes(const Correlation& c, int threads) {
  return (PackedFilterFloats(c) +
          ViewBufferFloats(c, RowsPerTask(c)) * std::max<int64_t>(threads, 1)) *
         sizeof(float);
}

void RunCorrelation(const Correlation& c, const float* x, const FilterPacker& filter,
                    const float* bias, bool relu, float* y, void* scratch, ThreadPool* pool) {
  const TileKernels& kernels = SelectedTileKernels();
  float* packed = static_cast<float*>(scratch);
  float* buffers = packed + PackedFilterFloats(c);
  const int64_t padded_channels = RoundUp(c.out_channels, kVectorFloats);
  const int64_t products =
      c.OutputRows() * c.out_width * c.kernel_planes * c.Depth() * c.out_channels;
  if (products < kMinParallelProducts) pool = nullptr;

  const int64_t panels = PanelCount(kernels, c.out_channels);
  const auto panel_column = [&](int64_t panel) {
    return PanelColumn(kernels, c.out_channels, panel);
  };
  const bool few = c.kernel_planes * c.Depth() * c.out_channels < kMinParallelPack;
  ParallelTasks(few ? nullptr : pool, c.kernel_planes * panels, [&](int64_t index, int) {
    const int64_t plane = index / panels, column = panel_column(index % panels);
    const int64_t width = NextPanelWidth(kernels, c.out_channels - column);
    float* const of_plane = packed + plane * PackedPlaneFloats(c);
    ReductionGroup group;
    while (NextGroup(c, /*row_floats=*/0, &group)) {
      filter.Pack(kernels, plane, group, column, std::min(width, c.out_channels - column), width,
                  of_plane + group.position * padded_channels + column * group.depth);
    }
  });

  const Job job = {c, kernels, packed, bias, relu, y};
  const int threads = PoolThreads(pool);
  const int64_t buffer_floats = ViewBufferFloats(c, RowsPerTask(c));
  int64_t rows = RowsPerTask(c);
  while (rows > 1 && CeilDiv(c.OutputRows(), rows) < 2 * threads && threads > 1) {
    rows = CeilDiv(rows, 2);
  }
  const int64_t row_tasks = CeilDiv(c.OutputRows(), rows);
  const int64_t column_tasks =
      std::clamp<int64_t>(threads > 1 ? CeilDiv(2 * threads, row_tasks) : 1, 1, panels);
  ParallelTasks(pool, row_tasks * column_tasks, [&](int64_t index, int slot) {
    const int64_t row = index / column_tasks * rows, column_task = index % column_tasks;
    RunRows(job, x, row, std::min(rows, c.OutputRows() - row),
            panel_column(column_task * panels / column_tasks),
            panel_column((column_task + 1) * panels / column_tasks),
            buffers + slot * buffer_floats);
  });
}

}  // namespace tidepool::cpu
