// Steps of networks with several inputs and outputs, which are given a MultiDataSet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/allocation_counter.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/data/data_set.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

// Two inputs, two outputs, and a loss that weighs one label against the other.
Network TwoByTwo(WorkspaceMode mode = WorkspaceMode::kEnabled) {
  NetworkConfig config;
  config.AddInput("left", {3});
  config.AddInput("right", {2});
  config.Add(Dense(4, Activation::kTanh), {"left"}, "left_hidden");
  config.Add(Dense(4, Activation::kTanh), {"right"}, "right_hidden");
  config.Add(Merge(MergeKind::kAdd), {"left_hidden", "right_hidden"}, "sum");
  config.Add(Dense(1), {"sum"}, "price");
  config.Add(Dense(2), {"sum"}, "place");
  config.outputs = {"price", "place"};
  NetworkOptions options;
  options.seed = 5;
  options.mode = mode;
  Network network(std::move(config), options);
  network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
    const NDArray price = outputs[0] - inputs.labels[0], place = outputs[1] - inputs.labels[1];
    return Sum(price * price, 1) + Sum(place * place, 1) * 0.5f;
  });
  return network;
}

MultiDataSet SomeSet(int64_t size = 8, uint64_t seed = 1) {
  return {{RandomUniform({size, 3}, -1, 1, seed), RandomUniform({size, 2}, -1, 1, seed + 1)},
          {RandomUniform({size, 1}, -1, 1, seed + 2), RandomUniform({size, 2}, -1, 1, seed + 3)}};
}

UpdaterConfig Adam() { return UpdaterConfig::Of(UpdaterKind::kAdam); }

// By the network and an updater alone.
std::vector<float> ByHand(int steps) {
  Network network = TwoByTwo();
  Updater updater(Adam(), network.parameters().shape(), Host(), network.dtype(), {});
  for (int i = 0; i < steps; ++i) {
    const MultiDataSet set = SomeSet(8, static_cast<uint64_t>(i));
    network.ComputeGradients({set.features, set.labels, {}, {}});
    updater.Apply(network.gradients(), network.parameters());
  }
  return network.parameters().ToVector<float>();
}

TEST(SeveralInputs, StepsAreThoseOfTheNetworkAndAnUpdater) {
  const std::vector<float> expected = ByHand(6);
  for (const WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kSingle,
                                   WorkspaceMode::kSeparate, WorkspaceMode::kNone}) {
    Network network = TwoByTwo(mode);
    Trainer trainer(network, Adam());
    for (int i = 0; i < 6; ++i) {
      EXPECT_GT(trainer.Step([&] { return SomeSet(8, static_cast<uint64_t>(i)); }), 0);
    }
    EXPECT_EQ(network.parameters().ToVector<float>(), expected) << static_cast<int>(mode);
    EXPECT_EQ(network.training_workspace().stats().leaked_arrays, 0u);
  }
  // By an iterator.
  {
    Network network = TwoByTwo();
    Trainer trainer(network, Adam());
    FunctionIterator<MultiDataSet> sets(
        6, [](int64_t i) { return SomeSet(8, static_cast<uint64_t>(i)); });
    const TrainingPass pass = trainer.Fit(sets);
    EXPECT_EQ(pass.batches, 6);
    EXPECT_EQ(pass.examples, 48);
    EXPECT_EQ(network.parameters().ToVector<float>(), expected);
  }
  // In parts, in the caller's place.
  Network network = TwoByTwo();
  Trainer trainer(network, Adam());
  for (int i = 0; i < 6; ++i) {
    const MultiDataSet set = SomeSet(8, static_cast<uint64_t>(i));
    trainer.ComputeGradients(set);
    EXPECT_TRUE(trainer.Update());
  }
  EXPECT_EQ(network.parameters().ToVector<float>(), expected);
}

TEST(SeveralInputs, OfAModelTheStepsManagerOwnsTheSet) {
  Model model("two by two", 1, std::make_unique<Network>(TwoByTwo()));
  Trainer trainer(model, Adam());
  NDArray features;
  for (int i = 0; i < 6; ++i) {
    trainer.Step([&] {
      MultiDataSet set = SomeSet(8, static_cast<uint64_t>(i));
      features = set.features[1];
      EXPECT_TRUE(features.IsAttached());
      return set;
    });
    EXPECT_FALSE(features.IsInScope());
  }
  EXPECT_EQ(trainer.steps(), 6);
  EXPECT_EQ(model.network->parameters().ToVector<float>(), ByHand(6));
}

TEST(SeveralInputs, AStepThatThrowsLeavesEverythingAsItWas) {
  Network network = TwoByTwo();
  Trainer trainer(network, Adam());
  trainer.Step([] { return SomeSet(); });
  const std::vector<float> before = network.parameters().ToVector<float>();
  const auto refused = [&](MultiDataSet set, const char* why) {
    EXPECT_THAT(CatchStatus([&] { trainer.Step([&] { return std::move(set); }); }).message(),
                HasSubstr(why));
    EXPECT_EQ(network.parameters().ToVector<float>(), before);
    EXPECT_EQ(trainer.steps(), 1);
  };
  refused({}, "network: 0 inputs, expected 2");
  refused({{Ones({8, 3})}, {}}, "network: 1 inputs, expected 2");
  refused({{Ones({8, 3}), Ones({7, 2})}, {Ones({8, 1}), Ones({8, 2})}},
          "network: batches of 8 and 7 examples");
  // One example would go with each of the other input's.
  refused({{Ones({8, 3}), Ones({1, 2})}, {Ones({8, 1}), Ones({8, 2})}}, "8 and 1 examples");
  refused({{Ones({8, 2}), Ones({8, 3})}, {Ones({8, 1}), Ones({8, 2})}},
          "features of \"left\" have shape [8, 2]");
  EXPECT_THROW(trainer.Step([]() -> MultiDataSet { ThrowDataLoss("reader: broken file"); }), Error);
  EXPECT_GT(trainer.Step([] { return SomeSet(); }), 0);
  EXPECT_EQ(trainer.steps(), 2);
}

TEST(SeveralInputs, LabelsThatAreMissingAreNamed) {
  Network network({3}, {Dense(2)});
  network.set_loss(Loss(LossConfig{.kind = LossKind::kSquaredError}));
  Trainer trainer(network, Adam());
  const auto step = [&](MultiDataSet set) {
    return CatchStatus([&] { trainer.Step([&] { return std::move(set); }); });
  };
  EXPECT_THAT(step({{Ones({4, 3})}, {}}).message(),
              HasSubstr("network: no labels, expected those of"));
  EXPECT_TRUE(step({{Ones({4, 3})}, {Ones({4, 2})}}).ok());
}

TEST(SeveralInputs, ASteadyStepAllocatesNothing) {
  Model model("two by two", 1, std::make_unique<Network>(TwoByTwo()));
  Trainer trainer(model, Adam());
  const auto step = [&] { trainer.Step([] { return SomeSet(); }); };
  for (int i = 0; i < 5; ++i) step();
  model.network->training_workspace().FinishPlanSearch();
  step();
  const int64_t before = AllocationCount();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(AllocationCount() - before, 0);
}

}  // namespace
}  // namespace tidepool::nn
