// Streams, events, copies, memory and graphs of the emulation.
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "cuda.h"
#include "cuda_runtime.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/emulation/launch_kernel.h"

namespace tidepool {
namespace {

using cuda_emulation::LaunchKernel;

__global__ void Append(int* log, int value) {
  const int place = ++log[0];
  log[place] = value;
}

class Streams : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&a_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&b_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&log_, 64 * sizeof(int)), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(log_, 0, 64 * sizeof(int), a_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamDestroy(a_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(b_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaFree(log_), cudaSuccess);
  }
  void Add(cudaStream_t stream, int value) {
    ASSERT_EQ(LaunchKernel(Append, dim3(1), dim3(1), 0, stream, log_, value), cudaSuccess);
  }
  std::vector<int> Log() {
    EmulatedCuda::Get().Finish();
    std::vector<int> log(64);
    EXPECT_EQ(cudaMemcpyAsync(log.data(), log_, 64 * sizeof(int), cudaMemcpyDeviceToHost, a_),
              cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(log_, 0, 64 * sizeof(int), a_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
    return std::vector<int>(log.begin() + 1, log.begin() + 1 + log[0]);
  }

  cudaStream_t a_ = nullptr, b_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int* log_ = nullptr;
};

TEST_F(Streams, OneStreamKeepsItsOrderTwoDoNot) {
  bool ab = false, ba = false;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    Add(a_, 1);
    Add(b_, 10);
    Add(a_, 2);
    const std::vector<int> log = Log();
    ASSERT_EQ(log.size(), 3u);
    EXPECT_LT(std::find(log.begin(), log.end(), 1), std::find(log.begin(), log.end(), 2));
    ab = ab || log[0] == 1;
    ba = ba || log[0] == 10;
  }
  EXPECT_TRUE(ab && ba);
}

TEST_F(Streams, EventsOrderStreams) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    Add(a_, 1);
    ASSERT_EQ(cudaEventRecord(event_, a_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(b_, event_), cudaSuccess);
    Add(b_, 2);
    // The wait is for the record that was then the last.
    ASSERT_EQ(cudaEventRecord(event_, b_), cudaSuccess);
    ASSERT_EQ(Log(), (std::vector<int>{1, 2}));
  }
}

TEST_F(Streams, NothingRunsBeforeSomebodyWaits) {
  Add(a_, 1);
  ASSERT_EQ(cudaEventRecord(event_, a_), cudaSuccess);
  const int64_t before = EmulatedCuda::Get().counters().kernels;
  Add(b_, 2);
  EXPECT_EQ(EmulatedCuda::Get().counters().kernels, before);
  // Queries make progress in the end.
  int queries = 0;
  while (cudaEventQuery(event_) == cudaErrorNotReady) ASSERT_LT(++queries, 1000);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(Streams, PageLockedMemoryIsReadLateOrdinaryMemoryAtOnce) {
  int* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&pinned), 64, cudaHostAllocPortable),
            cudaSuccess);
  int ordinary = 7, result = 0;
  *pinned = 7;
  ASSERT_EQ(cudaMemcpyAsync(log_, pinned, 4, cudaMemcpyHostToDevice, a_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(log_ + 1, &ordinary, 4, cudaMemcpyHostToDevice, a_), cudaSuccess);
  *pinned = ordinary = 8;
  ASSERT_EQ(cudaMemcpyAsync(&result, log_, 4, cudaMemcpyDeviceToHost, a_), cudaSuccess);
  EXPECT_EQ(result, 8);
  ASSERT_EQ(cudaMemcpyAsync(&result, log_ + 1, 4, cudaMemcpyDeviceToHost, a_), cudaSuccess);
  EXPECT_EQ(result, 7);
  ASSERT_EQ(cudaMemcpyAsync(pinned, log_ + 1, 4, cudaMemcpyDeviceToHost, a_), cudaSuccess);
  EXPECT_EQ(*pinned, 8);
  ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(*pinned, 7);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(&ordinary), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST_F(Streams, GraphsAreReplayed) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  Add(a_, 1);
  ASSERT_EQ(cudaEventRecord(event_, a_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b_, event_), cudaSuccess);
  Add(b_, 2);
  Add(a_, 3);
  ASSERT_EQ(cudaEventRecord(event_, b_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(a_, event_), cudaSuccess);
  Add(a_, 4);
  ASSERT_EQ(cudaStreamEndCapture(a_, &graph), cudaSuccess);
  size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 4u);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(Log(), std::vector<int>());
  bool two_first = false, three_first = false;
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(cudaGraphLaunch(executable, a_), cudaSuccess);
    const std::vector<int> log = Log();
    ASSERT_EQ(log.size(), 4u);
    EXPECT_EQ(log[0], 1);
    EXPECT_EQ(log[3], 4);
    (log[1] == 2 ? two_first : three_first) = true;
  }
  EXPECT_TRUE(two_first && three_first);
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(Streams, CapturesThatCannotBeAreRefused) {
  cudaGraph_t graph;
  // Waiting.
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureInvalidated);
  // Allocating.
  void* data;
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureInvalidated);
  // Another stream that does not come back.
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, a_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b_, event_), cudaSuccess);
  Add(b_, 2);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(Log(), std::vector<int>());
}

TEST_F(Streams, FaultPlansAndLostDevices) {
  EmulatedCuda::Get().call_faults().FailRequest(1);
  Add(a_, 1);
  EXPECT_EQ(LaunchKernel(Append, dim3(1), dim3(1), 0, a_, log_, 2), cudaErrorLaunchOutOfResources);
  EmulatedCuda::Get().call_faults().Clear();
  EXPECT_EQ(Log(), std::vector<int>{1});
  EmulatedCuda::Get().allocation_faults().FailRequest(0);
  void* data;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorMemoryAllocation);
  EmulatedCuda::Get().allocation_faults().Clear();
  EmulatedCuda::Get().set_lost(true);
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorIllegalAddress);
  EmulatedCuda::Get().set_lost(false);
  cudaGetLastError();
}

// Whoever cleans up behind a lost device frees memory that copies are still queued for.
TEST_F(Streams, ALostDeviceDoesNoneOfWhatIsQueued) {
  void *data, *pinned;
  ASSERT_EQ(cudaMalloc(&data, 64), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(&pinned, 64, cudaHostAllocPortable), cudaSuccess);
  *static_cast<int*>(pinned) = 7;
  EmulatedCuda::Get().kernel_faults().FailRequest(0);
  Add(a_, 1);  // loses it
  const int64_t before = EmulatedCuda::Get().counters().fills;
  ASSERT_EQ(cudaMemsetAsync(data, 1, 64, a_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, data, 64, cudaMemcpyDeviceToHost, a_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorIllegalAddress);
  EXPECT_EQ(EmulatedCuda::Get().counters().fills, before);
  EXPECT_EQ(*static_cast<int*>(pinned), 7);
  EmulatedCuda::Get().kernel_faults().Clear();
  EmulatedCuda::Get().set_lost(false);
  cudaGetLastError();
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(Streams, ThreadsMayQueueAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) Add(t == 0 ? a_ : b_, t);
      EXPECT_EQ(cudaStreamSynchronize(t == 0 ? a_ : b_), cudaSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Log().size(), 30u);
}

// ---- memory -------------------------------------------------------------------------------------

constexpr size_t kGranule = EmulatedCuda::kGranularity;
constexpr CUmemAllocationProp kProperties = {
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
constexpr CUmemAccessDesc kAccess = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

TEST(VirtualMemory, PiecesAreMappedAndUnmapped) {
  CUdeviceptr base;
  ASSERT_EQ(cuMemAddressReserve(&base, 4 * kGranule, 2 << 20, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(base % (2 << 20), 0u);
  const size_t before = EmulatedCuda::Get().used_bytes();
  for (size_t i = 0; i < 3; ++i) {
    CUmemGenericAllocationHandle handle;
    ASSERT_EQ(cuMemCreate(&handle, kGranule, &kProperties, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemMap(base + i * kGranule, kGranule, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    ASSERT_EQ(cuMemSetAccess(base + i * kGranule, kGranule, &kAccess, 1), CUDA_SUCCESS);
  }
  EXPECT_EQ(EmulatedCuda::Get().used_bytes(), before + 3 * kGranule);
  std::vector<char> bytes(3 * kGranule), seen(3 * kGranule);
  std::iota(bytes.begin(), bytes.end(), 0);
  char* const data = reinterpret_cast<char*>(base);
  ASSERT_EQ(cudaMemcpy(data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(seen.data(), data, bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(seen, bytes);
  ASSERT_EQ(cuMemUnmap(base + kGranule, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(EmulatedCuda::Get().used_bytes(), before + kGranule);
  ASSERT_EQ(cuMemUnmap(base, kGranule), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressFree(base, 4 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(EmulatedCuda::Get().used_bytes(), before);
}

TEST(VirtualMemory, TheCapacityIsKept) {
  EmulatedCuda::Get().set_capacity(EmulatedCuda::Get().used_bytes() + 2 * kGranule);
  CUmemGenericAllocationHandle handle;
  EXPECT_EQ(cuMemCreate(&handle, 3 * kGranule, &kProperties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  void* data;
  EXPECT_EQ(cudaMalloc(&data, 3 * kGranule), cudaErrorMemoryAllocation);
  EXPECT_EQ(cuMemCreate(&handle, 2 * kGranule, &kProperties, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EmulatedCuda::Get().set_capacity(size_t{1} << 30);
  cudaGetLastError();
}

TEST(VirtualMemoryDeathTest, WrongArgumentsAreNamed) {
  char* data;
  ASSERT_EQ(cudaMalloc(&data, 256), cudaSuccess);
  char host[512];
  EXPECT_DEATH(cudaMemcpy(data, host, 257, cudaMemcpyHostToDevice),
               "not mapped memory of a device");
  EXPECT_DEATH(cudaMemcpy(host, data - 1, 2, cudaMemcpyHostToHost), "device memory where host");
  EXPECT_DEATH(cuMemUnmap(reinterpret_cast<CUdeviceptr>(data), kGranule), "not whole mappings");
  EXPECT_DEATH(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(host)), "is not a stream");
  ASSERT_EQ(cudaFree(data), cudaSuccess);
}

}  // namespace
}  // namespace tidepool
