// The networks written with operators alone, on cuda:0: the losses are the host's within rounding, and the
// same bits in every run.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "tidepool/examples/networks/lstm_classifier.h"
#include "tidepool/examples/networks/residual_net.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool::examples {
namespace {

constexpr Device kCuda{DeviceType::kCuda, 0};
constexpr int64_t kBatch = 4;
constexpr int kSteps = 6, kClasses = 3;

using Step = std::function<double(const NDArray& features, const NDArray& labels)>;

std::vector<double> Train(const std::function<Step(Device)>& make, const Shape& shape,
                          Device device) {
  const Step step = make(device);
  const NDArray features = RandomUniform(shape, -1, 1, 9, 0, Place::Heap()).To(device);
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < kBatch; ++i) classes.push_back(i % kClasses);
  const NDArray labels = FromValues(classes, {kBatch}).To(device);
  Workspace workspace("step", WorkspaceConfig::Training(), device);
  std::vector<double> losses;
  for (int i = 0; i < kSteps; ++i) {
    const WorkspaceScope scope(workspace);
    losses.push_back(step(features, labels));
  }
  EXPECT_EQ(workspace.stats().leaked_arrays, 0u);
  EXPECT_EQ(workspace.stats().misses, 0u);
  return losses;
}

void Compare(const std::function<Step(Device)>& make, const Shape& shape) {
  if (FindDeviceProvider(kCuda) == nullptr) GTEST_SKIP() << "no cuda:0";
  const std::vector<double> host = Train(make, shape, Host());
  const std::vector<double> device = Train(make, shape, kCuda);
  for (int i = 0; i < kSteps; ++i) {
    std::printf("step %d: host %.8f, cuda:0 %.8f\n", i, host[i], device[i]);
    EXPECT_NEAR(device[i], host[i], 1e-4 * host[0]);
  }
  EXPECT_LT(host.back(), host.front());
  EXPECT_EQ(Train(make, shape, kCuda), device);
}

TEST(NetworksOnDeviceTest, ResidualNet) {
  Compare(
      [](Device device) -> Step {
        const auto net =
            std::make_shared<ResidualNet>(1, std::vector<int64_t>{4, 8}, kClasses, 3, device);
        return
            [net](const NDArray& x, const NDArray& labels) { return net->Step(x, labels, 0.05); };
      },
      {kBatch, 6, 6, 1});
}

TEST(NetworksOnDeviceTest, Lstm) {
  Compare(
      [](Device device) -> Step {
        const auto net = std::make_shared<LstmClassifier>(5, 8, kClasses, 5, device);
        return [net](const NDArray& x, const NDArray& labels) { return net->Step(x, labels, 0.2); };
      },
      {4, kBatch, 5});
}

}  // namespace
}  // namespace tidepool::examples
