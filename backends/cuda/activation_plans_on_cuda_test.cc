// Networks of an emulated device whose activations are computed again, or wait in the host's memory until the backward pass.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/tier_counters.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/activation_plan.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

constexpr Device kDevice{DeviceType::kCuda, 0};

NetworkOptions OnDevice() {
  NetworkOptions options;
  options.seed = 5;
  options.device = kDevice;
  return options;
}

NetworkConfig Images() { return ResidualConfig({8, 8, 1}, 3, {4, 8}); }
NetworkConfig Rows() {
  std::vector<AnyLayer> layers;
  for (int i = 0; i < 8; ++i) layers.push_back(Dense(64, Activation::kTanh));
  layers.push_back(LayerNormalization());
  layers.push_back(Dense(3));
  return NetworkConfig::Sequential({16}, layers);
}

ActivationPlan AllOf(const Network& network, Retention retention) {
  return {.segments = std::vector<ActivationSegment>(network.config()->nodes.size(),
                                                     ActivationSegment{1, retention})};
}
ActivationPlan InTurns(const Network& network) {
  constexpr Retention kWays[] = {Retention::kKeep, Retention::kSpill, Retention::kRecompute,
                                 Retention::kRecomputeSpilled};
  ActivationPlan plan = AllOf(network, Retention::kKeep);
  for (size_t i = 0; i < plan.segments.size(); ++i) plan.segments[i].retention = kWays[i % 4];
  return plan;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> arrays;
  int64_t planned_bytes = 0;
};

Outcome Train(Network& network, int steps, int64_t batch) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  Outcome run;
  for (int i = 0; i < steps; ++i) {
    run.losses.push_back(trainer.Step([&] {
      std::vector<int64_t> dims = {batch};
      for (const int64_t d : network.inputs()[0].shape.span()) dims.push_back(d);
      return Batch(RandomUniform(Shape(dims), 0, 1, i), RandomIntegers({batch}, 0, 3, i));
    }));
  }
  run.arrays = network.arrays().ToVector<float>();
  run.planned_bytes = static_cast<int64_t>(network.training_workspace().stats().planned_peak_bytes);
  return run;
}

TEST(ActivationPlansOnCuda, EachHasTheBitsOfKeepingEverything) {
  for (const NetworkConfig& config : {Images(), Rows()}) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      EmulatedCuda::Get().set_seed(seed);
      Network kept(config, OnDevice());
      const Outcome expected = Train(kept, 4, 8);
      for (const bool of_each : {false, true}) {
        for (const Retention retention :
             {Retention::kSpill, Retention::kRecompute, Retention::kRecomputeSpilled}) {
          Network network(config, OnDevice());
          ActivationPlan plan = of_each ? AllOf(network, retention) : InTurns(network);
          if (seed % 2 == 1) plan.spill_behind = 2, plan.spill_ahead = 0;
          network.SetActivationPlan(plan);
          const Outcome run = Train(network, 4, 8);
          EXPECT_EQ(run.losses, expected.losses) << plan.ToString();
          EXPECT_EQ(run.arrays, expected.arrays) << plan.ToString();
          if (!of_each) break;
        }
      }
    }
  }
}

// What waits on the host is not on the device, is page-locked, stays from step to step, and goes with the plan.
TEST(ActivationPlansOnCuda, MemoryOfTheDeviceIsLessAndThatOfTheHostIsKept) {
  Network kept(Rows(), OnDevice()), network(Rows(), OnDevice());
  const Outcome expected = Train(kept, 6, 512);
  const auto on_host = [] {
    EmulatedCuda::Get().Finish();
    Reclaimer::Global().RunNow();  // pools keep what they are given back
    return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  };
  network.SetActivationPlan(AllOf(network, Retention::kSpill));
  Train(network, 6, 512);
  const int64_t before = on_host();
  const EmulatedCuda::Counters counted = EmulatedCuda::Get().counters();
  const Outcome run = Train(network, 3, 512);
  EXPECT_LT(run.planned_bytes, expected.planned_bytes * 6 / 10);
  const EmulatedCuda::Counters after = EmulatedCuda::Get().counters();
  EXPECT_EQ(after.host_allocations, counted.host_allocations);
  EXPECT_EQ(after.host_frees, counted.host_frees);
  EXPECT_NEAR(static_cast<double>(on_host()), static_cast<double>(before), 64 << 10);
  network.SetActivationPlan({});
  EXPECT_LT(on_host(), before - 8 * 512 * 64 * 4 / 2);
}

// Nobody waits for them there.
TEST(ActivationPlansOnCuda, WhatWaitsIsInTheHostsTier) {
  const auto of_steps = [](Network& network, int steps) {
    const SpillTierCounters before = TotalSpillTierCounters(Host());
    Train(network, steps, 64);
    const SpillTierCounters after = TotalSpillTierCounters(Host());
    EXPECT_EQ(after.came_nanoseconds + after.returned_nanoseconds, 0);
    EXPECT_EQ(after.went_on_bytes, 0);
    return SpillTierCounters{.came = after.came - before.came,
                             .came_bytes = after.came_bytes - before.came_bytes,
                             .returned = after.returned - before.returned,
                             .returned_bytes = after.returned_bytes - before.returned_bytes};
  };
  Network kept(Rows(), OnDevice()), network(Rows(), OnDevice());
  EXPECT_EQ(of_steps(kept, 2).came, 0);
  network.SetActivationPlan(AllOf(network, Retention::kSpill));
  const SpillTierCounters one = of_steps(network, 1), three = of_steps(network, 3);
  // What eight layers of 64 give to 64 rows; their gradients read them.
  EXPECT_GE(one.came_bytes, 7 * 64 * 64 * 4);
  EXPECT_GE(one.returned_bytes, 7 * 64 * 64 * 4);
  EXPECT_LE(one.returned, one.came);
  EXPECT_EQ(three.came, 3 * one.came);
  EXPECT_EQ(three.came_bytes, 3 * one.came_bytes);
  EXPECT_EQ(three.returned_bytes, 3 * one.returned_bytes);
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  ASSERT_EQ(snapshot.spill_tiers.size(), 1u);
  EXPECT_EQ(snapshot.spill_tiers[0].waiting_bytes, 0);
  EXPECT_GE(snapshot.spill_tiers[0].peak_bytes, 6 * 64 * 64 * 4);
  EXPECT_THAT(snapshot.ToString(), HasSubstr("spill tier host: 0 bytes wait there, at most "));
}

TEST(ActivationPlansOnCuda, StepsThatFailLeaveTheBits) {
  Network kept(Rows(), OnDevice());
  const Outcome expected = Train(kept, 4, 16);
  int failed = 0;
  for (int64_t call = 0; call < 120; call += 2) {
    Network network(Rows(), OnDevice());
    network.SetActivationPlan(InTurns(network));
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    std::vector<double> losses;
    bool has_failed = false;
    for (int i = 0; i < 4;) {
      if (i == 2 && !has_failed) EmulatedCuda::Get().call_faults().FailRequest(call);
      const absl::Status status = CatchStatus([&] {
        losses.push_back(trainer.Step([&] {
          return Batch(RandomUniform({16, 16}, 0, 1, i), RandomIntegers({16}, 0, 3, i));
        }));
      });
      EmulatedCuda::Get().call_faults().Clear();
      if (status.ok()) {
        ++i;
      } else {
        ASSERT_FALSE(has_failed) << status;
        has_failed = true;
        ++failed;
      }
    }
    EXPECT_EQ(losses, expected.losses) << "call " << call;
    EXPECT_EQ(network.arrays().ToVector<float>(), expected.arrays) << "call " << call;
  }
  EXPECT_GT(failed, 20);
}

TEST(ActivationPlansOnCuda, WhatCannotBeIsRefused) {
  Network network(Rows(), OnDevice());
  const ActivationPlan plan = AllOf(network, Retention::kSpill);
  const absl::Status with_file = CatchStatus([&] {
    network.SetActivationPlan(
        plan, std::make_shared<SpillFile>(SpillFileOptions{.folder = testing::TempDir()}));
  });
  EXPECT_EQ(with_file.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(with_file.message(), HasSubstr("found a file, and the network is on cuda:0"));
}

// What is computed again is captured; a replay would not know when the host's copies are there, so such steps are done as they are.
TEST(ActivationPlansOnCuda, GraphsOfStepsThatComputeAgain) {
  std::vector<double> expected;
  for (const Retention retention : {Retention::kKeep, Retention::kRecompute, Retention::kSpill}) {
    Network network(Rows(), OnDevice());
    network.SetActivationPlan(AllOf(network, retention));
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    trainer.set_graphs(true);
    std::vector<double> losses;
    for (int i = 0; i < 6; ++i) {
      losses.push_back(trainer.Step([&] {
        return Batch(RandomUniform({16, 16}, 0, 1, i), RandomIntegers({16}, 0, 3, i));
      }));
    }
    if (retention == Retention::kKeep) expected = losses;
    EXPECT_EQ(losses, expected) << RetentionName(retention);
    const ReplayedStep::Stats graphs = *trainer.graph_stats();
    if (retention == Retention::kSpill) {
      EXPECT_EQ(graphs.captures, 0);
      EXPECT_THAT(graphs.last_failure, HasSubstr("Op [spill]"));
    } else {
      EXPECT_EQ(graphs.failures, 0) << graphs.last_failure;
      EXPECT_GT(graphs.launches, 0);
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
