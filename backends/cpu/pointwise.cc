#include "tidepool/backends/cpu/pointwise.h"

#include <algorithm>
#include <cstddef>

#include "tidepool/backends/cpu/pointwise_span.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool::cpu {
namespace {

constexpr int kOperands = kMostPointwiseInputs + 1;  // inputs, then the result
constexpr int kZ = kMostPointwiseInputs;
constexpr int64_t kGrain = 1 << 15;  // elements of a task: several pages
constexpr int64_t kShortRow = 32;    // rows shorter than this are not worth a call each
// Tiles that operands are gathered into: square where an operand lies across the others. Taller or
// wider ones touch more pages or more lines without neighbours; both measured slower.
constexpr int64_t kTileSide = 64;
constexpr int64_t kTile = kTileSide * kTileSide;

struct TileBuffer {
  alignas(64) std::byte bytes[kTile * 8];
};

// Beyond it results are written past the caches: nobody will find them there.
constexpr int64_t kStreamBytes = 32 << 20;

void RunDense(const KernelCall& call, const PointwiseOp& op, const LoopParameters& parameters,
              int64_t count) {
  PointwiseSpan whole = {{}, {1, 1, 1}, call.outputs[0].as<std::byte>()};
  bool stream = count * op.out.bytes >= kStreamBytes && kPointwiseBlock * op.out.bytes % 64 == 0;
  for (int i = 0; i < op.inputs; ++i) {
    whole.in[i] = call.inputs[i].as<std::byte>();
    stream = stream && whole.in[i] != whole.z;
  }
  ParallelFor(call.threads, count, kGrain, count * op.work, [&](int64_t begin, int64_t end) {
    PointwiseSpan span = whole;
    for (int i = 0; i < op.inputs; ++i) span.in[i] += begin * op.in[i].bytes;
    span.z += begin * op.out.bytes;
    RunPointwiseSpan(op, parameters, span, end - begin, stream);
  });
}

// ---- any strides ------------------------------------------------------------------------------

struct Axis {
  int64_t size = 1;
  int64_t strides[kOperands] = {};  // in elements
};

struct Axes {
  int rank = 0;
  Axis axis[kMaxRank];
};

int64_t Size(int64_t stride) { return stride < 0 ? -stride : stride; }

// Without axes of one element, the result's largest stride first, merged.
Axes SortedAxes(const KernelCall& call, int inputs) {
  const TensorRef& z = call.outputs[0];
  Axes axes;
  for (int d = 0; d < z.rank; ++d) {
    if (z.dims[d] == 1) continue;
    Axis axis;
    axis.size = z.dims[d];
    axis.strides[kZ] = z.strides[d];
    for (int i = 0; i < inputs; ++i) {
      const TensorRef& x = call.inputs[i];
      const int own = d - (z.rank - x.rank);
      axis.strides[i] = own < 0 || x.dims[own] == 1 ? 0 : x.strides[own];
    }
    int at = axes.rank++;
    for (; at > 0 && Size(axes.axis[at - 1].strides[kZ]) < Size(axis.strides[kZ]); --at) {
      axes.axis[at] = axes.axis[at - 1];
    }
    axes.axis[at] = axis;
  }
  int last = 0;
  for (int d = 1; d < axes.rank; ++d) {
    Axis& outer = axes.axis[last];
    const Axis& axis = axes.axis[d];
    bool merges = true;
    for (int i = 0; i < kOperands; ++i) {
      merges = merges && outer.strides[i] == axis.strides[i] * axis.size;
    }
    if (merges) {
      outer.size *= axis.size;
      std::copy_n(axis.strides, kOperands, outer.strides);
    } else {
      axes.axis[++last] = axis;
    }
  }
  axes.rank = std::min(axes.rank, last + 1);
  return axes;
}

// z[r * z_stride + c] = x[c * x_stride + r], by squares of 16-byte vectors: a column of squares
// after the other, so that few lines of x are in use at a time.
template <typename Bits>
void Transpose(const Bits* x, int64_t x_stride, Bits* z, int64_t z_stride, int64_t rows,
               int64_t columns) {
  constexpr int64_t kSide = sizeof(Bits) >= 4 ? 16 / sizeof(Bits) : 1;
  const int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
  if constexpr (kSide > 1) {
    typedef Bits Vector __attribute__((vector_size(16), aligned(1), may_alias));
    for (int64_t c = 0; c < whole_columns; c += kSide) {
      for (int64_t r = 0; r < whole_rows; r += kSide) {
        auto in = [&](int64_t i) {
          return *reinterpret_cast<const Vector*>(x + (c + i) * x_stride + r);
        };
        auto out = [&](int64_t i) -> Vector& {
          return *reinterpret_cast<Vector*>(z + (r + i) * z_stride + c);
        };
        if constexpr (kSide == 4) {
          const Vector a = in(0), b = in(1), d = in(2), e = in(3);
          const Vector ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
          const Vector ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
          const Vector de_low = __builtin_shufflevector(d, e, 0, 4, 1, 5);
          const Vector de_high = __builtin_shufflevector(d, e, 2, 6, 3, 7);
          out(0) = __builtin_shufflevector(ab_low, de_low, 0, 1, 4, 5);
          out(1) = __builtin_shufflevector(ab_low, de_low, 2, 3, 6, 7);
          out(2) = __builtin_shufflevector(ab_high, de_high, 0, 1, 4, 5);
          out(3) = __builtin_shufflevector(ab_high, de_high, 2, 3, 6, 7);
        } else {
          const Vector a = in(0), b = in(1);
          out(0) = __builtin_shufflevector(a, b, 0, 2);
          out(1) = __builtin_shufflevector(a, b, 1, 3);
        }
      }
    }
  }
  for (int64_t c = 0; c < columns; ++c) {
    const int64_t begin = kSide > 1 && c < whole_columns ? whole_rows : 0;
    for (int64_t r = begin; r < rows; ++r) z[r * z_stride + c] = x[c * x_stride + r];
  }
}

// rows x columns of an operand to or from a dense buffer, along the axis with the smaller stride.
template <typename Bits, bool kGather>
void MoveTile(std::byte* memory, int64_t row_stride, int64_t column_stride, int64_t rows,
              int64_t columns, std::byte* buffer) {
  Bits* x = reinterpret_cast<Bits*>(memory);
  Bits* tile = reinterpret_cast<Bits*>(buffer);
  if (row_stride == 1 && column_stride != 1) {
    if constexpr (kGather) {
      Transpose<Bits>(x, column_stride, tile, columns, rows, columns);
    } else {
      Transpose<Bits>(tile, columns, x, column_stride, columns, rows);
    }
    return;
  }
  auto move = [&](int64_t r, int64_t c) {
    Bits& outside = x[r * row_stride + c * column_stride];
    Bits& inside = tile[r * columns + c];
    if constexpr (kGather) {
      inside = outside;
    } else {
      outside = inside;
    }
  };
  if (row_stride != 0 && Size(row_stride) < Size(column_stride)) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < rows; ++r) move(r, c);
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) move(r, c);
    }
  }
}

template <bool kGather>
void MoveTile(int bytes, std::byte* memory, const int64_t* row_strides,
              const int64_t* column_strides, int operand, int64_t rows, int64_t columns,
              TileBuffer& buffer) {
  const int64_t row = row_strides[operand], column = column_strides[operand];
  switch (bytes) {
    case 1:
      return MoveTile<uint8_t, kGather>(memory, row, column, rows, columns, buffer.bytes);
    case 2:
      return MoveTile<uint16_t, kGather>(memory, row, column, rows, columns, buffer.bytes);
    case 4:
      return MoveTile<uint32_t, kGather>(memory, row, column, rows, columns, buffer.bytes);
    default:
      return MoveTile<uint64_t, kGather>(memory, row, column, rows, columns, buffer.bytes);
  }
}

class StridedRun {
 public:
  StridedRun(const KernelCall& call, const PointwiseOp& op, const LoopParameters& parameters)
      : op_(op), parameters_(parameters), axes_(SortedAxes(call, op.inputs)) {
    for (int i = 0; i < op.inputs; ++i) {
      memory_[i] = call.inputs[i].as<std::byte>();
      bytes_[i] = op.in[i].bytes;
    }
    memory_[kZ] = call.outputs[0].as<std::byte>();
    bytes_[kZ] = op.out.bytes;
    ChooseTiles();
    const int64_t tiles = outer_ * row_tiles_ * column_tiles_;
    const int64_t size = tile_rows_ * tile_columns_;
    ParallelFor(call.threads, tiles, std::max<int64_t>(1, kGrain / size), tiles * size * op.work,
                [&](int64_t begin, int64_t end) { RunTiles(begin, end); });
  }

 private:
  // The inner axis is the result's closest; of the others the one is walked within a tile that an
  // operand which has to be gathered lies closest on.
  void ChooseTiles() {
    if (axes_.rank == 0) {
      axes_.rank = 1;
      std::fill_n(axes_.axis[0].strides, kOperands, 1);
    }
    const int inner = axes_.rank - 1;
    columns_ = axes_.axis[inner].size;
    std::copy_n(axes_.axis[inner].strides, kOperands, column_strides_);
    int row_axis = inner - 1;
    int64_t closest = INT64_MAX;
    bool across = false;
    for (int i = 0; i < kOperands; ++i) {
      gathered_[i] = column_strides_[i] != 1 && (i == kZ || column_strides_[i] != 0);
      any_gathered_ = any_gathered_ || gathered_[i];
      for (int axis = 0; gathered_[i] && axis < inner; ++axis) {
        const int64_t size = Size(axes_.axis[axis].strides[i]);
        if (size == 0 || size >= std::min(closest, Size(column_strides_[i]))) continue;
        closest = size;
        row_axis = axis;
        across = true;
      }
    }
    if (row_axis >= 0) {
      rows_ = axes_.axis[row_axis].size;
      std::copy_n(axes_.axis[row_axis].strides, kOperands, row_strides_);
      std::rotate(axes_.axis + row_axis, axes_.axis + row_axis + 1, axes_.axis + inner);
    }
    for (int axis = 0; axis < inner - 1; ++axis) outer_ *= axes_.axis[axis].size;
    flat_ = columns_ < kShortRow;
    const int64_t most = any_gathered_ || flat_ ? kTile : kGrain;
    tile_columns_ = std::min(columns_, across ? kTileSide : most);
    if (flat_) tile_columns_ = columns_;
    tile_rows_ = std::min(rows_, (flat_ ? kPointwiseBlock : most) / tile_columns_);
    row_tiles_ = (rows_ + tile_rows_ - 1) / tile_rows_;
    column_tiles_ = (columns_ + tile_columns_ - 1) / tile_columns_;
  }

  void RunTiles(int64_t begin, int64_t end) {
    any_gathered_ || flat_ ? RunGatheredTiles(begin, end) : RunTiles(begin, end, nullptr);
  }

  // The buffers take 128 KiB of a stack, which only those pay that gather.
  [[gnu::noinline]] void RunGatheredTiles(int64_t begin, int64_t end) {
    TileBuffer buffers[kOperands];
    RunTiles(begin, end, buffers);
  }

  void RunTiles(int64_t begin, int64_t end, TileBuffer* buffers) {
    const std::byte* held[kOperands] = {};  // what the buffers hold tiles of, and their shapes
    int64_t held_rows = 0, held_columns = 0;
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t column = tile % column_tiles_ * tile_columns_;
      int64_t rest = tile / column_tiles_;
      const int64_t row = rest % row_tiles_ * tile_rows_;
      rest /= row_tiles_;
      std::byte* origin[kOperands];
      for (int i = 0; i < kOperands; ++i) {
        origin[i] = memory_[i];
        if (origin[i] == nullptr) continue;
        origin[i] += (column * column_strides_[i] + row * row_strides_[i]) * bytes_[i];
      }
      for (int axis = axes_.rank - 3; axis >= 0; --axis) {
        const Axis& outer = axes_.axis[axis];
        const int64_t at = rest % outer.size;
        rest /= outer.size;
        for (int i = 0; i < kOperands; ++i) origin[i] += at * outer.strides[i] * bytes_[i];
      }
      const int64_t rows = std::min(tile_rows_, rows_ - row);
      const int64_t columns = std::min(tile_columns_, columns_ - column);
      if (rows != held_rows || columns != held_columns) std::fill_n(held, kOperands, nullptr);
      held_rows = rows;
      held_columns = columns;
      flat_ ? RunFlat(origin, rows, columns, buffers, held)
            : RunRows(origin, rows, columns, buffers, held);
    }
  }

  void Gather(int i, std::byte* origin, int64_t rows, int64_t columns, TileBuffer* buffers,
              const std::byte** held) const {
    if (held[i] == origin) return;  // broadcast along the outer axes
    MoveTile<true>(bytes_[i], origin, row_strides_, column_strides_, i, rows, columns, buffers[i]);
    // What is written in place changes under the buffer.
    held[i] = memory_[i] == memory_[kZ] ? nullptr : origin;
  }

  // Each row of the tile is a span.
  void RunRows(std::byte* const* origin, int64_t rows, int64_t columns, TileBuffer* buffers,
               const std::byte** held) const {
    for (int i = 0; i < op_.inputs; ++i) {
      if (gathered_[i]) Gather(i, origin[i], rows, columns, buffers, held);
    }
    for (int64_t row = 0; row < rows; ++row) {
      PointwiseSpan span = {};
      for (int i = 0; i < op_.inputs; ++i) {
        span.in[i] = gathered_[i] ? buffers[i].bytes + row * columns * bytes_[i]
                                  : origin[i] + row * row_strides_[i] * bytes_[i];
        span.steps[i] = gathered_[i] || column_strides_[i] == 1 ? 1 : 0;
      }
      span.z = gathered_[kZ] ? buffers[kZ].bytes + row * columns * bytes_[kZ]
                             : origin[kZ] + row * row_strides_[kZ] * bytes_[kZ];
      RunPointwiseSpan(op_, parameters_, span, columns);
    }
    if (gathered_[kZ]) {
      MoveTile<false>(bytes_[kZ], origin[kZ], row_strides_, column_strides_, kZ, rows, columns,
                      buffers[kZ]);
    }
  }

  // The whole tile is one span: operands that are not dense in it are gathered.
  void RunFlat(std::byte* const* origin, int64_t rows, int64_t columns, TileBuffer* buffers,
               const std::byte** held) const {
    auto is_dense = [&](int i) {
      return (columns == 1 || column_strides_[i] == 1) && (rows == 1 || row_strides_[i] == columns);
    };
    PointwiseSpan span = {};
    for (int i = 0; i < op_.inputs; ++i) {
      span.in[i] = origin[i];
      span.steps[i] = 1;
      if (is_dense(i)) continue;
      if (column_strides_[i] == 0 && row_strides_[i] == 0) {
        span.steps[i] = 0;
        continue;
      }
      Gather(i, origin[i], rows, columns, buffers, held);
      span.in[i] = buffers[i].bytes;
    }
    span.z = is_dense(kZ) ? origin[kZ] : buffers[kZ].bytes;
    RunPointwiseSpan(op_, parameters_, span, rows * columns);
    if (is_dense(kZ)) return;
    MoveTile<false>(bytes_[kZ], origin[kZ], row_strides_, column_strides_, kZ, rows, columns,
                    buffers[kZ]);
  }

  const PointwiseOp& op_;
  const LoopParameters& parameters_;
  Axes axes_;  // after ChooseTiles: the outer axes, of which there are rank - 2
  std::byte* memory_[kOperands] = {};
  int bytes_[kOperands] = {};
  int64_t columns_ = 1, rows_ = 1, outer_ = 1;
  int64_t column_strides_[kOperands] = {}, row_strides_[kOperands] = {};
  bool gathered_[kOperands] = {};
  bool any_gathered_ = false, flat_ = false;
  int64_t tile_columns_ = 1, tile_rows_ = 1, row_tiles_ = 1, column_tiles_ = 1;
};

}  // namespace

void RunPointwise(const KernelCall& call, const PointwiseOp& op) {
  LoopParameters parameters;
  if (op.read_attributes != nullptr) op.read_attributes(call, &parameters);
  const TensorRef& z = call.outputs[0];
  const int64_t count = z.NumElements();
  bool dense = z.dense;
  for (const TensorRef& x : call.inputs) dense = dense && x.dense && x.NumElements() == count;
  if (dense && count <= kGrain && !op.converts) {  // nothing to arrange
    const void* in[kMostPointwiseInputs];
    for (int i = 0; i < op.inputs; ++i) in[i] = call.inputs[i].data;
    op.loop(in, z.data, count, parameters);
  } else if (dense) {
    RunDense(call, op, parameters, count);
  } else {
    StridedRun(call, op, parameters);
  }
}

}  // namespace tidepool::cpu
