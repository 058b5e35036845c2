// Steps by plans of activations are those of a network that keeps everything, to the bit.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/network/activation_plan.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

constexpr int kSteps = 6;

// Draws random numbers, and moves running averages that a layer behind reads in the next step's place.
Network DropoutNetwork(const NetworkOptions& options) {
  return Network(NetworkConfig::Sequential({28, 28, 1}, {Conv2D(4, 5, 5, Activation::kRelu), BatchNormalization(), DropoutLayer(0.3),
                                                         Flatten(), Dense(16, Activation::kTanh), DropoutLayer(0.5), Dense(10)}),
                 options);
}

Network Made(const std::string& name, WorkspaceMode mode = WorkspaceMode::kEnabled) {
  return name == "dropout" ? DropoutNetwork(Options(mode)) : ExampleNetwork(name, Options(mode));
}

std::string BytesOf(const NDArray& array) {
  return std::string(reinterpret_cast<const char*>(array.raw_data()), array.buffer()->bytes);
}

struct Trained {
  std::vector<double> losses;
  std::string arrays;
  bool operator==(const Trained&) const = default;
};

Trained Train(Network& network, int steps = kSteps) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  Trained trained;
  for (int i = 0; i < steps; ++i) {
    // The last batch of an epoch is smaller.
    trained.losses.push_back(trainer.Step([&] { return SomeBatch(i % 3 == 2 ? 5 : 8, static_cast<uint64_t>(i)); }));
  }
  trained.arrays = BytesOf(network.arrays());
  return trained;
}

// Segments of so many layers, of these ways in turn.
ActivationPlan PlanOf(const Network& network, int layers, std::vector<Retention> ways) {
  ActivationPlan plan;
  const int all = static_cast<int>(network.config()->nodes.size());
  for (int begin = 0; begin < all; begin += layers) {
    plan.segments.push_back({.layers = std::min(layers, all - begin), .retention = ways[plan.segments.size() % ways.size()]});
  }
  return plan;
}

constexpr const char* kNetworks[] = {"lenet", "residual", "lstm", "transformer", "dropout"};

TEST(ActivationPlanTest, EveryWayGivesTheBitsOfKeepingEverything) {
  const auto file = std::make_shared<SpillFile>(SpillFileOptions{.block_bytes = 64 << 10});
  const std::vector<std::vector<Retention>> ways = {
      {Retention::kKeep},
      {Retention::kRecompute},
      {Retention::kSpill},
      {Retention::kRecomputeSpilled},
      {Retention::kSpill, Retention::kRecompute, Retention::kKeep, Retention::kRecomputeSpilled},
      {Retention::kKeep, Retention::kRecomputeSpilled, Retention::kSpill}};
  for (const char* const name : kNetworks) {
    Network unlimited = Made(name);
    const Trained expected = Train(unlimited);
    for (const auto& way : ways) {
      for (const int layers : {1, 2, 3, 100}) {
        Network network = Made(name);
        ActivationPlan plan = PlanOf(network, layers, way);
        plan.spill_behind = layers % 2 + 1;
        plan.spill_ahead = layers % 3;
        SCOPED_TRACE(std::string(name) + ": " + plan.ToString());
        network.SetActivationPlan(plan, file);
        EXPECT_EQ(Train(network), expected);
        if (way[0] == Retention::kSpill && layers == 1) {
          EXPECT_GT(network.activations()->last.bytes, 0);
        }
      }
    }
  }
  EXPECT_EQ(file->stats().used_bytes, 0);
}

}  // namespace
}  // namespace tidepool::nn
