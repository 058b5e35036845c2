// The filter gradient as a product whose inner dimension is the output pixels:
//   dfilter^T[position, co] = sum over pixels of x[pixel + position] * dy[pixel, co]
// for each of the filter's planes. Rows of a tile are filter positions, each a pointer into x; an output row is one segment, along
// which x advances by stride * channels. So x is never copied to im2col form.
#include <algorithm>

#include "tidepool/backends/cpu/gemm/conv2d_check.h"
#include "tidepool/backends/cpu/gemm/conv3d.h"
#include "tidepool/backends/cpu/gemm/correlation.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"
#include "tidepool/ndarray/kernel/example_sums.h"

namespace tidepool::cpu {
namespace {

constexpr char kWhat[] = "filter gradient of a convolution";
constexpr int64_t kMinParallelProducts = 64 * 64 * 64;
// Chunks of filters up to this many positions are tasks; of larger ones there are enough groups.
constexpr int64_t kMostPositionsByChunks = 192;
// Chunks of one image up to so many pixels are one task, whose sums are added up in one go.
constexpr int64_t kPixelsPerTask = 1024;
constexpr int64_t kMostTasksAtOnce = 128;
constexpr int64_t kMostPartialBytes = 256 << 10;
constexpr int64_t kMinGroupRows = 48;
// From this distance between pixels of x, in floats, and this many channels of dy on, strips pay.
constexpr int64_t kMinPixelStepForStrips = 192;
constexpr int64_t kMinChannelsForStrips = 128;

// How the work is cut. What is added to what hangs on the shape of one plane alone, neither on how many there are nor on threads.
struct Cut {
  Correlation c;
  int64_t depth, padded_channels;
  bool strips;
  int64_t group_rows, groups;  // positions of one of the filter's planes
  // Of a panel of dy: whole planes, or where one is larger, rows of it; wide rows are cut further.
  int64_t chunk_planes, chunk_rows, plane_chunks;
  int64_t chunks;
  int64_t task_chunks, plane_tasks, tasks;
  bool
      by_chunks;  // some are a task, whose sums are added behind those before; else they are added where they are made

  Cut(const Conv3dProblem& p, int threads) : c(ForwardCorrelation(p)) {
    depth = c.Depth();
    padded_channels = RoundUp(c.out_channels, kVectorFloats);
    // A strip is contiguous in x when its positions belong to one pixel.
    strips = c.in_channels % kVectorFloats == 0 && c.out_channels >= kMinChannelsForStrips &&
             c.in_channels * c.stride_width >= kMinPixelStepForStrips;
    by_chunks = c.kernel_planes * depth <= kMostPositionsByChunks;
    // Groups are cut for threads alone; each packs dy anew.
    const int64_t fair = depth * c.kernel_planes / (2 * threads) / 24 * 24;
    group_rows = threads > 1 && !by_chunks ? std::clamp(fair, kMinGroupRows, kMaxBlockRows)
                                           : EvenPiece(depth, kMaxBlockRows, 24);
    groups = CeilDiv(depth, group_rows);
    chunk_planes = PlanesSummedAtOnce(c.out_height, c.out_width);
    chunk_rows = c.out_height;
    plane_chunks = 1;
    if (c.out_height * c.out_width > kPixelsSummedAtOnce || c.out_height > kRowsSummedAtOnce) {
      const int64_t most =
          std::clamp<int64_t>(kPixelsSummedAtOnce / c.out_width, 1, kRowsSummedAtOnce);
      plane_chunks = CeilDiv(c.out_height, most);
      chunk_rows = CeilDiv(c.out_height, plane_chunks);
      plane_chunks = CeilDiv(c.out_height, chunk_rows);
    }
    chunks = CeilDiv(c.OutputRows() / c.out_height, chunk_planes) * plane_chunks;
    task_chunks = std::clamp<int64_t>(kPixelsPerTask / (chunk_rows * c.out_width), 1, plane_chunks);
    plane_tasks = CeilDiv(plane_chunks, task_chunks);
    tasks = chunks / plane_chunks * plane_tasks;
  }
  // Chunks of a task.
  int64_t TaskBegin(int64_t task) const {
    return task / plane_tasks * plane_chunks + task % plane_tasks * task_chunks;
  }
  int64_t TaskEnd(int64_t task) const {
    return task % plane_tasks + 1 < plane_tasks ? TaskBegin(task) + task_chunks
                                                : (task / plane_tasks + 1) * plane_chunks;
  }

  // Output rows of a chunk.
  int64_t ChunkBegin(int64_t chunk) const {
    return chunk / plane_chunks * chunk_planes * c.out_height + chunk % plane_chunks * chunk_rows;
  }
  int64_t ChunkEnd(int64_t chunk) const {
    const int64_t plane_end = (chunk / plane_chunks + 1) * chunk_planes * c.out_height;
    const int64_t end =
        chunk % plane_chunks + 1 < plane_chunks ? ChunkBegin(chunk) + chunk_rows : plane_end;
    return std::min(end, c.OutputRows());
  }

  int64_t Groups() const { return c.kernel_planes * groups; }
  int64_t GroupPlane(int64_t group) const { return group / groups; }
  int64_t GroupPosition(int64_t group) const { return group % groups * group_rows; }
  int64_t GroupRows(int64_t group) const {
    return std::min(group_rows, depth - GroupPosition(group));
  }
  // The group's place in partial sums.
  int64_t GroupOffset(int64_t group) const {
    return (GroupPlane(group) * depth + GroupPosition(group)) * padded_channels;
  }

  int64_t PartialFloats() const { return AlignFloats(c.kernel_planes * depth * padded_channels); }
  // Tasks whose sums wait to be added in their order.
  int64_t TasksAtOnce() const {
    const int64_t fitting =
        kMostPartialBytes / (PartialFloats() * static_cast<int64_t>(sizeof(float)));
    return std::min(std::clamp<int64_t>(fitting, 8, kMostTasksAtOnce), tasks);
  }
  // The sum, and those of tasks.
  int64_t AllPartialsFloats() const {
    return by_chunks ? (1 + TasksAtOnce()) * PartialFloats() : 0;
  }
  int64_t GroupFloats() const { return by_chunks ? 0 : AlignFloats(group_rows * padded_channels); }
  int64_t ChunkRows() const { return std::min(chunk_planes * chunk_rows, c.OutputRows()); }
  int64_t ChunkPixels() const { return std::min(kPixelsSummedAtOnce, ChunkRows() * c.out_width); }
  int64_t PanelFloats() const {
    return AlignFloats(ChunkPixels() * std::min(padded_channels, kMaxPanelWidth));
  }
  int64_t StripFloats() const {
    return strips ? AlignFloats(ChunkPixels() * RoundUp(group_rows, kVectorFloats)) : 0;
  }
  int64_t SlotFloats() const {
    return GroupFloats() + PanelFloats() + StripFloats() + ViewBufferFloats(c, ChunkRows());
  }
};

struct SlotScratch {
  float *group, *panel, *strips, *view;

  SlotScratch(const Cut& cut, float* memory)
      : group(memory),
        panel(group + cut.GroupFloats()),
        strips(panel + cut.PanelFloats()),
        view(strips + cut.StripFloats()) {}
};

struct Job {
  const Cut& cut;
  const TileKernels& kernels;
  const float* x;
  const float* dy;

  // Adds `pixels` successive output pixels to the partial sums, or starts them.
  void RunPixels(const float* dy_pixels, int64_t pixels, const int64_t* segments,
                 int64_t segment_count, const float* const* a_rows, float* const* c_rows,
                 int64_t rows, bool first, const SlotScratch& scratch) const {
    const Correlation& c = cut.c;
    TileArgs args = {};
    args.a_step = c.stride_width * c.in_channels * sizeof(float);
    args.segments_begin = segments;
    args.segments_end = segments + segment_count;
    args.segment_length = pixels / segment_count;
    static constexpr int64_t kOneSegment = 0;
    const float* strip_rows[kMaxBlockRows];
    if (cut.strips) {
      PackStrips(pixels, segments, segment_count, a_rows, rows, scratch.strips, strip_rows);
      a_rows = strip_rows;
      args.a_step = kVectorFloats * sizeof(float);
      args.segments_begin = &kOneSegment;
      args.segments_end = &kOneSegment + 1;
      args.segment_length = pixels;
    }
    args.flags = int64_t{!first} * kTileAccumulate;
    for (int64_t j = 0; j < c.out_channels;) {
      const int64_t width = NextPanelWidth(kernels, c.out_channels - j);
      kernels.pack_panel(dy_pixels + j, c.out_channels, 1, pixels,
                         std::min(width, c.out_channels - j), width, scratch.panel);
      args.b = scratch.panel;
      args.b_step = width * sizeof(float);
      args.c_offset = j * sizeof(float);
      SetPanelEdge(&args, width, width, nullptr, nullptr);
      RunTiles(kernels, width, rows, a_rows, c_rows, &args);
      j += width;
    }
  }

  // Strip s holds filter positions 8 s to 8 s + 7 of all pixels.
  void PackStrips(int64_t pixels, const int64_t* segments, int64_t segment_count,
                  const float* const* a_rows, int64_t rows, float* strips,
                  const float** strip_rows) const {
    const int64_t length = pixels / segment_count;
    for (int64_t r = 0; r < rows; r += kVectorFloats) {
      float* strip = strips + r * pixels;
      for (int64_t s = 0; s < segment_count; ++s) {
        kernels.pack_panel(a_rows[r] + segments[s] / static_cast<int64_t>(sizeof(float)),
                           cut.c.stride_width * cut.c.in_channels, 1, length, kVectorFloats,
                           kVectorFloats, strip + s * length * kVectorFloats);
      }
      for (int64_t q = 0; q < kVectorFloats && r + q < rows; ++q) strip_rows[r + q] = strip + q;
    }
  }

  // How many of the output rows [row, row + rows) a plane of the filter sees the input from, before others; or, when
  // *seen becomes false, which the ones are that see padding.
  int64_t RowsAlike(int64_t kernel_plane, int64_t row, int64_t rows, bool* seen) const {
    const Correlation& c = cut.c;
    int64_t plane = row / c.out_height;
    *seen = c.InputPlane(plane, kernel_plane) >= 0;
    int64_t alike = (++plane) * c.out_height - row;
    for (; alike < rows && *seen == (c.InputPlane(plane, kernel_plane) >= 0); ++plane) {
      alike += c.out_height;
    }
    return std::min(alike, rows);
  }

  // A group of filter positions over output rows [begin, end), to rows of sums, which there may be already.
  void RunPart(int64_t group, int64_t begin, int64_t end, bool* has_sums, float* sums,
               const SlotScratch& scratch) const {
    const Correlation& c = cut.c;
    const int64_t kernel_plane = cut.GroupPlane(group), rows = cut.GroupRows(group);
    float* c_rows[kMaxBlockRows];
    for (int64_t r = 0; r < rows; ++r) c_rows[r] = sums + r * cut.padded_channels;
    bool first = !*has_sums;
    for (int64_t row = begin, count; row < end; row += count) {
      bool seen;
      count = RowsAlike(kernel_plane, row, end - row, &seen);
      if (!seen) continue;
      const float* a_rows[kMaxBlockRows];
      const float* base = nullptr;
      int64_t segments[kRowsSummedAtOnce];
      int64_t segment_count = 0;
      const auto add = [&](int64_t, int64_t n, ImageView view) {
        if (base == nullptr) {
          base = view.origin;
          SetRowPointers(base, view.row_floats, cut.GroupPosition(group), rows, a_rows);
        }
        for (int64_t r = 0; r < n; ++r) {
          segments[segment_count++] =
              (view.origin + r * c.stride_height * view.row_floats - base) * sizeof(float);
        }
      };
      ForEachImageView(c, x, row, count, kernel_plane, scratch.view, add);
      const float* dy_rows = dy + row * c.out_width * c.out_channels;
      if (c.out_width <= kPixelsSummedAtOnce) {
        RunPixels(dy_rows, count * c.out_width, segments, segment_count, a_rows, c_rows, rows,
                  first, scratch);
        first = false;
        continue;
      }
      // One wide row, in pieces.
      for (int64_t w = 0; w < c.out_width; w += kPixelsSummedAtOnce) {
        const int64_t offset = w * c.stride_width * c.in_channels * sizeof(float);
        RunPixels(dy_rows + w * c.out_channels, std::min(kPixelsSummedAtOnce, c.out_width - w),
                  &offset, 1, a_rows, c_rows, rows, first, scratch);
        first = false;
      }
    }
    *has_sums = !first;
  }

  // What dfilter has of a group.
  void Load(const float* dfilter, int64_t filter_floats, int64_t group, float* sums) const {
    const int64_t rows = cut.GroupRows(group);
    dfilter += cut.GroupPlane(group) * cut.depth + cut.GroupPosition(group);
    for (int64_t j = 0; j < cut.padded_channels; ++j) {
      const bool exists = j < cut.c.out_channels;
      for (int64_t r = 0; r < rows; ++r)
        sums[r * cut.padded_channels + j] = exists ? dfilter[j * filter_floats + r] : 0.0f;
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

size_t Conv3dGradFilterScratchBytes(const Conv3dProblem& p, int threads) {
  CheckConvolution(kWhat, p, "", "", "");
  // A pool of fewer threads has larger groups.
  int64_t floats = 0;
  for (int count = 1; count <= std::max(threads, 1); ++count) {
    const Cut cut(p, count);
    floats = std::max(floats, cut.AllPartialsFloats() + count * cut.SlotFloats());
  }
  return floats * sizeof(float);
}

void Conv3dGradFilter(const Conv3dProblem& p, const float* x, const float* dy, float* dfilter,
                      bool accumulate, void* scratch, ThreadPool* pool) {
  CheckConvolution(kWhat, p, dfilter, x, dy);
  const Cut cut(p, PoolThreads(pool));
  const Correlation& c = cut.c;
  const int64_t filter_floats = c.kernel_planes * cut.depth;  // of one output channel
  if (c.batch == 0) {
    if (!accumulate && dfilter != nullptr) {
      std::fill_n(dfilter, c.out_channels * filter_floats, 0.0f);
    }
    return;
  }
  const TileKernels& kernels = SelectedTileKernels();
  const Job job = {cut, kernels, x, dy};
  if (c.OutputRows() * c.out_width * filter_floats * c.out_channels < kMinParallelProducts) {
    pool = nullptr;
  }
  float* const total = static_cast<float*>(scratch);
  float* const partials = total + cut.PartialFloats();
  float* slots = total + cut.AllPartialsFloats();
  const auto store = [&](const float* sums, int64_t group) {
    kernels.store_transposed(
        sums, cut.padded_channels, cut.GroupRows(group), c.out_channels, nullptr, 0,
        dfilter + cut.GroupPlane(group) * cut.depth + cut.GroupPosition(group), filter_floats);
  };
  const auto begin_sums = [&](int64_t group, float* sums) {
    if (accumulate) job.Load(dfilter, filter_floats, group, sums);
  };
  if (!cut.by_chunks) {
    ParallelTasks(pool, cut.Groups(), [&](int64_t group, int slot) {
      const SlotScratch memory(cut, slots + slot * cut.SlotFloats());
      float* const sums = memory.group;
      begin_sums(group, sums);
      bool has_sums = accumulate;
      for (int64_t chunk = 0; chunk < cut.chunks; ++chunk)
        job.RunPart(group, cut.ChunkBegin(chunk), cut.ChunkEnd(chunk), &has_sums, sums, memory);
      if (!has_sums) std::fill_n(sums, cut.GroupRows(group) * cut.padded_channels, 0.0f);
      store(sums, group);
    });
    return;
  }
  for (int64_t group = 0; group < cut.Groups(); ++group)
    begin_sums(group, total + cut.GroupOffset(group));
  const int64_t at_once = cut.TasksAtOnce(),
                floats = cut.c.kernel_planes * cut.depth * cut.padded_channels;
  for (int64_t first = 0; first < cut.tasks; first += at_once) {
    const int64_t count = std::min(at_once, cut.tasks - first);
    ParallelTasks(pool, count, [&](int64_t index, int slot) {
      const SlotScratch memory(cut, slots + slot * cut.SlotFloats());
      for (int64_t group = 0; group < cut.Groups(); ++group) {
        float* const sums = partials + index * cut.PartialFloats() + cut.GroupOffset(group);
        bool has_sums = false;
        for (int64_t chunk = cut.TaskBegin(first + index); chunk < cut.TaskEnd(first + index);
             ++chunk)
          job.RunPart(group, cut.ChunkBegin(chunk), cut.ChunkEnd(chunk), &has_sums, sums, memory);
        if (!has_sums) std::fill_n(sums, cut.GroupRows(group) * cut.padded_channels, 0.0f);
      }
    });
    for (int64_t k = 0; k < count; ++k) {
      const float* const more = partials + k * cut.PartialFloats();
      if (first + k == 0 && !accumulate) {
        std::copy_n(more, floats, total);
      } else {
        for (int64_t i = 0; i < floats; ++i) total[i] += more[i];
      }
    }
  }
  for (int64_t group = 0; group < cut.Groups(); ++group)
    store(total + cut.GroupOffset(group), group);
}

size_t Conv2dGradFilterScratchBytes(const Conv2dProblem& p, int threads) {
  return Conv3dGradFilterScratchBytes({p}, threads);
}

void Conv2dGradFilter(const Conv2dProblem& p, const float* x, const float* dy, float* dfilter,
                      bool accumulate, void* scratch, ThreadPool* pool) {
  Conv3dGradFilter({p}, x, dy, dfilter, accumulate, scratch, pool);
}

}  // namespace tidepool::cpu
