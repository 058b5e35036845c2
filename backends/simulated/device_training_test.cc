// A network trains on a device whose memory the host cannot touch and whose work is delayed and
// reordered: the same bits as on the host. Every allocation and copy fails once.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

const Device kDevice = SimulatedDevice::kDevice;
constexpr int64_t kBatch = 6;

Model MakeModel(Device device, WorkspaceMode mode = WorkspaceMode::kEnabled) {
  std::vector<AnyLayer> layers;
  layers.push_back(std::make_unique<Conv2D>(4, 3, 3, Activation::kRelu));
  layers.push_back(std::make_unique<MaxPool2D>());
  layers.push_back(std::make_unique<Dense>(16, Activation::kRelu));
  layers.push_back(std::make_unique<Dense>(5));
  return {"small", 5,
          std::make_unique<Network>(Shape{8, 8, 1}, std::move(layers), 17, mode, device)};
}

// Written by the host into arrays of wherever the step is.
Batch MakeBatch(int64_t step) {
  Batch batch(NDArray({kBatch, 8, 8, 1}, DType::kFloat32), NDArray({kBatch}, DType::kInt64));
  std::mt19937 random(static_cast<uint32_t>(step));
  float* const features = batch.features.mutable_data<float>();
  for (int64_t i = 0; i < batch.features.NumElements(); ++i) {
    features[i] = static_cast<float>(random() % 1000) / 1000;
  }
  int64_t* const labels = batch.labels.mutable_data<int64_t>();
  for (int64_t i = 0; i < kBatch; ++i) labels[i] = static_cast<int64_t>(random() % 5);
  return batch;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> parameters;
};

Outcome Train(Device device, WorkspaceMode mode, UpdaterKind updater, int steps) {
  Model model = MakeModel(device, mode);
  Trainer trainer(model, UpdaterConfig::Of(updater));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    outcome.losses.push_back(trainer.Step([&] { return MakeBatch(step); }));
  }
  outcome.parameters = model.network->parameters().ToVector<float>();
  return outcome;
}

class DeviceTrainingTest : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }  // which finds what is left
  void FailEach(WorkspaceMode mode);

  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(DeviceTrainingTest, TheBitsAreThoseOfTheHost) {
  for (UpdaterKind updater : {UpdaterKind::kAdam, UpdaterKind::kNesterovs}) {
    const Outcome host = Train(Host(), WorkspaceMode::kEnabled, updater, 6);
    EXPECT_LT(host.losses.back(), 10);
    for (WorkspaceMode mode :
         {WorkspaceMode::kEnabled, WorkspaceMode::kSingle, WorkspaceMode::kNone}) {
      for (uint64_t seed : {0, 1, 2, 3}) {
        SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << ", seed " << seed);
        device_.Reset();
        device_.set_has_pinned_host(seed % 2 == 1);
        if (seed > 0) device_.set_asynchronous(seed);
        const Outcome there = Train(kDevice, mode, updater, 6);
        EXPECT_EQ(there.losses, host.losses);
        EXPECT_EQ(there.parameters, host.parameters);
      }
    }
  }
}

TEST_F(DeviceTrainingTest, OutputsAndFeaturesOfTheHost) {
  Model here = MakeModel(Host()), there = MakeModel(kDevice);
  const Batch batch = MakeBatch(3);
  const NDArray expected = here.network->Output(batch.features);
  const NDArray output = there.network->Output(batch.features);
  EXPECT_EQ(output.device(), kDevice);
  EXPECT_EQ(output.ToVector<float>(), expected.ToVector<float>());
}

// For every n: no leak, nothing half done, and the step done again gives the bits of the host.
TEST_F(DeviceTrainingTest, TheNthRequestFails) {
  for (WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kNone}) FailEach(mode);
}

void DeviceTrainingTest::FailEach(WorkspaceMode mode) {
  constexpr int kSteps = 3;
  const Outcome host = Train(Host(), WorkspaceMode::kEnabled, UpdaterKind::kAdam, kSteps);
  int64_t failed_steps = 0, n = 0;
  for (bool more = true; more; ++n) {
    SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << ", request " << n);
    device_.Reset();
    device_.set_asynchronous(static_cast<uint64_t>(n) + 1);
    const int64_t host_bytes = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
    {
      Model model = MakeModel(kDevice, mode);
      Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
      device_.faults().FailRequest(n);
      std::vector<double> losses;
      while (losses.size() < kSteps) {
        const auto step = static_cast<int64_t>(losses.size());
        try {
          losses.push_back(trainer.Step([&] { return MakeBatch(step); }));
        } catch (const Error& error) {
          ++failed_steps;
          ASSERT_EQ(device_.faults().failed(), 1) << error.message();
          ASSERT_FALSE(model.network->training_workspace().is_open());
        }
      }
      more = device_.faults().failed() > 0;
      device_.faults().Clear();
      ASSERT_EQ(losses, host.losses);
      ASSERT_EQ(model.network->parameters().ToVector<float>(), host.parameters);
    }
    ASSERT_EQ(MemoryTracker::Global().Snapshot()[Host()].total.current_bytes, host_bytes);
    ASSERT_EQ(device_.used_bytes(), 0);
  }
  std::printf("%lld requests, %lld of them ended a step\n", static_cast<long long>(n - 1),
              static_cast<long long>(failed_steps));
  EXPECT_GT(failed_steps, 5);
}

TEST_F(DeviceTrainingTest, OutOfMemoryLeavesEverythingUsableAndCarriesTheLedger) {
  Model model = MakeModel(kDevice);
  Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
  const std::vector<float> before = model.network->parameters().ToVector<float>();
  device_.set_capacity(device_.used_bytes());
  for (int i = 0; i < 3; ++i) {
    try {
      trainer.Step([] { return MakeBatch(0); });
      ADD_FAILURE() << "there was memory";
    } catch (const OutOfMemoryError& error) {
      EXPECT_THAT(std::string(error.report()), testing::HasSubstr("simulated:0"));
    }
    EXPECT_EQ(model.network->parameters().ToVector<float>(), before);
  }
  device_.set_capacity(size_t{1} << 30);
  EXPECT_EQ(trainer.Step([] { return MakeBatch(0); }),
            Train(Host(), WorkspaceMode::kEnabled, UpdaterKind::kAdam, 1).losses[0]);
}

}  // namespace
}  // namespace tidepool::nn
