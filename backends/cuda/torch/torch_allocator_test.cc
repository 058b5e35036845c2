// Order, ledger and limits of the blocks that PyTorch has from us, on the emulated devices.
#include "tidepool/backends/cuda/torch/torch_allocator.h"

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr Device kCuda{DeviceType::kCuda, 0};
constexpr size_t kBytes = 1 << 20;

class TorchAllocatorTest : public testing::Test {
 protected:
  void SetUp() override {
    device_ = cuda::CudaDevice::Find(0);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    Settle();
    used_ = emulated_.used_bytes();
  }
  void TearDown() override {
    MemoryBudget::Global().SetDeviceLimit(kCuda, MemoryBudget::kUnlimited);
    emulated_.set_capacity(size_t{1} << 30);
    emulated_.allocation_faults().Clear();
    Settle();
    EXPECT_EQ(emulated_.used_bytes(), used_);
    EXPECT_EQ(tidepool_device_bytes(0), 0);
    cudaStreamDestroy(stream_);
  }
  void Settle() {
    device_->blocks().Trim();
    emulated_.Finish();
  }

  EmulatedCuda& emulated_ = EmulatedCuda::Get();
  cuda::CudaDevice* device_ = nullptr;
  cudaStream_t stream_ = nullptr;
  size_t used_ = 0;
};

// The emulation ends the program where a fill finds no memory.
TEST_F(TorchAllocatorTest, ABlockGoesBehindWhatItsStreamWasGiven) {
  for (int seed = 0; seed < 20; ++seed) {
    emulated_.set_seed(static_cast<uint64_t>(seed));
    void* const block = tidepool_torch_malloc(kBytes, 0, stream_);
    for (int i = 0; i < 10; ++i) cudaMemsetAsync(block, i, kBytes, stream_);
    tidepool_torch_free(block, kBytes, 0, stream_);
    void* const next = tidepool_torch_malloc(kBytes, 0, nullptr);
    cudaMemsetAsync(next, 1, kBytes, nullptr);
    tidepool_torch_free(next, kBytes, 0, nullptr);
    emulated_.Finish();
  }
}

TEST_F(TorchAllocatorTest, ALimitOfTheDeviceIsPyTorchsToo) {
  MemoryBudget& budget = MemoryBudget::Global();
  budget.SetDeviceLimit(kCuda, budget.Of(kCuda).taken_bytes + static_cast<int64_t>(2 * kBytes));
  void* const block = tidepool_torch_malloc(kBytes, 0, stream_);
  EXPECT_EQ(tidepool_device_bytes(0), static_cast<int64_t>(kBytes));
  EXPECT_THROW(tidepool_torch_malloc(2 * kBytes, 0, stream_), OutOfMemoryError);
  EXPECT_EQ(tidepool_device_bytes(0), static_cast<int64_t>(kBytes));
  tidepool_torch_free(block, kBytes, 0, stream_);
  tidepool_torch_free(tidepool_torch_malloc(2 * kBytes, 0, stream_), 2 * kBytes, 0, stream_);
}

// What Tidepool keeps of its arrays goes before PyTorch is refused, also what is used still.
TEST_F(TorchAllocatorTest, KeptBlocksGoFirst) {
  std::byte* const ours = device_->Allocate(8 * kBytes, 256);
  cudaMemsetAsync(ours, 1, 8 * kBytes, device_->compute());
  emulated_.set_capacity(emulated_.used_bytes() + emulated_.kept_bytes() + kBytes);
  device_->Release(ours, 8 * kBytes);
  void* const theirs = tidepool_torch_malloc(8 * kBytes, 0, stream_);
  EXPECT_NE(theirs, nullptr);
  tidepool_torch_free(theirs, 8 * kBytes, 0, stream_);
}

TEST_F(TorchAllocatorTest, OtherErrorsOfTheDriverAreToldAndNothingStays) {
  emulated_.set_allocation_error(cudaErrorNotSupported);
  emulated_.allocation_faults().FailRequest(0, 100);
  try {
    tidepool_torch_malloc(kBytes, 0, stream_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
    EXPECT_NE(error.message().find("cudaErrorNotSupported"), std::string::npos) << error.message();
  }
  emulated_.set_allocation_error(cudaErrorMemoryAllocation);
}

TEST_F(TorchAllocatorTest, TheCurrentDeviceStays) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  void* const block = tidepool_torch_malloc(kBytes, 0, nullptr);
  int current = -1;
  cudaGetDevice(&current);
  EXPECT_EQ(current, 1);
  tidepool_torch_free(block, kBytes, 0, nullptr);
  cudaGetDevice(&current);
  EXPECT_EQ(current, 1);
  cudaSetDevice(0);
}

TEST_F(TorchAllocatorTest, AStreamThatIsCapturedIsRefused) {
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_THROW(tidepool_torch_malloc(kBytes, 0, stream_), Error);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace tidepool
