// Softmax and its logarithm over any axis, with gradients. Dense operands; results may lie over
// inputs: a thread writes only what it alone has read, after all of the line has been summed up. Lines
// along the last axis are rows (common/rows.h); others are walked by strides.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/lines.h"
#include "tidepool/backends/cuda/common/moments.h"
#include "tidepool/backends/cuda/common/row_exponentials.h"
#include "tidepool/backends/cuda/common/rows.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

// Elements of a line that a lane keeps in registers between the passes.
constexpr int kHeld = 4;

template <typename T, bool kLog, bool kIsHeld>
__global__ void __launch_bounds__(kBlockThreads) SoftmaxKernel(Lines lines, const T* x, T* z) {
  using W = Compute<T>;
  using Sum = ExponentialSum<W>;
  __shared__ Sum shared[kBlockThreads];
  for (LineWalk w(lines); w.More(); w.Next()) {
    Sum sum = EmptyExponentialSum<W>();
    W held[kHeld];
    if constexpr (kIsHeld) {
      for (int u = 0; u < kHeld; ++u) {
        const int64_t i = w.at.lane + u * w.at.lanes;
        held[u] = i < w.size ? Wide(x[w.first + i * w.inner]) : -Infinity<W>();
      }
      for (int u = 0; u < kHeld; ++u) AddExponential(held[u], &sum);
    } else {
      w.Each([&](int64_t offset, int64_t) { AddExponential(Wide(x[offset]), &sum); });
    }
    sum = MergeLanes(w.at, sum, shared,
                     [](const Sum& a, const Sum& b) { return MergeExponentials(a, b); });
    // A line of an infinity is NaN throughout, as its differences are.
    const W largest = IsFinite(sum.largest) ? sum.largest : NaN<W>();
    const W last = kLog ? static_cast<W>(log(sum.sum)) : static_cast<W>(1 / sum.sum);
    auto result = [&](W value) {
      const W below = value - largest;
      return Narrow<T>(kLog ? below - last : Exp(below) * last);
    };
    if (!w.real) continue;
    if constexpr (kIsHeld) {
      for (int u = 0; u < kHeld; ++u) {
        const int64_t i = w.at.lane + u * w.at.lanes;
        if (i < w.size) z[w.first + i * w.inner] = result(held[u]);
      }
    } else {
      w.Each([&](int64_t offset, int64_t) { z[offset] = result(Wide(x[offset])); });
    }
  }
}

// Of softmax dX = Z (dZ - sum(Z dZ)); of its logarithm dX = dZ - exp(Z) sum(dZ).
template <typename T, bool kLog>
__global__ void __launch_bounds__(kBlockThreads)
    SoftmaxGradKernel(Lines lines, const T* z, const T* dz, T* dx) {
  using W = Compute<T>;
  __shared__ double shared[kBlockThreads];
  for (LineWalk w(lines); w.More(); w.Next()) {
    double sum = 0;
    w.Each([&](int64_t offset, int64_t) {
      const double slope = static_cast<double>(Wide(dz[offset]));
      sum += kLog ? slope : static_cast<double>(Wide(z[offset])) * slope;
    });
    const W total = static_cast<W>(MergeLanes(w.at, sum, shared, AddValues()));
    if (!w.real) continue;
    w.Each([&](int64_t offset, int64_t) {
      const W value = Wide(z[offset]), slope = Wide(dz[offset]);
      dx[offset] = Narrow<T>(kLog ? slope - Exp(value) * total : value * (slope - total));
    });
  }
}

// ---- rows -----------------------------------------------------------------------------------------

template <typename T, int kWidth, bool kOne, bool kLog>
__global__ void __launch_bounds__(kMostRowThreads, (kRowBlocks<T, kOne>))
    SoftmaxRowKernel(Rows rows, const T* x, T* z) {
  using W = Compute<T>;
  const RowThread at(rows);
  const int64_t first = at.row * rows.size;
  RowPieces<T, kWidth, kOne> pieces(at, x + first, rows.size, -Infinity<W>());
  const RowExponentials<W> of_row = ExponentialsOfRow<!kLog>(at, pieces);
  const W last = kLog ? Log(of_row.sum) : 1 / of_row.sum;
  if (!at.real) return;
  pieces.Each(
      [&](int64_t begin, int count) {
        RowPart<T, kWidth>::Store(at, z + first + begin, count, [&](int u) {
          const W value = pieces.part.value[u];
          if constexpr (kLog) return Narrow<T>(value - of_row.largest - last);
          return Narrow<T>((kOne ? value : Exp(value - of_row.largest)) * last);
        });
      },
      true);
}

template <typename T, int kWidth, bool kOne, bool kLog>
__global__ void __launch_bounds__(kMostRowThreads, (kRowBlocks<T, kOne>))
    SoftmaxGradRowKernel(Rows rows, const T* z, const T* dz, T* dx) {
  using W = Compute<T>;
  using Part = RowPart<T, kWidth>;
  __shared__ W shared[32];
  const RowThread at(rows);
  const int64_t first = at.row * rows.size;
  auto result = [](W value, W slope, W total) {
    return Narrow<T>(kLog ? slope - Exp(value) * total : value * (slope - total));
  };
  if constexpr (kOne) {
    const int size = static_cast<int>(rows.size);
    const typename Part::Raw raw_values(at, z + first, size), raw_slopes(at, dz + first, size);
    const Part values(raw_values), slopes(raw_slopes);
    W sum = 0;
#pragma unroll
    for (int u = 0; u < Part::kCount; ++u) {  // zeros beyond the row
      sum = kLog ? sum + slopes.value[u] : Fma(values.value[u], slopes.value[u], sum);
    }
    const W total = MergeTeam(at, sum, shared, AddUp());
    if (!at.real) return;
    Part::Store(at, dx + first, size,
                [&](int u) { return result(values.value[u], slopes.value[u], total); });
  } else {
    W sum = 0;
    Part::ForEachPiece(at, rows.size, [&](int64_t begin, int count) {
      W of_piece = 0;
      Part::ForEachOf(
          at, count,
          [&](int, T value, T slope) {
            of_piece = kLog ? of_piece + Wide(slope) : Fma(Wide(value), Wide(slope), of_piece);
          },
          z + first + begin, dz + first + begin);
      sum += of_piece;
    });
    const W total = MergeTeam(at, sum, shared, AddUp());
    if (!at.real) return;
    Part::ForEachPiece(at, rows.size, [&](int64_t begin, int count) {
      Part::Store(
          at, dx + first + begin, count,
          [&](int, T value, T slope) { return result(Wide(value), Wide(slope), total); },
          z + first + begin, dz + first + begin);
    });
  }
}

AxisSplit SplitOf(const KernelCall& call) {
  return AxisSplit(call.outputs[0], call.attrs<SoftmaxAttributes>().axis);
}

template <typename T, bool kLog>
void RunSoftmax(const KernelCall& call) {
  const AxisSplit split = SplitOf(call);
  const T* const x = call.inputs[0].as<T>();
  T* const z = call.outputs[0].as<T>();
  if (split.outer * split.inner == 0 || split.size == 0) return;
  if (split.inner == 1) {
    const Rows rows = Rows::Of<T>(split.outer, split.size);
    WithRowKind<T>(rows, [&](auto width, auto one) {
      Launch(SoftmaxRowKernel<T, width(), one(), kLog>, rows.blocks(), rows.threads(), 0,
             StreamOf(call), rows, x, z);
    });
    return;
  }
  const Lines lines = Lines::Of(split.outer, split.size, split.inner);
  const bool held = lines.size <= lines.slots.lanes * kHeld;
  Launch(held ? SoftmaxKernel<T, kLog, true> : SoftmaxKernel<T, kLog, false>, lines.Blocks(),
         kBlockThreads, 0, StreamOf(call), lines, x, z);
}

template <typename T, bool kLog>
void RunSoftmaxGrad(const KernelCall& call) {
  const AxisSplit split = SplitOf(call);
  const T* const z = call.inputs[0].as<T>();
  const T* const dz = call.inputs[1].as<T>();
  T* const dx = call.outputs[0].as<T>();
  if (split.outer * split.inner == 0 || split.size == 0) return;
  if (split.inner == 1) {
    const Rows rows = Rows::Of<T>(split.outer, split.size);
    WithRowKind<T>(rows, [&](auto width, auto one) {
      Launch(SoftmaxGradRowKernel<T, width(), one(), kLog>, rows.blocks(), rows.threads(), 0,
             StreamOf(call), rows, z, dz, dx);
    });
    return;
  }
  const Lines lines = Lines::Of(split.outer, split.size, split.inner);
  Launch(SoftmaxGradKernel<T, kLog>, lines.Blocks(), kBlockThreads, 0, StreamOf(call), lines, z, dz,
         dx);
}

template <typename T>
void Softmax(const KernelCall& call) {
  RunSoftmax<T, false>(call);
}
template <typename T>
void LogSoftmax(const KernelCall& call) {
  RunSoftmax<T, true>(call);
}
template <typename T>
void SoftmaxGrad(const KernelCall& call) {
  RunSoftmaxGrad<T, false>(call);
}
template <typename T>
void LogSoftmaxGrad(const KernelCall& call) {
  RunSoftmaxGrad<T, true>(call);
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kSoftmax, Softmax),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLogSoftmax, LogSoftmax),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kSoftmaxGrad, SoftmaxGrad),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLogSoftmaxGrad, LogSoftmaxGrad),
});

}  // namespace
}  // namespace tidepool::cuda
