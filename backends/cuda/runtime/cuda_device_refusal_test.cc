// What refusals are told as and what they leave behind, and whose the pool is. Only the emulation can show it.
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/testing/failing_new.h"

namespace tidepool::cuda {
namespace {

CudaDevice& TheDevice() { return *CudaDevice::Find(0); }

// What ThrowIfLost says after a refusal; empty: it was memory that lacked.
std::string Reason(DeviceProvider& provider) {
  try {
    provider.ThrowIfLost("request");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
    return error.message();
  }
}

constexpr size_t kContext = size_t{3} << 20;
const bool contexts_take_memory = [] {
  EmulatedCuda::Get().set_context_bytes(kContext);
  return true;
}();

// Also the first question after free memory would make it.
TEST(CudaDeviceContext, WhatItTakesIsOnTheLedger) {
  for (const int index : {0, 1}) {
    const Device device = CudaDevice::Find(index)->device();
    EXPECT_EQ(MemoryTracker::Global().CurrentBytes(device, MemoryKind::kExternal),
              static_cast<int64_t>(kContext))
        << index;
  }
}

class CudaDeviceRefusals : public testing::Test {
 protected:
  void TearDown() override {
    EmulatedCuda& emulated = EmulatedCuda::Get();
    emulated.allocation_faults().Clear();
    emulated.set_allocation_error(cudaErrorMemoryAllocation);
    emulated.set_capacity(size_t{1} << 30);
  }
  // The next requests of the driver, all of them.
  void Refuse(int error) {
    EmulatedCuda::Get().set_allocation_error(error);
    EmulatedCuda::Get().allocation_faults().FailRequest(0, 1000);
  }
};

TEST_F(CudaDeviceRefusals, ErrorsThatAreNotLackOfMemorySayWhatTheyAre) {
  CudaDevice& device = TheDevice();
  const size_t unit = device.traits().granularity;
  std::byte* const base = device.Reserve(4 * unit);
  device.blocks().Trim();
  device.pinned().Trim();

  Refuse(cudaErrorNotSupported);
  EXPECT_EQ(device.Allocate(1000, 256), nullptr);
  EXPECT_EQ(
      Reason(device),
      "request: cuda:0: cudaMallocFromPoolAsync: cudaErrorNotSupported: operation not supported");
  EXPECT_EQ(Reason(device), "") << "it is told once";
  EXPECT_FALSE(device.Commit(base, unit, false));
  EXPECT_EQ(Reason(device),
            "request: cuda:0: cuMemCreate: CUDA_ERROR_NOT_SUPPORTED: operation not supported");
  EXPECT_EQ(device.Reserve(4 * unit), nullptr);
  EXPECT_EQ(
      Reason(device),
      "request: cuda:0: cuMemAddressReserve: CUDA_ERROR_NOT_SUPPORTED: operation not supported");
  EXPECT_EQ(device.pinned().Allocate(1000, 256), nullptr);
  EXPECT_EQ(Reason(device.pinned()),
            "request: cuda:0: cudaHostAlloc: cudaErrorNotSupported: operation not supported");

  // Nothing of it is taken for the reason of a later refusal, or of another thread's.
  EXPECT_EQ(device.Allocate(1000, 256), nullptr);
  std::thread([&] { EXPECT_EQ(Reason(device), ""); }).join();
  Refuse(cudaErrorMemoryAllocation);
  EXPECT_EQ(device.Allocate(1000, 256), nullptr);
  EXPECT_EQ(Reason(device), "");
  EXPECT_FALSE(device.Commit(base, unit, false));
  EXPECT_EQ(Reason(device), "");
  Refuse(cudaErrorNotSupported);
  EXPECT_EQ(device.Allocate(1000, 256), nullptr);
  EmulatedCuda::Get().allocation_faults().Clear();
  std::byte* const block = device.Allocate(1000, 256);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(Reason(device), "");
  device.Release(block, 1000);
  device.Unreserve(base, 4 * unit);
}

// What a kept block is still used by has been waited for, and the block is the driver's again, before pages are refused.
TEST_F(CudaDeviceRefusals, PagesGetWhatKeptBlocksStillUsed) {
  CudaDevice& device = TheDevice();
  EmulatedCuda& emulated = EmulatedCuda::Get();
  const size_t unit = device.traits().granularity, bytes = 16 * unit;
  for (int seed = 0; seed < 10; ++seed) {
    emulated.set_seed(static_cast<uint64_t>(seed));
    std::byte* const base = device.Reserve(bytes);
    std::byte* const block = device.Allocate(bytes, 256);
    emulated.set_capacity(emulated.used_bytes() + emulated.kept_bytes() + 2 * unit);
    for (int i = 0; i < 20; ++i) cudaMemsetAsync(block, i, bytes, device.compute());
    device.Release(block, bytes);
    EXPECT_TRUE(device.Commit(base, bytes, false)) << "seed " << seed;
    device.Unreserve(base, bytes);
    emulated.set_capacity(size_t{1} << 30);
  }
}

TEST_F(CudaDeviceRefusals, NotReadyIsNotLeftBehindAsTheLastError) {
  CudaDevice& device = TheDevice();
  std::byte* const block = device.Allocate(4096, 256);
  cudaGetLastError();
  int not_ready = 0;
  for (int seed = 0; seed < 20; ++seed) {
    EmulatedCuda::Get().set_seed(static_cast<uint64_t>(seed));
    for (int i = 0; i < 20; ++i) cudaMemsetAsync(block, i, 4096, device.compute());
    const QueuePoint point = device.ComputePoint(0);
    not_ready += device.HasPassed(point) ? 0 : 1;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    device.ComputePoint(0);  // which looks at the oldest points
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    device.ThrowIfLost("test");
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    device.WaitFor(point);
  }
  EXPECT_GT(not_ready, 0);
  device.Release(block, 4096);
}

TEST_F(CudaDeviceRefusals, LackOfTheHostsMemoryLosesNoBlockAndNoPages) {
  CudaDevice& device = TheDevice();
  EmulatedCuda& emulated = EmulatedCuda::Get();
  device.blocks().Trim();
  emulated.Finish();
  const size_t unit = device.traits().granularity, used = emulated.used_bytes();
  std::byte* const base = device.Reserve(8 * unit);
  std::byte* const host = device.pinned().Reserve(1 << 20);
  fault_spares = &EmulatedCuda::in_call;
  int faults = 0;
  for (int64_t n = 0; n < 100; ++n) {
    // So many points that are not seen to have passed that each request needs a new event.
    for (int i = 0; i < 3; ++i) device.ComputePoint(0);
    bool committed = false, pinned = false;
    std::byte* block = nullptr;
    until_fault = n;
    fault_happened = false;
    faults_on = true;
    block = device.Allocate(1000, 256);
    committed = device.Commit(base, 2 * unit, false);
    pinned = device.pinned().Commit(host, 65536, false);
    try {
      device.ComputePoint(0);
    } catch (const std::bad_alloc&) {
    }
    faults_on = false;
    faults += fault_happened ? 1 : 0;
    if (block != nullptr) device.Release(block, 1000);
    if (committed) {
      EXPECT_TRUE(device.Decommit(base, 2 * unit));
    }
    if (pinned) {
      EXPECT_TRUE(device.pinned().Decommit(host, 65536));
    }
    device.blocks().Trim();
    device.WaitFor(device.ComputePoint(0));
    emulated.Finish();
    ASSERT_EQ(emulated.used_bytes(), used) << "allocation " << n;
    if (!fault_happened) break;
  }
  fault_spares = nullptr;
  EXPECT_GE(faults, 5);
  device.pinned().Unreserve(host, 1 << 20);
  device.Unreserve(base, 8 * unit);
}

// Others of the program have the device's default pool: PyTorch's cudaMallocAsync backend, libraries.
TEST_F(CudaDeviceRefusals, ThePoolIsNotTheDefaultOne) {
  CudaDevice& device = TheDevice();
  cudaMemPool_t theirs;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&theirs, 0), cudaSuccess);
  uint64_t threshold = 1;
  ASSERT_EQ(cudaMemPoolGetAttribute(theirs, cudaMemPoolAttrReleaseThreshold, &threshold),
            cudaSuccess);
  EXPECT_EQ(threshold, 0u) << "what it keeps is theirs to say";
  void* block = nullptr;
  ASSERT_EQ(cudaMallocAsync(&block, 1 << 20, device.compute()), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(block, device.compute()), cudaSuccess);
  EmulatedCuda::Get().Finish();
  const int64_t kept = device.kept_bytes();
  std::byte* const ours = device.Allocate(4096, 256);
  EXPECT_LT(device.kept_bytes() - kept, 1 << 20) << "what theirs keeps is not on our ledger";
  device.Release(ours, 4096);
  device.blocks().Trim();
  uint64_t reserved = 0;
  ASSERT_EQ(cudaMemPoolGetAttribute(theirs, cudaMemPoolAttrReservedMemCurrent, &reserved),
            cudaSuccess);
  EXPECT_EQ(reserved, 1u << 20);
}

}  // namespace
}  // namespace tidepool::cuda
