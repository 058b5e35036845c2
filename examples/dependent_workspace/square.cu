#include "square.h"

namespace {

__global__ void SquareKernel(float* values, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= values[i];
}

}  // namespace

cudaError_t Square(float* values, std::int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  SquareKernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(values, count);
  return cudaGetLastError();
}
