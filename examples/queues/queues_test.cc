// The code of docs/queues.md: each part between two lines "// [name]" stands there.
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

const Device kDevice = SimulatedDevice::kDevice;

// [side]
TEST(Queues, WorkBesideOtherWork) {
  const DeviceQueue side = DeviceQueue::New(kDevice);
  const NDArray w = Full({1000}, 2, DType::kFloat32, Place::On(kDevice));
  NDArray y;
  {
    QueueScope scope(side);
    y = Multiply(w, w);  // in `side`, behind what made w
  }
  NDArray z = Add(w, w);                   // in the first queue, beside it
  EXPECT_EQ(Add(y, z).At<float>({0}), 8);  // behind both
}
// [side]

// [service]
TEST(Queues, AThreadEach) {
  const NDArray weights = Full({1000}, 3, DType::kFloat32, Place::On(kDevice));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      QueueScope scope(DeviceQueue::New(kDevice));  // ends with its last handle, here the scope's
      Workspace workspace("requests", WorkspaceConfig::Training(), kDevice);
      for (int request = 0; request < 10; ++request) {
        WorkspaceScope cycle(workspace);  // its memory is used again in this queue's order
        NDArray x = Full({1000}, request, DType::kFloat32, Place::CurrentOn(kDevice));
        EXPECT_EQ(Multiply(weights, x).At<float>({999}), 3 * request);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
// [service]

}  // namespace
}  // namespace tidepool
