// DLPack on CUDA: what numbers of streams mean there, with streams of the other library that run late or early.
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice{DeviceType::kCuda, 0};
constexpr int64_t kElements = 100000;
constexpr size_t kBytes = kElements * sizeof(float);

std::vector<float> All(float value) { return std::vector<float>(kElements, value); }

// Sixteen times `value`, after a while.
NDArray Sum(float value) {
  NDArray x = Full({kElements}, value, DType::kFloat32, Place::On(kDevice));
  for (int i = 0; i < 4; ++i) x = Add(x, x);
  return x;
}

// Of the other library: its streams and its memory.
class Library {
 public:
  explicit Library(uint64_t seed) {
    EmulatedCuda::Get().Finish();
    EmulatedCuda::Get().set_seed(seed);
    EXPECT_EQ(cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory_, kBytes), cudaSuccess);
  }
  ~Library() {
    EmulatedCuda::Get().Finish();
    EXPECT_EQ(cudaStreamDestroy(own_), cudaSuccess);
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
  }
  // What it calls the streams of a number.
  cudaStream_t stream(std::optional<int64_t> number) const {
    if (!number.has_value() || *number == 1) return nullptr;
    return *number == 2 ? cudaStreamPerThread : own_;
  }
  // A stream of its own, and the defaults.
  std::vector<std::optional<int64_t>> numbers() const {
    return {reinterpret_cast<int64_t>(own_), 1, 2, std::nullopt};
  }
  void* memory() const { return memory_; }
  void Copy(void* to, const void* from, std::optional<int64_t> number) const {
    EXPECT_EQ(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream(number)),
              cudaSuccess);
  }
  // When all has been done.
  std::vector<float> Read() const {
    EmulatedCuda::Get().Finish();
    std::vector<float> values(kElements);
    EXPECT_EQ(cudaMemcpy(values.data(), memory_, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  cudaStream_t own_ = nullptr;
  void* memory_ = nullptr;
};

// Read late in the consumer's stream, released at once, and the memory had by others.
TEST(DLPackOnCudaTest, TheConsumersStreamIsBehindUsAndOurMemoryBehindIt) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (const bool elsewhere : {false, true}) {
      const Library library(seed);
      for (const std::optional<int64_t> number : library.numbers()) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << " stream " << number.value_or(-9));
        NDArray x = Sum(static_cast<float>(seed));
        DLManagedTensorVersioned* const tensor = ToDLPackVersioned(x, {.stream = number});
        EXPECT_EQ(tensor->dl_tensor.device.device_type, kDLCUDA);
        library.Copy(library.memory(), tensor->dl_tensor.data, number);
        x = NDArray();
        if (elsewhere) {
          std::thread([&] { tensor->deleter(tensor); }).join();
        } else {
          tensor->deleter(tensor);
        }
        for (int i = 0; i < 3; ++i) Full({kElements}, 1000, DType::kFloat32, Place::On(kDevice));
        EXPECT_EQ(library.Read(), All(16.0f * static_cast<float>(seed)));
      }
    }
  }
}

// The consumer writes late; what we do after its deleter sees that.
TEST(DLPackOnCudaTest, OurNextUseIsBehindTheConsumersWrites) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Library library(seed);
    const NDArray source = Sum(2);
    for (const std::optional<int64_t> number : library.numbers()) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " stream " << number.value_or(-9));
      NDArray x = Sum(1);
      source.ToVector<float>();  // it is there
      DLManagedTensor* const tensor = ToDLPack(x, {.stream = number});
      library.Copy(tensor->dl_tensor.data, source.raw_data(), number);
      tensor->deleter(tensor);
      EXPECT_EQ(Add(x, x).ToVector<float>(), All(64));
    }
  }
}

TEST(DLPackOnCudaTest, WeAreBehindTheProducersStreamAndItsMemoryBehindUs) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (const bool closed : {false, true}) {
      const Library library(seed);
      const NDArray before = Sum(3), after = Sum(50);
      for (const std::optional<int64_t> number : library.numbers()) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << " stream " << number.value_or(-9));
        struct Given {
          const Library* library;
          const NDArray* after;
          std::optional<int64_t> number;
        } given{&library, &after, number};
        int64_t shape[1] = {kElements};
        DLManagedTensor tensor = {};
        tensor.dl_tensor = {
            library.memory(), {kDLCUDA, 0}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
        tensor.manager_ctx = &given;
        tensor.deleter = [](DLManagedTensor* self) {  // uses its memory again at once
          const Given& of = *static_cast<Given*>(self->manager_ctx);
          of.library->Copy(of.library->memory(), of.after->raw_data(), of.number);
        };
        before.ToVector<float>();
        after.ToVector<float>();
        library.Copy(library.memory(), before.raw_data(), number);
        NDArray y = FromDLPack(&tensor, number);
        const NDArray sum = Add(y, y);
        if (closed) y.Close();
        y = NDArray();
        EXPECT_EQ(sum.ToVector<float>(), All(96));
        EXPECT_EQ(library.Read(), All(800));
      }
    }
  }
}

TEST(DLPackOnCudaTest, AQueueOfOursIsItselfAndZeroIsRefused) {
  const DeviceQueue side = DeviceQueue::New(kDevice);
  EXPECT_EQ(DeviceQueue::Adopt(kDevice, side.native()), side);
  EXPECT_EQ(DeviceQueue::Adopt(kDevice, DeviceQueue::First(kDevice).native()).number(), 0);
  const NDArray x = Sum(1);
  try {
    ToDLPack(x, {.stream = 0});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(error.message(),
              "to_dlpack: found stream 0 of cuda:0, expected 1 (the legacy default stream), 2 (the "
              "thread's), a "
              "cudaStream_t or -1; 0 may be either");
  }
  DLManagedTensor* const tensor = ToDLPack(x, {.stream = DLPackStreamOf(side)});
  tensor->deleter(tensor);
}

}  // namespace
}  // namespace tidepool
