// A tile is read along the input's fastest axis ("columns") and written along the output's ("rows").
//
// Threads move words. Elements of 1 and 2 bytes travel 4 bytes at a time where strides allow it: a thread
// reads K words of K elements from K rows, exchanges them within its registers, and writes K words of K
// elements for K columns. In shared memory a column's words lie side by side, at an odd pitch, so that
// threads which store along a row meet different banks (at most 4 of a warp the same one).
//
// All of a thread's loads, 16 words or 4 of the wide ones, are under way before the first is stored:
// 2048 threads have 64 to 128 KiB of a multiprocessor's reads in flight.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tidepool/backends/cuda/elementwise/moved_copy.h"
#include "tidepool/backends/cuda/framework/pointwise.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool::cuda {
namespace {

constexpr int kThreads = 256;
// Smaller matrices lie within lines that are in the cache anyway.
constexpr int64_t kLeastTile = 512;

struct IdentityFunction {
  template <typename T>
  __device__ T operator()(T x) const {
    return x;
  }
};

// ---- how the operands are walked ----------------------------------------------------------------

struct Axis {
  int64_t size, x, z;  // strides in elements
};

// The output's slowest axis first; axes that both walk evenly are one.
struct Axes {
  int rank = 0;
  Axis axis[kMaxRank];
  int64_t bytes;  // of an element

  explicit Axes(const KernelCall& call)
      : bytes(static_cast<int64_t>(DTypeBytes(call.outputs[0].dtype))) {
    const TensorRef &x = call.inputs[0], &z = call.outputs[0];
    int64_t strides[kMaxRank];
    BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides);
    Axis all[kMaxRank];
    int count = 0;
    for (int i = 0; i < z.rank; ++i) {
      if (z.dims[i] != 1) all[count++] = {z.dims[i], strides[i], z.strides[i]};
    }
    std::stable_sort(all, all + count,
                     [](const Axis& a, const Axis& b) { return std::abs(a.z) > std::abs(b.z); });
    for (int i = 0; i < count; ++i) {
      const Axis& next = all[i];
      Axis* const last = rank > 0 ? &axis[rank - 1] : nullptr;
      if (last != nullptr && last->x == next.x * next.size && last->z == next.z * next.size) {
        *last = {last->size * next.size, next.x, next.z};
      } else {
        axis[rank++] = next;
      }
    }
    Widen(reinterpret_cast<uintptr_t>(x.data) | reinterpret_cast<uintptr_t>(z.data));
  }

  // Elements that lie side by side in both become wider ones.
  void Widen(uintptr_t addresses) {
    if (rank == 0 || axis[rank - 1].x != 1 || axis[rank - 1].z != 1) return;
    auto is_even = [&] {
      if (bytes >= 16 || axis[rank - 1].size % 2 != 0 || addresses % (2 * bytes) != 0) return false;
      for (int i = 0; i < rank - 1; ++i) {
        if (axis[i].x % 2 != 0 || axis[i].z % 2 != 0) return false;
      }
      return true;
    };
    while (is_even()) {
      bytes *= 2;
      axis[rank - 1].size /= 2;
      for (int i = 0; i < rank - 1; ++i) axis[i].x /= 2, axis[i].z /= 2;
    }
    if (axis[rank - 1].size == 1) --rank;
  }

  // The input's fastest one.
  int Columns() const {
    int best = rank - 1;
    for (int i = rank - 1; i >= 0; --i) {
      const int64_t stride = std::abs(axis[i].x), least = std::abs(axis[best].x);
      if (stride != 0 && (least == 0 || stride < least)) best = i;
    }
    return best;
  }
};

struct Tiles {
  FastDivisor along_columns, along_rows, by_columns, by_groups;
  int columns, groups, pitch;  // words of a tile: K columns each, and groups of K rows
  Axis row, column;
  int batches = 0;  // other axes, the fastest first
  FastDivisor batch[kMaxRank];
  int64_t batch_x[kMaxRank], batch_z[kMaxRank];
};

// ---- the kernel ---------------------------------------------------------------------------------

// Word k of row r becomes word r of column k.
__device__ __forceinline__ void Exchange(uint32_t (&w)[4]) {
#if defined(__CUDA_ARCH__)
  const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[3], 0x5140);
  const uint32_t c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, b, 0x5410);
  w[1] = __byte_perm(a, b, 0x7632);
  w[2] = __byte_perm(c, d, 0x5410);
  w[3] = __byte_perm(c, d, 0x7632);
#else
  uint32_t out[4] = {};
  for (int r = 0; r < 4; ++r) {
    for (int k = 0; k < 4; ++k) out[k] |= (w[r] >> (8 * k) & 0xff) << (8 * r);
  }
  for (int k = 0; k < 4; ++k) w[k] = out[k];
#endif
}
__device__ __forceinline__ void Exchange(uint32_t (&w)[2]) {
  const uint32_t low = (w[0] & 0xffff) | w[1] << 16, high = w[0] >> 16 | (w[1] & 0xffff0000u);
  w[0] = low;
  w[1] = high;
}
template <typename Word>
__device__ __forceinline__ void Exchange(Word (&)[1]) {}

// T: an element; K of them are a Word. A thread moves kUnits squares of K by K.
template <typename T, typename Word, int kUnits>
__global__ void __launch_bounds__(kThreads) MoveTiles(Tiles p, const T* x, T* z) {
  constexpr int K = static_cast<int>(sizeof(Word) / sizeof(T));
  Word* const shared = DynamicShared<Word>();
  uint32_t tile = blockIdx.x;
  uint32_t rest = p.along_columns.Divide(tile);
  const int64_t first_column =
      static_cast<int64_t>(tile - rest * p.along_columns.divisor) * p.columns * K;
  tile = rest;
  rest = p.along_rows.Divide(tile);
  const int64_t first_row = static_cast<int64_t>(tile - rest * p.along_rows.divisor) * p.groups * K;
  for (int i = 0; i < p.batches; ++i) {
    tile = rest;
    rest = p.batch[i].Divide(tile);
    const auto index = static_cast<int64_t>(tile - rest * p.batch[i].divisor);
    x += index * p.batch_x[i];
    z += index * p.batch_z[i];
  }
  x += first_row * p.row.x + first_column * p.column.x;
  z += first_row * p.row.z + first_column * p.column.z;
  const int64_t rows = p.row.size - first_row, columns = p.column.size - first_column;

  Word words[kUnits][K];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const auto e = static_cast<uint32_t>(threadIdx.x + u * kThreads);
    const auto group = static_cast<int>(p.by_columns.Divide(e));
    const int c = static_cast<int>(e) - group * p.columns;
    if (group < p.groups && group * K < rows && c * K < columns) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        words[u][k] =
            *reinterpret_cast<const Word*>(x + (group * K + k) * p.row.x + c * K * p.column.x);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const auto e = static_cast<uint32_t>(threadIdx.x + u * kThreads);
    const auto group = static_cast<int>(p.by_columns.Divide(e));
    const int c = static_cast<int>(e) - group * p.columns;
    if (group < p.groups) {
      Exchange(words[u]);
#pragma unroll
      for (int k = 0; k < K; ++k) shared[(c * K + k) * p.pitch + group] = words[u][k];
    }
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kUnits * K; ++u) {
    const auto e = static_cast<uint32_t>(threadIdx.x + u * kThreads);
    const auto c = static_cast<int>(p.by_groups.Divide(e));
    const int group = static_cast<int>(e) - c * p.groups;
    if (c < p.columns * K && c < columns && group * K < rows) {
      *reinterpret_cast<Word*>(z + c * p.column.z + group * K * p.row.z) =
          shared[c * p.pitch + group];
    }
  }
}

// False: there are too many.
template <typename T, typename Word, int kUnits>
bool LaunchTiles(const KernelCall& call, const Axes& axes, int columns) {
  constexpr int K = static_cast<int>(sizeof(Word) / sizeof(T));
  constexpr int64_t kWords = int64_t{kThreads} * kUnits;
  constexpr int64_t kSide = kWords >= 4096 ? 64 : 32;
  Tiles p;
  p.row = axes.axis[axes.rank - 1];
  p.column = axes.axis[columns];
  const int64_t wide = (p.column.size + K - 1) / K, high = (p.row.size + K - 1) / K;
  p.columns = static_cast<int>(std::min(kSide, wide));
  p.groups = static_cast<int>(std::min(kWords / p.columns, high));
  p.columns = static_cast<int>(std::min(kWords / p.groups, wide));
  p.pitch = p.groups | 1;
  const int64_t along_columns = (wide + p.columns - 1) / p.columns;
  const int64_t along_rows = (high + p.groups - 1) / p.groups;
  int64_t tiles = along_columns * along_rows;
  for (int i = axes.rank - 2; i >= 0; --i) {
    if (i == columns) continue;
    const Axis& axis = axes.axis[i];
    tiles *= axis.size;
    if (tiles >= INT32_MAX) return false;
    p.batch[p.batches] = FastDivisor(static_cast<uint32_t>(axis.size));
    p.batch_x[p.batches] = axis.x;
    p.batch_z[p.batches++] = axis.z;
  }
  if (tiles >= INT32_MAX) return false;
  p.along_columns = FastDivisor(static_cast<uint32_t>(along_columns));
  p.along_rows = FastDivisor(static_cast<uint32_t>(along_rows));
  p.by_columns = FastDivisor(static_cast<uint32_t>(p.columns));
  p.by_groups = FastDivisor(static_cast<uint32_t>(p.groups));
  const size_t bytes =
      sizeof(Word) * static_cast<size_t>(p.columns) * K * static_cast<size_t>(p.pitch);
  Launch(MoveTiles<T, Word, kUnits>, static_cast<unsigned>(tiles), kThreads, bytes,
         QueueOf(call).stream, p, call.inputs[0].as<const T>(), call.outputs[0].as<T>());
  return true;
}

// Whether K elements can be read along the columns and written along the rows as one of 4 bytes.
bool GoAsWords(const KernelCall& call, const Axes& axes, int columns) {
  const int64_t k = 4 / axes.bytes;
  const Axis &row = axes.axis[axes.rank - 1], &column = axes.axis[columns];
  if (row.z != 1 || column.x != 1 || row.size % k != 0 || column.size % k != 0) return false;
  for (int i = 0; i < axes.rank; ++i) {
    if (i != columns && axes.axis[i].x % k != 0) return false;
    if (i != axes.rank - 1 && axes.axis[i].z % k != 0) return false;
  }
  return ((reinterpret_cast<uintptr_t>(call.inputs[0].data) |
           reinterpret_cast<uintptr_t>(call.outputs[0].data)) &
          3) == 0;
}

bool MoveByTiles(const KernelCall& call, const Axes& axes) {
  if (axes.rank < 2) return false;
  const int columns = axes.Columns();
  const Axis &row = axes.axis[axes.rank - 1], &column = axes.axis[columns];
  if (columns == axes.rank - 1 || row.x == 0 || row.size * column.size < kLeastTile) return false;
  switch (axes.bytes) {
    case 1:
      return GoAsWords(call, axes, columns)
                 ? LaunchTiles<uint8_t, uint32_t, 4>(call, axes, columns)
                 : LaunchTiles<uint8_t, uint8_t, 16>(call, axes, columns);
    case 2:
      return GoAsWords(call, axes, columns)
                 ? LaunchTiles<uint16_t, uint32_t, 4>(call, axes, columns)
                 : LaunchTiles<uint16_t, uint16_t, 16>(call, axes, columns);
    case 4:
      return LaunchTiles<uint32_t, uint32_t, 16>(call, axes, columns);
    case 8:
      return LaunchTiles<uint64_t, uint64_t, 4>(call, axes, columns);
    default:
      return LaunchTiles<uint4, uint4, 4>(call, axes, columns);
  }
}

template <typename T>
void MoveOneByOne(const KernelCall& call, const Axes& axes) {
  int64_t dims[kMaxRank], strides_x[kMaxRank], strides_z[kMaxRank];
  TensorRef x = call.inputs[0], z = call.outputs[0];
  x.rank = z.rank = axes.rank;
  x.dims = z.dims = dims;
  x.strides = strides_x;
  z.strides = strides_z;
  for (int i = 0; i < axes.rank; ++i) {
    dims[i] = axes.axis[i].size;
    strides_x[i] = axes.axis[i].x;
    strides_z[i] = axes.axis[i].z;
  }
  KernelCall copy = call;
  copy.inputs = absl::MakeConstSpan(&x, 1);
  copy.outputs = absl::MakeConstSpan(&z, 1);
  RunPointwise<T, T>(copy, IdentityFunction());
}

}  // namespace

void MoveElements(const KernelCall& call) {
  const Axes axes(call);
  if (MoveByTiles(call, axes)) return;
  switch (axes.bytes) {
    case 1:
      return MoveOneByOne<uint8_t>(call, axes);
    case 2:
      return MoveOneByOne<uint16_t>(call, axes);
    case 4:
      return MoveOneByOne<uint32_t>(call, axes);
    case 8:
      return MoveOneByOne<uint64_t>(call, axes);
    default:
      return MoveOneByOne<uint4>(call, axes);
  }
}

}  // namespace tidepool::cuda
