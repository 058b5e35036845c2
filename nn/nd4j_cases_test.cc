// The numbered cases of ND4J's networks that read sequences or run many times (groups K and M), in
// each mode, and what a thousand fits leave behind.
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/eval/regression_evaluation.h"
#include "tidepool/eval/roc.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

constexpr int64_t kLength = 12, kPart = 4, kBatch = 3, kClasses = 4;

// Of sequences of any length: [length, 3] to classes at each step.
Network Recurrent(WorkspaceMode mode, int64_t length) {
  return Network(NetworkConfig::Sequential(
                     {length, 3}, {Lstm(6), Gru(5),
                                   Dense(kClasses, Activation::kIdentity, {.last_axis = true})}),
                 Options(mode));
}

NDArray Sequences(uint64_t seed) { return RandomUniform({kBatch, kLength, 3}, -1, 1, seed); }

LossFunction SquaresOfSteps() {
  return [](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
    const NDArray difference = outputs[0] - inputs.labels[0];
    return Sum(difference * difference, {1, 2});
  };
}

TEST(Nd4jNetworks, Nd4jCase125StatesSurviveRequestsAndTruncatedFits) {
  std::vector<float> expected;
  for (WorkspaceMode mode : kModes) {
    SCOPED_TRACE(static_cast<int>(mode));
    Network network = Recurrent(mode, kPart);
    network.set_loss(SquaresOfSteps());
    const NDArray x = Sequences(1), y = RandomUniform({kBatch, kLength, kClasses}, -1, 1, 2);
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<NDArray> states = network.NewStates();
      for (int64_t t = 0; t < kLength; t += kPart) {
        const WorkspaceScope scope(network.inference_workspace());
        Network::RunOptions options;
        options.states = &states;
        network.Run({x.Slice(1, t, t + kPart).Dup()}, options);
      }
      for (const NDArray& state : states) {
        EXPECT_TRUE(state.IsInScope());
        EXPECT_FALSE(state.IsAttached());
      }
    }
    std::vector<NDArray> states = network.NewStates();
    for (int64_t t = 0; t < kLength; t += kPart) {
      const WorkspaceScope scope(network.training_workspace());
      network.ComputeGradients(
          {{x.Slice(1, t, t + kPart).Dup()}, {y.Slice(1, t, t + kPart).Dup()}, {}, {}}, &states);
      network.parameters() -= network.gradients() * 0.01;
    }
    for (const NDArray& state : states) EXPECT_TRUE(state.IsInScope() && !state.IsAttached());
    const std::vector<float> found = network.parameters().ToVector<float>();
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected);
    EXPECT_EQ(network.training_workspace().stats().leaked_arrays, 0u);
  }
}

TEST(Nd4jNetworks, Nd4jCase126ConvolutionsThenSequencesAreValid) {
  std::vector<float> expected;
  for (WorkspaceMode mode : kModes) {
    Network network(
        NetworkConfig::Sequential(
            {6, 6, 1}, {Conv2D(2, 3, 3, Activation::kRelu), Dense(12), ReshapeLayer({4, 3}),
                        Lstm(5, {.output = RecurrentOutput::kLast}), Dense(3)}),
        Options(mode));
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    for (int i = 0; i < 6; ++i) {
      trainer.Step([&]() -> Batch {
        return {RandomUniform({4, 6, 6, 1}, 0, 1, static_cast<uint64_t>(i)),
                RandomIntegers({4}, 0, 3, 7)};
      });
    }
    const std::vector<float> found = network.parameters().ToVector<float>();
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected);
  }
}

// Evaluations of parts, with states between them, are those of whole sequences: of classes, of their
// curves and of numbers. Scores of parts come of other products and differ in their last bits.
TEST(Nd4jNetworks, Nd4jCase132EvaluationInPartsIsThatOfTheWhole) {
  for (WorkspaceMode mode : kModes) {
    SCOPED_TRACE(static_cast<int>(mode));
    Network whole = Recurrent(mode, kLength), part = Recurrent(mode, kPart);
    struct Evaluations {
      Evaluation classes{kClasses};
      ROCMultiClass curves{kClasses};
      RegressionEvaluation numbers{kClasses};
      void Add(const NDArray& scores, const NDArray& labels, const NDArray& targets) {
        const std::vector<float> found = scores.ToVector<float>();
        const std::vector<int64_t> of = labels.ToVector<int64_t>();
        const std::vector<float> truth = targets.ToVector<float>();
        classes.AddScores(of, found);
        EvaluationBatch batch{.scores = found, .labels = of, .columns = kClasses};
        curves.Add(batch);
        batch.labels = truth;
        numbers.Add(batch);
      }
    } of_whole, of_parts;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const NDArray x = Sequences(seed),
                    labels = RandomIntegers({kBatch, kLength}, 0, kClasses, seed),
                    targets = RandomUniform({kBatch, kLength, kClasses}, -1, 1, seed + 10);
      of_whole.Add(whole.Output(x), labels, targets);
      std::vector<NDArray> states = part.NewStates();
      for (int64_t t = 0; t < kLength; t += kPart) {
        const WorkspaceScope scope(part.inference_workspace());
        Network::RunOptions options;
        options.states = &states;
        const auto steps = [&](const NDArray& all) { return all.Slice(1, t, t + kPart).Dup(); };
        of_parts.Add(part.Run({steps(x)}, options)[0], steps(labels), steps(targets));
      }
    }
    EXPECT_EQ(of_parts.classes.Report(), of_whole.classes.Report());
    for (int i = 0; i < kClasses; ++i) {
      EXPECT_EQ(of_parts.curves.at(i).count(), 5 * kBatch * kLength);
      EXPECT_NEAR(of_parts.curves.at(i).AUC(), of_whole.curves.at(i).AUC(), 1e-6);
      EXPECT_NEAR(of_parts.curves.at(i).AUPRC(), of_whole.curves.at(i).AUPRC(), 1e-6);
      EXPECT_EQ(of_parts.numbers.count(i), 5 * kBatch * kLength);
      EXPECT_NEAR(of_parts.numbers.MSE(i), of_whole.numbers.MSE(i), 1e-6);
      EXPECT_NEAR(of_parts.numbers.MAE(i), of_whole.numbers.MAE(i), 1e-6);
      EXPECT_NEAR(of_parts.numbers.R2(i), of_whole.numbers.R2(i), 1e-5);
      EXPECT_NEAR(of_parts.numbers.Correlation(i), of_whole.numbers.Correlation(i), 1e-5);
    }
  }
}

// What layers share while kernels run is theirs one after the other: convolutions whose scratch is
// in turn in one workspace compute what they do on the heap.
TEST(Nd4jNetworks, Nd4jCase135SharedScratchChangesNoBit) {
  std::vector<float> expected;
  for (WorkspaceMode mode : kModes) {
    Network network(
        NetworkConfig::Sequential({12, 12, 3}, {Conv2D(8, 5, 5, Activation::kRelu), Conv2D(8, 3, 3),
                                                Conv2D(4, 5, 5), Dense(3)}),
        Options(mode));
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    for (int i = 0; i < 4; ++i) {
      trainer.Step([&]() -> Batch {
        return {RandomUniform({4, 12, 12, 3}, 0, 1, static_cast<uint64_t>(i)),
                RandomIntegers({4}, 0, 3, 7)};
      });
    }
    const std::vector<float> found = network.parameters().ToVector<float>();
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected);
  }
}

TEST(Nd4jNetworks, Nd4jCase136EvaluationKeepsNothingAndItsMemoryIsFlat) {
  for (WorkspaceMode mode : kModes) {
    Network network = ExampleNetwork("mlp", Options(mode));
    Evaluation evaluation(10);
    std::vector<int64_t> labels(8);
    const auto bytes = [] {
      return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
    };
    int64_t before = 0;
    for (int i = 0; i < 40; ++i) {
      if (i == 4) before = bytes();
      network.Infer(
          [&] {
            return RandomUniform({8, 28, 28, 1}, 0, 1, static_cast<uint64_t>(i));
          },
          [&](const NDArray& scores) {
            EXPECT_EQ(scores.IsAttached(),
                      mode != WorkspaceMode::kNone);  // read where they are, and copied into counts
            evaluation.AddScores(labels, scores.ToVector<float>());
          });
    }
    if (mode != WorkspaceMode::kEnabled) {
      EXPECT_EQ(bytes(), before);
    }
    EXPECT_LE(bytes(), before);  // what is planned may become smaller yet
    EXPECT_EQ(evaluation.count(), 40 * 8);
    EXPECT_EQ(network.inference_workspace().stats().leaked_arrays, 0u);
  }
}

// Two workers whose parameters are averaged each third round end as one, whatever the mode: LeNet on
// digits is in nn/parallel/parallel_wrapper_test.cc.
TEST(Nd4jNetworks, Nd4jCase145AveragedWorkersHaveTheSameParametersInEveryMode) {
  std::vector<float> expected;
  for (WorkspaceMode mode : kModes) {
    SCOPED_TRACE(static_cast<int>(mode));
    Network network = ExampleNetwork("mlp", Options(mode));
    const std::vector<float> first = network.parameters().ToVector<float>();
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    ParallelWrapper parallel(trainer, {.workers = 2,
                                       .training = ParallelTraining::kParameterAveraging,
                                       .averaging_frequency = 3,
                                       .prefetch = 24});
    FunctionIterator<DataSet> batches(
        20, [](int64_t i) { return SomeBatch(4, static_cast<uint64_t>(i)); });
    parallel.Fit(batches);
    const std::vector<float> found = network.parameters().ToVector<float>();
    EXPECT_NE(found, first);
    EXPECT_EQ(parallel.network(1).parameters().ToVector<float>(), found);
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected);
  }
}

// A loop that feeds on its own outputs for fifty steps, in a cycle each.
TEST(Nd4jNetworks, Nd4jCase148ALoopOfFiftyStepsIsSteady) {
  std::vector<float> expected;
  for (WorkspaceMode mode : kModes) {
    SCOPED_TRACE(static_cast<int>(mode));
    Network network(NetworkConfig::Sequential(
                        {1, 4}, {Lstm(8), Dense(4, Activation::kIdentity, {.last_axis = true})}),
                    Options(mode));
    Workspace workspace("loop");
    std::vector<NDArray> states = network.NewStates();
    NDArray x = Full({2, 1, 4}, 0.5, DType::kFloat32, Place::Heap());
    int64_t system = 0, spilled = 0, bytes = 0;
    for (int step = 0; step < 50; ++step) {
      if (step == 5) {
        workspace.FinishPlanSearch();
        network.inference_workspace().FinishPlanSearch();
      }
      if (step == 10) {
        system = MemoryTracker::Global().system_allocations();
        bytes = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
        spilled = static_cast<int64_t>(workspace.stats().spills);
      }
      const WorkspaceScope scope(workspace);
      Network::RunOptions options;
      options.states = &states;
      CopyInto(network.Run({x}, options)[0], x);
    }
    // A step's states are new arrays of the heap, as copies of the old ones may be kept, and nothing
    // else is, but where the network's arrays are all of the heap.
    if (mode != WorkspaceMode::kNone) {
      EXPECT_EQ(MemoryTracker::Global().system_allocations() - system,
                40 * static_cast<int64_t>(states.size()));
    }
    EXPECT_EQ(MemoryTracker::Global().Snapshot()[Host()].total.current_bytes, bytes);
    EXPECT_EQ(static_cast<int64_t>(workspace.stats().spills), spilled);
    EXPECT_EQ(workspace.stats().leaked_arrays, 0u);
    // The same without any workspace.
    std::vector<NDArray> of_heap = network.NewStates();
    NDArray y = Full({2, 1, 4}, 0.5, DType::kFloat32, Place::Heap());
    for (int step = 0; step < 50; ++step) {
      Network::RunOptions options;
      options.states = &of_heap;
      CopyInto(network.Run({y}, options)[0], y);
    }
    EXPECT_EQ(x.ToVector<float>(), y.ToVector<float>());
    if (expected.empty()) expected = x.ToVector<float>();
    EXPECT_EQ(x.ToVector<float>(), expected);
  }
}

TEST(Nd4jNetworks, Nd4jCase149AHundredCyclesBeginAnewAndWhatEndedIsRefused) {
  for (WorkspaceMode mode : kModes) {
    SCOPED_TRACE(static_cast<int>(mode));
    Network network = ExampleNetwork("mlp", Options(mode));
    for (Workspace* const workspace :
         {&network.inference_workspace(), &network.training_workspace()}) {
      NDArray kept;
      for (int i = 0; i < 100; ++i) {
        const WorkspaceScope scope(*workspace);
        EXPECT_EQ(workspace->bytes_this_cycle(), 0u);
        kept = Ones({16});
      }
      // Without workspaces nothing ends.
      EXPECT_EQ(kept.IsInScope(), mode == WorkspaceMode::kNone);
      if (mode == WorkspaceMode::kNone) continue;
      for (const auto& use : std::vector<std::function<void()>>{
               [&] { kept + 1.0; }, [&] { kept.Dup(); }, [&] { kept.ToVector<float>(); },
               [&] { kept.Slice(0, 0, 1) = 2; }, [&] { network.Output(kept); }}) {
        EXPECT_NE(MessageOf(use), "nothing was thrown");
      }
    }
  }
}

// Pages of the process; sanitizers keep what was freed.
int64_t ResidentBytes() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;
#endif
  long long pages = 0, resident = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  const int read = std::fscanf(file, "%lld %lld", &pages, &resident);
  std::fclose(file);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

struct Left {
  int64_t bytes = 0, managers = 0;
};
Left Now() {
  return {MemoryTracker::Global().Snapshot()[Host()].total.current_bytes,
          static_cast<int64_t>(NDManager::System().Snapshot().size())};
}

void Fit(Network& network) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  for (int i = 0; i < 3; ++i) trainer.Step([&] { return SomeBatch(4, static_cast<uint64_t>(i)); });
  network.Output(Features(2));
}

TEST(Nd4jNetworks, AThousandFitsInARowHoldNoMoreThanAHundred) {
  for (WorkspaceMode mode : kModes) {
    Network network = ExampleNetwork("mlp", Options(mode));
    for (int i = 0; i < 100; ++i) Fit(network);
    network.training_workspace().FinishPlanSearch();
    network.inference_workspace().FinishPlanSearch();
    Fit(network);
    const Left before = Now();
    const int64_t resident = ResidentBytes();
    for (int i = 0; i < (mode == WorkspaceMode::kEnabled ? 900 : 200); ++i) Fit(network);
    EXPECT_EQ(Now().bytes, before.bytes) << static_cast<int>(mode);
    EXPECT_EQ(Now().managers, before.managers) << static_cast<int>(mode);
    // An updater of one fit is of 1.8 MB: none of 200 stayed.
    EXPECT_LT(ResidentBytes() - resident, 8 << 20) << static_cast<int>(mode);
  }
}

TEST(Nd4jNetworks, FitsInFreshThreadsLeaveNothingBehind) {
  const auto fit = [](WorkspaceMode mode) {
    std::thread([mode] {
      Network network = ExampleNetwork("mlp", Options(mode));
      Fit(network);
    }).join();
  };
  for (WorkspaceMode mode : kModes) fit(mode);
  const Left before = Now();
  const int64_t resident = ResidentBytes();
  for (int i = 0; i < 60; ++i) fit(kModes[i % 4]);
  EXPECT_EQ(Now().bytes, before.bytes);
  EXPECT_EQ(Now().managers, before.managers);
  EXPECT_LT(ResidentBytes() - resident,
            16 << 20);  // a network, its updater and workspaces are of 4.5 MB and more
}

}  // namespace
}  // namespace tidepool::nn
