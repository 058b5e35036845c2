// Memory, copies and points of a device, through the interface that memory/ sees.
#include "tidepool/backends/cuda/runtime/cuda_device.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"

namespace tidepool::cuda {
namespace {

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    device_ = CudaDevice::Find(0);
    if (device_ == nullptr) GTEST_SKIP() << "no CUDA device: " << CudaDevice::WhyAbsent();
  }
  std::vector<std::byte> Random(size_t bytes) {
    std::vector<std::byte> values(bytes);
    for (std::byte& value : values) value = static_cast<std::byte>(random_());
    return values;
  }
  std::vector<std::byte> Read(const std::byte* from, size_t bytes) {
    std::vector<std::byte> values(bytes);
    device_->CopyToHost(values.data(), from, bytes);
    return values;
  }

  CudaDevice* device_ = nullptr;
  std::mt19937 random_{20240601};
};

TEST_F(CudaDeviceTest, DescribesItself) {
  EXPECT_EQ(device_->device(), (Device{DeviceType::kCuda, 0}));
  EXPECT_EQ(device_->name(), "cuda:0");
  EXPECT_FALSE(device_->model().empty());
  EXPECT_GT(device_->multiprocessors(), 0);
  EXPECT_EQ(CudaDevice::Find(0), device_);
  EXPECT_EQ(CudaDevice::Find(CudaDevice::Count()), nullptr);
  EXPECT_EQ(CudaDevice::Find(-1), nullptr);
  const MemoryTraits traits = device_->traits();
  EXPECT_FALSE(traits.host_readable);
  EXPECT_EQ(traits.large_granularity % traits.granularity, 0u);
  EXPECT_GE(traits.reserve_bytes, device_->total_bytes());
  EXPECT_EQ(device_->PinnedHost()->device(), Host());
}

TEST_F(CudaDeviceTest, RangesGrowAndShrinkInPlace) {
  const MemoryTraits traits = device_->traits();
  std::byte* const base = device_->Reserve(4 * traits.large_granularity);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % traits.large_granularity, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % kMaxAlignment, 0u);
  ASSERT_TRUE(device_->Commit(base, traits.granularity, false));
  const std::vector<std::byte> values = Random(traits.granularity);
  device_->CopyFromHost(base, values.data(), values.size());
  ASSERT_TRUE(device_->Commit(base + traits.granularity, 3 * traits.granularity, true));
  EXPECT_EQ(Read(base, values.size()), values);
  // Over the border of two pieces.
  device_->Fill(base + traits.granularity - 8, std::byte{7}, 16);
  EXPECT_EQ(Read(base + traits.granularity - 8, 16), std::vector<std::byte>(16, std::byte{7}));
  ASSERT_TRUE(device_->Decommit(base + 2 * traits.granularity, 2 * traits.granularity));
  EXPECT_EQ(Read(base + traits.granularity, 8), std::vector<std::byte>(8, std::byte{7}));
  ASSERT_TRUE(device_->Commit(base + 2 * traits.granularity, traits.granularity, false));
  device_->Unreserve(base, 4 * traits.large_granularity);
}

TEST_F(CudaDeviceTest, LargePiecesAreGivenBackWhole) {
  const MemoryTraits traits = device_->traits();
  std::byte* const base = device_->Reserve(2 * traits.large_granularity);
  ASSERT_NE(base, nullptr);
  ASSERT_TRUE(device_->Commit(base, 2 * traits.large_granularity, true));
  EXPECT_FALSE(device_->Decommit(base + traits.granularity,
                                 2 * traits.large_granularity - traits.granularity));
  device_->Fill(base, std::byte{1}, 2 * traits.large_granularity);  // still there
  EXPECT_TRUE(device_->Decommit(base + traits.large_granularity, traits.large_granularity));
  device_->Unreserve(base, 2 * traits.large_granularity);
}

// Large pieces where they fit, and around them small ones, which are given back alone.
TEST_F(CudaDeviceTest, WhatIsAroundLargePiecesIsSmall) {
  const MemoryTraits traits = device_->traits();
  const size_t large = traits.large_granularity, small = traits.granularity;
  std::byte* const base = device_->Reserve(4 * large);
  ASSERT_NE(base, nullptr);
  ASSERT_TRUE(device_->Commit(base, large + small, true));
  device_->Fill(base, std::byte{1}, large + small);
  EXPECT_FALSE(device_->Decommit(base + small, large));
  EXPECT_TRUE(device_->Decommit(base + large, small));
  ASSERT_TRUE(device_->Commit(base + large, small, true));
  ASSERT_TRUE(
      device_->Commit(base + large + small, 2 * large, true));  // begins and ends beside large ones
  device_->Fill(base, std::byte{2}, 3 * large + small);
  EXPECT_TRUE(device_->Decommit(base + large + small, small));
  EXPECT_FALSE(device_->Decommit(base + 2 * large, small));
  EXPECT_TRUE(device_->Decommit(base + 2 * large, large + small));
  device_->Unreserve(base, 4 * large);
}

TEST_F(CudaDeviceTest, BlocksAreAlignedAndKeepTheirBytes) {
  std::vector<std::byte*> blocks;
  std::vector<std::vector<std::byte>> values;
  const std::vector<size_t> sizes = {1, 100, 4096, 100000, 3 << 20};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t alignment = size_t{256} << (2 * i);
    blocks.push_back(device_->Allocate(sizes[i], alignment));
    ASSERT_NE(blocks.back(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % alignment, 0u);
    values.push_back(Random(sizes[i]));
    device_->CopyFromHost(blocks.back(), values.back().data(), sizes[i]);
  }
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(Read(blocks[i], sizes[i]), values[i]);
  device_->CopyOnDevice(blocks[4], blocks[3], sizes[3]);
  EXPECT_EQ(Read(blocks[4], sizes[3]), values[3]);
  for (size_t i = 0; i < sizes.size(); ++i) device_->Release(blocks[i], sizes[i]);
}

TEST_F(CudaDeviceTest, TooMuchIsRefused) {
  EXPECT_EQ(device_->Allocate(device_->total_bytes() + 1, 256), nullptr);
  EXPECT_EQ(device_->Allocate(SIZE_MAX / 2, 256), nullptr);
  const size_t unit = device_->traits().large_granularity;
  const size_t bytes = device_->traits().reserve_bytes + 4 * unit;
  std::byte* const base = device_->Reserve(bytes);
  ASSERT_NE(base, nullptr);
  EXPECT_FALSE(device_->Commit(base, bytes, true));
  ASSERT_TRUE(device_->Commit(base, unit, true));  // nothing was left behind
  device_->Fill(base, std::byte{3}, unit);
  device_->Unreserve(base, bytes);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// Before the next one, which counts events: of what other tests of this process have had it knows nothing.
TEST_F(CudaDeviceTest, PointsThatHaveNotPassedHaveEventsOfTheirOwn) {
  std::byte* const block = device_->Allocate(1 << 20, 256);
  const int64_t created = device_->points().created();
  std::vector<QueuePoint> points;
  for (int i = 0; i < 40; ++i) {
    Check(cudaMemsetAsync(block, i, 1 << 20, device_->compute()), "cudaMemsetAsync");
    points.push_back(device_->ComputePoint(0));
  }
  EXPECT_LE(device_->points().created() - created, 40);
  for (const QueuePoint point : points) device_->WaitFor(point);
  for (const QueuePoint point : points) EXPECT_TRUE(device_->HasPassed(point));
  device_->Release(block, 1 << 20);
}

TEST_F(CudaDeviceTest, QueuedCopiesComeAfterTheirPointsAndBeforeWhatWaitsForThem) {
  constexpr size_t kBytes = 1 << 16;
  DeviceProvider& pinned = *device_->PinnedHost();
  std::byte* const block = device_->Allocate(kBytes, 256);
  std::byte* const copy = device_->Allocate(kBytes, 256);
  std::byte* const up = pinned.Allocate(kBytes, 256);
  std::byte* const down = pinned.Allocate(kBytes, 256);
  int64_t created = 0;  // by whatever used the device before, and by the first rounds
  for (int round = 0; round < 20; ++round) {
    if (round == 4) created = device_->points().created();
    const std::vector<std::byte> values = Random(kBytes);
    std::memcpy(up, values.data(), kBytes);
    const QueuePoint uploaded =
        device_->QueueCopyFromHost(block, up, kBytes, device_->ComputePoint(0));
    device_->ComputeAfter(0, uploaded);
    Check(cudaMemcpyAsync(copy, block, kBytes, cudaMemcpyDeviceToDevice, device_->compute()),
          "copy");
    const QueuePoint computed = device_->ComputePoint(0);
    const QueuePoint downloaded = device_->QueueCopyToHost(down, copy, kBytes, computed);
    while (!device_->HasPassed(uploaded)) std::this_thread::yield();
    device_->WaitFor(downloaded);
    ASSERT_TRUE(device_->HasPassed(computed));
    ASSERT_TRUE(device_->HasPassed(downloaded));
    ASSERT_EQ(std::memcmp(down, values.data(), kBytes), 0) << "round " << round;
  }
  EXPECT_TRUE(device_->HasPassed({}));
  device_->WaitFor({});
  EXPECT_EQ(device_->points().created(), created);  // events are used again
  device_->Release(block, kBytes);
  device_->Release(copy, kBytes);
  pinned.Release(up, kBytes);
  pinned.Release(down, kBytes);
}

TEST_F(CudaDeviceTest, PageLockedMemoryIsPooledAndCommitted) {
  PinnedMemory& pinned = device_->pinned();
  pinned.Trim();
  const auto unreferenced = [] {
    return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kUnreferenced);
  };
  const int64_t before = unreferenced();
  std::byte* const first = pinned.Allocate(5 << 20, 256);
  ASSERT_NE(first, nullptr);
  std::memset(first, 1, 5 << 20);
  pinned.Release(first, 5 << 20);
  EXPECT_EQ(unreferenced() - before, static_cast<int64_t>(pinned.kept_bytes()));
  EXPECT_GE(pinned.kept_bytes(), size_t{5} << 20);
  EXPECT_LE(pinned.kept_bytes(), size_t{6} << 20);  // rounded by less than a fifth
  EXPECT_EQ(pinned.Allocate(5 << 20, 256), first);
  EXPECT_EQ(pinned.kept_bytes(), 0u);
  pinned.Release(first, 5 << 20);
  EXPECT_GE(Reclaimer::Global().RunNow(), int64_t{5} << 20);
  EXPECT_EQ(pinned.kept_bytes(), 0u);
  EXPECT_EQ(unreferenced(), before);

  std::byte* const base = pinned.Reserve(1 << 20);
  ASSERT_NE(base, nullptr);
  ASSERT_TRUE(pinned.Commit(base, 65536, false));
  ASSERT_TRUE(pinned.Commit(base + 65536, 65536, false));
  std::memset(base, 5, 131072);
  EXPECT_FALSE(pinned.Decommit(base + 4096, 4096));
  EXPECT_TRUE(pinned.Decommit(base + 65536, 65536));
  EXPECT_EQ(base[100], std::byte{5});
  pinned.Unreserve(base, 1 << 20);
}

TEST_F(CudaDeviceTest, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 25; ++i) {
        std::byte* const block = device_->Allocate(1000, 256);
        ASSERT_NE(block, nullptr);
        device_->Fill(block, static_cast<std::byte>(t), 1000);
        std::byte seen[1000];
        device_->CopyToHost(seen, block, 1000);
        for (std::byte value : seen) ASSERT_EQ(value, static_cast<std::byte>(t));
        device_->Release(block, 1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaDeviceTest, CopiesBetweenDevices) {
  CudaDevice* const other = CudaDevice::Find(1);
  if (other == nullptr) GTEST_SKIP() << "there is one device";
  std::byte* const block = device_->Allocate(16, 256);
  std::byte* const elsewhere = other->Allocate(16, 256);
  device_->Fill(block, std::byte{7}, 16);
  CopyBytes(other->device(), elsewhere, device_->device(), block, 16);
  std::byte seen[16];
  other->CopyToHost(seen, elsewhere, 16);
  for (std::byte value : seen) EXPECT_EQ(value, std::byte{7});
  other->Release(elsewhere, 16);
  device_->Release(block, 16);
}

TEST_F(CudaDeviceTest, QueuesAreStreamsOfOursOrTheCallers) {
  cudaStream_t theirs = nullptr;
  ASSERT_EQ(cudaStreamCreate(&theirs), cudaSuccess);
  {
    const DeviceQueue ours = DeviceQueue::New(device_->device());
    const DeviceQueue adopted = DeviceQueue::Adopt(device_->device(), theirs);
    EXPECT_NE(ours.native(), nullptr);
    EXPECT_NE(ours.native(), DeviceQueue::First(device_->device()).native());
    EXPECT_EQ(adopted.native(), theirs);
    EXPECT_EQ(device_->compute(adopted.number()), theirs);
    // Work of one behind that of another, which nobody waits for here.
    std::byte* const block = device_->Allocate(1 << 16, 256);
    adopted.After(DeviceQueue::First(device_->device()));
    cudaMemsetAsync(block, 1, 1 << 16, theirs);
    ours.After(adopted);
    cudaMemsetAsync(block, 2, 1 << 15, static_cast<cudaStream_t>(ours.native()));
    std::byte seen[2];
    {
      const QueueScope scope(ours);  // what is done at once comes behind all of them
      device_->CopyToHost(seen, block, 1);
      device_->CopyToHost(seen + 1, block + (1 << 15), 1);
    }
    EXPECT_EQ(seen[0], std::byte{2});
    EXPECT_EQ(seen[1], std::byte{1});
    const QueueScope scope(adopted);
    device_->Release(block, 1 << 16);
  }
  // The caller's is still there.
  EXPECT_EQ(cudaStreamSynchronize(theirs), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(theirs), cudaSuccess);
}

}  // namespace
}  // namespace tidepool::cuda
