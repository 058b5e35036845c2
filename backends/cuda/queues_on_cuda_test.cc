// Several compute queues of a device, a stream of the caller's among them: each with its own cuBLAS handle, in
// cycles of a workspace and on the heap, with nobody having ordered them.
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/cuda_array_interface.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"

namespace tidepool {
namespace {

const Device kDevice{DeviceType::kCuda, 0};

TEST(QueuesOnCudaTest, ProductsAndSumsInQueuesOfOursAndTheCallers) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    const std::vector<DeviceQueue> queues = {DeviceQueue::First(kDevice), DeviceQueue::New(kDevice),
                                             DeviceQueue::Adopt(kDevice, stream)};
    Workspace workspace("queues", WorkspaceConfig::Training(), kDevice);
    std::mt19937 random(5);
    std::vector<NDArray> kept;
    std::vector<float> expected;
    for (int cycle = 0; cycle < 12; ++cycle) {
      const QueueScope began(queues[random() % 3]);
      WorkspaceScope scope(workspace);
      NDArray x = Full({16, 16}, 1, DType::kFloat32, Place::CurrentOn(kDevice));
      float value = 1;
      for (int step = 0; step < 6; ++step) {
        const QueueScope queue(queues[random() % 3]);
        switch (random() % 3) {
          case 0:
            x = MatMul(x, x);  // of arrays of one value
            value = value * value * 16;
            break;
          case 1:
            x = Add(x, x);
            value += value;
            break;
          default:  // by way of the host
            x.mutable_data<float>()[0] = value;
        }
        if (value > 1000) {
          x = Full({16, 16}, 1, DType::kFloat32, Place::CurrentOn(kDevice));
          value = 1;
        }
      }
      kept.push_back(x.Detach());
      expected.push_back(value);
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept[i].ToVector<float>(), std::vector<float>(256, expected[i])) << i;
    }
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// A stream of the caller's, which lives on when its queue has ended: so does the work of one of ours on a device,
// while the emulation does what is left when it is destroyed.
class Stream {
 public:
  explicit Stream(int seed) {
    EmulatedCuda::Get().Finish();
    EmulatedCuda::Get().set_seed(seed);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~Stream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  DeviceQueue Adopt() const { return DeviceQueue::Adopt(kDevice, stream_); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Sixteen times `value`, after a while.
NDArray Sum(int value, Place place) {
  NDArray x = Full({100000}, value, DType::kFloat32, place);
  for (int i = 0; i < 4; ++i) x = Add(x, x);
  return x;
}

TEST(QueuesOnCudaTest, TheHostWaitsForQueuesThatHaveEnded) {
  for (int seed = 0; seed < 20; ++seed) {
    const Stream stream(seed);
    NDArray x;
    {
      const QueueScope scope(stream.Adopt());
      x = Sum(seed, Place::On(kDevice));
    }
    EXPECT_EQ(x.ToVector<float>(), std::vector<float>(100000, 16.0f * seed));
  }
}

TEST(QueuesOnCudaTest, MemoryWaitsForQueuesThatHaveEnded) {
  for (int seed = 0; seed < 20; ++seed) {
    const Stream stream(seed);
    NDArray kept;
    {
      Workspace workspace("ends", WorkspaceConfig::Training(), kDevice);
      const QueueScope scope(stream.Adopt());
      for (int cycle = 0; cycle < 3; ++cycle) {
        WorkspaceScope open(workspace);
        kept = Sum(seed, Place::CurrentOn(kDevice)).Detach();
      }
    }  // the workspace goes after the queue
    EXPECT_EQ(Add(kept, kept).ToVector<float>(), std::vector<float>(100000, 32.0f * seed));
  }
}

// One whose end the device does not tell stays open until it does, and its number comes back then.
TEST(QueuesOnCudaTest, TheDeviceRefusesAPointWhenAQueueEnds) {
  for (int seed = 1; seed < 20; ++seed) {
    const Stream stream(seed);
    NDArray x;
    {
      std::optional<DeviceQueue> queue = stream.Adopt();
      {
        const QueueScope scope(*queue);
        x = Sum(seed, Place::On(kDevice));
      }
      EmulatedCuda::Get().call_faults().FailRequest(0, 3);
      queue.reset();
      EmulatedCuda::Get().call_faults().Clear();
    }
    EXPECT_EQ(Add(x, x).ToVector<float>(), std::vector<float>(100000, 32.0f * seed));
  }
}

// It would refuse every point that reads of arrays ask its queue for.
TEST(QueuesOnCudaTest, AStreamOfAnotherDeviceIsRefused) {
  const NDArray x = Full({20}, 1, DType::kFloat32, Place::On(kDevice));
  cudaStream_t other;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  for (int round = 0; round < 20; ++round) {  // no number of a queue is lost
    const absl::Status adopted = CatchStatus([&] { DeviceQueue::Adopt(kDevice, other); });
    EXPECT_EQ(adopted.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(adopted.message(), testing::HasSubstr("whose device is another"));
    EXPECT_THAT(adopted.message(), testing::HasSubstr("expected one of cuda:0"));
  }
  const absl::Status given =
      CatchStatus([&] { ToCudaArrayInterface(x, {.stream = reinterpret_cast<int64_t>(other)}); });
  EXPECT_EQ(given.code(), absl::StatusCode::kInvalidArgument) << given;
  CudaArrayInterface fields = ToCudaArrayInterface(x).fields();
  fields.stream = reinterpret_cast<int64_t>(other);
  int released = 0;
  const absl::Status taken =
      CatchStatus([&] { FromCudaArrayInterface(fields, kDevice, [&] { ++released; }); });
  EXPECT_EQ(taken.code(), absl::StatusCode::kInvalidArgument) << taken;
  EXPECT_EQ(released, 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(Add(x, x).ToVector<float>(), std::vector<float>(20, 2.0f));
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

}  // namespace
}  // namespace tidepool
