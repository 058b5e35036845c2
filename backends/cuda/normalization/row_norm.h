// Normalisation of dense rows around their mean and by their deviation (layer normalisation), or by the
// root of their mean square, with gradients; for .cu files. Rows are read once where they fit the
// registers of a team of threads (common/rows.h).
#ifndef TIDEPOOL_BACKENDS_CUDA_NORMALIZATION_ROW_NORM_H_
#define TIDEPOOL_BACKENDS_CUDA_NORMALIZATION_ROW_NORM_H_

#include <cstdint>

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/rows.h"

namespace tidepool::cuda {

// A number as two: a rounded one and what rounding left out.
template <typename S>
struct TwoParts {
  S high = 0, low = 0;
};

// Sum of a thread's values. f32 keeps what each addition rounds off (Knuth's TwoSum), so that a mean
// that is large beside the deviation is as exact as one of doubles would be.
template <typename S>
struct ThreadSum {
  S sum = 0, rest = 0;
  __device__ __forceinline__ void Add(S x) {
    if constexpr (std::is_same_v<S, float>) {
      const float total = sum + x, of_x = total - sum;
      rest += (sum - (total - of_x)) + (x - of_x);
      sum = total;
    } else {
      sum += x;
    }
  }
  __device__ __forceinline__ double total() const {
    return static_cast<double>(sum) + static_cast<double>(rest);
  }
};

// The mean of a row. That of f64 is found around the row's first element instead: there is no wider
// type to add up in.
template <typename T, int kWidth, bool kOne>
__device__ __forceinline__ TwoParts<Statistic<T>> MeanOfRow(const RowThread& at,
                                                            RowPieces<T, kWidth, kOne>& pieces,
                                                            const T* row, const Rows& rows,
                                                            double* shared) {
  using S = Statistic<T>;
  S first = 0;
  if constexpr (std::is_same_v<T, double>) first = rows.size > 0 ? row[0] : 0;
  ThreadSum<S> sum;
  pieces.Each([&](int64_t, int count) {
    pieces.part.ForEach(at, count, [&](int u, int) { sum.Add(pieces.part.value[u] - first); });
  });
  const double mean = MergeTeam(at, sum.total(), shared, AddUp()) * rows.share;
  if constexpr (std::is_same_v<S, double>) {
    const double high = first + mean;
    return {high, mean - (high - first)};
  } else {
    const float high = static_cast<float>(mean);
    return {high, static_cast<float>(mean - static_cast<double>(high))};
  }
}

// Z = (X - mean) * inverse * scale + shift; without kMean Z = X * inverse * scale.
template <typename T, int kWidth, bool kOne, bool kMean>
__global__ void __launch_bounds__(kMostRowThreads, (kRowBlocks<T, kOne>))
    RowNormKernel(Rows rows, const T* x, const T* scale, const T* shift, double epsilon, T* z,

                  Statistic<T>* mean_out, Statistic<T>* inverse_out) {
  using S = Statistic<T>;
  using Part = RowPart<T, kWidth>;
  __shared__ double shared[32];
  const RowThread at(rows);
  const int64_t size = rows.size;
  RowPieces<T, kWidth, kOne> pieces(at, x + at.row * size, size);
  TwoParts<S> mean;
  if constexpr (kMean) mean = MeanOfRow(at, pieces, x + at.row * size, rows, shared);
  auto deviation = [&](int u) {
    const S value = static_cast<S>(pieces.part.value[u]);
    return kMean ? (value - mean.high) - mean.low : value;
  };
  double squares = 0;
  pieces.Each([&](int64_t, int count) {
    S sum = 0;
    Part::ForEach(at, count, [&](int u, int) {
      const S d = deviation(u);
      sum = Fma(d, d, sum);
    });
    squares += static_cast<double>(sum);
  });
  squares = MergeTeam(at, squares, shared, AddUp());
  const S inverse = 1 / Sqrt(static_cast<S>(squares * rows.share + epsilon));
  if (!at.real) return;
  if (at.lane == 0) {
    if constexpr (kMean) mean_out[at.row] = mean.high;
    inverse_out[at.row] = inverse;
  }
  T* const out = z + at.row * size;
  pieces.Each(
      [&](int64_t begin, int count) {
        auto normal = [&](int u, T its_scale) {
          return deviation(u) * inverse * static_cast<S>(Wide(its_scale));
        };
        if constexpr (kMean) {
          Part::Store(
              at, out + begin, count,
              [&](int u, T its_scale, T its_shift) {
                return Narrow<T>(normal(u, its_scale) + static_cast<S>(Wide(its_shift)));
              },
              scale + begin, shift + begin);
        } else {
          Part::Store(
              at, out + begin, count,
              [&](int u, T its_scale) { return Narrow<T>(normal(u, its_scale)); }, scale + begin);
        }
      },
      true);
}

// Of a row's gradients times scale, and of those times its deviations.
struct RowSums {
  double gradients, products;
};
struct AddRowSums {
  __device__ __forceinline__ RowSums operator()(const RowSums& a, const RowSums& b) const {
    return {a.gradients + b.gradients, a.products + b.products};
  }
};

// What the gradient of a row takes besides its elements.
template <typename S>
struct RowSlopes {
  S mean, inverse, mean_gradient, mean_product;
  __device__ __forceinline__ S Of(S x, S gradient) const {
    return inverse * (gradient - mean_gradient - (x - mean) * inverse * mean_product);
  }
};
template <typename S>
__device__ __forceinline__ RowSlopes<S> SlopesOf(S mean, S inverse, const RowSums& sums,
                                                 double share, bool has_mean) {
  return {mean, inverse, has_mean ? static_cast<S>(sums.gradients * share) : S{0},
          static_cast<S>(sums.products * static_cast<double>(inverse) * share)};
}

// dX alone, of rows that do not fit the registers.
template <typename T, int kWidth, bool kMean>
__global__ void __launch_bounds__(kMostRowThreads, kRowBlocks<T>)
    RowNormGradKernel(Rows rows, const T* x, const T* scale, const Statistic<T>* means,
                      const Statistic<T>* inverses, const T* dz, T* dx) {
  using S = Statistic<T>;
  using Part = RowPart<T, kWidth>;
  __shared__ RowSums shared[32];
  const RowThread at(rows);
  const int64_t first = at.row * rows.size;
  const S mean = kMean ? means[at.row] : S{0}, inverse = inverses[at.row];
  RowSums sums = {};
  Part::ForEachPiece(at, rows.size, [&](int64_t begin, int count) {
    S gradients = 0, products = 0;
    Part::ForEachOf(
        at, count,
        [&](int, T value, T slope, T its_scale) {
          const S gradient = static_cast<S>(Wide(slope)) * static_cast<S>(Wide(its_scale));
          gradients += gradient;
          products = Fma(gradient, static_cast<S>(Wide(value)) - mean, products);
        },
        x + first + begin, dz + first + begin, scale + begin);
    sums = AddRowSums()(sums, {static_cast<double>(gradients), static_cast<double>(products)});
  });
  sums = MergeTeam(at, sums, shared, AddRowSums());
  const RowSlopes<S> row = SlopesOf(mean, inverse, sums, rows.share, kMean);
  if (!at.real) return;
  Part::ForEachPiece(at, rows.size, [&](int64_t begin, int count) {
    Part::Store(
        at, dx + first + begin, count,
        [&](int, T value, T slope, T its_scale) {
          return Narrow<T>(row.Of(static_cast<S>(Wide(value)),
                                  static_cast<S>(Wide(slope)) * static_cast<S>(Wide(its_scale))));
        },
        x + first + begin, dz + first + begin, scale + begin);
  });
}

// ---- dX and what the columns give, in one pass ----------------------------------------------------
//
// A block takes every n-th group of rows and adds up the parameters' gradients of its threads' columns
// on the way; its sums are a row of `partials` [blocks, parameters * size], which a second kernel adds up.

inline constexpr int kParameterThreads = 256;
inline constexpr int64_t kMostParameterBlocks = 264;  // two for each multiprocessor of an H100

// Rows whose columns are in the registers of such a block.
template <typename T>
Rows ParameterRows(int64_t count, int64_t size) {
  return Rows::Of<T>(count, size, kParameterThreads);
}
inline int64_t ParameterBlocks(const Rows& rows) {
  return std::min(Rows::Ceiling(rows.count, kParameterThreads / rows.lanes), kMostParameterBlocks);
}

template <typename T, int kWidth, bool kMean>
__global__ void __launch_bounds__(kParameterThreads, 2)
    RowNormFullGradKernel(Rows rows, const T* x, const T* scale, const Statistic<T>* means,
                          const Statistic<T>* inverses, const T* dz, T* dx,
                          Statistic<T>* partials) {
  using S = Statistic<T>;
  using Part = RowPart<T, kWidth>;
  constexpr int kParameters = kMean ? 2 : 1;
  __shared__ RowSums shared[32];
  __shared__ S columns[kParameterThreads * Part::kCount];
  RowThread at(rows);
  const int size = static_cast<int>(rows.size);
  Part scales;
  scales.Load(at, scale, size);
  S sums[kParameters][Part::kCount] = {};
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * at.slots; base < rows.count;
       base += static_cast<int64_t>(gridDim.x) * at.slots) {
    at.Take(rows, base);
    const int64_t first = at.row * size;
    const typename Part::Raw raw_values(at, x + first, size), raw_slopes(at, dz + first, size);
    const Part values(raw_values), slopes(raw_slopes);
    const S mean = kMean ? means[at.row] : S{0}, inverse = inverses[at.row];
    S gradients = 0, products = 0;
#pragma unroll
    for (int u = 0; u < Part::kCount; ++u) {  // zeros beyond the row
      const S gradient = static_cast<S>(slopes.value[u]) * static_cast<S>(scales.value[u]);
      gradients += gradient;
      products = Fma(gradient, static_cast<S>(values.value[u]) - mean, products);
    }
    const RowSums row_sums =
        MergeTeam(at, RowSums{static_cast<double>(gradients), static_cast<double>(products)},
                  shared, AddRowSums());
    if (!at.real) continue;
    const RowSlopes<S> row = SlopesOf(mean, inverse, row_sums, rows.share, kMean);
    Part::Store(at, dx + first, size, [&](int u) {
      return Narrow<T>(row.Of(static_cast<S>(values.value[u]),
                              static_cast<S>(slopes.value[u]) * static_cast<S>(scales.value[u])));
    });
#pragma unroll
    for (int u = 0; u < Part::kCount; ++u) {
      const S slope = static_cast<S>(slopes.value[u]);
      sums[0][u] += slope * ((static_cast<S>(values.value[u]) - mean) * inverse);
      if constexpr (kMean) sums[1][u] += slope;
    }
  }
  // The teams' sums, in their order.
  S* const out = partials + static_cast<int64_t>(blockIdx.x) * kParameters * size;
#pragma unroll
  for (int parameter = 0; parameter < kParameters; ++parameter) {
    __syncthreads();
    Part::ForEach(at, size,
                  [&](int u, int i) { columns[at.slot * size + i] = sums[parameter][u]; });
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kParameterThreads) {
      S sum = columns[i];
      for (int slot = 1; slot < at.slots; ++slot) sum += columns[slot * size + i];
      out[parameter * size + i] = sum;
    }
  }
}

// Columns of partials [blocks, size] added up into dscale, and further ones into dshift.
inline constexpr int kPartialColumns = 32, kPartialRows = kParameterThreads / kPartialColumns;

template <typename T>
__global__ void __launch_bounds__(kParameterThreads)
    AddPartialsKernel(int64_t blocks, int64_t size, int64_t width, const Statistic<T>* partials,
                      T* dscale, T* dshift) {
  __shared__ double shared[kPartialRows][kPartialColumns];
  const int column = static_cast<int>(threadIdx.x) % kPartialColumns;
  const int row = static_cast<int>(threadIdx.x) / kPartialColumns;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kPartialColumns + column;
  double sum = 0;
  if (i < width) {
#pragma unroll 4
    for (int64_t block = row; block < blocks; block += kPartialRows) {
      sum += static_cast<double>(partials[block * width + i]);
    }
  }
  shared[row][column] = sum;
  __syncthreads();
  if (row > 0 || i >= width) return;
  for (int r = 1; r < kPartialRows; ++r) sum += shared[r][column];
  if (i < size) {
    dscale[i] = Narrow<T>(sum);
  } else {
    dshift[i - size] = Narrow<T>(sum);
  }
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_NORMALIZATION_ROW_NORM_H_
