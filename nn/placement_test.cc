// Where a network's arrays live, in each mode: the same bits, nothing asked of the system, what
// fails changes nothing.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/allocation_counter.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Outcome {
  std::vector<double> losses;
  std::vector<float> parameters, output;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// The batch changes on the way.
Outcome Train(Network& network, int steps, int from = 0) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  Outcome outcome;
  for (int i = from; i < from + steps; ++i) {
    outcome.losses.push_back(
        trainer.Step([&] { return SomeBatch(i % 7 == 3 ? 3 : 4, static_cast<uint64_t>(i)); }));
  }
  outcome.parameters = network.parameters().ToVector<float>();
  for (int i = 0; i < 3; ++i) outcome.output = network.Output(Features(4)).ToVector<float>();
  return outcome;
}

TEST(Placement, TwoHundredStepsGiveTheSameBitsInEveryModeAndMix) {
  for (const char* name : kExampleNetworks) {
    Network first = ExampleNetwork(name, Options(WorkspaceMode::kNone));
    const Outcome expected = Train(first, 200);
    for (size_t i = 1; i < std::size(kModes); ++i) {
      Network network =
          ExampleNetwork(name, Options(kModes[i], kModes[(i + 1) % std::size(kModes)]));
      EXPECT_TRUE(Train(network, 200) == expected)
          << name << ", mode " << static_cast<int>(kModes[i]);
      for (const Workspace* workspace : network.training_workspaces().workspaces()) {
        EXPECT_EQ(workspace->stats().leaked_arrays, 0) << name << ": " << workspace->id();
        EXPECT_EQ(workspace->stats().findings, 0) << name << ": " << workspace->id();
        EXPECT_FALSE(workspace->is_open());
      }
      for (const Workspace* workspace : network.inference_workspaces().workspaces()) {
        EXPECT_EQ(workspace->stats().leaked_arrays, 0) << name << ": " << workspace->id();
        EXPECT_FALSE(workspace->is_open());
      }
    }
  }
}

int64_t SizeOf(const LayerWorkspaceManager& manager) {
  int64_t bytes = 0;
  for (const Workspace* workspace : manager.workspaces())
    bytes += static_cast<int64_t>(workspace->size());
  return bytes;
}

TEST(Placement, PlannedIsNoLargerThanSeparateWhichIsNoLargerThanSingle) {
  for (const char* name : kExampleNetworks) {
    int64_t training[3], inference[3];
    for (size_t i = 1; i < std::size(kModes); ++i) {
      Network network = ExampleNetwork(name, Options(kModes[i]));
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
      for (int step = 0; step < 4; ++step) trainer.Step([] { return SomeBatch(8, 1); });
      for (int step = 0; step < 4; ++step) network.Output(Features(8));
      training[i - 1] = SizeOf(network.training_workspaces());
      inference[i - 1] = SizeOf(network.inference_workspaces());
    }
    const auto& [single, separate, enabled] = training;
    EXPECT_LE(separate, single) << name;
    EXPECT_LE(enabled, separate) << name;
    EXPECT_LE(inference[2], inference[1]) << name;
    std::printf(
        "%-9s training single %9lld separate %9lld enabled %9lld  inference single %9lld separate "
        "%9lld enabled %9lld\n",
        name, static_cast<long long>(single), static_cast<long long>(separate),
        static_cast<long long>(enabled), static_cast<long long>(inference[0]),
        static_cast<long long>(inference[1]), static_cast<long long>(inference[2]));
  }
}

TEST(Placement, AChainNeedsTwoWorkspacesOfActivationsAndASkippedValueKeepsAThird) {
  for (const auto& [name, count] : {std::pair{"lenet", 2}, {"residual", 3}}) {
    Network network = ExampleNetwork(name, Options(WorkspaceMode::kSeparate));
    network.Output(Features(2));
    int activations = 0;
    for (const Workspace* workspace : network.inference_workspaces().workspaces()) {
      activations += workspace->id().find(" activations ") != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(activations, count) << name;
  }
}

void ExpectSteadyStepsAllocateNothing(const std::string& name, WorkspaceMode mode, int64_t side,
                                      Network network) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  const NDArray features = RandomUniform({4, side, side, 1}, 0, 1, 99);
  NDArray output = network.Output(features);
  const auto once = [&] {
    trainer.Step([&]() -> Batch { return {Zeros({4, side, side, 1}), Zeros({4}, DType::kInt64)}; });
    network.OutputInto(features, output);
  };
  for (int step = 0; step < 5; ++step) once();
  network.training_workspace().FinishPlanSearch();
  network.inference_workspace().FinishPlanSearch();
  // Those of layers too: the thread that searches allocates.
  for (const LayerWorkspaceManager* workspaces :
       {&network.training_workspaces(), &network.inference_workspaces()}) {
    for (const Workspace* workspace : workspaces->workspaces())
      const_cast<Workspace*>(workspace)->FinishPlanSearch();
  }
  once();
  const int64_t before = AllocationCount(), system = MemoryTracker::Global().system_allocations();
  for (int step = 0; step < 5; ++step) once();
  EXPECT_EQ(AllocationCount() - before, 0) << name << ", mode " << static_cast<int>(mode);
  EXPECT_EQ(MemoryTracker::Global().system_allocations() - system, 0) << name;
}

constexpr char kInstructions[] = "TIDEPOOL_CPU_INSTRUCTIONS";

TEST(Placement, ASteadyStepAndRequestAllocateNothingInEveryModeWithWorkspaces) {
  // By the kernels of other processors the last mode alone.
  const size_t first = std::getenv(kInstructions) != nullptr ? std::size(kModes) - 1 : 1;
  for (size_t i = first; i < std::size(kModes); ++i) {
    const NetworkOptions options = Options(kModes[i]);
    for (const char* name : kExampleNetworks)
      ExpectSteadyStepsAllocateNothing(name, kModes[i], 28, ExampleNetwork(name, options));
    // The images of the last stages are so small that requests pack weights, anew behind each step.
    ExpectSteadyStepsAllocateNothing(
        "residual of three stages", kModes[i], 16,
        Network(ResidualConfig({16, 16, 1}, 10, {32, 64, 96}), options));
    ExpectSteadyStepsAllocateNothing(
        "dense layers", kModes[i], 16,
        Network(NetworkConfig::Sequential({16, 16, 1}, {Dense(100), Dense(10)}), options));
  }
}

// There XNNPACK packs the weights of nearly every layer.
TEST(Placement, NorDoTheyByTheKernelsForAnyProcessor) {
  const pid_t child = fork();
  if (child == 0) {
    setenv(kInstructions, "portable", 1);
    for (const char* name : {"XML_OUTPUT_FILE", "TEST_PREMATURE_EXIT_FILE"}) unsetenv(name);
    execl("/proc/self/exe", "placement_test",
          "--gtest_filter=Placement.ASteadyStepAndRequestAllocateNothing*",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Placement, OutOfMemoryInAnyRequestOfAStepLeavesTheNetworkAsOneThatNeverFailed) {
  constexpr int64_t kSide = 16;
  UpdaterConfig updater = UpdaterConfig::Of(UpdaterKind::kAdam);
  updater.clipping.kind = ClippingKind::kGlobalNorm;  // for which an update takes memory too
  for (const char* name : kExampleNetworks) {
    for (WorkspaceMode mode : kModes) {
      const RefusedRuns runs = RefuseEachRequest(
          [&] { return ExampleNetwork(name, Options(mode), kSide); }, updater,
          [](int64_t step) { return SomeBatch(4, static_cast<uint64_t>(step), kSide); });
      EXPECT_EQ(runs.others, 0) << name << ", mode " << static_cast<int>(mode);
      EXPECT_GT(runs.requests, 0);
      // A workspace that is refused pages has others; without one each request is a step's.
      EXPECT_GE(runs.refused, mode == WorkspaceMode::kNone ? runs.requests * 9 / 10 : 1)
          << name << ", mode " << static_cast<int>(mode);
      std::printf("%-11s mode %d: each of %lld requests refused, %lld steps\n", name,
                  static_cast<int>(mode), static_cast<long long>(runs.requests),
                  static_cast<long long>(runs.refused));
    }
  }
}

// ---- configurations ----

TEST(Placement, ConfigurationsAreTakenAndIllegalOnesRefusedWithEveryReason) {
  NetworkOptions options = Options(WorkspaceMode::kEnabled);
  options.training_workspace = WorkspaceConfig::Training();
  options.training_workspace->initial_size = 1 << 20;
  Network network = ExampleNetwork("mlp", options);
  EXPECT_EQ(network.training_workspace().config().policy_learning, LearningPolicy::kOptimized);
  EXPECT_EQ(network.training_workspace().size(), 1 << 20);
  options = Options(WorkspaceMode::kSeparate);
  options.training_workspace = WorkspaceConfig::Training();
  options.training_workspace->workspace_mode = WorkspaceMode::kSingle;
  EXPECT_THAT(MessageOf([&] { ExampleNetwork("mlp", options); }),
              AllOf(HasSubstr("workspace_mode is kSingle, the network's is kSeparate"),
                    HasSubstr("kSeparate plans nothing")));
  options = Options(WorkspaceMode::kEnabled);
  options.inference_workspace = WorkspaceConfig();
  options.inference_workspace->alignment = 3;
  EXPECT_THAT(MessageOf([&] { ExampleNetwork("mlp", options); }),
              AllOf(HasSubstr("inference"), HasSubstr("alignment")));
}

TEST(Placement, AWorkspaceIsReplacedBetweenStepsAndNotWithinOne) {
  Network expected_of = ExampleNetwork("mlp", Options(WorkspaceMode::kEnabled)),
          network = ExampleNetwork("mlp", Options(WorkspaceMode::kNone));
  const Outcome expected = Train(expected_of, 12);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  for (int i = 0; i < 12; ++i) {
    if (i % 3 == 1) network.set_training_workspace(kModes[(i / 3) % 4]);
    trainer.Step([&] { return SomeBatch(i % 7 == 3 ? 3 : 4, static_cast<uint64_t>(i)); });
  }
  EXPECT_EQ(network.parameters().ToVector<float>(), expected.parameters);
  const WorkspaceScope scope(network.training_workspace());
  EXPECT_THAT(MessageOf([&] { network.set_training_workspace(WorkspaceMode::kSingle); }),
              HasSubstr("is open, expected closed"));
}

// ---- the manager ----

TEST(Placement, TheManagerMakesEachTypeInItsPlace) {
  Network network = ExampleNetwork("mlp", Options(WorkspaceMode::kSeparate));
  LayerWorkspaceManager& manager = network.training_workspaces();
  EXPECT_THAT(MessageOf([&] { manager.Create(ArrayType::kInput, {4}); }),
              HasSubstr("is not open on this thread"));
  const WorkspaceScope scope(network.training_workspace());
  const LayerWorkspaceManager::Call call(manager, nullptr);
  const NDArray input = manager.Create(ArrayType::kInput, {4});
  EXPECT_EQ(input.buffer()->owner->WorkspaceId(), network.training_workspace().id());
  EXPECT_THAT(MessageOf([&] { manager.Create(ArrayType::kForwardWorkingMemory, {4}); }),
              HasSubstr("working] is not open"));
  NDArray kept;
  {
    const LayerWorkspaceManager::Layer layer(&manager, 1, "first");
    const NDArray work = manager.Create(ArrayType::kForwardWorkingMemory, {4});
    EXPECT_THAT(work.buffer()->owner->WorkspaceId(), HasSubstr(" working"));
    EXPECT_TRUE(manager.LeverageTo(ArrayType::kForwardWorkingMemory, work).buffer().get() ==
                work.buffer().get());
    kept = manager.LeverageTo(ArrayType::kActivations, work);
    EXPECT_EQ(kept.buffer()->owner->WorkspaceId(), network.training_workspace().id());
    const NDArray again = manager.Dup(ArrayType::kActivations, kept);
    EXPECT_FALSE(again.buffer().get() == kept.buffer().get());
    EXPECT_THAT(MessageOf([&] { manager.Validate(ArrayType::kActivations, work, "first"); }),
                AllOf(HasSubstr("layer \"first\": its activations are in workspace ["),
                      HasSubstr(" working], the place of working memory")));
    manager.Validate(ArrayType::kActivations, kept, "first");
  }
  EXPECT_TRUE(kept.IsInScope());
  const LayerWorkspaceManager none = LayerWorkspaceManager::NoWorkspaces();
  EXPECT_FALSE(none.Create(ArrayType::kActivations, {4}).IsAttached());
  EXPECT_FALSE(none.LeverageTo(ArrayType::kActivations, kept).IsAttached());
}

// Returns what ended with a workspace of its own.
class Stale final : public Layer {
 public:
  explicit Stale(bool fails) : fails_(fails) {}
  std::string Kind() const override { return "test_stale"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& x) const override {
    Workspace own("own");
    const WorkspaceScope scope(own);
    if (fails_) ThrowDataLoss("my own error");
    return x + 1;
  }

 private:
  const bool fails_;
};

TEST(Placement, AnArrayInTheWrongPlaceIsNamedAndTheUsersErrorIsNotHidden) {
  for (WorkspaceMode mode : kModes) {
    for (const bool fails : {false, true}) {
      NetworkConfig config = NetworkConfig::Sequential({4}, {Dense(4), Stale(fails), Dense(10)});
      config.nodes[1].name = "wrong";
      config.nodes[2].inputs = {"wrong"};
      Network network(std::move(config), Options(mode));
      const std::string message = MessageOf([&] { network.Output(Zeros({2, 4})); });
      if (fails) {
        EXPECT_THAT(message, HasSubstr("my own error"));
      } else {
        EXPECT_THAT(message, AllOf(HasSubstr("layer \"wrong\": its activations are gone"),
                                   HasSubstr("own")));
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
