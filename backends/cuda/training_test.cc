// The networks of the repository, trained on a device: the host's losses within rounding, and the same
// bits in every run and mode.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

#ifdef TIDEPOOL_EMULATED
#include "cuda_runtime_api.h"
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

const LabelledImages& Digits() {
  static const LabelledImages& digits = *new LabelledImages(LoadImageFolder(kDigits).train);
  return digits;
}

bool IsPageLocked(const NDArray& array) {
#ifdef TIDEPOOL_EMULATED
  cudaPointerAttributes attributes;
  return cudaPointerGetAttributes(&attributes, array.raw_data()) == cudaSuccess &&
         attributes.type == cudaMemoryTypeHost;
#else
  return array.device() == Host();
#endif
}

Outcome Train(const std::string& name, Device device, UpdaterKind updater, int steps, int64_t batch,
              WorkspaceMode mode = WorkspaceMode::kEnabled) {
  Model model = MakeModel(name, {28, 28, 1}, 10, 17, mode, device);
  Trainer trainer(model, UpdaterConfig::Of(updater));
  ImageBatches batches(Digits(), batch);
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

// Copies of page-locked memory run when the device comes to them: a slot is not written again before.
TEST_F(CudaTraining, BatchesMadeAheadLieInPageLockedMemoryUntilTheyAreCopied) {
  constexpr int kSteps = 24;
  const Outcome direct = Train("mlp", kDevice, UpdaterKind::kAdam, kSteps, 8);
  for (const int producers : {1, 3}) {
    Model model = MakeModel("mlp", {28, 28, 1}, 10, 17, WorkspaceMode::kEnabled, kDevice);
    Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
    ImageBatches batches(Digits(), 8);
    batches.Shuffle(17, 1);
    FunctionIterator<DataSet> source(kSteps, [&](int64_t i) { return batches.Make(i); });
    AsyncDataSetIterator ahead(source, {.prefetch = 2, .producers = producers, .device = kDevice});
    // Until each slot has learned how large a batch is.
    for (int round = 0; round < 4; ++round, ahead.Reset()) {
      std::vector<DataSet> all;
      while (all.size() < 3) all.push_back(*ahead.Next());
    }
    std::vector<double> losses;
    int64_t learned = 0;
    for (int i = 0; i < kSteps; ++i) {
      std::optional<DataSet> batch = ahead.Next();
      ASSERT_TRUE(batch.has_value());
      ASSERT_EQ(batch->features.device(), Host());
      ASSERT_TRUE(batch->features.IsAttached());
      ASSERT_TRUE(IsPageLocked(batch->features)) << i;
      ASSERT_TRUE(IsPageLocked(batch->labels)) << i;
      if (i == 3) learned = DriverCalls();
      losses.push_back(trainer.Step([&] { return std::move(*batch); }));
    }
    EXPECT_EQ(DriverCalls() - learned, 0);
    EXPECT_EQ(losses, direct.losses);
    EXPECT_EQ(model.network->parameters().ToVector<float>(), direct.parameters);
    EXPECT_GT(ahead.ring_stats().hits, 0u);
    EXPECT_EQ(ahead.ring_stats().leaked_arrays, 0u);
  }
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
