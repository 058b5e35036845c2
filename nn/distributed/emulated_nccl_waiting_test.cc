// A host that waits for its device, where the device waits for another rank, waits until that has come.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tidepool/backends/cuda/emulation/emulated_nccl.h"
#include "tidepool/backends/cuda/nccl/nccl_library.h"

namespace tidepool::nn {
namespace {

TEST(EmulatedNcclWaiting, AStreamBehindACollectiveWaitsForTheOtherRank) {
  const cuda::NcclLibrary* const nccl = cuda::NcclLibrary::Find();
  if (nccl == nullptr) GTEST_SKIP() << cuda::NcclLibrary::Description();
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) GTEST_SKIP() << "of another test";
  cuda::NcclUniqueId id;
  ASSERT_EQ(nccl->GetUniqueId(&id), cuda::NcclLibrary::kSuccess);
  std::atomic<bool> waits{false};
  const auto rank_of = [&](int rank) {
    ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
    cudaStream_t stream;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, sizeof(float)), cudaSuccess);
    const float own = rank == 0 ? 2 : 3;
    float sum = 0;
    ASSERT_EQ(cudaMemcpy(memory, &own, sizeof(own), cudaMemcpyHostToDevice), cudaSuccess);
    void* comm = nullptr;
    cuda::NcclConfig17 config;
    nccl->CommInitRankConfig(&comm, 2, id, rank, &config);
    const auto finish = [&] {
      int result = cuda::NcclLibrary::kInProgress;
      while (result == cuda::NcclLibrary::kInProgress) {
        ASSERT_EQ(nccl->CommGetAsyncError(comm, &result), cuda::NcclLibrary::kSuccess);
        std::this_thread::yield();
      }
      EXPECT_EQ(result, cuda::NcclLibrary::kSuccess);
    };
    finish();
    if (rank == 1) {
      while (!waits) std::this_thread::yield();
      std::this_thread::sleep_for(
          std::chrono::milliseconds(5));  // by now the other one is in its call
    }
    nccl->AllReduce(memory, memory, 1, cuda::NcclLibrary::kFloat32, cuda::NcclLibrary::kSum, comm,
                    stream);
    finish();
    waits = true;
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&sum, memory, sizeof(sum), cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(sum, 5);
    nccl->CommFinalize(comm);
    finish();
    EXPECT_EQ(nccl->CommDestroy(comm), cuda::NcclLibrary::kSuccess);
    cudaFree(memory);
    cudaStreamDestroy(stream);
  };
  std::thread other([&] { rank_of(1); });
  rank_of(0);
  other.join();
}

}  // namespace
}  // namespace tidepool::nn
