#include "tidepool/backends/cpu/gemm/tile_kernels.h"

#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {
namespace {

const TileKernels* g_forced_kernels = nullptr;

}  // namespace

TileKernelsOfProcessor AllTileKernels() {
  TileKernelsOfProcessor all = {{&PortableTileKernels()}, 1};
  const TileKernels* const of_sets[] = {Avx2TileKernels(), Avx512TileKernels()};
  for (int set = 0; set < 2; ++set) {
    if (of_sets[set] != nullptr && static_cast<int>(BestInstructionSet()) > set) all.kernels[all.count++] = of_sets[set];
  }
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
