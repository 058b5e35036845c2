// Averages of several workers against averages made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/parallel/parallel_testing.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"

namespace tidepool::nn {
namespace {

// Workers of their own, by hand.
struct Hand {
  explicit Hand(const std::string& model, int workers, UpdaterKind kind) {
    for (int w = 0; w < workers; ++w)
      networks.push_back(std::make_unique<Network>(NetworkOf(model)));
    for (const auto& network : networks)
      trainers.push_back(std::make_unique<Trainer>(*network, UpdaterConfig::Of(kind)));
  }
  static void Mean(std::vector<NDArray> arrays) {
    NDArray sum = arrays[0].Dup();
    for (size_t i = 1; i < arrays.size(); ++i) sum += arrays[i];
    sum *= 1.0 / static_cast<double>(arrays.size());
    for (NDArray& array : arrays) CopyInto(sum, array);
  }
  void Average(bool updaters) {
    std::vector<NDArray> parameters;
    for (const auto& network : networks) parameters.push_back(network->parameters());
    Mean(parameters);
    if (!updaters) return;
    for (size_t i = 0; i < trainers[0]->updater().state().size(); ++i) {
      std::vector<NDArray> states;
      for (const auto& trainer : trainers) states.push_back(*trainer->updater().state()[i]);
      Mean(states);
    }
  }
  std::vector<std::unique_ptr<Network>> networks;
  std::vector<std::unique_ptr<Trainer>> trainers;
};

TEST(ParameterAveraging, EqualsAveragesByHand) {
  for (const bool updaters : {true, false}) {
    for (const int frequency : {1, 3}) {
      // The last averaging is the pass's end.
      constexpr int kWorkers = 2, kRounds = kUnderThreadSanitizer ? 4 : 7;
      Hand hand("mlp", kWorkers, UpdaterKind::kAdam);
      Network network = NetworkOf("mlp");
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      ParallelWrapper parallel(trainer, {.workers = kWorkers,
                                         .training = ParallelTraining::kParameterAveraging,
                                         .averaging_frequency = frequency,
                                         .average_updaters = updaters});
      std::vector<bool> averaged;
      std::vector<double> told;
      parallel.set_listener([&](const ParallelRound& round) {
        averaged.push_back(round.averaged);
        told.push_back(round.loss);
        EXPECT_EQ(round.round, std::ssize(told));
        EXPECT_EQ(round.batches, kWorkers);
        EXPECT_EQ(round.examples, kWorkers * 8);
      });
      Batches small(8);
      for (int pass = 0; pass < 2; ++pass) {
        std::vector<double> losses;
        double sum = 0;
        for (int round = 0; round < kRounds; ++round) {
          double loss = 0;
          for (int w = 0; w < kWorkers; ++w) {
            loss += hand.trainers[static_cast<size_t>(w)]->Step(
                [&] { return small(kWorkers * round + w); });
          }
          losses.push_back(loss / kWorkers);
          sum += losses.back();
          if ((round + 1) % frequency == 0 || round + 1 == kRounds) hand.Average(updaters);
        }
        told.clear();
        const ParallelPass fitted =
            FitOver(parallel, kWorkers * kRounds, [&](int64_t i) { return small(i); });
        EXPECT_THAT(told, ::testing::Pointwise(::testing::DoubleNear(1e-12), losses));
        EXPECT_NEAR(fitted.loss, sum / kRounds, 1e-12);
        EXPECT_EQ(network.parameters().ToVector<float>(),
                  hand.networks[0]->parameters().ToVector<float>());
        EXPECT_EQ(parallel.network(1).parameters().ToVector<float>(),
                  network.parameters().ToVector<float>());
      }
      EXPECT_EQ(std::count(averaged.begin(), averaged.end(), true), 2 * (kRounds / frequency));
      EXPECT_EQ(trainer.steps(), 2 * kRounds);
    }
  }
}

// What a listener is told is of the round's examples, what Fit returns of all: each counts alike.
TEST(ParameterAveraging, LossesAreMeansOfExamplesInBatchesOfDifferentSizes) {
  Hand hand("mlp", 2, UpdaterKind::kSgd);
  Network network = NetworkOf("mlp");
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  ParallelWrapper parallel(trainer,
                           {.workers = 2, .training = ParallelTraining::kParameterAveraging});
  Batches small(8);
  const auto batch = [&](int64_t i) {
    Batch whole = small(i);
    return i == 1 ? Batch(whole.features.Slice(0, 0, 3).Dup(), whole.labels.Slice(0, 0, 3).Dup())
                  : std::move(whole);
  };
  std::vector<double> losses, told;
  for (int64_t i = 0; i < 3; ++i) {
    losses.push_back(hand.trainers[static_cast<size_t>(i) % 2]->Step([&] { return batch(i); }));
    if (i == 1) hand.Average(true);
  }
  parallel.set_listener([&](const ParallelRound& round) { told.push_back(round.loss); });
  const ParallelPass pass = FitOver(parallel, 3, batch);
  EXPECT_EQ(pass.examples, 19);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_NEAR(told[0], (8 * losses[0] + 3 * losses[1]) / 11, 1e-12);
  EXPECT_NEAR(told[1], losses[2], 1e-12);
  EXPECT_NEAR(pass.loss, (8 * losses[0] + 3 * losses[1] + 8 * losses[2]) / 19, 1e-12);
}

TEST(ParameterAveraging, WorkersWithoutABatchTakeTheMeanOfTheOthers) {
  Hand hand("mlp", 2, UpdaterKind::kSgd);
  Network network = NetworkOf("mlp");
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  ParallelWrapper parallel(trainer,
                           {.workers = 3, .training = ParallelTraining::kParameterAveraging});
  Batches small(8);
  for (size_t w = 0; w < 2; ++w)
    hand.trainers[w]->Step([&] { return small(static_cast<int64_t>(w)); });
  hand.Average(true);
  FitOver(parallel, 2, [&](int64_t i) { return small(i); });
  for (int w = 0; w < 3; ++w) {
    EXPECT_EQ(parallel.network(w).parameters().ToVector<float>(),
              hand.networks[0]->parameters().ToVector<float>())
        << w;
  }
}

// Passes of which the last round has a batch for one worker alone.
TEST(ParameterAveraging, GoesOnFromACheckpointToTheBit) {
  const std::string path = ::testing::TempDir() + "/workers.safetensors";
  constexpr int64_t kBatches = kUnderThreadSanitizer ? 4 : 10;
  for (const bool averaged : {true, false}) {
    for (const int before : {0, 1, 2}) {
      const ParallelWrapperConfig config{.workers = 3,
                                         .training = ParallelTraining::kParameterAveraging,
                                         .averaging_frequency = 2,
                                         .average_updaters = averaged};
      Batches small(8);
      const auto pass = [&](ParallelWrapper& parallel, int64_t number) {
        FitOver(parallel, kBatches, [&](int64_t i) { return small(kBatches * number + i); });
      };
      Network whole = NetworkOf("mlp");
      Trainer trainer(whole, UpdaterConfig::Of(UpdaterKind::kAdam));
      ParallelWrapper parallel(trainer, config);
      if (before == 0) trainer.Step([&] { return small(0); });  // by itself
      for (int i = 0; i < before; ++i) pass(parallel, i);
      parallel.SaveCheckpoint(path, {{"pass", std::to_string(before)}});
      for (int i = before; i < before + 2; ++i) pass(parallel, i);

      Network other = NetworkOf("mlp", {.seed = 77});
      Trainer resumed(other, UpdaterConfig::Of(UpdaterKind::kAdam));
      ParallelWrapper again(resumed, config);
      // One that has not fitted, or whose workers hold something else.
      if (before == 2) pass(again, 9);
      EXPECT_EQ(again.LoadCheckpoint(path).at("pass"), std::to_string(before));
      for (int i = before; i < before + 2; ++i) pass(again, i);
      EXPECT_EQ(other.parameters().ToVector<float>(), whole.parameters().ToVector<float>())
          << averaged << before;
      EXPECT_EQ(resumed.steps(), trainer.steps());
    }
  }
}

TEST(ParameterAveraging, ACheckpointIsOfAsManyWorkersAndBehindAPass) {
  const std::string path = ::testing::TempDir() + "/refused.safetensors";
  ParallelWrapperConfig config{
      .workers = 3, .training = ParallelTraining::kParameterAveraging, .average_updaters = false};
  Network network = NetworkOf("mlp");
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.message();
    }
    return "nothing was thrown";
  };
  ParallelWrapper parallel(trainer, config);
  std::vector<std::string> refused;
  parallel.set_listener([&](const ParallelRound&) {
    refused.push_back(message([&] { parallel.SaveCheckpoint(path); }));
    refused.push_back(message([&] { parallel.LoadCheckpoint(path); }));
  });
  Batches small(8);
  FitOver(parallel, 3, [&](int64_t i) { return small(i); });
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_THAT(refused, ::testing::Each(::testing::HasSubstr("while a pass is under way")));
  parallel.SaveCheckpoint(path);
  config.workers = 2;
  ParallelWrapper fewer(trainer, config);
  const std::vector<float> held = network.parameters().ToVector<float>();
  EXPECT_THAT(message([&] { fewer.LoadCheckpoint(path); }), ::testing::HasSubstr("worker/2/"));
  EXPECT_EQ(network.parameters().ToVector<float>(), held);
}

TEST(ParameterAveraging, Nd4jCase145LeNetByTwoWorkersAveragedEveryThreeRounds) {
  ImageFolder digits = LoadImageFolder("examples/data/mnist");
  // Ten rounds, which end between two averages as all 250 do.
  const int64_t batch_size = kUnderThreadSanitizer ? 4 : 16;
  if (kUnderThreadSanitizer) digits.train.count = 20 * batch_size;
  Model model = MakeModel("lenet", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled);
  Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
  ParallelWrapper parallel(trainer, {.workers = 2,
                                     .training = ParallelTraining::kParameterAveraging,
                                     .averaging_frequency = 3,
                                     .prefetch = 24});
  ImageBatches batches(digits.train, batch_size);
  for (uint64_t epoch = 1; epoch <= 1; ++epoch) {
    batches.Shuffle(3, epoch);
    parallel.Fit(batches);
    EXPECT_EQ(parallel.network(1).parameters().ToVector<float>(),
              model.network->parameters().ToVector<float>());
  }
  if (kUnderThreadSanitizer) return;  // so few images teach little
  ImageBatches tested(digits.test, digits.test.count);
  const Batch batch = tested.Make(0);
  const std::vector<float> scores = model.network->Output(batch.features).ToVector<float>();
  const std::vector<int64_t> labels = batch.labels.ToVector<int64_t>();
  int right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(10 * i);
    right += std::max_element(begin, begin + 10) - begin == labels[i];
  }
  EXPECT_GT(right, static_cast<int>(labels.size()) * 8 / 10);
}

}  // namespace
}  // namespace tidepool::nn
