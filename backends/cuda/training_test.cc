// The networks of the repository, trained on a device: the host's losses within rounding, and the same
// bits in every run and mode.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

#ifdef TIDEPOOL_EMULATED
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#endif

namespace tidepool::nn {
namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};
constexpr char kDigits[] = "examples/data/mnist";  // from where tests are run

struct Outcome {
  std::vector<double> losses;
  std::vector<float> parameters;
  // From the fourth step on: calls of the driver for memory, of the device or page-locked. The emulation
  // counts them.
  int64_t late_driver_calls = 0;
};

int64_t DriverCalls() {
#ifdef TIDEPOOL_EMULATED
  const EmulatedCuda::Counters counters = EmulatedCuda::Get().counters();
  return counters.allocations + counters.frees + counters.pool_allocations + counters.pool_frees +
         counters.maps + counters.unmaps + counters.host_allocations + counters.host_frees +
         counters.device_synchronizations;
#else
  return 0;
#endif
}

Outcome Train(const std::string& name, Device device, UpdaterKind updater, int steps, int64_t batch,
              WorkspaceMode mode = WorkspaceMode::kEnabled) {
  static const LabelledImages& digits = *new LabelledImages(LoadImageFolder(kDigits).train);
  Model model = MakeModel(name, {28, 28, 1}, 10, 17, mode, device);
  Trainer trainer(model, UpdaterConfig::Of(updater));
  ImageBatches batches(digits, batch);
  batches.Shuffle(17, 1);
  Outcome run;
  int64_t learned = 0;
  for (int i = 0; i < steps; ++i) {
    if (i == 3) learned = DriverCalls();
    run.losses.push_back(trainer.Step([&] { return batches.Make(i); }));
  }
  if (steps > 3) run.late_driver_calls = DriverCalls() - learned;
  run.parameters = model.network->parameters().ToVector<float>();
  return run;
}

class CudaTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (FindDeviceProvider(kDevice) == nullptr) GTEST_SKIP() << "no CUDA device";
    if (!std::filesystem::exists(kDigits)) GTEST_SKIP() << "no digits at " << kDigits;
  }
};

void ExpectClose(const Outcome& device, const Outcome& host) {
  ASSERT_EQ(device.losses.size(), host.losses.size());
  for (size_t i = 0; i < host.losses.size(); ++i) {
    EXPECT_NEAR(device.losses[i], host.losses[i], 1e-4 * std::abs(host.losses[i])) << "step " << i;
  }
  double largest = 0, square = 0;
  for (size_t i = 0; i < host.parameters.size(); ++i) {
    const double difference = std::abs(device.parameters[i] - host.parameters[i]);
    largest = std::max(largest, difference);
    square += difference * difference;
  }
  // Adam divides by the root of a gradient's square: where that is hardly more than rounding, so is the
  // step's sign. Of all parameters together that is nothing.
  EXPECT_LT(std::sqrt(square / static_cast<double>(host.parameters.size())), 1e-5);
  EXPECT_LT(largest, 5e-3);
}

TEST_F(CudaTraining, MlpFollowsTheHost) {
  for (UpdaterKind updater : {UpdaterKind::kSgd, UpdaterKind::kNesterovs, UpdaterKind::kAdam}) {
    ExpectClose(Train("mlp", kDevice, updater, 5, 8), Train("mlp", Host(), updater, 5, 8));
  }
}

TEST_F(CudaTraining, LenetFollowsTheHost) {
  ExpectClose(Train("lenet", kDevice, UpdaterKind::kSgd, 3, 4),
              Train("lenet", Host(), UpdaterKind::kSgd, 3, 4));
}

TEST_F(CudaTraining, RunsAndModesGiveTheSameBits) {
  const Outcome first = Train("mlp", kDevice, UpdaterKind::kAdam, 5, 8);
  const Outcome again = Train("mlp", kDevice, UpdaterKind::kAdam, 5, 8);
  const Outcome none = Train("mlp", kDevice, UpdaterKind::kAdam, 5, 8, WorkspaceMode::kNone);
  EXPECT_EQ(first.losses, again.losses);
  EXPECT_EQ(first.parameters, again.parameters);
  EXPECT_EQ(first.losses, none.losses);
  EXPECT_EQ(first.parameters, none.parameters);
}

TEST_F(CudaTraining, ASteadyStepAsksTheDriverForNothing) {
#ifndef TIDEPOOL_EMULATED
  GTEST_SKIP() << "the driver does not count its calls";
#endif
  EXPECT_EQ(Train("mlp", kDevice, UpdaterKind::kAdam, 8, 8).late_driver_calls, 0);
  EXPECT_EQ(Train("lenet", kDevice, UpdaterKind::kSgd, 6, 2).late_driver_calls, 0);
}

}  // namespace
}  // namespace tidepool::nn
