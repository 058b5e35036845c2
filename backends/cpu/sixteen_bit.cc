// Operators of neural networks on 16-bit floats: operands are converted to f32 in the call's
// scratch, the f32 kernel of this backend runs, results are converted back, rounded once. Scratch is
// twice the size of the 16-bit operands and what the f32 kernel takes. (Products convert a block at
// a time instead: products.cc.)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr const char* kProvider = "cpu";
constexpr size_t kAlignment = 64;

// By numbers: to ask for the size of scratch there is none yet.
void* At(void* base, size_t offset) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(base) + offset);
}

bool Is16Bit(const TensorRef& ref) {
  return ref.dtype == DType::kFloat16 || ref.dtype == DType::kBFloat16;
}

const Kernel& KernelOfF32(OpCode op) {
  const absl::Span<const Kernel> kernels =
      KernelRegistry::Find(op, DeviceType::kHost, DType::kFloat32);
  return *std::find_if(kernels.begin(), kernels.end(), [](const Kernel& kernel) {
    return std::strcmp(kernel.provider, kProvider) == 0;
  });
}

// The call on f32: operands that are not 16-bit floats are the caller's, the others lie one behind
// the other in `scratch` and the kernel's own scratch behind them.
struct CallOnF32 {
  const Kernel& kernel;
  TensorRef inputs[kMostInputs], outputs[kMostOutputs];
  KernelCall call;
  size_t operand_bytes = 0;

  CallOnF32(const KernelCall& original, void* scratch)
      : kernel(KernelOfF32(original.op)), call(original) {
    const auto take = [&](absl::Span<const TensorRef> from, TensorRef* to) {
      for (size_t i = 0; i < from.size(); ++i) {
        to[i] = from[i];
        if (!Is16Bit(from[i])) continue;
        to[i].dtype = DType::kFloat32;
        // Never the caller's: another call's weights may come to lie where these did.
        to[i].buffer_id = to[i].version = 0;
        to[i].readable_tail = true;
        if (from[i].data == nullptr) continue;
        to[i].data = At(scratch, operand_bytes);
        const size_t bytes = static_cast<size_t>(from[i].NumElements()) * sizeof(float);
        operand_bytes += (bytes / kAlignment + 2) * kAlignment;  // the tail is readable
      }
      return absl::Span<const TensorRef>(to, from.size());
    };
    call.inputs = take(original.inputs, inputs);
    call.outputs = take(original.outputs, outputs);
    call.scratch = At(scratch, operand_bytes);
  }
};

// loop(x, z, count) in pieces.
template <typename X, typename Z>
void Convert(Threads threads, void (*loop)(const X*, Z*, int64_t), const X* x, Z* z,
             int64_t count) {
  ParallelFor(threads, count, /*grain=*/1 << 15, count,
              [=](int64_t begin, int64_t end) { loop(x + begin, z + begin, end - begin); });
}

void ToF32(Threads threads, const TensorRef& from, const TensorRef& to) {
  const NnLoops& loops = NetworkLoops();
  Convert(threads, from.dtype == DType::kFloat16 ? loops.half_to_float : loops.brain_to_float,
          from.as<const uint16_t>(), to.as<float>(), from.NumElements());
}

void FromF32(Threads threads, const TensorRef& from, const TensorRef& to) {
  const NnLoops& loops = NetworkLoops();
  Convert(threads, to.dtype == DType::kFloat16 ? loops.float_to_half : loops.float_to_brain,
          from.as<const float>(), to.as<uint16_t>(), to.NumElements());
}

size_t ScratchBytes(const KernelCall& call) {
  alignas(kAlignment) static char nothing;  // addresses are made from its own; nothing is read
  const CallOnF32 f32(call, &nothing);
  return f32.operand_bytes +
         (f32.kernel.scratch_bytes != nullptr ? f32.kernel.scratch_bytes(f32.call) : 0);
}

void Run(const KernelCall& call) {
  const CallOnF32 f32(call, call.scratch);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (Is16Bit(call.inputs[i]) && call.inputs[i].data != nullptr) {
      ToF32(call.threads, call.inputs[i], f32.inputs[i]);
    }
  }
  const bool accumulates =
      (call.op == OpCode::kConv2dGradFilter && call.attrs<Conv2dAttributes>().accumulate) ||
      (call.op == OpCode::kConv3dGradFilter && call.attrs<Conv3dAttributes>().accumulate);
  if (accumulates) {
    ToF32(call.threads, call.outputs[0], f32.outputs[0]);
  }
  f32.kernel.run(f32.call);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (Is16Bit(call.outputs[i]) && call.outputs[i].data != nullptr) {
      FromF32(call.threads, f32.outputs[i], call.outputs[i]);
    }
  }
}

}  // namespace

NetworkKernels::NetworkKernels(absl::Span<const NetworkKernel> of_f32,
                               absl::Span<const NetworkKernel> of_f64) {
  KernelRegistry& registry = KernelRegistry::Global();
  const auto add = [&](const NetworkKernel& kernel, DType dtype) {
    registry.Add({kernel.op, DeviceType::kHost, dtype, kProvider, 10, kernel.run,
                  kernel.scratch_bytes, nullptr, kernel.strided});
  };
  for (const NetworkKernel& kernel : of_f64) add(kernel, DType::kFloat64);
  for (const NetworkKernel& kernel : of_f32) {
    add(kernel, DType::kFloat32);
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      if (!Contains(Info(kernel.op).types, dtype)) continue;
      registry.Add({kernel.op, DeviceType::kHost, dtype, kProvider, 10, &Run, &ScratchBytes});
    }
  }
}

}  // namespace tidepool::cpu
