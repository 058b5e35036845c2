// Workers follow what their trainer is set to, whenever that is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/parallel/parallel_testing.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"
#include "tidepool/nn/training/checkpoint.h"

namespace tidepool::nn {
namespace {

constexpr ParallelTraining kBoth[] = {ParallelTraining::kGradientSharing,
                                      ParallelTraining::kParameterAveraging};

Network SmallNetwork(const NetworkOptions& options = {.seed = 5}) {
  return Network(NetworkConfig::Sequential({6}, {Dense(8, Activation::kTanh), Dense(4)}), options);
}

// Points and one of four classes, with features `by` times as large.
DataSet SmallBatch(int64_t i, double by = 1) {
  const NDArray x = RandomUniform({8, 6}, -1, 1, /*seed=*/static_cast<uint64_t>(100 + i));
  const NDArray right = Cast(Greater(x.Slice(1, 0, 1), 0), DType::kInt64).Reshape({8}),
                upper = Cast(Greater(x.Slice(1, 1, 2), 0), DType::kInt64).Reshape({8});
  return DataSet(x * by, right * 2 + upper);
}

using Set = std::function<void(Trainer&)>;
enum class When : uint8_t { kBefore, kBehind, kInAListener };

// Parameters behind three passes, of two workers that are given the same batches or of one trainer.
NDArray Trained(std::optional<ParallelTraining> training, const Set& set, When when) {
  Network network = SmallNetwork();
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kNesterovs));
  if (when == When::kBefore) set(trainer);
  constexpr int64_t kBatches = 5;
  if (!training.has_value()) {
    trainer.set_listener([&](const TrainedStep& step) {
      if (when == When::kInAListener && step.batches == 2) set(trainer);
    });
    if (when == When::kBehind) set(trainer);
    for (int pass = 0; pass < 3; ++pass) {
      FunctionIterator<DataSet> batches(kBatches, [](int64_t i) { return SmallBatch(i); });
      trainer.Fit(batches);
    }
  } else {
    ParallelWrapper parallel(trainer, {.workers = 2, .training = *training});
    parallel.set_listener([&](const ParallelRound& round) {
      if (when == When::kInAListener && round.round == 2) set(trainer);
    });
    if (when == When::kBehind) set(trainer);
    for (int pass = 0; pass < 3; ++pass)
      FitOver(parallel, 2 * kBatches, [](int64_t i) { return SmallBatch(i / 2); });
  }
  return network.parameters().Dup();
}

TEST(ParallelSettings, WorkersDoAsTheirTrainerIsSetToWheneverThatIs) {
  const Loss weighted(LossConfig{.label_smoothing = 0.5, .class_weights = {1, 9, 0.1, 3}});
  const LossFunction function = [](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
    return Loss(LossKind::kSoftmaxCrossEntropy).Of(outputs[0], inputs.labels[0]) * 3;
  };
  const std::vector<std::pair<std::string, Set>> settings = {
      {"loss", [&](Trainer& t) { t.network().set_loss(weighted); }},
      {"function", [&](Trainer& t) { t.network().set_loss(function); }},
      {"groups",
       [](Trainer& t) {
         t.updater().SetGroups(
             {{.begin = 0, .end = 16, .rate = 5}, {.begin = 16, .end = 48, .frozen = true}});
       }},
      {"gradient scale", [](Trainer& t) { t.updater().set_gradient_scale(0.125); }}};
  const auto nothing = [](Trainer&) {};
  const NDArray plain = Trained({}, nothing, When::kBefore);
  for (const auto& [name, set] : settings) {
    for (const When when : {When::kBefore, When::kBehind, When::kInAListener}) {
      const NDArray expected = Trained({}, set, when);
      EXPECT_GT(LargestDifference(expected, plain), 1e-2) << name;
      for (const ParallelTraining training : kBoth) {
        EXPECT_LT(LargestDifference(Trained(training, set, when), expected), 1e-5)
            << name << ", " << static_cast<int>(when) << ", " << static_cast<int>(training);
      }
    }
  }
}

TEST(ParallelSettings, AnotherUpdaterIsTakenOverBetweenPassesAlone) {
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.learning_rate = 0.03;
  const auto replace = [&](Trainer& trainer) {
    trainer.updater() = Updater(adam, trainer.network().parameters().shape());
  };
  const NDArray expected = Trained({}, replace, When::kBehind);
  for (const ParallelTraining training : kBoth) {
    EXPECT_LT(LargestDifference(Trained(training, replace, When::kBehind), expected), 1e-5);
  }
  EXPECT_THAT(
      ErrorOf([&] { Trained(ParallelTraining::kParameterAveraging, replace, When::kInAListener); }),
      IsError(absl::StatusCode::kFailedPrecondition, {"the updater [adam", "between passes"}));
}

// Some batches overflow at first, and so some workers alone.
struct ScaledRun {
  explicit ScaledRun(ParallelTraining training)
      : network(SmallNetwork({.seed = 5, .compute_type = DType::kFloat16})),
        trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam)),
        parallel(trainer, {.workers = 3, .training = training}) {
    trainer.set_loss_scale({.first = 0x1p24, .growth_interval = 1000});  // behind the wrapper
    parallel.set_listener([this](const ParallelRound& round) {
      skipped.push_back(round.skipped);
      EXPECT_EQ(round.updated, round.skipped < round.batches);
    });
  }
  void Pass() {
    FitOver(parallel, 45, [](int64_t i) { return SmallBatch(i, i % 3 == 1 ? 50 : 1); });
  }

  Network network;
  Trainer trainer;
  ParallelWrapper parallel;
  std::vector<int64_t> skipped;
};

TEST(ParallelSettings, StepsThatWorkersSkipAreToldAndTheirScalesAreTheTrainersInEachPass) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/scaled.safetensors";
  for (const ParallelTraining training : kBoth) {
    ScaledRun run(training);
    run.Pass();
    // The first round is one of all workers that skip.
    EXPECT_EQ(run.skipped[0], 3);
    const bool some_alone = std::any_of(run.skipped.begin(), run.skipped.end(),
                                        [](int64_t n) { return n == 1 || n == 2; });
    EXPECT_EQ(some_alone, training == ParallelTraining::kParameterAveraging);
    SaveCheckpoint(run.trainer, path);
    ScaledRun resumed(training);
    LoadCheckpoint(path, resumed.trainer);
    run.Pass();
    resumed.Pass();
    EXPECT_EQ(resumed.network.arrays().ToVector<float>(), run.network.arrays().ToVector<float>());
    EXPECT_EQ(resumed.trainer.loss_scale()->scale(), run.trainer.loss_scale()->scale());
  }
}

TEST(ParallelSettings, ATrainerWhoseNetworkWasFrozenAnewIsRefused) {
  for (const ParallelTraining training : kBoth) {
    Network network = SmallNetwork();
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    network.SetFrozen(std::vector<std::string>{"0.dense"});
    EXPECT_THAT(ErrorOf([&] { ParallelWrapper(trainer, {.workers = 2, .training = training}); }),
                IsError(absl::StatusCode::kFailedPrecondition,
                        {"were frozen or not since it was made, expected a trainer made"}));
  }
}

// The mean of three equal numbers may be another number.
TEST(ParallelSettings, RunningAveragesThatAreFrozenStay) {
  for (const ParallelTraining training : kBoth) {
    for (const std::vector<std::string>& frozen :
         {std::vector<std::string>{"1.batch_norm.running_*"},
          std::vector<std::string>{"1.batch_norm.scale", "1.batch_norm.shift"},
          std::vector<std::string>{"1.batch_norm"}}) {
      Network network(
          NetworkConfig::Sequential({6}, {Dense(8, Activation::kTanh), BatchNormalization(),
                                          Dense(6), BatchNormalization(), Dense(4)}),
          {.seed = 5, .frozen = frozen});
      const auto averages = [&](const std::string& layer) {
        std::vector<std::vector<float>> values;
        for (const NamedParameter& parameter : network.named_parameters()) {
          if (parameter.name.starts_with(layer + ".batch_norm.running"))
            values.push_back(parameter.value.ToVector<float>());
        }
        return values;
      };
      for (const NamedParameter& parameter : network.named_parameters()) {
        NDArray value = parameter.value;
        if (parameter.name.starts_with("1.batch_norm.running"))
          CopyInto(RandomUniform(value.shape(), 0.1, 1, /*seed=*/7), value);
      }
      const auto before = averages("1"), others = averages("3");
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      ParallelWrapper parallel(trainer, {.workers = 3, .training = training});
      for (int pass = 0; pass < 2; ++pass) {
        FitOver(parallel, 7, [](int64_t i) { return SmallBatch(i); });
        EXPECT_EQ(averages("1"), before) << frozen[0] << ", " << static_cast<int>(training);
        EXPECT_NE(averages("3"), others);
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
