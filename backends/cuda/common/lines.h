// Kernels over lines of a dense array [outer, size, inner]: those along its middle axis. A slot of
// threads works on a line.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_LINES_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_LINES_H_

#include <algorithm>
#include <cstdint>

#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/runtime/launch.h"

namespace tidepool::cuda {

struct Lines {
  int64_t count = 0;  // outer * inner
  int64_t size = 0, inner = 1;
  Slots slots;

  static Lines Of(int64_t outer, int64_t size, int64_t inner) {
    Lines lines;
    lines.count = outer * inner;
    lines.size = size;
    lines.inner = inner;
    int64_t lanes = 1;
    const bool along = inner < 8;
    const int64_t most = along ? (size > 512 ? kBlockThreads : 32) : kBlockThreads / 32;
    const int64_t wanted = along ? size : size / 8;
    while (lanes < most && lanes < wanted) lanes *= 2;
    lines.slots = {static_cast<int>(lanes), along};
    return lines;
  }
  dim3 Blocks() const { return BlocksFor((count + slots.count() - 1) / slots.count(), 1); }
};

// The lines of a thread: `for (LineWalk w(lines); w.More(); w.Next())`. All threads of a block make
// as many steps, so barriers are allowed; a line beyond the last is the last one again, not `real`.
struct LineWalk {
  SlotThread at;
  int64_t base, step, count, size, inner;
  int64_t line, first;  // number, offset of its first element
  bool real;

  __device__ __forceinline__ explicit LineWalk(const Lines& lines)
      : at(lines.slots),
        base(static_cast<int64_t>(blockIdx.x) * at.slots),
        step(static_cast<int64_t>(gridDim.x) * at.slots),
        count(lines.count),
        size(lines.size),
        inner(lines.inner) {
    Find();
  }
  __device__ __forceinline__ bool More() const { return base < count; }
  __device__ __forceinline__ void Next() {
    base += step;
    Find();
  }
  // visit(offset, place on the line) for this lane's elements.
  template <typename Visit>
  __device__ __forceinline__ void Each(Visit visit) const {
    int64_t offset = first + at.lane * inner;
    const int64_t stride = at.lanes * inner;
    for (int64_t i = at.lane; i < size; i += at.lanes, offset += stride) visit(offset, i);
  }

 private:
  __device__ __forceinline__ void Find() {
    real = base + at.slot < count;
    line = min(base + at.slot, count - 1);
    if (inner == 1) {
      first = line * size;
    } else {
      const int64_t outer = line / inner;
      first = outer * size * inner + (line - outer * inner);
    }
  }
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_LINES_H_
