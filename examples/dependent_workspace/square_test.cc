#include "square.h"

#include <vector>

#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/elementwise/fill.h"

// Tidepool's kernel and our own on one stream.
TEST(Square, OfAFilledArray) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(error);
  }
  constexpr std::int64_t kCount = 1000;
  void* address = nullptr;
  ASSERT_EQ(cudaMalloc(&address, kCount * sizeof(float)), cudaSuccess);
  float* values = static_cast<float*>(address);
  ASSERT_EQ(tidepool::CudaFill(values, kCount, 1, 3.0f, nullptr), cudaSuccess);
  ASSERT_EQ(Square(values, kCount, nullptr), cudaSuccess);
  std::vector<float> host(kCount);
  ASSERT_EQ(cudaMemcpy(host.data(), values, kCount * sizeof(float), cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(host, std::vector<float>(kCount, 9.0f));
  EXPECT_EQ(cudaFree(address), cudaSuccess);
}

TEST(Square, OfNothingNeedsNoDevice) { EXPECT_EQ(Square(nullptr, 0, nullptr), cudaSuccess); }
