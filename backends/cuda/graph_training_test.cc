// Training steps captured and replayed: the bits of steps that are queued kernel by kernel.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

#ifdef TIDEPOOL_EMULATED
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#endif

namespace tidepool::nn {
namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};
constexpr char kDigits[] = "examples/data/mnist";  // from where tests are run

const LabelledImages& Digits() {
  static const LabelledImages& digits = *new LabelledImages(LoadImageFolder(kDigits).train);
  return digits;
}

struct Plan {
  std::string model = "mlp";
  UpdaterKind updater = UpdaterKind::kAdam;
  std::vector<int64_t> batches;  // the size of each step's
  WorkspaceMode mode = WorkspaceMode::kEnabled;
  Schedule schedule;
  GradientClipping clipping;
  // Before step i.
  std::function<void(int i, Model& model, Trainer& trainer)> before = [](int, Model&, Trainer&) {};
};

struct Outcome {
  std::vector<double> losses;
  std::vector<float> parameters;
  ReplayedStep::Stats stats;
  int thrown = 0;
};

// A step that throws is done again.
Outcome Train(const Plan& plan, bool graphs) {
  Model model = MakeModel(plan.model, {28, 28, 1}, 10, 17, plan.mode, kDevice);
  UpdaterConfig config = UpdaterConfig::Of(plan.updater);
  config.schedule = plan.schedule;
  config.clipping = plan.clipping;
  Trainer trainer(model, config);
  trainer.set_graphs(graphs);
  Outcome run;
  for (int i = 0; i < static_cast<int>(plan.batches.size());) {
    plan.before(i, model, trainer);
    const ImageBatches batches(Digits(), plan.batches[i]);
    try {
      run.losses.push_back(trainer.Step([&] { return batches.Make(i); }));
      ++i;
    } catch (const Error& error) {
      if (++run.thrown > 4) throw;
    }
  }
  if (graphs) run.stats = *trainer.graph_stats();
  run.parameters = model.network->parameters().ToVector<float>();
  return run;
}

class GraphTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (FindDeviceProvider(kDevice) == nullptr) GTEST_SKIP() << "no CUDA device";
    if (!std::filesystem::exists(kDigits)) GTEST_SKIP() << "no digits at " << kDigits;
  }
};

void ExpectSame(const Outcome& graphs, const Outcome& eager) {
  EXPECT_EQ(graphs.losses, eager.losses);
  EXPECT_EQ(graphs.parameters, eager.parameters);
}

TEST_F(GraphTraining, EveryUpdaterGivesTheBitsOfEagerSteps) {
  for (UpdaterKind updater : {UpdaterKind::kSgd, UpdaterKind::kNesterovs, UpdaterKind::kAdaGrad,
                              UpdaterKind::kRmsProp, UpdaterKind::kAdam}) {
    for (const Schedule& schedule : {Schedule::Constant(), Schedule::Cosine(6)}) {
      SCOPED_TRACE(testing::Message() << UpdaterName(updater) << " " << schedule.ToString());
      Plan plan;
      plan.updater = updater;
      plan.schedule = schedule;
      plan.batches.assign(8, 8);
      const Outcome graphs = Train(plan, true);
      ExpectSame(graphs, Train(plan, false));
      // The first step is learned from, the second follows the plan, the third is captured.
      EXPECT_EQ(graphs.stats.captures, 1);
      EXPECT_EQ(graphs.stats.launches, 6);
      EXPECT_EQ(graphs.stats.done_as_it_is, 2);
      EXPECT_EQ(graphs.stats.failures, 0) << graphs.stats.last_failure;
      EXPECT_GT(graphs.stats.nodes, 10u);
    }
  }
}

// The norm is of the step's own gradients and stays on the device.
TEST_F(GraphTraining, ClippedNormsAreOfTheReplayedStep) {
  for (const ClippingKind kind :
       {ClippingKind::kValue, ClippingKind::kNormOfEach, ClippingKind::kGlobalNorm}) {
    Plan plan;
    plan.updater = UpdaterKind::kSgd;
    plan.clipping = {kind, 0.05};
    plan.batches.assign(6, 8);
    const Outcome graphs = Train(plan, true);
    ExpectSame(graphs, Train(plan, false));
    EXPECT_EQ(graphs.stats.captures, 1);
    EXPECT_EQ(graphs.stats.launches, 4);
    EXPECT_EQ(graphs.stats.failures, 0) << graphs.stats.last_failure;
    plan.clipping = {};
    EXPECT_NE(graphs.parameters, Train(plan, false).parameters);
  }
}

TEST_F(GraphTraining, LenetAndSingleModeToo) {
  Plan plan;
  plan.model = "lenet";
  plan.batches.assign(5, 2);
  Outcome graphs = Train(plan, true);
  ExpectSame(graphs, Train(plan, false));
  EXPECT_EQ(graphs.stats.captures, 1);
  EXPECT_EQ(graphs.stats.launches, 3);
  plan.model = "mlp";
  plan.mode = WorkspaceMode::kSingle;
  graphs = Train(plan, true);
  ExpectSame(graphs, Train(plan, false));
  EXPECT_GT(graphs.stats.launches, 0) << graphs.stats.last_failure;
}

TEST_F(GraphTraining, AnotherBatchSizeCapturesAgain) {
  Plan plan;
  plan.batches = {8, 8, 8, 8, 4, 4, 4, 4, 8, 8, 8, 3, 8, 8, 8, 16, 16, 16, 16};
  const Outcome graphs = Train(plan, true);
  ExpectSame(graphs, Train(plan, false));
  EXPECT_EQ(graphs.stats.failures, 0) << graphs.stats.last_failure;
  EXPECT_GE(graphs.stats.captures, 4);
  EXPECT_EQ(graphs.stats.launches + graphs.stats.done_as_it_is, 19);
}

TEST_F(GraphTraining, WhatOthersWriteBetweenReplaysIsSeen) {
  Plan plan;
  plan.batches.assign(9, 8);
  plan.before = [](int i, Model& model, Trainer&) {
    NDArray& parameters = model.network->parameters();
    if (i == 4) parameters.mutable_data<float>()[5] = 0.25f;
    if (i == 6) parameters *= 0.5;
    if (i == 7) {
      EXPECT_EQ(parameters.data<float>()[5], parameters.At<float>({5}));
    }
  };
  const Outcome graphs = Train(plan, true);
  ExpectSame(graphs, Train(plan, false));
  EXPECT_EQ(graphs.stats.captures, 1);
}

TEST_F(GraphTraining, OtherUsersOfTheWorkspaceAreNoticed) {
  Plan plan;
  plan.batches.assign(14, 8);
  plan.before = [](int i, Model& model, Trainer& trainer) {
    Workspace& workspace = model.network->training_workspace();
    if (i == 4) {
      WorkspaceScope scope(workspace);
      NDArray mine = Ones({1000});
      EXPECT_EQ(mine.At<float>({999}), 1);
    }
    if (i == 8) {
      const ImageBatches batches(Digits(), 8);
      Batch batch = trainer.NewBatch([&] { return batches.Make(0); });
      trainer.ComputeGradients(batch);
      batch.Close();
      EXPECT_FALSE(workspace.is_open());
      workspace.Trim();
    }
    if (i == 11) Reclaimer::Global().RunNow();
  };
  const Outcome graphs = Train(plan, true);
  ExpectSame(graphs, Train(plan, false));
  EXPECT_GE(graphs.stats.captures, 2);
  EXPECT_GE(graphs.stats.launches, 6);
  // A cycle may follow its plan and the next one still change it, after what others did to it.
  EXPECT_LE(graphs.stats.failures, 2) << graphs.stats.last_failure;
}

TEST_F(GraphTraining, ABadLabelChangesNothing) {
  Model model = MakeModel("mlp", {28, 28, 1}, 10, 17, WorkspaceMode::kEnabled, kDevice);
  Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
  trainer.set_graphs(true);
  const ImageBatches batches(Digits(), 8);
  for (int i = 0; i < 4; ++i) trainer.Step([&] { return batches.Make(i); });
  const std::vector<float> before = model.network->parameters().ToVector<float>();
  try {
    trainer.Step([&] {
      Batch batch = batches.Make(0);
      batch.labels.mutable_data<int64_t>()[3] = 10;
      return batch;
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), testing::HasSubstr("label 3 is 10"));
  }
  EXPECT_EQ(trainer.steps(), 4);
  EXPECT_EQ(model.network->parameters().ToVector<float>(), before);
  trainer.Step([&] { return batches.Make(4); });
  EXPECT_EQ(trainer.graph_stats()->captures, 1);
  EXPECT_EQ(trainer.graph_stats()->launches, 3);
  trainer.set_graphs(false);
  EXPECT_FALSE(model.network->training_workspace().is_open());
  trainer.Step([&] { return batches.Make(5); });
}

TEST_F(GraphTraining, NothingIsAllocatedPerStep) {
  for (bool graphs : {false, true}) {
    Model model = MakeModel("mlp", {28, 28, 1}, 10, 17, WorkspaceMode::kEnabled, kDevice);
    Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
    trainer.set_graphs(graphs);
    const ImageBatches batches(Digits(), 8);
    for (int i = 0; i < 4; ++i) trainer.Step([&] { return batches.Make(i); });
    const int64_t before = MemoryTracker::Global().system_allocations();
    for (int i = 0; i < 6; ++i) trainer.Step([&] { return batches.Make(i); });
    EXPECT_EQ(MemoryTracker::Global().system_allocations() - before, 0) << graphs;
  }
}

#ifdef TIDEPOOL_EMULATED
TEST_F(GraphTraining, AFaultInACaptureIsDoneAsItIs) {
  Plan plan;
  plan.batches.assign(6, 4);
  const Outcome eager = Train(plan, false);
  FaultPlan& faults = EmulatedCuda::Get().call_faults();
  int failed_captures = 0, recovered = 0;
  for (int64_t n = 0; n < 70; ++n) {
    SCOPED_TRACE(testing::Message() << "call " << n);
    bool armed = true;
    plan.before = [&, n](int i, Model&, Trainer&) {
      if (i == 2 && armed) {
        armed = false;
        faults.FailRequest(n, 1);
      }
    };
    const Outcome graphs = Train(plan, true);
    faults.Clear();
    ExpectSame(graphs, eager);
    failed_captures += graphs.stats.failures > 0 ? 1 : 0;
    recovered += graphs.stats.failures > 0 && graphs.stats.captures > 0 ? 1 : 0;
    EXPECT_LE(graphs.thrown, 1);
  }
  EXPECT_GT(failed_captures, 5);
  EXPECT_EQ(recovered, failed_captures);
}
#endif

TEST(Graphs, AreRefusedWhereStepsCannotBeCaptured) {
  const auto message = [](Device device, WorkspaceMode mode) {
    Model model = MakeModel("mlp", {28, 28, 1}, 10, 17, mode, device);
    Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kSgd));
    const absl::Status status = CatchStatus([&] { trainer.set_graphs(true); });
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(trainer.graph_stats(), nullptr);
    return std::string(status.message());
  };
  EXPECT_THAT(message(Host(), WorkspaceMode::kEnabled), testing::HasSubstr("steps on host cannot"));
  EXPECT_THAT(message(Host(), WorkspaceMode::kNone), testing::HasSubstr("workspace_mode none"));
}

}  // namespace
}  // namespace tidepool::nn
