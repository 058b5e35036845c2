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

// dx as a correlation of dy with the filter turned by 180 degrees, its channels exchanged. Stride 1.
Correlation GradInputCorrelation(const Conv2dProblem& p) {
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
          .dilation_width = p.dilation_width};
}

struct TurnedFilter final : FilterPacker {
  const float* filter;
  int64_t kernel_area, in_channels, out_channels;

  // Inner position (row, column, output channel) is filter[channel][last - (row, column)][:].
  void Pack(const TileKernels& kernels, const ReductionGroup& group, int64_t column, int64_t valid,
            int64_t width, float* destination) const override {
    for (int64_t done = 0; done < group.depth;) {
      const int64_t position = group.position + done;
      const int64_t tap = kernel_area - 1 - position / out_channels;
      const int64_t channel = position % out_channels;
      const int64_t count = std::min(out_channels - channel, group.depth - done);
      const int64_t filter_floats = kernel_area * in_channels;
      kernels.pack_panel(filter + channel * filter_floats + tap * in_channels + column,
                         filter_floats, 1, count, valid, width, destination + done * width);
      done += count;
    }
  }
};

// The correlation computes every input pixel times every filter position, padding included; adding
// one product per filter position multiplies only what exists, but reads and writes dx each time.
bool UseCorrelation(const Conv2dProblem& p) {
  if (p.stride_height != 1 || p.stride_width != 1) return false;
  return p.in_height * p.in_width * 4 <= p.OutHeight() * p.OutWidth() * 5;
}

int64_t PackedFilterFloats(const Conv2dProblem& p) {
  return AlignFloats(p.kernel_height * p.kernel_width * p.out_channels *
                     RoundUp(p.in_channels, kVectorFloats));
}

// dx += dy * filter[:, tap, :] for each filter position (tap), in place.
struct ScatterJob {
  const Conv2dProblem& p;
  const TileKernels& kernels;
  const float* dy;
  const float* packed;  // per tap, per panel: out_channels x width
  float* dx;
  int64_t out_height, out_width, padded_channels;

  // The first output position whose tap lands inside the input, and the one after the last.
  static void ValidRange(int64_t tap_offset, int64_t stride, int64_t in, int64_t out,
                         int64_t* begin, int64_t* end) {
    *begin = tap_offset >= 0 ? 0 : CeilDiv(-tap_offset, stride);
    *end = tap_offset >= in ? 0 : std::min(out, (in - 1 - tap_offset) / stride + 1);
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
      const int64_t width = NextPanelWidth(kernels, p.in_channels - j);
      args.b = packed + p.out_channels * (tap * padded_channels + j);
      args.b_step = width * sizeof(float);
      args.c_offset = j * sizeof(float);
      SetPanelEdge(&args, std::min(width, p.in_channels - j), width, nullptr, nullptr);
      RunTiles(kernels, width, pixels, a_rows, c_rows, &args);
      j += width;
    }
  }

  // Output rows [row, row + rows) of one image, all taps. Rows of one block differ in their dx.
  void RunRows(int64_t image, int64_t row, int64_t rows, int64_t column_begin,
               int64_t column_end) const {
    const float* a_rows[kMaxBlockRows];
    float* c_rows[kMaxBlockRows];
    const float* dy_image = dy + image * out_height * out_width * p.out_channels;
    float* dx_image = dx + image * p.in_height * p.in_width * p.in_channels;
    for (int64_t tap = 0; tap < p.kernel_height * p.kernel_width; ++tap) {
      const int64_t dh = tap / p.kernel_width * p.dilation_height - p.pad_top;
      const int64_t dw = tap % p.kernel_width * p.dilation_width - p.pad_left;
      int64_t oh_begin, oh_end, ow_begin, ow_end;
      ValidRange(dh, p.stride_height, p.in_height, out_height, &oh_begin, &oh_end);
      ValidRange(dw, p.stride_width, p.in_width, out_width, &ow_begin, &ow_end);
      oh_begin = std::max(oh_begin, row);
      oh_end = std::min(oh_end, row + rows);
      int64_t pixels = 0;
      for (int64_t oh = oh_begin; oh < oh_end; ++oh) {
        const float* from = dy_image + oh * out_width * p.out_channels;
        float* to = dx_image + (oh * p.stride_height + dh) * p.in_width * p.in_channels +
                    dw * p.in_channels;
        for (int64_t ow = ow_begin; ow < ow_end; ++ow) {
          a_rows[pixels] = from + ow * p.out_channels;
          c_rows[pixels] = to + ow * p.stride_width * p.in_channels;
          if (++pixels == kMaxBlockRows) {
            RunTap(a_rows, c_rows, pixels, tap, column_begin, column_end);
            pixels = 0;
          }
        }
      }
      if (pixels > 0) RunTap(a_rows, c_rows, pixels, tap, column_begin, column_end);
    }
  }

  void RunImage(int64_t image, int64_t column_begin, int64_t column_end) const {
    float* pixel = dx + image * p.in_height * p.in_width * p.in_channels;
    for (int64_t i = 0; i < p.in_height * p.in_width; ++i, pixel += p.in_channels) {
      std::fill(pixel + column_begin, pixel + column_end, 0.0f);
    }
    // Fixed by the shape, since it fixes the order of the additions to dx.
    const int64_t rows = std::max<int64_t>(1, kMaxBlockRows / out_width);
    for (int64_t row = 0; row < out_height; row += rows) {
      RunRows(image, row, std::min(rows, out_height - row), column_begin, column_end);
    }
  }
};

void RunScatter(const Conv2dProblem& p, const float* dy, const float* filter, float* dx,
                float* packed, pthreadpool_t pool) {
  const TileKernels& kernels = SelectedTileKernels();
  const int64_t taps = p.kernel_height * p.kernel_width;
  const int64_t padded_channels = RoundUp(p.in_channels, kVectorFloats);
  const int64_t panels = PanelCount(kernels, p.in_channels);
  const ScatterJob job = {p,  kernels,       dy,           packed,
                          dx, p.OutHeight(), p.OutWidth(), padded_channels};
  if (p.batch * job.out_height * job.out_width * p.out_channels * taps * p.in_channels <
      kMinParallelProducts) {
    pool = nullptr;
  }
  ParallelTasks(pool, taps, [&](int64_t tap, int) {
    for (int64_t j = 0; j < p.in_channels;) {
      const int64_t width = NextPanelWidth(kernels, p.in_channels - j);
      kernels.pack_panel(filter + tap * p.in_channels + j, taps * p.in_channels, 1,
                         p.out_channels, std::min(width, p.in_channels - j), width,
                         packed + p.out_channels * (tap * padded_channels + j));
      j += width;
    }
  });
  const int64_t threads = PoolThreads(pool);
  const int64_t column_tasks =
      std::clamp<int64_t>(threads > 1 ? CeilDiv(2 * threads, p.batch) : 1, 1, panels);
  ParallelTasks(pool, p.batch * column_tasks, [&](int64_t index, int) {
    const int64_t part = index % column_tasks;
    job.RunImage(index / column_tasks,
                 PanelColumn(kernels, p.in_channels, part * panels / column_tasks),
                 PanelColumn(kernels, p.in_channels, (part + 1) * panels / column_tasks));
  });
}

}  // namespace

size_t Conv2dGradInputScratchBytes(const Conv2dProblem& p, int threads) {
  CheckConv2d("Conv2dGradInputScratchBytes", p, "", "", "");
  return UseCorrelation(p) ? CorrelationScratchBytes(GradInputCorrelation(p), threads)
                           : PackedFilterFloats(p) * sizeof(float);
}

void Conv2dGradInput(const Conv2dProblem& p, const float* dy, const float* filter, float* dx,
                     void* scratch, pthreadpool_t pool) {
  CheckConv2d("Conv2dGradInput", p, dy, filter, dx);
  if (p.batch == 0) return;
  if (!UseCorrelation(p)) {
    RunScatter(p, dy, filter, dx, static_cast<float*>(scratch), pool);
    return;
  }
  TurnedFilter packer;
  packer.filter = filter;
  packer.kernel_area = p.kernel_height * p.kernel_width;
  packer.in_channels = p.in_channels;
  packer.out_channels = p.out_channels;
  RunCorrelation(GradInputCorrelation(p), dy, packer, nullptr, false, dx, scratch, pool);
}

}  // namespace tidepool::cpu
