// What recurrent layers keep for their gradients is told: it goes to the file, or what can be made again from the rest goes and is.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/budget/step_meter.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/testing/placement_runs.h"

namespace tidepool::nn {
namespace {

// Runs of steps are 256 rows: of these batches some have a step in each run, some one run, and weights are turned from 64 on.
constexpr int64_t kWidth = 5, kLength = 9;

struct Case {
  const char* name = "";
  std::vector<AnyLayer> layers;
};

std::vector<Case> Cases() {
  const RecurrentOptions last{.output = RecurrentOutput::kLast}, reversed{.reversed = true},
      last_reversed{.output = RecurrentOutput::kLast, .reversed = true};
  return {{"lstm", {Lstm(6), Lstm(7), GlobalPooling(), Dense(3)}},
          {"gru", {Gru(6), Gru(7), GlobalPooling(), Dense(3)}},
          {"reversed lstm, last", {Lstm(6, reversed), Lstm(4, last), Dense(3)}},
          {"reversed gru, last", {Gru(6, reversed), Gru(4, last_reversed), Dense(3)}},
          {"wide", {Lstm(40), Gru(48, last), Dense(3)}},
          {"simple", {SimpleRnn(6), Lstm(3, last_reversed), Dense(3)}}};
}

Network Made(const std::vector<AnyLayer>& layers, DType dtype,
             WorkspaceMode mode = WorkspaceMode::kEnabled) {
  NetworkOptions options = Options(mode);
  options.dtype = dtype;
  options.training_workspace = WorkspaceConfig::Inference();
  options.training_workspace->plan_search_seconds = 0.02;
  return Network(NetworkConfig::Sequential({kLength, kWidth}, layers), options);
}

std::string BitsOf(const NDArray& array) {
  return std::string(reinterpret_cast<const char*>(array.raw_data()),
                     static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype()));
}

NetworkInputs Inputs(int64_t batch, DType dtype, bool masked) {
  NetworkInputs inputs;
  inputs.features.push_back(RandomUniform({batch, kLength, kWidth}, -1, 1, dtype, 5));
  NDArray labels({batch}, DType::kInt64);
  for (int64_t i = 0; i < batch; ++i) labels.mutable_data<int64_t>()[i] = i % 3;
  inputs.labels.push_back(labels);
  if (!masked) return inputs;
  NDArray mask = Ones({batch, kLength}, dtype);
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t begin = 1 + i % (kLength - 1);
    // Some have a gap, across which states are carried.
    if (i % 4 != 0)
      mask.Slice(0, i, i + 1).Slice(1, begin, i % 4 == 1 ? std::min(begin + 2, kLength) : kLength) =
          0.0;
  }
  inputs.features_masks.push_back(mask);
  return inputs;
}

std::string GradientsBy(Network& network, int64_t batch, DType dtype, bool masked) {
  const double loss = network.ComputeGradients(Inputs(batch, dtype, masked));
  return BitsOf(network.gradients()) + std::to_string(loss);
}

TEST(RecurrentBudget, GradientsAreTheSameWhateverBecomesOfWhatLayersKeep) {
  const auto file = std::make_shared<SpillFile>(SpillFileOptions{.block_bytes = 4096});
  for (const Case& one : Cases()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const int64_t batch : {1, 8, 40, 70, 300}) {
        for (const bool masked : {false, true}) {
          Network kept = Made(one.layers, dtype, WorkspaceMode::kNone);
          const std::string expected = GradientsBy(kept, batch, dtype, masked);
          for (const Retention way : {Retention::kRemake, Retention::kSpill}) {
            SCOPED_TRACE(std::string(one.name) + " " + DTypeName(dtype) + " of " +
                         std::to_string(batch) + (masked ? " masked " : " ") + RetentionName(way));
            Network network = Made(one.layers, dtype, WorkspaceMode::kNone);
            network.SetActivationPlan(PlanOfLayers(network, way),
                                      way == Retention::kSpill ? file : nullptr);
            EXPECT_EQ(GradientsBy(network, batch, dtype, masked), expected);
          }
        }
      }
    }
  }
}

// Of an LSTM gates and states c are five of six arrays of its units but for one c of each run of eight steps, of a GRU gates are six of
// seven, and its input and output are others'.
TEST(RecurrentBudget, WhatCanBeMadeAgainIsNotInMemoryMeanwhile) {
  constexpr int64_t kBatch = 32;
  const auto deep = [](const AnyLayer& layer) {
    std::vector<AnyLayer> layers(24, layer);
    layers.push_back(GlobalPooling());
    layers.push_back(Dense(3));
    return layers;
  };
  const struct {
    std::vector<AnyLayer> layers;
    double least, most;
  } cases[] = {{deep(Lstm(16)), 0.25, 0.4}, {deep(Gru(16)), 0.14, 0.28}};
  for (const auto& one : cases) {
    Network network = Made(one.layers, DType::kFloat32);
    const auto live = [&](Retention way) {
      return static_cast<double>(
          MeasureStep(network, {.batch = kBatch}, PlanOfLayers(network, way), nullptr, INT64_MAX)
              .live_bytes);
    };
    const double share = live(Retention::kRemake) / live(Retention::kKeep);
    EXPECT_GE(share, one.least);
    EXPECT_LE(share, one.most);
  }
}

// Costs are given, so that the plan hangs on no clock: to make gates again is cheap, so that half of the memory is reached by it.
TEST(RecurrentBudget, APlannerTakesWhatIsCheapest) {
  constexpr int64_t kBatch = 32;
  std::vector<AnyLayer> layers(8, Lstm(16));
  layers.push_back(GlobalPooling());
  layers.push_back(Dense(3));
  Network network = Made(layers, DType::kFloat32);
  const size_t parts = layers.size() + 1;
  StepBudget budget{.limit = "60%", .shape = {.batch = kBatch}};
  budget.costs = StepCosts{std::vector<double>(parts, 1e-3), std::vector<double>(parts, 1e-3), 1e8,
                           1e8, std::vector<double>(parts - 1, 1e-4)};
  const StepBudgetReport cheap = SetStepBudget(network, budget);
  EXPECT_TRUE(cheap.plan.remakes()) << cheap.ToString();
  EXPECT_FALSE(cheap.plan.recomputes()) << cheap.ToString();
  EXPECT_LE(cheap.planned_bytes, cheap.limit_bytes);
  EXPECT_THAT(cheap.ToString(), testing::HasSubstr("lstm: remake"));
  // What is not told is states before the sequence, and masks.
  EXPECT_LT(cheap.unspillable_bytes, cheap.unlimited_bytes / 20);

  budget.costs->remake_seconds.assign(parts - 1, 1);
  const StepBudgetReport dear = SetStepBudget(network, budget);
  EXPECT_FALSE(dear.plan.remakes()) << dear.ToString();
  EXPECT_TRUE(dear.plan.recomputes() || dear.plan.spills()) << dear.ToString();

  budget.strategy = BudgetStrategy::kSpill;
  const StepBudgetReport spilled = SetStepBudget(network, budget);
  EXPECT_TRUE(spilled.plan.spills());
  const double loss = network.ComputeGradients(Inputs(kBatch, DType::kFloat32, false));
  EXPECT_EQ(network.activations()->last.bytes, spilled.predicted.spilled_bytes);
  Network kept = Made(layers, DType::kFloat32);
  EXPECT_EQ(kept.ComputeGradients(Inputs(kBatch, DType::kFloat32, false)), loss);
  EXPECT_EQ(BitsOf(network.gradients()), BitsOf(kept.gradients()));
}

}  // namespace
}  // namespace tidepool::nn
