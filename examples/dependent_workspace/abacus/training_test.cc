// LeNet trains on the abacus, which has a dozen of the operators: the others run on the host, and
// are counted.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <vector>

#include "abacus/abacus_device.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_fallback.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

namespace abacus {
namespace {

using namespace tidepool;

const Device kDevice{kAbacus, 0};
constexpr int64_t kImages = 200, kBatch = 20, kSteps = 10;

// "Digits" of 28 by 28: a bar for each class, and noise.
LabelledImages MakeDigits() {
  LabelledImages images{.count = kImages, .height = 28, .width = 28, .classes = 10};
  std::mt19937 random(1);
  for (int64_t i = 0; i < kImages; ++i) {
    const auto label = static_cast<uint8_t>(random() % 10);
    images.labels.push_back(label);
    for (int64_t pixel = 0; pixel < 28 * 28; ++pixel) {
      const bool bar = label < 5 ? pixel / 28 / 5 == label : pixel % 28 / 5 == label - 5;
      images.pixels.push_back(static_cast<uint8_t>(bar ? 200 + random() % 56 : random() % 60));
    }
  }
  return images;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> parameters;
};

Outcome Train(Device device, const LabelledImages& digits) {
  nn::Model model =
      nn::MakeModel("lenet", {28, 28, 1}, 10, /*seed=*/1, WorkspaceMode::kEnabled, device);
  nn::UpdaterConfig updater = nn::UpdaterConfig::Of(nn::UpdaterKind::kSgd);
  updater.learning_rate = 0.05;
  nn::Trainer trainer(model, updater);
  nn::ImageBatches batches(digits, kBatch);
  Outcome outcome;
  for (int64_t step = 0; step < kSteps; ++step) {
    outcome.losses.push_back(trainer.Step([&] { return batches.Make(step % batches.size()); }));
  }
  outcome.parameters = model.network->parameters().ToVector<float>();
  EXPECT_EQ(model.network->training_workspace().stats().misses, 0u) << DeviceName(device);
  return outcome;
}

TEST(Training, OfLeNetGivesTheLossesOfTheHostAndFallsBackForWhatTheDeviceHasNot) {
  const LabelledImages digits = MakeDigits();
  const Outcome host = Train(Host(), digits);
  EXPECT_EQ(DescribeHostFallbacks(), "");
  const Outcome there = Train(kDevice, digits);
  std::printf("on the host instead, in %d steps: %s\n", static_cast<int>(kSteps),
              DescribeHostFallbacks().c_str());
  EXPECT_LT(host.losses.back(), 0.7 * host.losses.front());
  for (int64_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(there.losses[step], host.losses[step], 1e-4 * host.losses[step]) << "step " << step;
  }
  for (size_t i = 0; i < host.parameters.size(); ++i) {
    ASSERT_NEAR(there.parameters[i], host.parameters[i], 1e-4) << "parameter " << i;
  }
  // None of what it has; all of what LeNet needs besides, as often as a step has it.
  for (const OpCode op :
       {OpCode::kFill, OpCode::kCopy, OpCode::kAdd, OpCode::kSubtract, OpCode::kMultiply,
        OpCode::kSquare, OpCode::kRelu, OpCode::kReluGrad, OpCode::kMatMul, OpCode::kConv2d,
        OpCode::kMaxPool2d, OpCode::kSgdUpdate}) {
    EXPECT_EQ(HostFallbacksOf(op), 0u) << Info(op).name;
  }
  EXPECT_EQ(HostFallbacksOf(OpCode::kConv2dGradFilter), 2u * kSteps);
  EXPECT_EQ(HostFallbacksOf(OpCode::kConv2dGradInput), 1u * kSteps);
  EXPECT_EQ(HostFallbacksOf(OpCode::kMaxPool2dGrad), 2u * kSteps);
  EXPECT_EQ(HostFallbacksOf(OpCode::kSoftmaxCrossEntropy), 1u * kSteps);
}

// An operator, or a type, that it has not is the host's, and what follows may be the device's
// again.
TEST(Fallback, IsCountedAndGoesBothWays) {
  const uint64_t before = HostFallbacksOf(OpCode::kTanh);
  const NDArray x = Full({3, 2}, 0.5).To(kDevice);
  const NDArray y = Add(Relu(Tanh(Add(x, x))), x);
  EXPECT_EQ(y.device(), kDevice);
  EXPECT_NEAR(y.ToVector<float>()[5], std::tanh(1.0) + 0.5, 1e-6);
  EXPECT_EQ(HostFallbacksOf(OpCode::kTanh), before + 1);
  EXPECT_EQ(HostFallbacksOf(OpCode::kRelu), 0u);
  const NDArray wide = Full({3}, 2, DType::kFloat64).To(kDevice);
  EXPECT_EQ(Multiply(wide, wide).ToVector<double>(), std::vector<double>(3, 4));
  EXPECT_EQ(HostFallbacksOf(OpCode::kMultiply), 1u);
}

TEST(Failure, OfAKernelIsToldWhereItIsWaitedForAndOnce) {
  const NDArray x = Ones({2}).To(kDevice);
  AbacusDevice::Find(0)->QueueKernel({}, [] { throw std::runtime_error("out of beads"); });
  const absl::Status status = CatchStatus([&] { x.ToVector<float>(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "abacus:0: queued work failed: out of beads");
  EXPECT_EQ(x.ToVector<float>(), std::vector<float>(2, 1));
}

}  // namespace
}  // namespace abacus
