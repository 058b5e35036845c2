// A network trained in a dependent's own test: what a user writes.
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/trainer.h"

using namespace tidepool;

TEST(Dependent, TrainsANetworkInALearnedWorkspace) {
  std::vector<nn::AnyLayer> layers;
  layers.push_back(std::make_unique<nn::Dense>(16, nn::Activation::kRelu));
  layers.push_back(std::make_unique<nn::Dense>(2));
  nn::Network network({2}, std::move(layers), /*seed=*/1);
  nn::UpdaterConfig updater;
  updater.learning_rate = 0.02;
  nn::Trainer trainer(network, updater);
  // Exclusive or.
  auto batch = [] {
    return nn::Batch{FromValues(std::vector<float>{0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}),
                     FromValues(std::vector<int64_t>{0, 1, 1, 0}, {4})};
  };
  double loss = 0;
  for (int step = 0; step < 500; ++step) loss = trainer.Step(batch);
  EXPECT_LT(loss, 0.05);
  EXPECT_EQ(network.training_workspace().stats().misses, 0);
}
