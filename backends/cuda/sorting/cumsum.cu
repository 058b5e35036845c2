// Cumulative sums along an axis. Lines that lie side by side, many of them, are walked by a thread
// each; others are cut in chunks: a kernel sums each, the next scans them, each of its blocks from the
// sum of those before. Floats add up in double; integers modulo 2^64.
//
// cub::DeviceScan reads a line once and not twice, but what it adds to a tile depends on how far the others have come: sums
// of floats would not have the same bits in every run.
#include <algorithm>
#include <type_traits>

#include "tidepool/backends/cuda/common/access.h"
#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/backends/cuda/sorting/block_scan.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

// Elements of a thread, side by side: 16 bytes of those that have 2 or 4.
template <typename T>
constexpr int kPerThread = sizeof(T) <= 2 ? 8 : 4;
template <typename T>
constexpr int64_t kTile = kBlockThreads* kPerThread<T>;

template <typename T>
struct Scan {
  using Z = std::conditional_t<kIsFloat<T>, T, int64_t>;
  using Sum = Total<T>;
  int64_t count, size, inner;  // lines, elements of one
  int64_t chunks, chunk;
  bool reverse, exclusive;
  const T* x;
  Z* z;

  __device__ __forceinline__ int64_t First(int64_t line) const {
    const int64_t outer = Quotient(line, inner);
    return outer * size * inner + (line - outer * inner);
  }
  // Of element i in the order of summation.
  __device__ __forceinline__ int64_t Offset(int64_t first, int64_t i) const {
    return first + (reverse ? size - 1 - i : i) * inner;
  }
  __device__ __forceinline__ static Sum SumOf(T value) {
    if constexpr (kIsFloat<T>) {
      return static_cast<double>(Wide(value));
    } else {
      return static_cast<uint64_t>(static_cast<int64_t>(value));
    }
  }
  __device__ __forceinline__ Sum Load(int64_t at) const { return SumOf(x[at]); }
  __device__ __forceinline__ Z Result(Sum before, Sum with) const {
    const Sum sum = exclusive ? before : with;
    if constexpr (kIsFloat<T>) {
      return Narrow<T>(sum);
    } else {
      return static_cast<int64_t>(sum);
    }
  }
  __device__ __forceinline__ void Store(int64_t at, Sum before, Sum with) const {
    z[at] = Result(before, with);
  }

  // Elements i ... of a line in the order of summation, zeros from `end` on: up to 16 bytes at a time.
  __device__ __forceinline__ void LoadSome(int64_t first, int64_t i, int64_t end,
                                           Sum (&values)[kPerThread<T>]) const {
    constexpr int kCount = kPerThread<T>;
    constexpr int kWidth = kCount < kAccessWidth<T> ? kCount : kAccessWidth<T>;
    if (inner != 1 || i + kCount > end) {
      for (int u = 0; u < kCount; ++u)
        values[u] = i + u < end ? Load(Offset(first, i + u)) : Sum{0};
      return;
    }
    const T* const from = x + Offset(first, reverse ? i + kCount - 1 : i);
    const bool aligned = IsAligned(from);
#pragma unroll
    for (int u = 0; u < kCount; u += kWidth) {
      const Vector<T, kWidth> access = LoadAccess<kWidth>(from + u, aligned);
#pragma unroll
      for (int l = 0; l < kWidth; ++l) values[u + l] = SumOf(access.lane[l]);
    }
    if (reverse) Reverse(values);
  }
  // The same of results, of which those from `end` on are left out.
  __device__ __forceinline__ void StoreSome(int64_t first, int64_t i, int64_t end,
                                            Z (&values)[kPerThread<T>]) const {
    constexpr int kCount = kPerThread<T>;
    constexpr int kWidth = kCount < kAccessWidth<Z> ? kCount : kAccessWidth<Z>;
    if (inner != 1 || i + kCount > end) {
      for (int u = 0; u < kCount; ++u) {
        if (i + u < end) z[Offset(first, i + u)] = values[u];
      }
      return;
    }
    if (reverse) Reverse(values);
    Z* const to = z + Offset(first, reverse ? i + kCount - 1 : i);
    const bool aligned = IsAligned(to);
#pragma unroll
    for (int u = 0; u < kCount; u += kWidth) {
      Vector<Z, kWidth> access;
#pragma unroll
      for (int l = 0; l < kWidth; ++l) access.lane[l] = values[u + l];
      StoreAccess<kWidth>(to + u, aligned, access);
    }
  }
  template <typename Value, int kCount>
  __device__ __forceinline__ static void Reverse(Value (&values)[kCount]) {
#pragma unroll
    for (int u = 0; u < kCount / 2; ++u) {
      const Value value = values[u];
      values[u] = values[kCount - 1 - u];
      values[kCount - 1 - u] = value;
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) ScanLines(Scan<T> s) {
  for (int64_t line = GlobalThread(); line < s.count; line += GlobalThreads()) {
    const int64_t first = s.First(line);
    typename Scan<T>::Sum sum = 0;
    for (int64_t i = 0; i < s.size; ++i) {
      const int64_t at = s.Offset(first, i);
      const typename Scan<T>::Sum before = sum;
      sum += s.Load(at);
      s.Store(at, before, sum);
    }
  }
}

// Sums of chunks.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) SumChunks(Scan<T> s, typename Scan<T>::Sum* sums) {
  using Sum = typename Scan<T>::Sum;
  __shared__ Sum shared[kBlockThreads];
  const SlotThread at(Slots{kBlockThreads, true});
  for (int64_t c = blockIdx.x; c < s.count * s.chunks; c += gridDim.x) {
    const int64_t line = c / s.chunks, first = s.First(line);
    const int64_t begin = (c - line * s.chunks) * s.chunk, end = min(s.size, begin + s.chunk);
    Sum sum = 0;
    for (int64_t i = begin + threadIdx.x * kPerThread<T>; i < end; i += kTile<T>) {
      Sum values[kPerThread<T>];
      s.LoadSome(first, i, end, values);
      for (const Sum value : values) sum += value;
    }
    sum = MergeLanes(at, sum, shared, AddValues());
    if (threadIdx.x == 0) sums[c] = sum;
  }
}

// `sums` is null where a line is one chunk.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    ScanChunks(Scan<T> s, const typename Scan<T>::Sum* sums) {
  using Sum = typename Scan<T>::Sum;
  __shared__ Sum shared[kBlockWarps];
  __shared__ Sum merged[kBlockThreads];
  const SlotThread slot(Slots{kBlockThreads, true});
  for (int64_t c = blockIdx.x; c < s.count * s.chunks; c += gridDim.x) {
    const int64_t line = c / s.chunks, first = s.First(line);
    const int64_t begin = (c - line * s.chunks) * s.chunk, end = min(s.size, begin + s.chunk);
    Sum carried = 0;
    if (sums != nullptr) {
      for (int64_t i = line * s.chunks + threadIdx.x; i < c; i += kBlockThreads) carried += sums[i];
      carried = MergeLanes(slot, carried, merged, AddValues());
    }
    for (int64_t tile = begin; tile < end; tile += kTile<T>) {
      const int64_t i = tile + threadIdx.x * kPerThread<T>;
      Sum values[kPerThread<T>], own = 0, total;
      s.LoadSome(first, i, end, values);
      for (const Sum value : values) own += value;
      Sum sum = carried + SumBefore(own, shared, &total);
      typename Scan<T>::Z results[kPerThread<T>];
#pragma unroll
      for (int u = 0; u < kPerThread<T>; ++u) {
        const Sum before = sum;
        sum += values[u];
        results[u] = s.Result(before, sum);
      }
      s.StoreSome(first, i, end, results);
      carried += total;
    }
  }
}

struct Plan {
  Plan(const KernelCall& call, int64_t tile)
      : split(call.inputs[0], call.attrs<CumSumAttributes>().axis),
        lines(split.outer * split.inner) {
    constexpr int64_t kManyLines = 8192, kWantedBlocks = 512, kShort = 64;
    by_threads = split.size <= kShort || (split.inner >= 32 && lines >= kManyLines);
    if (lines == 0 || split.size == 0) return;
    const int64_t tiles = (split.size + tile - 1) / tile;
    const int64_t wanted =
        std::clamp<int64_t>(kWantedBlocks / lines, 1, std::max<int64_t>(1, tiles / 2));
    chunk = (tiles + wanted - 1) / wanted * tile;
    chunks = (split.size + chunk - 1) / chunk;
  }
  AxisSplit split;
  int64_t lines;
  int64_t chunk = 1, chunks = 1;
  bool by_threads;
};

template <typename T>
size_t ScratchBytes(const KernelCall& call) {
  const Plan plan(call, kTile<T>);
  if (plan.by_threads || plan.chunks == 1) return 0;
  return static_cast<size_t>(plan.lines * plan.chunks) * 8;  // doubles or 64-bit integers
}

template <typename T>
void CumSum(const KernelCall& call) {
  using Sum = typename Scan<T>::Sum;
  const Plan plan(call, kTile<T>);
  if (plan.lines == 0 || plan.split.size == 0) return;
  const auto& a = call.attrs<CumSumAttributes>();
  const Scan<T> scan{plan.lines,
                     plan.split.size,
                     plan.split.inner,
                     plan.chunks,
                     plan.chunk,
                     a.reverse,
                     a.exclusive,
                     call.inputs[0].as<T>(),
                     call.outputs[0].as<typename Scan<T>::Z>()};
  const cudaStream_t stream = StreamOf(call);
  if (plan.by_threads) {
    Launch(ScanLines<T>, BlocksFor(plan.lines, kBlockThreads), kBlockThreads, 0, stream, scan);
    return;
  }
  const dim3 for_chunks = BlocksFor(plan.lines * plan.chunks, 1);
  auto* const sums = plan.chunks > 1 ? static_cast<Sum*>(call.scratch) : nullptr;
  if (sums != nullptr) Launch(SumChunks<T>, for_chunks, kBlockThreads, 0, stream, scan, sums);
  Launch(ScanChunks<T>, for_chunks, kBlockThreads, 0, stream, scan, sums);
}

const bool registered = [] {
  ForEachType(AllTypes(), [](auto t) {
    using T = decltype(t);
    AddKernel(OpCode::kCumSum, DTypeOf<T>::value, &CumSum<T>, false, &ScratchBytes<T>);
  });
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
