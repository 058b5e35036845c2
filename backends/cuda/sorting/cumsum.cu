// Cumulative sums along an axis. Lines that lie side by side, many of them, are walked by a thread
// each; others are cut in chunks that blocks scan, after the sums of the chunks before are known.
// Floats add up in double; integers modulo 2^64.
#include <algorithm>
#include <type_traits>

#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

constexpr int kPerThread = 4;  // elements of a thread, one after the other
constexpr int64_t kTile = kBlockThreads * kPerThread;

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
  __device__ __forceinline__ Sum Load(int64_t at) const {
    if constexpr (kIsFloat<T>) {
      return static_cast<double>(Wide(x[at]));
    } else {
      return static_cast<uint64_t>(static_cast<int64_t>(x[at]));
    }
  }
  __device__ __forceinline__ void Store(int64_t at, Sum before, Sum with) const {
    const Sum sum = exclusive ? before : with;
    if constexpr (kIsFloat<T>) {
      z[at] = Narrow<T>(sum);
    } else {
      z[at] = static_cast<int64_t>(sum);
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
    for (int64_t i = begin + threadIdx.x; i < end; i += kBlockThreads) {
      sum += s.Load(s.Offset(first, i));
    }
    sum = MergeLanes(at, sum, shared, AddValues());
    if (threadIdx.x == 0) sums[c] = sum;
  }
}

// What comes before each chunk of a line, in place.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    ScanChunkSums(Scan<T> s, typename Scan<T>::Sum* sums) {
  for (int64_t line = GlobalThread(); line < s.count; line += GlobalThreads()) {
    typename Scan<T>::Sum before = 0;
    for (int64_t c = line * s.chunks; c < (line + 1) * s.chunks; ++c) {
      const typename Scan<T>::Sum sum = sums[c];
      sums[c] = before;
      before += sum;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    ScanChunks(Scan<T> s, const typename Scan<T>::Sum* befores) {
  using Sum = typename Scan<T>::Sum;
  __shared__ Sum shared[kBlockThreads];
  const int t = static_cast<int>(threadIdx.x);
  for (int64_t c = blockIdx.x; c < s.count * s.chunks; c += gridDim.x) {
    const int64_t line = c / s.chunks, first = s.First(line);
    const int64_t begin = (c - line * s.chunks) * s.chunk, end = min(s.size, begin + s.chunk);
    Sum carried = befores != nullptr ? befores[c] : Sum{0};
    for (int64_t tile = begin; tile < end; tile += kTile) {
      Sum values[kPerThread], own = 0;
      for (int u = 0; u < kPerThread; ++u) {
        const int64_t i = tile + t * kPerThread + u;
        values[u] = i < end ? s.Load(s.Offset(first, i)) : Sum{0};
        own += values[u];
      }
      // Sums of the threads up to each (Hillis and Steele 1986).
      __syncthreads();
      shared[t] = own;
      for (int by = 1; by < kBlockThreads; by *= 2) {
        __syncthreads();
        const Sum other = t >= by ? shared[t - by] : Sum{0};
        __syncthreads();
        if (t >= by) shared[t] = other + shared[t];
      }
      __syncthreads();
      Sum sum = carried + (t > 0 ? shared[t - 1] : Sum{0});
      for (int u = 0; u < kPerThread; ++u) {
        const int64_t i = tile + t * kPerThread + u;
        const Sum before = sum;
        sum += values[u];
        if (i < end) s.Store(s.Offset(first, i), before, sum);
      }
      carried += shared[kBlockThreads - 1];
    }
  }
}

struct Plan {
  explicit Plan(const KernelCall& call)
      : split(call.inputs[0], call.attrs<CumSumAttributes>().axis),
        lines(split.outer * split.inner) {
    constexpr int64_t kManyLines = 8192, kWantedBlocks = 512, kShort = 64;
    by_threads = split.size <= kShort || (split.inner >= 32 && lines >= kManyLines);
    if (lines == 0 || split.size == 0) return;
    const int64_t tiles = (split.size + kTile - 1) / kTile;
    const int64_t wanted =
        std::clamp<int64_t>(kWantedBlocks / lines, 1, std::max<int64_t>(1, tiles / 2));
    chunk = (tiles + wanted - 1) / wanted * kTile;
    chunks = (split.size + chunk - 1) / chunk;
  }
  AxisSplit split;
  int64_t lines;
  int64_t chunk = 1, chunks = 1;
  bool by_threads;
};

size_t ScratchBytes(const KernelCall& call) {
  const Plan plan(call);
  if (plan.by_threads || plan.chunks == 1) return 0;
  return static_cast<size_t>(plan.lines * plan.chunks) * 8;  // doubles or 64-bit integers
}

template <typename T>
void CumSum(const KernelCall& call) {
  using Sum = typename Scan<T>::Sum;
  const Plan plan(call);
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
  const dim3 for_lines = BlocksFor(plan.lines, kBlockThreads);
  if (plan.by_threads) {
    Launch(ScanLines<T>, for_lines, kBlockThreads, 0, stream, scan);
    return;
  }
  const dim3 for_chunks = BlocksFor(plan.lines * plan.chunks, 1);
  auto* const sums = plan.chunks > 1 ? static_cast<Sum*>(call.scratch) : nullptr;
  if (sums != nullptr) {
    Launch(SumChunks<T>, for_chunks, kBlockThreads, 0, stream, scan, sums);
    Launch(ScanChunkSums<T>, for_lines, kBlockThreads, 0, stream, scan, sums);
  }
  Launch(ScanChunks<T>, for_chunks, kBlockThreads, 0, stream, scan, sums);
}

const bool registered = [] {
  ForEachType(AllTypes(), [](auto t) {
    using T = decltype(t);
    AddKernel(OpCode::kCumSum, DTypeOf<T>::value, &CumSum<T>, false, &ScratchBytes);
  });
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
