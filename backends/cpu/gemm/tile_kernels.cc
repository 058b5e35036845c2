#include "tidepool/backends/cpu/gemm/tile_kernels.h"

#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {
namespace {

const TileKernels* g_forced_kernels = nullptr;

}  // namespace

TileKernelsOfProcessor AllTileKernels() {
  TileKernelsOfProcessor all = {{&PortableTileKernels()}, 1};
  // What makes a table is compiled for the instructions of its tiles: it is not even called where there are fewer.
  const InstructionSet best = BestInstructionSet();
  const auto add = [&](const TileKernels* kernels) {
    if (kernels != nullptr) all.kernels[all.count++] = kernels;
  };
  if (best >= InstructionSet::kAvx2) add(Avx2TileKernels());
  if (best >= InstructionSet::kAvx512) add(Avx512TileKernels());
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
