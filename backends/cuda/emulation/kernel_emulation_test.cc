// Kernels run by the emulation: barriers, shuffles, votes, shared memory, and what it finds out.
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/emulation/launch_kernel.h"

namespace tidepool {
namespace {

using cuda_emulation::LaunchKernel;

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, count_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~DeviceArray() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }
  T* data() const { return data_; }

 private:
  size_t count_;
  T* data_ = nullptr;
};

__global__ void WriteIndex(int* out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += block * 1000 + thread;
}

TEST(Kernels, EveryThreadOfEveryBlockRunsOnce) {
  DeviceArray<int> out(std::vector<int>(2 * 3 * 4 * 5 * 6 * 2));
  ASSERT_EQ(LaunchKernel(WriteIndex, dim3(2, 3, 4), dim3(5, 6, 2), 0, nullptr, out.data()),
            cudaSuccess);
  const std::vector<int> seen = out.Read();
  for (int i = 0; i < static_cast<int>(seen.size()); ++i) {
    ASSERT_EQ(seen[i], i / 60 * 1000 + i % 60);
  }
}

// A sum over the block through shared memory; every step needs its barrier.
__global__ void BlockSum(const int* in, int* out) {
  __shared__ int sums[256];
  const int t = threadIdx.x;
  sums[t] = in[blockIdx.x * 256 + t];
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (t < step) sums[t] += sums[t + step];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = sums[0];
}

// The same without barriers.
__global__ void RacyBlockSum(const int* in, int* out) {
  __shared__ int sums[256];
  const int t = threadIdx.x;
  sums[t] = in[blockIdx.x * 256 + t];
  for (int step = 128; step > 0; step /= 2) {
    if (t < step) sums[t] += sums[t + step];
  }
  if (t == 0) out[blockIdx.x] = sums[0];
}

TEST(Kernels, BarriersOrderSharedMemory) {
  std::vector<int> values(512);
  std::iota(values.begin(), values.end(), 1);
  DeviceArray<int> in(values), out(std::vector<int>(2));
  for (uint64_t seed = 1; seed < 20; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    ASSERT_EQ(LaunchKernel(BlockSum, dim3(2), dim3(256), 0, nullptr, in.data(), out.data()),
              cudaSuccess);
    ASSERT_EQ(out.Read(), (std::vector<int>{256 * 257 / 2, 256 * 256 + 256 * 257 / 2}))
        << "seed " << seed;
  }
}

TEST(Kernels, MissingBarriersGiveOtherResults) {
  DeviceArray<int> in(std::vector<int>(512, 1)), out(std::vector<int>(2));
  std::set<std::vector<int>> results;
  for (uint64_t seed = 1; seed < 20; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    LaunchKernel(RacyBlockSum, dim3(2), dim3(256), 0, nullptr, in.data(), out.data());
    results.insert(out.Read());
  }
  EXPECT_GT(results.size(), 1u);
}

__global__ void WarpOperations(int* out) {
  const int t = threadIdx.x, lane = t % 32;
  int* mine = out + t * 8;
  int sum = t;
  for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffff, sum, by);
  mine[0] = sum;
  mine[1] = __shfl_up_sync(0xffffffff, t, 1);
  mine[2] = __shfl_down_sync(0xffffffff, t, 1, 8);
  mine[3] = __shfl_sync(0xffffffff, t, lane / 2);
  mine[4] = static_cast<int>(__ballot_sync(0xffffffff, lane % 3 == 0));
  // Half of the warp only.
  mine[5] = lane < 16 ? __shfl_xor_sync(0x0000ffff, t, 1) : -1;
  mine[6] = __all_sync(0xffffffff, t < 32) * 2 + __any_sync(0xffffffff, t == 33);
  mine[7] = __syncthreads_count(t % 4 == 0);
}

TEST(Kernels, ShufflesAndVotes) {
  DeviceArray<int> out(std::vector<int>(96 * 8));
  ASSERT_EQ(LaunchKernel(WarpOperations, dim3(1), dim3(96), 0, nullptr, out.data()), cudaSuccess);
  const std::vector<int> seen = out.Read();
  unsigned thirds = 0;
  for (int lane = 0; lane < 32; lane += 3) thirds |= 1u << lane;
  for (int t = 0; t < 96; ++t) {
    const int lane = t % 32, first = t - lane;
    SCOPED_TRACE(t);
    EXPECT_EQ(seen[t * 8], 32 * first + 31 * 16);
    EXPECT_EQ(seen[t * 8 + 1], lane == 0 ? t : t - 1);
    EXPECT_EQ(seen[t * 8 + 2], lane % 8 == 7 ? t : t + 1);
    EXPECT_EQ(seen[t * 8 + 3], first + lane / 2);
    EXPECT_EQ(seen[t * 8 + 4], static_cast<int>(thirds));
    EXPECT_EQ(seen[t * 8 + 5], lane < 16 ? t ^ 1 : -1);
    EXPECT_EQ(seen[t * 8 + 6], (t < 32) * 2 + (first == 32));
    EXPECT_EQ(seen[t * 8 + 7], 24);
  }
}

__global__ void Dynamic(float* out, int count) {
  float* const shared = static_cast<float*>(cuda_emulation::current_thread->shared);
  for (int i = threadIdx.x; i < count; i += blockDim.x) shared[i] = static_cast<float>(i);
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = shared[count - 1 - i];
}

TEST(Kernels, DynamicSharedMemory) {
  DeviceArray<float> out(std::vector<float>(1000));
  ASSERT_EQ(LaunchKernel(Dynamic, dim3(1), dim3(64), 4000, nullptr, out.data(), 1000), cudaSuccess);
  EXPECT_EQ(out.Read()[1], 998);
}

__global__ void CountUp(unsigned* counter) { atomicAdd(counter, 1); }

TEST(Kernels, AtomicsCount) {
  DeviceArray<unsigned> counter({5});
  ASSERT_EQ(LaunchKernel(CountUp, dim3(7), dim3(33), 0, nullptr, counter.data()), cudaSuccess);
  EXPECT_EQ(counter.Read()[0], 5u + 7 * 33);
}

TEST(Kernels, WrongConfigurationsAreRefused) {
  DeviceArray<unsigned> counter({0});
  EXPECT_EQ(LaunchKernel(CountUp, dim3(0), dim3(32), 0, nullptr, counter.data()),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchKernel(CountUp, dim3(1), dim3(1025), 0, nullptr, counter.data()),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchKernel(CountUp, dim3(1), dim3(32), 1 << 20, nullptr, counter.data()),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(counter.Read()[0], 0u);
}

// ---- what ends the program ----------------------------------------------------------------------

__global__ void DivergentBarrier() {
  if (threadIdx.x < 40) __syncthreads();
}
__global__ void MissingLane() { __shfl_xor_sync(0xffffffff, 1, 1); }
__global__ void WriteAt(int* at, int index) { at[index] = 1; }

void RunAlone(void (*kernel)(), int threads) {
  LaunchKernel(kernel, dim3(1), dim3(threads), 0, nullptr);
  EmulatedCuda::Get().Finish();
}

TEST(KernelsDeathTest, ThreadsThatWaitInVainAreNamed) {
  EXPECT_DEATH(RunAlone(DivergentBarrier, 64),
               "64 threads is stuck: 40 wait at __syncthreads, .* 24 have ended");
  EXPECT_DEATH(RunAlone(MissingLane, 48), "16 at a shuffle");
}

TEST(KernelsDeathTest, WrongAddressesAreNamed) {
  DeviceArray<int> array(std::vector<int>(64));
  int host = 0;
  auto write = [](int* at, int index) {
    LaunchKernel(WriteAt, dim3(1), dim3(1), 0, nullptr, at, index);
    EmulatedCuda::Get().Finish();
  };
  EXPECT_DEATH(write(&host, 0), "pointer 0 of a kernel's arguments.*not memory that device 0");
  EXPECT_DEATH(write(array.data(), 64), "");
  EXPECT_DEATH(array.data()[0] = 1, "the host touched device memory");
  auto shared = [] {
    float* out;
    cudaMalloc(&out, 4000);
    LaunchKernel(Dynamic, dim3(1), dim3(1), 3984, nullptr, out, 1000);
    EmulatedCuda::Get().Finish();
  };
  EXPECT_DEATH(shared(), "");
}

}  // namespace
}  // namespace tidepool
