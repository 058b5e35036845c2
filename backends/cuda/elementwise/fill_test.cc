// Links the CUDA kernels; runs them against the host where a device is present.
#include "tidepool/backends/cuda/elementwise/fill.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cuda_runtime_api.h"
#include "gtest/gtest.h"

namespace tidepool {
namespace {

constexpr float kUntouched = -7.0f;
// Around the vector width, the block and the whole grid: 4096 blocks of 256 threads of 4 floats.
constexpr std::int64_t kCounts[] = {0, 1, 2, 3, 4, 5, 7, 255, 1023, 1024, 1025, 1 << 20, 4194309};

class FillTest : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(error) << ", " << devices
                   << " devices";
    }
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  }
  void TearDown() override {
    for (void* address : addresses_) EXPECT_EQ(cudaFree(address), cudaSuccess);
    if (stream_ != nullptr) {
      EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    }
  }

  float* Upload(const std::vector<float>& host) {
    const std::size_t size_bytes = host.size() * sizeof(float);
    void* address = nullptr;
    EXPECT_EQ(cudaMalloc(&address, size_bytes), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(address, host.data(), size_bytes, cudaMemcpyHostToDevice, stream_),
              cudaSuccess);
    addresses_.push_back(address);
    return static_cast<float*>(address);
  }

  std::vector<float> Download(const float* address, std::int64_t count) {
    std::vector<float> host(count);
    EXPECT_EQ(cudaMemcpyAsync(host.data(), address, count * sizeof(float), cudaMemcpyDeviceToHost,
                              stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return host;
  }

  cudaStream_t stream_ = nullptr;
  std::vector<void*> addresses_;
};

// Needs no device: arguments are checked before anything is queued.
TEST(Fill, IsLinkedAndRefusesWrongArguments) {
  float y = 0;
  EXPECT_EQ(CudaFill(&y, -1, 1, 0, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(CudaFill(&y, 1, 0, 0, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(CudaFill(nullptr, 1, 1, 0, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(CudaFill(nullptr, 0, 1, 0, nullptr), cudaSuccess);
}

TEST(ScaleAdd, IsLinkedAndRefusesWrongArguments) {
  float x = 0;
  EXPECT_EQ(CudaScaleAdd(&x, &x, -1, 1, 0, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(CudaScaleAdd(nullptr, &x, 1, 1, 0, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(CudaScaleAdd(&x, nullptr, 1, 1, 0, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(CudaScaleAdd(nullptr, nullptr, 0, 1, 0, nullptr), cudaSuccess);
}

TEST_F(FillTest, WritesEachElementOfTheRangeAndNoOther) {
  for (std::int64_t count : kCounts) {
    for (std::int64_t offset : {0, 1, 2, 3}) {
      std::vector<float> expected(count + 8, kUntouched);
      float* y = Upload(expected);
      for (std::int64_t i = 0; i < count; ++i) expected[offset + i] = 2.5f;
      ASSERT_EQ(CudaFill(y + offset, count, 1, 2.5f, stream_), cudaSuccess);
      ASSERT_EQ(Download(y, count + 8), expected) << "count " << count << ", offset " << offset;
    }
  }
}

TEST_F(FillTest, StridesSkipElementsInBothDirections) {
  for (std::int64_t stride : {2, 3, 17, -1, -2, -5}) {
    const std::int64_t count = 1025;
    std::vector<float> expected(count * std::abs(stride), kUntouched);
    float* y = Upload(expected);
    const std::int64_t first = stride > 0 ? 0 : (count - 1) * -stride;
    for (std::int64_t i = 0; i < count; ++i) expected[first + i * stride] = 1.0f;
    ASSERT_EQ(CudaFill(y + first, count, stride, 1.0f, stream_), cudaSuccess);
    ASSERT_EQ(Download(y, expected.size()), expected) << "stride " << stride;
  }
}

TEST_F(FillTest, ScaleAddMatchesTheHost) {
  constexpr unsigned kSeed = 20240519;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (std::int64_t count : kCounts) {
    std::vector<float> input(count + 8);
    for (float& value : input) value = uniform(random);
    float* x = Upload(input);
    // Same and different alignment of x and y: vectors and scalars.
    for (std::int64_t offset : {0, 1, 2, 3}) {
      std::vector<float> expected(count + 8, kUntouched);
      float* y = Upload(expected);
      for (std::int64_t i = 0; i < count; ++i) {
        expected[offset + i] = std::fma(1.75f, input[1 + i], -0.3f);
      }
      ASSERT_EQ(CudaScaleAdd(x + 1, y + offset, count, 1.75f, -0.3f, stream_), cudaSuccess);
      ASSERT_EQ(Download(y, count + 8), expected) << "count " << count << ", offset " << offset;
    }
  }
}

TEST_F(FillTest, ScaleAddWorksInPlace) {
  std::vector<float> expected = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  float* y = Upload(expected);
  for (std::size_t i = 2; i < 11; ++i) expected[i] = 2 * expected[i] + 1;
  ASSERT_EQ(CudaScaleAdd(y + 2, y + 2, 9, 2, 1, stream_), cudaSuccess);
  EXPECT_EQ(Download(y, 11), expected);
}

TEST_F(FillTest, AnEarlierErrorIsNotReported) {
  cudaFree(reinterpret_cast<void*>(1));  // leaves cudaErrorInvalidValue behind
  float* y = Upload({0});
  EXPECT_EQ(CudaFill(y, 1, 1, 3, stream_), cudaSuccess);
  EXPECT_EQ(Download(y, 1), std::vector<float>{3});
  cudaGetLastError();
}

}  // namespace
}  // namespace tidepool
