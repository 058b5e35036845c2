#include "tidepool/backends/cpu/gemm/tile_kernels.h"

namespace tidepool::cpu {
namespace {

const TileKernels* g_forced_kernels = nullptr;

}  // namespace

TileKernelsOfProcessor AllTileKernels() {
  TileKernelsOfProcessor all = {{&PortableTileKernels()}, 1};
#if defined(__x86_64__) || defined(__i386__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && Avx2TileKernels() != nullptr) {
    all.kernels[all.count++] = Avx2TileKernels();
    if (__builtin_cpu_supports("avx512f")) all.kernels[all.count++] = Avx512TileKernels();
  }
#endif
  return all;
}

const TileKernels& SelectedTileKernels() {
  static const TileKernels& best = [&]() -> const TileKernels& {
    const TileKernelsOfProcessor all = AllTileKernels();
    return *all.kernels[all.count - 1];
  }();
  return g_forced_kernels != nullptr ? *g_forced_kernels : best;
}

void ForceTileKernelsForTesting(const TileKernels* kernels) { g_forced_kernels = kernels; }

const int32_t* TailMask(int64_t tail) {
  static constexpr int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  return kMasks + (kVectorFloats - tail);
}

}  // namespace tidepool::cpu
