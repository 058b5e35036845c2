// LeNet trains on the abacus, which has a dozen of the operators: the others run on the host, and
// are counted.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "abacus/abacus_device.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_fallback.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
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

// How often operators that were to run on the device ran on the host since this was made.
class Fallbacks {
 public:
  Fallbacks() {
    for (int op = 0; op < OperatorCount(); ++op) before_.push_back(HostFallbacksOf(OpCode(op)));
  }
  uint64_t Of(OpCode op) const { return HostFallbacksOf(op) - before_[static_cast<int>(op)]; }

 private:
  std::vector<uint64_t> before_;
};

TEST(Training, OfLeNetGivesTheLossesOfTheHostAndFallsBackForWhatTheDeviceHasNot) {
  const LabelledImages digits = MakeDigits();
  const Outcome host = Train(Host(), digits);
  const Fallbacks fallbacks;
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
  // None of what it has; what LeNet needs besides, as often as a step has it.
  for (const OpCode op :
       {OpCode::kFill, OpCode::kCopy, OpCode::kAdd, OpCode::kSubtract, OpCode::kMultiply,
        OpCode::kSquare, OpCode::kRelu, OpCode::kReluGrad, OpCode::kMatMul, OpCode::kConv2d,
        OpCode::kMaxPool2d, OpCode::kSgdUpdate}) {
    EXPECT_EQ(fallbacks.Of(op), 0u) << Info(op).name;
  }
  EXPECT_EQ(fallbacks.Of(OpCode::kConv2dGradFilter), 2u * kSteps);
  EXPECT_EQ(fallbacks.Of(OpCode::kConv2dGradInput), 1u * kSteps);
  EXPECT_EQ(fallbacks.Of(OpCode::kMaxPool2dGrad), 2u * kSteps);
  EXPECT_EQ(fallbacks.Of(OpCode::kSoftmaxCrossEntropy), 1u * kSteps);
}

TEST(Fallback, IsForOperatorsTypesAndCallsThatTheDeviceHasNot) {
  const Fallbacks fallbacks;
  const NDArray x = Full({3, 2}, 0.5).To(kDevice);
  const NDArray y = Add(Relu(Tanh(Add(x, x))), x);  // there, back, and there again
  EXPECT_EQ(y.device(), kDevice);
  EXPECT_NEAR(y.ToVector<float>()[5], std::tanh(1.0) + 0.5, 1e-6);
  EXPECT_EQ(fallbacks.Of(OpCode::kTanh), 1u);
  EXPECT_EQ(fallbacks.Of(OpCode::kRelu) + fallbacks.Of(OpCode::kAdd), 0u);

  const NDArray wide = Full({3}, 2, DType::kFloat64).To(kDevice);
  EXPECT_EQ(Multiply(wide, wide).ToVector<double>(), std::vector<double>(3, 4));
  EXPECT_EQ(fallbacks.Of(OpCode::kMultiply), 1u);

  const NDArray image = Ones({1, 3, 3, 1}), filter = Ones({1, 3, 3, 1});
  const Conv2dAttributes padded{.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1};
  for (const Conv2dAttributes& attributes : {Conv2dAttributes(), padded}) {
    EXPECT_EQ(Conv2d(image.To(kDevice), filter.To(kDevice), nullptr, attributes).ToVector<float>(),
              Conv2d(image, filter, nullptr, attributes).ToVector<float>());
  }
  EXPECT_EQ(fallbacks.Of(OpCode::kConv2d), 1u);
}

TEST(Fallback, IsAnErrorWhereItIsNotAllowed) {
  WorkspaceConfig config;
  config.helper_allow_fallback = false;
  Workspace workspace("strict", config, kDevice);
  WorkspaceScope scope(workspace);
  const NDArray x = Full({3}, 0.5);
  EXPECT_EQ(x.device(), kDevice);
  const std::string message(CatchStatus([&] { Tanh(x); }).message());
  EXPECT_EQ(
      message.find("Op [tanh]: no kernel for f32 on abacus:0 is linked; linked providers: abacus,"),
      0u)
      << message;
  EXPECT_NE(
      message.find("not done on the host, as helper_allow_fallback of workspace [strict] is off"),
      std::string::npos)
      << message;
  EXPECT_EQ(Relu(x).ToVector<float>(), std::vector<float>(3, 0.5));
}

TEST(Threads, UseTheDeviceTogether) {
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      Workspace workspace("thread", WorkspaceConfig(), kDevice);
      for (int cycle = 0; cycle < 40; ++cycle) {
        WorkspaceScope scope(workspace);
        NDArray sum = Full({30, 40}, thread);
        for (int i = 0; i < 5; ++i) sum = Add(Multiply(sum, sum), Full({40}, i));
        float expected = static_cast<float>(thread);
        for (int i = 0; i < 5; ++i) expected = expected * expected + static_cast<float>(i);
        EXPECT_EQ(sum.ToVector<float>(), std::vector<float>(1200, expected));
      }
      EXPECT_EQ(workspace.stats().misses, 0u);
    });
  }
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
