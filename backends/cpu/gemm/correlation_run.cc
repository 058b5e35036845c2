// The products of a correlation: blocks of output pixels, whose rows of A are the input where it lies.
#include "tidepool/backends/cpu/gemm/correlation.h"

#include <algorithm>

#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kMinParallelProducts = 64 * 64 * 64;
// Filters below this many floats are packed by the calling thread.
constexpr int64_t kMinParallelPack = 1 << 15;
constexpr int64_t kMinClippedChannels = 16;

// Output rows that share one padded copy; about a block of pixels, whole images where they fit.
int64_t RowsPerTask(const Correlation& c) {
  int64_t rows = std::max<int64_t>(1, kMaxBlockRows / c.out_width);
  if (c.NeedsPadding()) rows = std::max(rows, std::min<int64_t>(c.out_height, 4));
  if (rows > c.out_height) rows = rows / c.out_height * c.out_height;
  return std::min(rows, std::max<int64_t>(c.OutputRows(), 1));
}

// Taps beyond the border are left out, where what is left of a row of the filter is long enough for a loop. Else images
// are copied with their padding.
bool Clips(const Correlation& c) {
  return c.NeedsPadding() && c.in_channels >= kMinClippedChannels;
}

int64_t BufferFloats(const Correlation& c) {
  return Clips(c) ? 0 : ViewBufferFloats(c, RowsPerTask(c));
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

  FilterPlane() : index(-1), first(false), last(false) {}
  FilterPlane(const Correlation& c, int64_t output_plane, int64_t kernel_plane)
      : index(kernel_plane),
        first(kernel_plane == 0 || c.InputPlane(output_plane, kernel_plane - 1) < 0),
        last(kernel_plane + 1 == c.kernel_planes ||
             c.InputPlane(output_plane, kernel_plane + 1) < 0) {}
  bool operator==(const FilterPlane& other) const {
    return index == other.index && first == other.first && last == other.last;
  }
};

// Rows and columns of the filter's plane, those that pixels see.
struct Window {
  int64_t row, row_end, column, column_end;

  bool empty() const { return row >= row_end || column >= column_end; }
};

// A part of a group: `count` segments of `length` floats from `position` of its depth on.
struct Piece {
  int64_t position, length;
  int count;
  int64_t offsets[ReductionGroup::kMaxSegments];
};

// Calls visit(group, piece, whether it is the first, the last) for what a window has of the groups, offsets counted from
// the window's first tap.
template <typename Visit>
void ForEachPiece(const Correlation& c, int64_t row_floats, const Window& window, Visit visit) {
  const int64_t row_depth = c.kernel_width * c.in_channels;
  const int64_t origin = window.row * c.dilation_height * row_floats +
                         window.column * c.dilation_width * c.in_channels;
  // One piece is kept back, to be known for the last.
  ReductionGroup group, group_of_piece;
  Piece piece;
  bool first = true, any = false;
  while (NextGroup(c, row_floats, &group)) {
    bool open = false;  // the piece is of this group, and may grow
    for (int s = 0; s < group.count; ++s) {
      const int64_t position = group.position + s * group.length;
      const int64_t row = position / row_depth, within = position % row_depth;
      const int64_t begin = std::max<int64_t>(window.column * c.in_channels - within, 0);
      const int64_t end = std::min(window.column_end * c.in_channels - within, group.length);
      if (row < window.row || row >= window.row_end || begin >= end) {
        open = false;
        continue;
      }
      const bool whole = end - begin == group.length;
      if (!open || !whole) {
        if (any) visit(group_of_piece, piece, first, false), first = false;
        any = true;
        group_of_piece = group;
        piece.position = s * group.length + begin, piece.length = end - begin, piece.count = 0;
      }
      piece.offsets[piece.count++] =
          group.offsets[s] + (begin - origin) * static_cast<int64_t>(sizeof(float));
      open = whole;
    }
  }
  if (any) visit(group_of_piece, piece, first, true);
}

// A block of output pixels that see the same of the filter, times panels [begin, end). Rows of A begin at the window's
// first tap.
void RunPixels(const Job& job, const FilterPlane& plane, const Window& window, int64_t row_floats,
               int64_t pixels, const float* const* a_rows, float* const* c_rows,
               int64_t column_begin, int64_t column_end) {
  const Correlation& c = job.c;
  const float* const packed = job.packed + plane.index * PackedPlaneFloats(c);
  const int64_t padded_channels = RoundUp(c.out_channels, kVectorFloats);
  float padded_bias[kMaxPanelWidth];
  ForEachPiece(c, row_floats, window,
               [&](const ReductionGroup& group, const Piece& piece, bool first, bool last) {
                 first = first && plane.first;
                 last = last && plane.last;
                 TileArgs args = {};
                 args.a_step = sizeof(float);
                 args.segments_begin = piece.offsets;
                 args.segments_end = piece.offsets + piece.count;
                 args.segment_length = piece.length;
                 args.flags =
                     int64_t{!first} * kTileAccumulate + int64_t{last && job.relu} * kTileRelu;
                 for (int64_t j = column_begin; j < column_end;) {
                   const int64_t width = NextPanelWidth(job.kernels, c.out_channels - j);
                   args.b = packed + group.position * padded_channels + j * group.depth +
                            piece.position * width;
                   args.b_step = width * sizeof(float);
                   args.c_offset = j * sizeof(float);
                   SetPanelEdge(&args, std::min(width, c.out_channels - j), width,
                                first && job.bias != nullptr ? job.bias + j : nullptr, padded_bias);
                   RunTiles(job.kernels, width, pixels, a_rows, c_rows, &args);
                   j += width;
                 }
               });
}

// Output pixels gathered into blocks of those that see the same.
class Blocks {
 public:
  Blocks(const Job& job, int64_t column_begin, int64_t column_end)
      : job_(job), column_begin_(column_begin), column_end_(column_end) {}
  // What the pixels that follow see; rows of the input are row_floats apart.
  void Begin(const FilterPlane& plane, const Window& window, int64_t row_floats) {
    if (!(plane == plane_)) Flush();
    plane_ = plane, window_ = window, row_floats_ = row_floats;
  }
  void Add(const float* a, float* c, int64_t pixels) {
    const int64_t step = job_.c.stride_width * job_.c.in_channels;
    for (int64_t i = 0; i < pixels; ++i) {
      a_rows_[count_] = a + i * step;
      c_rows_[count_] = c + i * job_.c.out_channels;
      if (++count_ == kMaxBlockRows) Flush();
    }
  }
  void Flush() {
    if (count_ > 0) {
      RunPixels(job_, plane_, window_, row_floats_, count_, a_rows_, c_rows_, column_begin_,
                column_end_);
    }
    count_ = 0;
  }

 private:
  const Job& job_;
  const int64_t column_begin_, column_end_;
  FilterPlane plane_;
  Window window_;
  int64_t row_floats_, count_ = 0;
  const float* a_rows_[kMaxBlockRows];
  float* c_rows_[kMaxBlockRows];
};

// A run of output rows, out of images or padded copies of them.
void RunRows(const Job& job, const float* x, int64_t row, int64_t rows, int64_t column_begin,
             int64_t column_end, float* buffer) {
  const Correlation& c = job.c;
  const Window whole = {0, c.kernel_height, 0, c.kernel_width};
  Blocks blocks(job, column_begin, column_end);
  for (int64_t kernel_plane = 0; kernel_plane < c.kernel_planes; ++kernel_plane) {
    ForEachImageView(
        c, x, row, rows, kernel_plane, buffer, [&](int64_t first, int64_t count, ImageView view) {
          blocks.Begin(FilterPlane(c, first / c.out_height, kernel_plane), whole, view.row_floats);
          for (int64_t r = 0; r < count; ++r) {
            blocks.Add(view.origin + r * c.stride_height * view.row_floats,
                       job.y + (first + r) * c.out_width * c.out_channels, c.out_width);
          }
        });
    blocks.Flush();  // before the buffer is overwritten
  }
}

// What of an axis of the filter a place of the output sees of the input, from `begin` on; and the places up to `next` do.
struct Seen {
  int64_t begin, end, next;

  Seen(int64_t place, int64_t places, int64_t stride, int64_t pad, int64_t dilation, int64_t in,
       int64_t kernel) {
    const auto see = [&](int64_t p, int64_t* from, int64_t* to) {
      const int64_t before = pad - p * stride;  // tap t sees t * dilation - before
      *from = before > 0 ? std::min(CeilDiv(before, dilation), kernel) : 0;
      *to = in + before > 0 ? std::min(CeilDiv(in + before, dilation), kernel) : 0;
    };
    see(place, &begin, &end);
    for (next = place + 1; next < places; ++next) {
      int64_t b, e;
      see(next, &b, &e);
      if (b != begin || e != end) return;
    }
  }
};

// The same without copies: where windows reach beyond the border, the taps that do are left out.
void RunClippedRows(const Job& job, const float* x, int64_t row, int64_t rows, int64_t column_begin,
                    int64_t column_end) {
  const Correlation& c = job.c;
  const int64_t row_floats = c.in_width * c.in_channels, end = row + rows;
  Blocks blocks(job, column_begin, column_end);
  // Of all images that the rows touch, what sees the same.
  const auto run = [&](const Window& window, int64_t kernel_plane, int64_t h, int64_t h_end,
                       int64_t w, int64_t w_end) {
    const int64_t down = window.row * c.dilation_height - c.pad_top;
    const int64_t right = window.column * c.dilation_width - c.pad_left;
    for (int64_t plane = row / c.out_height; plane * c.out_height < end; ++plane) {
      const int64_t image = c.InputPlane(plane, kernel_plane);
      if (image < 0) continue;
      blocks.Begin(FilterPlane(c, plane, kernel_plane), window, row_floats);
      const int64_t top = plane * c.out_height;
      for (int64_t r = std::max(top + h, row); r < std::min(top + h_end, end); ++r) {
        blocks.Add(x + (image * c.in_height + (r - top) * c.stride_height + down) * row_floats +
                       (w * c.stride_width + right) * c.in_channels,
                   job.y + (r * c.out_width + w) * c.out_channels, w_end - w);
      }
    }
    blocks.Flush();
  };
  const int64_t first = row % c.out_height, several = first + rows > c.out_height;
  const int64_t h_begin = several ? 0 : first, h_end = several ? c.out_height : first + rows;
  for (int64_t kernel_plane = 0; kernel_plane < c.kernel_planes; ++kernel_plane) {
    for (int64_t h = h_begin, h_next; h < h_end; h = h_next) {
      const Seen down(h, h_end, c.stride_height, c.pad_top, c.dilation_height, c.in_height,
                      c.kernel_height);
      h_next = down.next;
      for (int64_t w = 0, w_next; w < c.out_width; w = w_next) {
        const Seen along(w, c.out_width, c.stride_width, c.pad_left, c.dilation_width, c.in_width,
                         c.kernel_width);
        w_next = along.next;
        const Window window = {down.begin, down.end, along.begin, along.end};
        if (!window.empty()) run(window, kernel_plane, h, h_next, w, w_next);
      }
    }
  }
}

// Outputs that see nothing but padding.
void FillUnseen(const Job& job, int64_t row, int64_t rows, int64_t column_begin, int64_t column_end,
                bool clipped) {
  const Correlation& c = job.c;
  const auto fill = [&](int64_t r, int64_t w, int64_t w_end) {
    for (float* pixel = job.y + (r * c.out_width + w) * c.out_channels; w < w_end;
         ++w, pixel += c.out_channels) {
      for (int64_t j = column_begin; j < column_end; ++j) {
        const float value = job.bias == nullptr ? 0.0f : job.bias[j];
        pixel[j] = job.relu && value < 0 ? 0.0f : value;
      }
    }
  };
  const auto unseen = [](const Seen& seen) { return seen.begin >= seen.end; };
  for (int64_t r = row; r < row + rows; ++r) {
    const int64_t plane = r / c.out_height;
    bool no_plane = true;
    for (int64_t k = 0; k < c.kernel_planes && no_plane; ++k) no_plane = c.InputPlane(plane, k) < 0;
    const int64_t h = r % c.out_height;
    if (no_plane || (clipped && unseen(Seen(h, h + 1, c.stride_height, c.pad_top, c.dilation_height,
                                            c.in_height, c.kernel_height)))) {
      fill(r, 0, c.out_width);
      continue;
    }
    for (int64_t w = 0, next; clipped && w < c.out_width; w = next) {
      const Seen along(w, c.out_width, c.stride_width, c.pad_left, c.dilation_width, c.in_width,
                       c.kernel_width);
      next = along.next;
      if (unseen(along)) fill(r, w, next);
    }
  }
}

}  // namespace

size_t CorrelationScratchBytes(const Correlation& c, int threads) {
  return (PackedFilterFloats(c) + BufferFloats(c) * std::max<int64_t>(threads, 1)) * sizeof(float);
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
  const int64_t buffer_floats = BufferFloats(c);
  int64_t rows = RowsPerTask(c);
  while (rows > 1 && CeilDiv(c.OutputRows(), rows) < 2 * threads && threads > 1) {
    rows = CeilDiv(rows, 2);
  }
  const int64_t row_tasks = CeilDiv(c.OutputRows(), rows);
  const int64_t column_tasks =
      std::clamp<int64_t>(threads > 1 ? CeilDiv(2 * threads, row_tasks) : 1, 1, panels);
  ParallelTasks(pool, row_tasks * column_tasks, [&](int64_t index, int slot) {
    const int64_t row = index / column_tasks * rows, column_task = index % column_tasks;
    const int64_t count = std::min(rows, c.OutputRows() - row);
    const int64_t begin = panel_column(column_task * panels / column_tasks);
    const int64_t end = panel_column((column_task + 1) * panels / column_tasks);
    if (Clips(c)) {
      RunClippedRows(job, x, row, count, begin, end);
    } else {
      RunRows(job, x, row, count, begin, end, buffers + slot * buffer_floats);
    }
    FillUnseen(job, row, count, begin, end, Clips(c));
  });
}

}  // namespace tidepool::cpu
