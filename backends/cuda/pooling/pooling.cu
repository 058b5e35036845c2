// Pooling of dense NHWC images; a thread makes 16 bytes of neighbouring channels where they allow it,
// neighbouring threads neighbouring channels.
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/pooling/pool_geometry.h"

namespace tidepool::cuda {
namespace {

template <typename T, typename Index, int kWidth, bool kMax>
__global__ void __launch_bounds__(kBlockThreads)
    PoolKernel(Geometry<Index> g, const T* input, T* output) {
  using W = Compute<T>;
  const bool aligned = kWidth > 1 && IsAligned(input) && IsAligned(output);
  for (int64_t o = GlobalThread(); o < g.outputs(); o += GlobalThreads()) {
    const auto p = FindPlace(static_cast<Index>(o), g.out_height, g.out_width, g.channels);
    const Window<Index> w(g, p.row, p.column);
    W result[kWidth];
#pragma unroll
    for (int u = 0; u < kWidth; ++u) result[u] = kMax ? -Infinity<W>() : W{0};
    ForEachPixel<kWidth>(g, p, w, input, aligned, [&](const Vector<T, kWidth>& x, Index, Index) {
#pragma unroll
      for (int u = 0; u < kWidth; ++u) {
        const W value = Wide(x.lane[u]);
        if constexpr (kMax) {
          if (value > result[u] || IsNaN(value)) result[u] = value;
        } else {
          result[u] += value;
        }
      }
    });
    const W divisor = static_cast<W>(w.Divisor(g));
    Vector<T, kWidth> out;
#pragma unroll
    for (int u = 0; u < kWidth; ++u)
      out.lane[u] = Narrow<T>(kMax ? result[u] : result[u] / divisor);
    StoreAccess(output + o * kWidth, aligned, out);
  }
}

template <typename T, bool kMax>
void RunPool(const KernelCall& call) {
  WithGeometry<T>(call, call.inputs[0], call.outputs[0],
                  [&]<typename Index>(const Geometry<Index>& g, auto width) {
                    LaunchFor(call, g.outputs(), g, PoolKernel<T, Index, width(), kMax>,
                              call.inputs[0].as<T>(), call.outputs[0].as<T>());
                  });
}

template <typename T>
void MaxPool2d(const KernelCall& call) {
  RunPool<T, true>(call);
}
template <typename T>
void AveragePool2d(const KernelCall& call) {
  RunPool<T, false>(call);
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kMaxPool2d, MaxPool2d),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kAveragePool2d, AveragePool2d),
});

}  // namespace
}  // namespace tidepool::cuda
