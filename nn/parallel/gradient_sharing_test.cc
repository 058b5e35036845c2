// Gradients of several workers against those of one with a larger batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/parallel/parallel_testing.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"

namespace tidepool::nn {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

// In f64: in f32 rounding turns a ReLU off that the other leaves on, and the two part.
TEST(GradientSharing, WorkersEqualOneWorkerWithALargerBatch) {
  const NetworkOptions options{.seed = 5, .dtype = DType::kFloat64};
  for (const std::string model : {"mlp", "lenet"}) {
    for (const UpdaterKind updater : {UpdaterKind::kSgd, UpdaterKind::kAdam}) {
      for (const int workers : {1, 2, 3}) {
        constexpr int kSteps = kUnderThreadSanitizer ? 2 : 8;
        Network one = NetworkOf(model, options), many = NetworkOf(model, options);
        Trainer alone(one, UpdaterConfig::Of(updater)), trainer(many, UpdaterConfig::Of(updater));
        ParallelWrapper parallel(trainer, {.workers = workers});
        Batches large(4 * workers, DType::kFloat64), small(4, DType::kFloat64);
        std::vector<double> losses, told;
        double loss = 0;
        for (int i = 0; i < kSteps; ++i)
          loss += losses.emplace_back(alone.Step([&] { return large(i); }));
        parallel.set_listener([&](const ParallelRound& round) { told.push_back(round.loss); });
        const ParallelPass pass =
            FitOver(parallel, kSteps * workers, [&](int64_t i) { return small(i); });
        EXPECT_EQ(pass.rounds, kSteps);
        EXPECT_EQ(pass.batches, kSteps * workers);
        EXPECT_EQ(pass.examples, kSteps * workers * 4);
        EXPECT_NEAR(pass.loss, loss / kSteps, 1e-9);
        EXPECT_THAT(told, Pointwise(DoubleNear(1e-9), losses));
        EXPECT_EQ(trainer.steps(), kSteps);
        EXPECT_LT(LargestDifference(one.parameters(), many.parameters()), 1e-9)
            << model << " " << workers;
      }
    }
  }
}

TEST(GradientSharing, EveryExampleCountsAlikeInBatchesOfDifferentSizes) {
  Network one = NetworkOf("mlp"), many = NetworkOf("mlp");
  Trainer alone(one, UpdaterConfig::Of(UpdaterKind::kSgd)),
      trainer(many, UpdaterConfig::Of(UpdaterKind::kSgd));
  ParallelWrapper parallel(trainer, {.workers = 3});
  const Batch whole = Batches(20)(0);
  const auto part = [&](int64_t begin, int64_t end) {
    return Batch(whole.features.Slice(0, begin, end).Dup(),
                 whole.labels.Slice(0, begin, end).Dup());
  };
  std::vector<Batch> parts;
  parts.push_back(part(0, 13));
  parts.push_back(part(13, 14));
  parts.push_back(part(14, 20));
  const double loss = alone.Step([&] { return Batch(whole.features, whole.labels); });
  parallel.set_listener([&](const ParallelRound& round) { EXPECT_NEAR(round.loss, loss, 1e-6); });
  const ParallelPass pass =
      FitOver(parallel, 3, [&](int64_t i) { return std::move(parts[static_cast<size_t>(i)]); });
  EXPECT_EQ(pass.examples, 20);
  EXPECT_NEAR(pass.loss, loss, 1e-6);
  EXPECT_LT(LargestDifference(one.parameters(), many.parameters()), 1e-6);
}

TEST(GradientSharing, TheSameBatchesGiveTheSameBitsWhateverTheTiming) {
  std::vector<float> before;
  for (int run = 0; run < 3; ++run) {
    Network network = NetworkOf("lenet");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    ParallelWrapper parallel(trainer, {.workers = 3, .threads_of_worker = 1 + run % 2});
    Batches small(4);
    // The last round has two workers.
    FitOver(parallel, kUnderThreadSanitizer ? 8 : 20, [&](int64_t i) { return small(i); });
    const std::vector<float> parameters = network.parameters().ToVector<float>();
    if (run > 0) {
      EXPECT_EQ(parameters, before);
    }
    before = parameters;
  }
}

TEST(GradientSharing, RunningAveragesAreTheWorkersMean) {
  Network network = NetworkOf("residual");
  std::vector<Network> alone;
  Batches small(6);
  for (int worker = 0; worker < 2; ++worker) {
    alone.push_back(NetworkOf("residual"));
    const Batch batch = small(worker);
    alone.back().ComputeGradients(batch.features, batch.labels);
  }
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  ParallelWrapper parallel(trainer, {.workers = 2});
  FitOver(parallel, 2, [&](int64_t i) { return small(i); });
  const NDArray mean = (alone[0].beside() + alone[1].beside()) * 0.5;
  EXPECT_LT(LargestDifference(network.beside(), mean), 1e-7);
  EXPECT_GT(LargestDifference(alone[0].beside(), alone[1].beside()), 1e-4);
  // Each has its own; parameters are one array.
  EXPECT_NE(parallel.network(1).beside().raw_data(), network.beside().raw_data());
  EXPECT_EQ(parallel.network(1).parameters().raw_data(), network.parameters().raw_data());
}

TEST(GradientSharing, WorkersDrawOtherRandomNumbers) {
  // With inputs of ones the gradient of a weight is 0 where its input was dropped.
  const auto dropped = [](Network& network) {
    std::set<int> zeros;
    const std::vector<float> gradients = network.gradients().ToVector<float>();
    for (int i = 0; i < 64; ++i) {
      if (gradients[static_cast<size_t>(i)] == 0) zeros.insert(i);
    }
    return zeros;
  };
  NetworkConfig config = NetworkConfig::Sequential({64}, {DropoutLayer(0.5), Dense(2)});
  Network network(std::move(config), {.seed = 3});
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  ParallelWrapper parallel(trainer, {.workers = 3});
  FitOver(parallel, 3, [](int64_t) { return Batch(Ones({1, 64}), Zeros({1}, DType::kInt64)); });
  const std::set<int> second = dropped(parallel.network(1)), third = dropped(parallel.network(2));
  EXPECT_NE(second, third);
  EXPECT_GT(second.size(), 10u);
}

TEST(GradientSharing, AStepThatALossScaleSkipsChangesNothing) {
  Network network = NetworkOf("residual");  // with running averages
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  trainer.set_loss_scale({.first = 0x1p120, .most = 0x1p120});
  ParallelWrapper parallel(trainer, {.workers = 2});
  std::vector<bool> updated;
  parallel.set_listener([&](const ParallelRound& round) { updated.push_back(round.updated); });
  const std::vector<float> before = network.arrays().ToVector<float>();
  Batches small(8);
  FitOver(parallel, 2, [&](int64_t i) {
    Batch batch = small(i);
    if (i == 1) batch.features *= std::numeric_limits<double>::infinity();  // of one worker alone
    return batch;
  });
  EXPECT_THAT(updated, ElementsAre(false));
  EXPECT_EQ(network.arrays().ToVector<float>(), before);
  EXPECT_EQ(trainer.loss_scale()->scale(), 0x1p119);
  EXPECT_EQ(network.loss_scale(), 1);
}

TEST(GradientSharing, NumbersThatLayersDrawGoOnFromTheTrainersOwnSteps) {
  const auto batch = [](int64_t = 0) { return Batch(Ones({4, 64}), Zeros({4}, DType::kInt64)); };
  Network network(NetworkConfig::Sequential({64}, {DropoutLayer(0.5), Dense(2)}), {.seed = 3});
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  ParallelWrapper parallel(trainer, {.workers = 3});
  FitOver(parallel, 7, batch);  // the last round has one worker
  trainer.Step(batch);
  EXPECT_EQ(network.step(), 4u);
  FitOver(parallel, 3, batch);
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(parallel.network(worker).step(), 5u);
}

// The same batches behind it draw the same numbers as if nothing had failed.
TEST(GradientSharing, ARoundThatFailsLeavesTheStepsWhereTheyWere) {
  std::vector<double> losses;
  for (const bool fails_first : {false, true}) {
    bool fails = fails_first;
    Network network(NetworkConfig::Sequential({64}, {DropoutLayer(0.5), Dense(2)}), {.seed = 3});
    network.set_loss([&](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
      if (fails && inputs.features[0].At<float>({0, 0}) == 2) ThrowInternal("as it was asked to");
      return Loss(LossKind::kSoftmaxCrossEntropy).Of(outputs[0], inputs.labels[0]);
    });
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    ParallelWrapper parallel(trainer, {.workers = 2});
    const auto batch = [](int64_t i) {
      return Batch(Full({4, 64}, static_cast<double>(1 + i)), Zeros({4}, DType::kInt64));
    };
    if (fails) EXPECT_THROW(FitOver(parallel, 2, batch), Error);
    EXPECT_EQ(network.step(), 0u);
    EXPECT_EQ(parallel.network(1).step(), 0u);
    fails = false;
    losses.push_back(FitOver(parallel, 2, batch).loss);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace tidepool::nn
