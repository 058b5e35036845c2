// Training steps on an emulated device that something is wrong with: what they were given, or a call of the driver in their
// middle. They say so, and what is done behind them has the bits of a run without them.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

NetworkOptions OnDevice() {
  NetworkOptions options;
  options.seed = 3;
  options.device = {DeviceType::kCuda, 0};
  return options;
}

Network OfWords() {
  return Network(NetworkConfig::Sequential(InputConfig{"words", {6}, DType::kInt64},
                                           {Embedding(7, 4), BatchNormalization(), Dense(3)}),
                 OnDevice());
}
Batch Words(int step) {
  return {RandomIntegers({8, 6}, 0, 7, step), RandomIntegers({8}, 0, 3, step)};
}
// Index 9 of 7.
Batch BadWords() { return {Full({8, 6}, 9, DType::kInt64), Zeros({8}, DType::kInt64)}; }

// Six steps, and a bad one before the `bad`-th; what the network has then, running averages too.
std::vector<float> TrainOnWords(int bad) {
  Network network = OfWords();
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  for (int i = 0; i < 6; ++i) {
    if (i == bad) {
      const absl::Status refused =
          CatchStatus([&] { trainer.Step([]() -> Batch { return BadWords(); }); });
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(refused.message(), HasSubstr("index 9 at position 0, expected 0 to 6"));
    }
    trainer.Step([&]() -> Batch { return Words(i); });
  }
  EXPECT_EQ(trainer.steps(), 6);
  return network.arrays().ToVector<float>();
}

TEST(FaultySteps, ABatchThatIsRefusedMovesNothing) {
  const std::vector<float> expected = TrainOnWords(-1);
  for (const int bad : {0, 2, 5}) EXPECT_EQ(TrainOnWords(bad), expected) << bad;
}

// A replayed step is done by the time its losses are read: it says what was wrong, once, and counts.
TEST(FaultySteps, ReplaysTellOfWhatTheirKernelsFound) {
  for (const bool scaled : {false, true}) {
    for (int bad = 0; bad < 6; ++bad) {
      Network network = OfWords();
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
      trainer.set_graphs(true);
      if (scaled) trainer.set_loss_scale(LossScaleConfig{});
      for (int i = 0; i < bad; ++i) trainer.Step([&]() -> Batch { return Words(i); });
      const absl::Status told =
          CatchStatus([&] { trainer.Step([]() -> Batch { return BadWords(); }); });
      EXPECT_EQ(told.code(), absl::StatusCode::kInvalidArgument) << bad;
      EXPECT_THAT(told.message(), HasSubstr("index 9 at position 0, expected 0 to 6"));
      EXPECT_EQ(trainer.steps(), bad + 1);
      for (int i = 0; i < 3; ++i) trainer.Step([&]() -> Batch { return Words(i); });
      EXPECT_EQ(trainer.steps(), bad + 4);
    }
  }
}

// Two layers, whose weights and biases are groups of their own: an update is several launches. A call of the driver fails in
// the third of five steps.
std::vector<float> TrainWithFault(const UpdaterConfig& config, int64_t call, int* thrown) {
  Network network(NetworkConfig::Sequential({6}, {Dense(4, Activation::kTanh), Dense(3)}),
                  OnDevice());
  Trainer trainer(network, config);
  for (int i = 0; i < 5;) {
    if (i == 2 && call >= 0 && *thrown == 0) EmulatedCuda::Get().call_faults().FailRequest(call);
    const absl::Status status = CatchStatus([&] {
      trainer.Step([&]() -> Batch {
        return {RandomUniform({8, 6}, -1, 1, i), RandomIntegers({8}, 0, 3, i)};
      });
    });
    EmulatedCuda::Get().call_faults().Clear();
    status.ok() ? ++i : ++*thrown;
    if (*thrown > 2) break;
  }
  return network.parameters().ToVector<float>();
}

TEST(FaultySteps, AnUpdateOfSeveralGroupsIsDoneOrNot) {
  for (const bool clipped : {false, true}) {
    UpdaterConfig config = UpdaterConfig::Of(clipped ? UpdaterKind::kAdamW : UpdaterKind::kSgd);
    if (clipped) config.clipping = {ClippingKind::kNormOfEach, 0.1};
    if (!clipped) config.l2 = 0.1;
    int none = 0, runs_thrown = 0;
    const std::vector<float> expected = TrainWithFault(config, -1, &none);
    for (int64_t call = 0; call < 80; ++call) {
      int thrown = 0;
      EXPECT_EQ(TrainWithFault(config, call, &thrown), expected) << "call " << call;
      EXPECT_LE(thrown, 1) << "call " << call;
      runs_thrown += thrown;
    }
    EXPECT_EQ(none, 0);
    EXPECT_GT(runs_thrown, 10);
  }
}

}  // namespace
}  // namespace tidepool::nn
