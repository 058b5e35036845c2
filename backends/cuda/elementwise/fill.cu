#include "tidepool/backends/cuda/elementwise/fill.h"

#include <algorithm>
#include <cstdint>

#include "tidepool/backends/cuda/runtime/launch.h"

namespace tidepool {
namespace {

constexpr int kThreadsPerBlock = 256;
// Enough to fill any device; the kernels stride over what is left.
constexpr std::int64_t kMaxBlocks = 4096;
constexpr std::int64_t kLanes = 4;  // floats in the 16 bytes of the widest access

__global__ void FillStrided(float* y, std::int64_t count, std::int64_t stride, float value) {
  for (std::int64_t i = cuda::GlobalThread(); i < count; i += cuda::GlobalThreads())
    y[i * stride] = value;
}

// The first `head` elements come before the first 16-byte boundary; those and the tail, at most
// three each, are done one by one.
__global__ void FillVectors(float* y, std::int64_t count, std::int64_t head, float value) {
  float4* vectors = reinterpret_cast<float4*>(y + head);
  const std::int64_t vector_count = (count - head) / kLanes;
  const float4 values = make_float4(value, value, value, value);
  for (std::int64_t i = cuda::GlobalThread(); i < vector_count; i += cuda::GlobalThreads())
    vectors[i] = values;
  const std::int64_t tail = head + vector_count * kLanes;
  const std::int64_t i = cuda::GlobalThread();
  if (i < head) y[i] = value;
  if (i < count - tail) y[tail + i] = value;
}

__global__ void ScaleAddScalars(const float* x, float* y, std::int64_t count, float a, float b) {
  for (std::int64_t i = cuda::GlobalThread(); i < count; i += cuda::GlobalThreads())
    y[i] = fmaf(a, x[i], b);
}

__global__ void ScaleAddVectors(const float* x, float* y, std::int64_t count, std::int64_t head,
                                float a, float b) {
  const float4* inputs = reinterpret_cast<const float4*>(x + head);
  float4* outputs = reinterpret_cast<float4*>(y + head);
  const std::int64_t vector_count = (count - head) / kLanes;
  for (std::int64_t i = cuda::GlobalThread(); i < vector_count; i += cuda::GlobalThreads()) {
    const float4 v = inputs[i];
    outputs[i] = make_float4(fmaf(a, v.x, b), fmaf(a, v.y, b), fmaf(a, v.z, b), fmaf(a, v.w, b));
  }
  const std::int64_t tail = head + vector_count * kLanes;
  const std::int64_t i = cuda::GlobalThread();
  if (i < head) y[i] = fmaf(a, x[i], b);
  if (i < count - tail) y[tail + i] = fmaf(a, x[tail + i], b);
}

// Elements before the first 16-byte boundary. Addresses of floats are multiples of 4.
std::int64_t ElementsToBoundary(const float* address) {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) / sizeof(float) % kLanes;
  return static_cast<std::int64_t>((kLanes - offset) % kLanes);
}

dim3 BlocksFor(std::int64_t threads) {
  const std::int64_t blocks = (threads + kThreadsPerBlock - 1) / kThreadsPerBlock;
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, kMaxBlocks)));
}

template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), dim3 blocks, cudaStream_t stream,
                   const Arguments&... arguments) {
  return cuda::TryLaunch(kernel, blocks, dim3(kThreadsPerBlock), 0, stream, arguments...);
}

}  // namespace

cudaError_t CudaFill(float* y, std::int64_t count, std::int64_t stride, float value,
                     cudaStream_t stream) {
  if (count < 0 || stride == 0 || (count > 0 && y == nullptr)) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  if (stride != 1) return Launch(FillStrided, BlocksFor(count), stream, y, count, stride, value);
  const std::int64_t head = std::min(count, ElementsToBoundary(y));
  return Launch(FillVectors, BlocksFor(count / kLanes), stream, y, count, head, value);
}

cudaError_t CudaScaleAdd(const float* x, float* y, std::int64_t count, float a, float b,
                         cudaStream_t stream) {
  if (count < 0 || (count > 0 && (x == nullptr || y == nullptr))) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  if (ElementsToBoundary(x) != ElementsToBoundary(y)) {
    return Launch(ScaleAddScalars, BlocksFor(count), stream, x, y, count, a, b);
  }
  const std::int64_t head = std::min(count, ElementsToBoundary(y));
  return Launch(ScaleAddVectors, BlocksFor(count / kLanes), stream, x, y, count, head, a, b);
}

}  // namespace tidepool
