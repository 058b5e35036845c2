// What only the emulation can show: refusals at every request, lost devices, what is counted.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool::cuda {
namespace {

CudaDevice& TheDevice() { return *CudaDevice::Find(0); }

TEST(CudaDeviceFaults, EveryRefusedAllocationLeavesNothingBehind) {
  CudaDevice& device = TheDevice();
  const size_t unit = device.traits().granularity;
  device.pinned().Trim();
  device.blocks().Trim();
  EmulatedCuda& emulated = EmulatedCuda::Get();
  emulated.Finish();
  const size_t used = emulated.used_bytes(), pinned = emulated.pinned_bytes();
  int refused = 0;
  for (int64_t n = 0;; ++n) {
    emulated.allocation_faults().FailRequest(n, 4);  // all attempts
    std::byte* const base = device.Reserve(4 * unit);
    if (base != nullptr) {
      const bool committed = device.Commit(base, 3 * unit, false);
      EXPECT_EQ(emulated.used_bytes(), used + (committed ? 3 * unit : 0));
      refused += committed ? 0 : 1;
      device.Unreserve(base, 4 * unit);
    }
    std::byte* const block = device.Allocate(1000, 256);
    if (block != nullptr) device.Release(block, 1000);
    std::byte* const host = device.pinned().Allocate(1000, 256);
    if (host != nullptr) device.pinned().Release(host, 1000);
    refused += (base == nullptr) + (block == nullptr) + (host == nullptr);
    const bool done = emulated.allocation_faults().failed() == 0;
    emulated.allocation_faults().Clear();
    device.pinned().Trim();
    device.blocks().Trim();
    emulated.Finish();
    ASSERT_EQ(emulated.used_bytes(), used) << "request " << n;
    ASSERT_EQ(emulated.pinned_bytes(), pinned) << "request " << n;
    if (done) break;
  }
  EXPECT_GE(refused, 6);
}

TEST(CudaDeviceFaults, EveryRefusedCallThrowsWithItsName) {
  CudaDevice& device = TheDevice();
  EmulatedCuda& emulated = EmulatedCuda::Get();
  std::byte* const block = device.Allocate(4096, 256);
  std::byte* const host = device.pinned().Allocate(4096, 256);
  int failures = 0;
  for (int64_t n = 0; n < 200; ++n) {
    emulated.call_faults().FailRequest(n);
    try {
      device.CopyFromHost(block, host, 4096);
      const QueuePoint up = device.QueueCopyFromHost(block, host, 4096, device.ComputePoint(0));
      device.ComputeAfter(0, up);
      device.WaitFor(device.QueueCopyToHost(host, block, 4096, device.ComputePoint(0)));
      device.Fill(block, std::byte{1}, 10);
    } catch (const Error& error) {
      ++failures;
      EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
      EXPECT_NE(error.message().find("cudaErrorUnknown: unknown error"), std::string::npos)
          << error.message();
      EXPECT_EQ(error.message().find("cuda"), 0u) << error.message();
    }
    const bool done = emulated.call_faults().failed() == 0;
    emulated.call_faults().Clear();
    // Works again.
    device.Fill(block, std::byte{2}, 4096);
    std::byte seen;
    device.CopyToHost(&seen, block + 4095, 1);
    ASSERT_EQ(seen, std::byte{2});
    if (done) break;
  }
  EXPECT_GE(failures, 8);
  device.Release(block, 4096);
  device.pinned().Release(host, 4096);
}

TEST(CudaDeviceFaults, ALostDeviceIsAnErrorNotACrash) {
  CudaDevice& device = TheDevice();
  std::byte* const block = device.Allocate(16, 256);
  device.blocks().Trim();
  EmulatedCuda::Get().set_lost(true);
  std::byte value{};
  EXPECT_THROW(device.CopyToHost(&value, block, 1), Error);
  EXPECT_THROW(device.ComputePoint(0), Error);
  EXPECT_EQ(device.Allocate(16, 256), nullptr);
  EmulatedCuda::Get().set_lost(false);
  ForgetLossForTesting(device.device());
  device.Release(block, 16);
}

TEST(CudaDeviceFaults, NothingWaitsForTheWholeDevice) {
  CudaDevice& device = TheDevice();
  EmulatedCuda& emulated = EmulatedCuda::Get();
  const EmulatedCuda::Counters before = emulated.counters();
  for (int i = 0; i < 50; ++i) {
    std::byte* const block = device.Allocate(4096, 256);
    device.Fill(block, std::byte{1}, 4096);
    device.Release(block, 4096);
  }
  const EmulatedCuda::Counters after = emulated.counters();
  EXPECT_EQ(after.device_synchronizations, before.device_synchronizations);
  EXPECT_EQ(after.allocations, before.allocations);                // no cudaMalloc
  EXPECT_LE(after.pool_allocations, before.pool_allocations + 1);  // the block is used again
  EXPECT_LE(after.synchronizations - before.synchronizations,
            51);  // the fills', and once the pool's
}

TEST(CudaDeviceFaults, BlocksGivenBackWhileCapturingAreKept) {
  CudaDevice& device = TheDevice();
  std::byte* const block = device.Allocate(4096, 256);
  device.blocks().Trim();
  {
    const StreamCapture capture(device, 0);
    EXPECT_EQ(device.Allocate(16, 256), nullptr);
    EXPECT_THROW(device.ComputePoint(0), Error);
    device.Release(block, 4096);
    EXPECT_EQ(device.blocks().stats().kept_blocks, 0u);  // it is not anybody else's yet
  }
  EXPECT_EQ(device.blocks().stats().kept_blocks, 1u);
  EXPECT_EQ(device.Allocate(4096, 256), block);
  device.Release(block, 4096);
}

// How many of so many fills of the first queue had been done when a first copy into a block was, over all seeds.
TEST(CudaDeviceFaults, AFirstCopyIntoABlockIsNotBehindTheComputeQueue) {
  CudaDevice& device = TheDevice();
  EmulatedCuda& emulated = EmulatedCuda::Get();
  constexpr int kSeeds = 20, kFills = 40;
  std::byte* const host = device.pinned().Allocate(4096, 256);
  std::byte* const busy = device.Allocate(64, 256);
  for (const bool fresh : {true, false}) {
    int all_done = 0;
    for (int seed = 0; seed < kSeeds; ++seed) {
      emulated.Finish();
      emulated.set_seed(static_cast<uint64_t>(seed));
      device.blocks().Trim();
      std::byte* block = device.Allocate(4096, 256);
      if (!fresh) {  // used and given back before the fills come
        cudaMemsetAsync(block, 1, 4096, device.compute());
        device.Release(block, 4096);
      }
      const int64_t before = emulated.counters().fills;
      for (int i = 0; i < kFills; ++i) cudaMemsetAsync(busy, i, 64, device.compute());
      if (!fresh) {
        EXPECT_EQ(device.Allocate(4096, 256), block);
      }
      host[0] = static_cast<std::byte>(seed);
      device.WaitFor(device.QueueCopyFromHost(block, host, 4096, device.EarlierUses(block, 4096)));
      all_done += emulated.counters().fills - before >= kFills;
      std::byte seen;
      device.CopyToHost(&seen, block, 1);
      EXPECT_EQ(seen, static_cast<std::byte>(seed));
      device.Release(block, 4096);
    }
    EXPECT_LT(all_done, kSeeds / 2) << (fresh ? "fresh" : "used again");
  }
  device.Release(busy, 64);
  device.pinned().Release(host, 4096);
}

// A copy reads a block when it is released, and is under way when that is used again or goes back.
TEST(CudaDeviceFaults, BlocksGoBehindTheirCopies) {
  CudaDevice& device = TheDevice();
  EmulatedCuda& emulated = EmulatedCuda::Get();
  std::byte* const host = device.pinned().Allocate(4096, 256);
  for (int seed = 0; seed < 40; ++seed) {
    emulated.Finish();
    emulated.set_seed(static_cast<uint64_t>(seed));
    std::byte* const block = device.Allocate(4096, 256);
    cudaMemsetAsync(block, seed, 4096, device.compute());
    const QueuePoint copied = device.QueueCopyToHost(host, block, 4096, device.ComputePoint(0));
    device.Release(block, 4096);
    if (seed % 2 == 0) device.blocks().Trim();
    std::byte* const again = device.Allocate(4096, 256);
    cudaMemsetAsync(again, 255, 4096, device.compute());
    device.WaitFor(copied);
    EXPECT_EQ(host[4095], static_cast<std::byte>(seed));
    device.Release(again, 4096);
  }
  device.pinned().Release(host, 4096);
}

}  // namespace
}  // namespace tidepool::cuda
