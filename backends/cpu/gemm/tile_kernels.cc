#include "tidepool/backends/cpu/gemm/tile_kernels.h"

namespace tidepool::cpu {
namespace {

const TileKernels* g_forced_kernels = nullptr;

const TileKernels& BestTileKernels() {
#if defined(__x86_64__) || defined(__i386__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    if (const TileKernels* kernels = Avx2TileKernels()) return *kernels;
  }
#endif
  return PortableTileKernels();
}

}  // namespace

const TileKernels& SelectedTileKernels() {
  static const TileKernels& best = BestTileKernels();
  return g_forced_kernels != nullptr ? *g_forced_kernels : best;
}

void ForceTileKernelsForTesting(const TileKernels* kernels) { g_forced_kernels = kernels; }

const int32_t* TailMask(int64_t tail) {
  static constexpr int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  return kMasks + (kVectorFloats - tail);
}

}  // namespace tidepool::cpu
