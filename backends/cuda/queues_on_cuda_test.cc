// Several compute queues of a device, a stream of the caller's among them: each with its own cuBLAS handle, in
// cycles of a workspace and on the heap, with nobody having ordered them.
#include <cstdint>
#include <random>
#include <vector>

#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
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

}  // namespace
}  // namespace tidepool
