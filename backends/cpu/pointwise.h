// Runs a loop over contiguous elements on operands of any strides, by tiles and threads.
//
// Dense operands go to the loop as they are. Otherwise axes are sorted by the result's strides and
// merged where all operands allow it. Operands that are contiguous or constant along the inner axis
// are used in place; others (transposed, every second element) are gathered into tiles on the
// stack, along the axis they lie closest on. Types without loops of their own (16-bit floats, i16, u16, u32) are
// converted to a wider one and back in blocks.
// Results larger than the last cache are written past it.
#ifndef TIDEPOOL_BACKENDS_CPU_POINTWISE_H_
#define TIDEPOOL_BACKENDS_CPU_POINTWISE_H_

#include <cstdint>

#include "tidepool/backends/cpu/pointwise_loops.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cpu {

inline constexpr int kMostPointwiseInputs = 3;

struct PointwiseOperand {
  int bytes = 0;                    // of an element in memory
  int converted_bytes = 0;          // of an element as the loop computes in
  PointwiseLoop convert = nullptr;  // to (from, of the result) that; null: none
};

struct PointwiseOp {
  PointwiseLoop loop = nullptr;
  int inputs = 0;
  PointwiseOperand in[kMostPointwiseInputs];
  PointwiseOperand out;
  void (*read_attributes)(const KernelCall&, LoopParameters*) = nullptr;
  int work = 1;           // of an element, compared with an addition
  bool converts = false;  // whether an operand is converted
};

// Inputs broadcast to the result.
void RunPointwise(const KernelCall& call, const PointwiseOp& op);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_POINTWISE_H_
