// Queues a kernel on an emulated stream; the emulation's side of backends/cuda/runtime/launch.h.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_LAUNCH_KERNEL_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_LAUNCH_KERNEL_H_

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime.h"

namespace tidepool::cuda_emulation {

cudaError_t QueueKernel(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                        std::function<void()> body, std::initializer_list<const void*> pointers);

template <typename T>
const void* PointerOrNull(const T& value) {
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<const void*>(value);
  } else {
    return nullptr;
  }
}

template <typename... Parameters, typename... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                         cudaStream_t stream, const Arguments&... arguments) {
  std::tuple<std::remove_cv_t<Parameters>...> values(
      static_cast<std::remove_cv_t<Parameters>>(arguments)...);
  return QueueKernel(grid, block, shared_bytes, stream,
                     [kernel, values] { std::apply(kernel, values); },
                     {PointerOrNull(static_cast<std::remove_cv_t<Parameters>>(arguments))...});
}

}  // namespace tidepool::cuda_emulation

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_LAUNCH_KERNEL_H_
