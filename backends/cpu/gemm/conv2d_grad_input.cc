#include <algorithm>

#include "tidepool/backends/cpu/gemm/conv2d_check.h"
#include "tidepool/backends/cpu/gemm/conv3d.h"
#include "tidepool/backends/cpu/gemm/correlation.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"

namespace tidepool::cpu {
namespace {

constexpr char kWhat[] = "input gradient of a convolution";
constexpr int64_t kMinParallelProducts = 64 * 64 * 64;

// dx as a correlation of dy with the filter turned by 180 degrees, its channels exchanged. Stride 1.
Correlation GradInputCorrelation(const Conv3dProblem& problem) {
  const Conv2dProblem& p = problem.plane;
  return {.batch = p.batch,
          .in_height = p.OutHeight(),
          .in_width = p.OutWidth(),
          .in_channels = p.out_channels,
          .out_height = p.in_height,
          .out_width = p.in_width,
          .out_channels = p.in_channels,
          .kernel_height = p.kernel_height,
          .kernel_width = p.kernel_width,
          .stride_height = 1,
          .stride_width = 1,
          .pad_top = (p.kernel_height - 1) * p.dilation_height - p.pad_top,
          .pad_left = (p.kernel_width - 1) * p.dilation_width - p.pad_left,
          .dilation_height = p.dilation_height,
          .dilation_width = p.dilation_width,
          .in_planes = problem.OutPlanes(),
          .out_planes = problem.in_planes,
          .kernel_planes = problem.kernel_planes,
          .stride_planes = 1,
          .pad_front = (problem.kernel_planes - 1) * problem.dilation_planes - problem.pad_front,
          .dilation_planes = problem.dilation_planes};
}

struct TurnedFilter final : FilterPacker {
  const float* filter;
  int64_t kernel_planes, kernel_area, in_channels, out_channels;

  // Inner position (row, column, output channel) is filter[channel][last - (plane, row, column)][:].
  void Pack(const TileKernels& kernels, int64_t kernel_plane, const ReductionGroup& group,
            int64_t column, int64_t valid, int64_t width, float* destination) const override {
    const int64_t last = (kernel_planes - kernel_plane) * kernel_area - 1;
    for (int64_t done = 0; done < group.depth;) {
      const int64_t position = group.position + done;
      const int64_t tap = last - position / out_channels;
      const int64_t channel = position % out_channels;
      const int64_t count = std::min(out_channels - channel, group.depth - done);
      const int64_t filter_floats = kernel_planes * kernel_area * in_channels;
      kernels.pack_panel(filter + channel * filter_floats + tap * in_channels + column,
                         filter_floats, 1, count, valid, width, destination + done * width);
      done += count;
    }
  }
};

// The correlation computes every input pixel times every filter position, padding included; adding
// one product per filter position multiplies only what exists, but reads and writes dx each time.
bool UseCorrelation(const Conv3dProblem& problem) {
  const Conv2dProblem& p = problem.plane;
  if (problem.stride_planes != 1 || p.stride_height != 1 || p.stride_width != 1) return false;
  return p.in_height * p.in_width * 4 <= p.OutHeight() * p.OutWidth() * 5;
}

// How the products are formed when they are added to dx in place. A tap is one position of a filter's plane or,
// when a pixel's filter row never leaves the input, a whole filter row: its channels times
// kernel_width are contiguous in the filter and in dx, which fills the tiles better.
struct Taps {
  bool whole_rows;
  int64_t count, columns;  // columns: floats of dx that a tap touches for one pixel

  explicit Taps(const Conv3dProblem& problem) : Taps(problem.plane) {}
  explicit Taps(const Conv2dProblem& p)
      // Neighbouring pixels then share floats of dx, so columns cannot be divided between threads;
      // by the shape of an image alone, since it decides the order of the additions: an example has the same bits in any batch.
      : whole_rows(p.dilation_width == 1 && p.pad_left == 0 && p.pad_right == 0),
        count(whole_rows ? p.kernel_height : p.kernel_height * p.kernel_width),
        columns(whole_rows ? p.kernel_width * p.in_channels : p.in_channels) {}
};

int64_t PackedFilterFloats(const Conv3dProblem& p) {
  const Taps taps(p);
  return AlignFloats(p.kernel_planes * taps.count * p.plane.out_channels *
                     RoundUp(taps.columns, kVectorFloats));
}

// dx += dy * filter[:, tap, :] for each tap, in place.
struct ScatterJob {
  const Conv3dProblem& problem;
  const Conv2dProblem& p;
  const Taps taps;
  const TileKernels& kernels;
  const float* dy;
  const float* packed;  // per plane of the filter, per tap, per panel: out_channels x width
  float* dx;
  int64_t out_planes, out_height, out_width;

  // The first output position whose tap lands inside the input, and the one after the last.
  static void ValidRange(int64_t tap_offset, int64_t stride, int64_t in, int64_t out,
                         int64_t* begin, int64_t* end) {
    *begin = tap_offset >= 0 ? 0 : CeilDiv(-tap_offset, stride);
    *end = tap_offset >= in ? 0 : std::min(out, (in - 1 - tap_offset) / stride + 1);
  }

  // Taps are counted on from one of the filter's planes to the next.
  const float* PackedPanel(int64_t tap, int64_t column) const {
    return packed + p.out_channels * (tap * RoundUp(taps.columns, kVectorFloats) + column);
  }

  void RunTap(const float* const* a_rows, float* const* c_rows, int64_t pixels, int64_t tap,
              int64_t column_begin, int64_t column_end) const {
    static constexpr int64_t kSegment = 0;
    TileArgs args = {};
    args.a_step = sizeof(float);
    args.segments_begin = &kSegment;
    args.segments_end = &kSegment + 1;
    args.segment_length = p.out_channels;
    args.flags = kTileAccumulate;
    for (int64_t j = column_begin; j < column_end;) {
      const int64_t width = NextPanelWidth(kernels, taps.columns - j);
      args.b = PackedPanel(tap, j);
      args.b_step = width * sizeof(float);
      args.c_offset = j * sizeof(float);
      SetPanelEdge(&args, std::min(width, taps.columns - j), width, nullptr, nullptr);
      RunTiles(kernels, width, pixels, a_rows, c_rows, &args);
      j += width;
    }
  }

  // Output rows [row, row + rows) of one plane, all taps of one of the filter's.
  void RunRows(const float* dy_image, int64_t kernel_plane, float* dx_image, int64_t row,
               int64_t rows, int64_t column_begin, int64_t column_end) const {
    const float* a_rows[kMaxBlockRows];
    float* c_rows[kMaxBlockRows];
    for (int64_t tap = 0; tap < taps.count; ++tap) {
      const int64_t kh = taps.whole_rows ? tap : tap / p.kernel_width;
      const int64_t kw = taps.whole_rows ? 0 : tap % p.kernel_width;
      const int64_t dh = kh * p.dilation_height - p.pad_top;
      const int64_t dw = kw * p.dilation_width - p.pad_left;
      int64_t oh_begin, oh_end, ow_begin, ow_end;
      ValidRange(dh, p.stride_height, p.in_height, out_height, &oh_begin, &oh_end);
      ValidRange(dw, p.stride_width, p.in_width, out_width, &ow_begin, &ow_end);
      oh_begin = std::max(oh_begin, row);
      oh_end = std::min(oh_end, row + rows);
      int64_t pixels = 0;
      const auto flush = [&] {
        if (pixels > 0) {
          RunTap(a_rows, c_rows, pixels, kernel_plane * taps.count + tap, column_begin, column_end);
        }
        pixels = 0;
      };
      // Down the columns, because the rows of one tile must be apart in dx: a tile reads all its
      // rows before it writes them, and whole filter rows of neighbours in one row overlap.
      for (int64_t ow = ow_begin; ow < ow_end; ++ow) {
        for (int64_t oh = oh_begin; oh < oh_end; ++oh) {
          const int64_t ih = oh * p.stride_height + dh, iw = ow * p.stride_width + dw;
          a_rows[pixels] = dy_image + (oh * out_width + ow) * p.out_channels;
          c_rows[pixels] = dx_image + (ih * p.in_width + iw) * p.in_channels;
          if (++pixels == kMaxBlockRows) flush();
        }
        if (taps.whole_rows && oh_end - oh_begin < kMaxTileRows) flush();
      }
      flush();
    }
  }

  // One plane of the batch.
  void RunPlane(int64_t plane, int64_t column_begin, int64_t column_end) const {
    float* const dx_image = dx + plane * p.in_height * p.in_width * p.in_channels;
    float* pixel = dx_image;
    const int64_t end = taps.whole_rows ? p.in_channels : column_end;
    for (int64_t i = 0; i < p.in_height * p.in_width; ++i, pixel += p.in_channels) {
      std::fill(pixel + column_begin, pixel + end, 0.0f);
    }
    // Fixed by the shape, since it fixes the order of the additions to dx.
    const int64_t rows =
        EvenPiece(out_height, std::max<int64_t>(2 * kMaxTileRows, kMaxBlockRows / out_width), 1);
    const int64_t place = plane % problem.in_planes + problem.pad_front;
    for (int64_t kernel_plane = 0; kernel_plane < problem.kernel_planes; ++kernel_plane) {
      const int64_t from = place - kernel_plane * problem.dilation_planes;
      const int64_t out_plane = from / problem.stride_planes;
      if (from < 0 || from % problem.stride_planes != 0 || out_plane >= out_planes) continue;
      const float* const dy_image = dy + (plane / problem.in_planes * out_planes + out_plane) *
                                             out_height * out_width * p.out_channels;
      for (int64_t row = 0; row < out_height; row += rows) {
        RunRows(dy_image, kernel_plane, dx_image, row, std::min(rows, out_height - row),
                column_begin, column_end);
      }
    }
  }
};

void RunScatter(const Conv3dProblem& problem, const float* dy, const float* filter, float* dx,
                float* packed, ThreadPool* pool) {
  const TileKernels& kernels = SelectedTileKernels();
  const Conv2dProblem& p = problem.plane;
  const Taps taps(problem);
  const ScatterJob job = {.problem = problem,
                          .p = p,
                          .taps = taps,
                          .kernels = kernels,
                          .dy = dy,
                          .packed = packed,
                          .dx = dx,
                          .out_planes = problem.OutPlanes(),
                          .out_height = p.OutHeight(),
                          .out_width = p.OutWidth()};
  const int64_t all_taps = problem.kernel_planes * taps.count;
  if (p.batch * job.out_planes * job.out_height * job.out_width * p.out_channels * all_taps *
          taps.columns <
      kMinParallelProducts) {
    pool = nullptr;
  }
  ParallelTasks(pool, all_taps, [&](int64_t tap, int) {
    for (int64_t j = 0; j < taps.columns;) {
      const int64_t width = NextPanelWidth(kernels, taps.columns - j);
      kernels.pack_panel(filter + tap * taps.columns + j, all_taps * taps.columns, 1,
                         p.out_channels, std::min(width, taps.columns - j), width,
                         packed + (job.PackedPanel(tap, j) - job.packed));
      j += width;
    }
  });
  const int64_t panels = PanelCount(kernels, taps.columns);
  const int64_t threads = PoolThreads(pool), planes = p.batch * problem.in_planes;
  const int64_t column_tasks = taps.whole_rows || threads == 1
                                   ? 1
                                   : std::clamp<int64_t>(CeilDiv(2 * threads, planes), 1, panels);
  ParallelTasks(pool, planes * column_tasks, [&](int64_t index, int) {
    const int64_t part = index % column_tasks;
    job.RunPlane(index / column_tasks,
                 PanelColumn(kernels, taps.columns, part * panels / column_tasks),
                 PanelColumn(kernels, taps.columns, (part + 1) * panels / column_tasks));
  });
}

}  // namespace

size_t Conv3dGradInputScratchBytes(const Conv3dProblem& p, int threads) {
  CheckConvolution(kWhat, p, "", "", "");
  return UseCorrelation(p) ? CorrelationScratchBytes(GradInputCorrelation(p), threads)
                           : PackedFilterFloats(p) * sizeof(float);
}

void Conv3dGradInput(const Conv3dProblem& p, const float* dy, const float* filter, float* dx,
                     void* scratch, ThreadPool* pool) {
  CheckConvolution(kWhat, p, dy, filter, dx);
  if (p.plane.batch == 0) return;
  if (!UseCorrelation(p)) {
    RunScatter(p, dy, filter, dx, static_cast<float*>(scratch), pool);
    return;
  }
  TurnedFilter packer;
  packer.filter = filter;
  packer.kernel_planes = p.kernel_planes;
  packer.kernel_area = p.plane.kernel_height * p.plane.kernel_width;
  packer.in_channels = p.plane.in_channels;
  packer.out_channels = p.plane.out_channels;
  RunCorrelation(GradInputCorrelation(p), dy, packer, nullptr, false, dx, scratch, pool);
}

size_t Conv2dGradInputScratchBytes(const Conv2dProblem& p, int threads) {
  return Conv3dGradInputScratchBytes({p}, threads);
}

void Conv2dGradInput(const Conv2dProblem& p, const float* dy, const float* filter, float* dx,
                     void* scratch, ThreadPool* pool) {
  Conv3dGradInput({p}, dy, filter, dx, scratch, pool);
}

}  // namespace tidepool::cpu
