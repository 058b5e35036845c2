// Registration of operators of networks for f32 and, through it, for the 16-bit floats that their rows name; and for f64 of
// those that are one source for both.
#ifndef TIDEPOOL_BACKENDS_CPU_NETWORK_KERNELS_H_
#define TIDEPOOL_BACKENDS_CPU_NETWORK_KERNELS_H_

#include <cstddef>
#include <initializer_list>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cpu {

struct NetworkKernel {
  OpCode op;
  void (*run)(const KernelCall&);
  size_t (*scratch_bytes)(const KernelCall&) = nullptr;
  bool strided = false;  // takes any strides of f32; 16-bit operands are dense
};

// As KernelRegistrar, of f32 operands. On f16 and bf16 they are converted in the call's scratch (sixteen_bit.cc).
struct NetworkKernels {
  NetworkKernels(std::initializer_list<NetworkKernel> kernels)
      : NetworkKernels(absl::Span<const NetworkKernel>(kernels), {}) {}
  NetworkKernels(absl::Span<const NetworkKernel> of_f32, absl::Span<const NetworkKernel> of_f64);
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_NETWORK_KERNELS_H_
