// Products of gathered matrices by tensor cores: f16 and bf16 with sums in f32, and f32 as TF32. Problems are those
// of tiled_product.h.
//
// A block of eight warps makes a tile of 128 x 128 or 128 x 64 elements from slices of 64 bytes along the summed
// axis. A slice lies in shared memory as 32-bit words, two 16-bit elements that are neighbours along the summed axis
// or one TF32 number, so that a fragment's register is a word: for either kind the kernel is the same.
#ifndef TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TENSOR_PRODUCT_H_
#define TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TENSOR_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tidepool/backends/cuda/common/access.h"
#include "tidepool/backends/cuda/common/warp_matrix.h"
#include "tidepool/backends/cuda/convolution/tiled_product.h"

namespace tidepool::cuda {

inline constexpr int kTensorThreads = 256;
inline constexpr int kSliceWords = 16;  // of a row
template <typename T>
inline constexpr int kPerWord = 4 / sizeof(T);

// Where a word of a row lies: rows are moved so that the lanes of a fragment (four words next to one another, eight
// rows) and those that store pieces of 16 bytes (every fourth word) are in different banks.
__device__ __forceinline__ int RowPlace(int word, int row) {
  return row ^ (8 * ((word ^ word >> 2) & 3));
}

template <typename T>
__device__ __forceinline__ uint32_t MakeWord(const T& first, const T& second) {
  if constexpr (sizeof(T) == 4) {
    return ToTf32(first);
  } else {
    return static_cast<uint32_t>(first.bits) | static_cast<uint32_t>(second.bits) << 16;
  }
}

// The two operands of a problem under one name.
template <typename Problem>
struct LeftOperand {
  using T = typename Problem::Element;
  using Row = typename Problem::Left;
  using Depth = typename Problem::LeftDepth;
  static constexpr bool kAlongDepth = Problem::kLeftAlongDepth;
  const Problem& p;
  __device__ __forceinline__ Row FindRow(int group, int64_t row) const {
    return p.FindLeft(group, row);
  }
  __device__ __forceinline__ Depth FindDepth(int group, int64_t k) const {
    return p.FindLeftDepth(group, k);
  }
  __device__ __forceinline__ const T* At(const Row& row, const Depth& depth) const {
    return p.AtLeft(row, depth);
  }
};
template <typename Problem>
struct RightOperand {
  using T = typename Problem::Element;
  using Row = typename Problem::Right;
  using Depth = typename Problem::RightDepth;
  static constexpr bool kAlongDepth = Problem::kRightAlongDepth;
  const Problem& p;
  __device__ __forceinline__ Row FindRow(int group, int64_t row) const {
    return p.FindRight(group, row);
  }
  __device__ __forceinline__ Depth FindDepth(int group, int64_t k) const {
    return p.FindRightDepth(group, k);
  }
  __device__ __forceinline__ const T* At(const Row& row, const Depth& depth) const {
    return p.AtRight(row, depth);
  }
};

// What a thread brings of the slices of one operand, kTile rows (or columns) of it: from global memory to registers,
// from there to shared memory. With kPacked 16 bytes at a time, which the operand has side by side along one axis.
template <typename Operand, int kTile, bool kPacked>
class SliceLoader {
 public:
  using T = typename Operand::T;
  using Words = uint32_t[kSliceWords][kTile];

  __device__ __forceinline__ SliceLoader(const Operand& operand, int group, int64_t first_row)
      : operand_(operand), group_(group) {
#pragma unroll
    for (int u = 0; u < kRows; ++u) rows_[u] = operand_.FindRow(group, first_row + RowOf(u));
  }

  // Zeros from `end` on.
  __device__ __forceinline__ void Load(int64_t k0, int64_t end) {
    if constexpr (kRuns) {
      const int64_t k = k0 + kAccess * Run();
      const auto depth = operand_.FindDepth(group_, k < end ? k : k0);
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        const Vector<T, kAccess> access = Access(rows_[u], depth, k < end);
#pragma unroll
        for (int w = 0; w < 4; ++w)
          words_[4 * u + w] = MakeWord(access.lane[kE * w], access.lane[kE * w + kE - 1]);
      }
    } else if constexpr (kPacked) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int word = WordOf(u);
        if (word >= kSliceWords) continue;
        Vector<T, kAccess> access[kE];
#pragma unroll
        for (int e = 0; e < kE; ++e) {
          const int64_t k = k0 + kE * word + e;
          access[e] = Access(rows_[0], operand_.FindDepth(group_, k < end ? k : k0), k < end);
        }
#pragma unroll
        for (int i = 0; i < kAccess; ++i)
          words_[kAccess * u + i] = MakeWord(access[0].lane[i], access[kE - 1].lane[i]);
      }
    } else {
      T elements[kRows][kE];
#pragma unroll
      for (int e = 0; e < kE; ++e) {
        const int64_t k = k0 + kE * WordOf(0) + e;
        const auto depth = operand_.FindDepth(group_, k < end ? k : k0);
#pragma unroll
        for (int u = 0; u < kRows; ++u) {
          const T* const at = k < end ? operand_.At(rows_[u], depth) : nullptr;
          elements[u][e] = at != nullptr ? *at : T(0.0f);
        }
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u) words_[u] = MakeWord(elements[u][0], elements[u][kE - 1]);
    }
  }

  __device__ __forceinline__ void Store(Words& to) const {
    if constexpr (kRuns) {
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
#pragma unroll
        for (int w = 0; w < 4; ++w)
          to[4 * Run() + w][RowPlace(4 * Run() + w, RowOf(u))] = words_[4 * u + w];
      }
    } else if constexpr (kPacked) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int word = WordOf(u);
        if (word >= kSliceWords) continue;
#pragma unroll
        for (int i = 0; i < kAccess; i += 4) {
          Vector<uint32_t, 4> four;
#pragma unroll
          for (int l = 0; l < 4; ++l) four.lane[l] = words_[kAccess * u + i + l];
          *reinterpret_cast<Vector<uint32_t, 4>*>(&to[word][RowPlace(word, RowOf(0) + i)]) = four;
        }
      }
    } else {
#pragma unroll
      for (int u = 0; u < kRows; ++u) to[WordOf(0)][RowPlace(WordOf(0), RowOf(u))] = words_[u];
    }
  }

 private:
  static constexpr int kE = kPerWord<T>, kAccess = kAccessWidth<T>;
  static constexpr int kWords = kTile * kSliceWords / kTensorThreads;  // of a thread
  // Pieces of 16 bytes along the summed axis, four words of a row; or of a row's neighbours, a word of each.
  static constexpr bool kRuns = kPacked && Operand::kAlongDepth;
  static constexpr int kGroups = kTile / kAccess;  // of neighbours, in a slice's word
  static constexpr int kUnits = kWords > kAccess ? kWords / kAccess : 1;
  static constexpr int kRows = kRuns ? kWords / 4 : kPacked ? 1 : kWords;
  static constexpr int kHeld = kRuns || !kPacked ? kWords : kUnits * kAccess;
  static_assert(!kRuns || kWords % 4 == 0);

  __device__ __forceinline__ static int Thread() { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ static int Run() { return Thread() % 4; }
  __device__ __forceinline__ static int RowOf(int u) {
    if constexpr (kRuns) {
      return Thread() / 4 + kTensorThreads / 4 * u;
    } else if constexpr (kPacked) {
      return Thread() % kGroups * kAccess;
    } else {
      return (Operand::kAlongDepth ? Thread() / kSliceWords : Thread() % 16) + 16 * u;
    }
  }
  // Beyond the last for threads that have nothing to bring.
  __device__ __forceinline__ static int WordOf(int u) {
    if constexpr (kPacked) {
      return (Thread() + kTensorThreads * u) / kGroups;
    } else {
      return Operand::kAlongDepth ? Thread() % kSliceWords : Thread() / 16;
    }
  }
  __device__ __forceinline__ Vector<T, kAccess> Access(const typename Operand::Row& row,
                                                       const typename Operand::Depth& depth,
                                                       bool real) const {
    const T* const at = real ? operand_.At(row, depth) : nullptr;
    if (at != nullptr) return *reinterpret_cast<const Vector<T, kAccess>*>(at);
    Vector<T, kAccess> zeros;
#pragma unroll
    for (int i = 0; i < kAccess; ++i) zeros.lane[i] = T(0.0f);
    return zeros;
  }

  Operand operand_;
  int group_;
  typename Operand::Row rows_[kRows];
  uint32_t words_[kHeld];
};

template <typename Problem, int kTileRows, int kTileColumns, bool kPacked>
__global__ void __launch_bounds__(kTensorThreads, kPacked ? 2 : 1)
    TensorProduct(Problem p, ProductTiles tiles) {
  using T = typename Problem::Element;
  // A warp has 32 columns of the tile.
  constexpr int kWarpColumns = kTileColumns / 32, kWarpRows = 8 / kWarpColumns;
  constexpr int kM = kTileRows / kWarpRows / 16, kN = 4;
  struct alignas(16) Shared {
    uint32_t left[kSliceWords][kTileRows], right[kSliceWords][kTileColumns];
  };
  __shared__ Shared shared;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4;
  const int warp_row = warp / kWarpColumns * 16 * kM, warp_column = warp % kWarpColumns * 8 * kN;

  for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    const ProductTiles::Place at = tiles.Find(tile);
    const int64_t first_row = at.row_tile * kTileRows, first_column = at.column_tile * kTileColumns;
    const int64_t begin = at.split * tiles.chunk, end = min(p.depth, begin + tiles.chunk);
    SliceLoader<LeftOperand<Problem>, kTileRows, kPacked> left({p}, at.group, first_row);
    SliceLoader<RightOperand<Problem>, kTileColumns, kPacked> right({p}, at.group, first_column);
    float sums[kM][kN][4] = {};
    if (begin < end) {
      left.Load(begin, end);
      right.Load(begin, end);
    }
    for (int64_t k0 = begin; k0 < end;) {
      __syncthreads();  // the slice before has been used
      left.Store(shared.left);
      right.Store(shared.right);
      __syncthreads();
      k0 += kSliceWords * kPerWord<T>;
      if (k0 < end) {
        left.Load(k0, end);
        right.Load(k0, end);
      }
#pragma unroll 1
      for (int word = t; word < kSliceWords; word += 8) {
        uint32_t b[kN][2];
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const int column = warp_column + 8 * n + g;
          b[n][0] = shared.right[word][RowPlace(word, column)];
          b[n][1] = shared.right[word + 4][RowPlace(word + 4, column)];
        }
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const int row = warp_row + 16 * m + g;
          const uint32_t a[4] = {shared.left[word][RowPlace(word, row)],
                                 shared.left[word][RowPlace(word, row + 8)],
                                 shared.left[word + 4][RowPlace(word + 4, row)],
                                 shared.left[word + 4][RowPlace(word + 4, row + 8)]};
#pragma unroll
          for (int n = 0; n < kN; ++n) MultiplyAdd<T>(sums[m][n], a, b[n][0], b[n][1]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t row = first_row + warp_row + 16 * m + g + i / 2 * 8;
          const int64_t column = first_column + warp_column + 8 * n + 2 * t + i % 2;
          if (row < p.rows && column < p.columns)
            p.Store(at.group, at.split, row, column, sums[m][n][i]);
        }
      }
    }
  }
}

// Tiles and parts of the summed axis, as ProductPlan: of sizes alone. `few_rows`: tiles of 64 x 128 instead of 128 x 64.
struct TensorPlan {
  bool is_square = true;
  ProductTiles tiles;

  static TensorPlan Of(int64_t rows, int64_t columns, int64_t depth, int64_t groups,
                       int64_t splits_at_most, bool few_rows) {
    TensorPlan best;
    int64_t least = -1;
    for (const bool is_square : {true, false}) {
      const int64_t high = few_rows && !is_square ? 64 : 128,
                    wide = !few_rows && !is_square ? 64 : 128;
      // A multiply-add is little beside what brings its operands.
      constexpr int64_t kLoad = 32;
      const ProductTiles tiles =
          TilesOf(rows, columns, depth, groups, high, wide, splits_at_most, /*slice=*/32);
      const int64_t time = WavesOf(tiles) * tiles.chunk * (high * wide + kLoad * (high + wide));
      if (least >= 0 && time >= least) continue;
      least = time;
      best = {is_square, tiles};
    }
    return best;
  }
};

template <typename Problem, bool kPacked>
void LaunchTensorTiles(const Problem& problem, const TensorPlan& plan, cudaStream_t stream) {
  constexpr int kHigh = Problem::kFewRows ? 64 : 128, kWide = Problem::kFewRows ? 128 : 64;
  const dim3 blocks = BlocksFor(plan.tiles.count(), 1, 1 << 20);
  if (plan.is_square) {
    Launch(TensorProduct<Problem, 128, 128, kPacked>, blocks, kTensorThreads, 0, stream, problem,
           plan.tiles);
  } else {
    Launch(TensorProduct<Problem, kHigh, kWide, kPacked>, blocks, kTensorThreads, 0, stream,
           problem, plan.tiles);
  }
}

// `packed`: what lies side by side of either operand comes in whole pieces of 16 bytes, at multiples of 16.
template <typename Problem>
void LaunchTensorProduct(const Problem& problem, const TensorPlan& plan, bool packed,
                         cudaStream_t stream) {
  if (problem.rows == 0 || problem.columns == 0 || plan.tiles.groups == 0) return;
  if (packed) return LaunchTensorTiles<Problem, true>(problem, plan, stream);
  LaunchTensorTiles<Problem, false>(problem, plan, stream);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TENSOR_PRODUCT_H_
