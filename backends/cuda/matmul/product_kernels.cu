#include "tidepool/backends/cuda/matmul/product_kernels.h"

#include <algorithm>
#include <type_traits>

#include "tidepool/backends/cuda/framework/divider.h"
#include "tidepool/backends/cuda/framework/numbers.h"
#include "tidepool/backends/cuda/runtime/launch.h"

namespace tidepool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 16;
constexpr unsigned kMaxGridYz = 65535;

template <typename T>
__global__ void AddBias(const T* bias, T* z, int64_t total, Divider by_columns, bool accumulate) {
  for (int64_t n = GlobalThread(); n < total; n += GlobalThreads()) {
    int64_t column;
    by_columns.Divide(n, &column);
    z[n] = accumulate ? FromCompute<T>(ToCompute(z[n]) + ToCompute(bias[column])) : bias[column];
  }
}

template <typename T>
__global__ void ReluInPlace(T* z, int64_t count) {
  for (int64_t n = GlobalThread(); n < count; n += GlobalThreads()) {
    if (ToCompute(z[n]) <= Compute<T>(0)) z[n] = FromCompute<T>(Compute<T>(0));
  }
}

// Tiles of both sides in shared memory; a thread for each element of a tile of Z.
template <typename T>
__global__ void __launch_bounds__(kTile* kTile) MultiplyIntegers(IntegerProduct p) {
  using Unsigned = std::make_unsigned_t<T>;
  __shared__ Unsigned left[kTile][kTile + 1], right[kTile][kTile + 1];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const int64_t column = int64_t{blockIdx.x} * kTile + tx;
  const int64_t row_tiles = (p.m + kTile - 1) / kTile;
  for (int64_t item = blockIdx.z; item < p.batch; item += gridDim.z) {
    const T* const x = static_cast<const T*>(p.x) + item * p.x_stride;
    const T* const y = static_cast<const T*>(p.y) + item * p.y_stride;
    T* const z = static_cast<T*>(p.z) + item * p.z_stride;
    for (int64_t tile = blockIdx.y; tile < row_tiles; tile += gridDim.y) {
      const int64_t row = tile * kTile + ty;
      Unsigned sum = 0;
      for (int64_t k = 0; k < p.k; k += kTile) {
        // Neighbouring threads read neighbouring elements, whichever way the matrix lies.
        if (p.transpose_x) {
          const int64_t i = tile * kTile + tx, l = k + ty;
          left[tx][ty] = i < p.m && l < p.k ? static_cast<Unsigned>(x[l * p.m + i]) : 0;
        } else {
          left[ty][tx] =
              row < p.m && k + tx < p.k ? static_cast<Unsigned>(x[row * p.k + k + tx]) : 0;
        }
        if (p.transpose_y) {
          const int64_t j = int64_t{blockIdx.x} * kTile + ty, l = k + tx;
          right[tx][ty] = j < p.n && l < p.k ? static_cast<Unsigned>(y[j * p.k + l]) : 0;
        } else {
          right[ty][tx] =
              k + ty < p.k && column < p.n ? static_cast<Unsigned>(y[(k + ty) * p.n + column]) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int l = 0; l < kTile; ++l) sum += left[ty][l] * right[l][tx];
        __syncthreads();
      }
      if (row >= p.m || column >= p.n) continue;
      T& place = z[row * p.n + column];
      if (p.accumulate) sum += static_cast<Unsigned>(place);
      if (p.bias != nullptr) sum += static_cast<Unsigned>(static_cast<const T*>(p.bias)[column]);
      const T result = static_cast<T>(sum);
      place = p.relu && result < 0 ? T{0} : result;
    }
  }
}

// Calls visit(T()) for a float type.
template <typename Visit>
void VisitFloat(DType dtype, Visit visit) {
  VisitDType(dtype, [&](auto t) {
    if constexpr (kIsFloat<decltype(t)>) visit(t);
  });
}

}  // namespace

void QueueBias(const Queue& queue, DType dtype, const void* bias, void* z, int64_t rows,
               int64_t columns, bool accumulate) {
  VisitFloat(dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t total = rows * columns;
    Launch(AddBias<T>, queue.Blocks(total, kThreads), kThreads, 0, queue.stream,
           static_cast<const T*>(bias), static_cast<T*>(z), total, Divider(columns, total),
           accumulate);
  });
}

void QueueRelu(const Queue& queue, DType dtype, void* z, int64_t count) {
  VisitFloat(dtype, [&](auto t) {
    using T = decltype(t);
    Launch(ReluInPlace<T>, queue.Blocks(count, kThreads), kThreads, 0, queue.stream,
           static_cast<T*>(z), count);
  });
}

void QueueIntegerProduct(const Queue& queue, DType dtype, const IntegerProduct& product) {
  auto tiles = [](int64_t size) { return (size + kTile - 1) / kTile; };
  const dim3 blocks(static_cast<unsigned>(tiles(product.n)),
                    static_cast<unsigned>(std::min<int64_t>(tiles(product.m), kMaxGridYz)),
                    static_cast<unsigned>(std::min<int64_t>(product.batch, kMaxGridYz)));
  const dim3 threads(kTile, kTile);
  if (dtype == DType::kInt32) {
    Launch(MultiplyIntegers<int32_t>, blocks, threads, 0, queue.stream, product);
  } else {
    Launch(MultiplyIntegers<int64_t>, blocks, threads, 0, queue.stream, product);
  }
}

}  // namespace tidepool::cuda
