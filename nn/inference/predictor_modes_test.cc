// Predictors in each workspace mode: the network's bits, and what fails is its caller's alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

Model SmallModel() { return MakeModel("mlp", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled); }

// A number in, an image of half of it to the network, the probabilities of the classes out.
class Probabilities : public Translator<float, NDArray> {
 public:
  NDList ProcessInput(PredictorContext&, const float& input) override {
    if (input < 0) ThrowInvalidArgument("translator: negative");
    last_input = Full({28, 28, 1}, 0.5 * input);
    return {last_input};
  }
  NDArray ProcessOutput(PredictorContext&, NDList outputs) override {
    if (fail_after) ThrowInvalidArgument("translator: after");
    return Softmax(outputs.Single());
  }

  bool fail_after = false;
  NDArray last_input;
};

WorkspaceConfig ConfigFor(WorkspaceMode mode) {
  WorkspaceConfig config;
  config.workspace_mode = mode;
  if (mode == WorkspaceMode::kSeparate || mode == WorkspaceMode::kSingle)
    config.policy_learning = LearningPolicy::kFirstLoop;
  return config;
}

constexpr WorkspaceMode kEachMode[] = {WorkspaceMode::kNone, WorkspaceMode::kSingle,
                                       WorkspaceMode::kSeparate, WorkspaceMode::kEnabled};

TEST(PredictorTest, ByPurposeItTakesNothingInTheSteadyStateAndLeavesNothing) {
  Model model = MakeModel("lenet", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled);
  Probabilities translator;
  const std::vector<float> expected =
      Predictor<float, NDArray>(model, translator).Predict(0.5F).ToVector<float>();
  const int64_t heap = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated);
  {
    Predictor<float, NDArray> predictor(model, translator, "separate", 0,
                                        ConfigFor(WorkspaceMode::kSeparate));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(predictor.Predict(0.5F).ToVector<float>(), expected);
    const int64_t system = MemoryTracker::Global().system_allocations();
    for (int i = 0; i < 10; ++i) {
      translator.fail_after = i % 3 == 2;
      if (translator.fail_after) {
        EXPECT_THROW(predictor.Predict(0.5F), Error);
      } else {
        EXPECT_EQ(predictor.Predict(0.5F).ToVector<float>(), expected);
      }
      EXPECT_FALSE(translator.last_input.IsInScope());
    }
    translator.fail_after = false;
    EXPECT_EQ(MemoryTracker::Global().system_allocations() - system,
              7);  // the results, which are the caller's
    EXPECT_THAT(CatchStatus([&] { predictor.set_graphs(true); }).message(),
                HasSubstr("workspace mode separate"));
    EXPECT_FALSE(Ones({2}).IsAttached());
  }
  translator.last_input = NDArray();
  EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated), heap);
  WorkspaceConfig planned;
  planned.workspace_mode = WorkspaceMode::kSeparate;
  planned.policy_learning = LearningPolicy::kOptimized;
  EXPECT_THAT(CatchStatus([&] {
                Predictor<float, NDArray>(model, translator, "planned", 0, planned);
              }).message(),
              HasSubstr("kSeparate plans nothing"));
}

TEST(PredictorTest, Nd4jCase138WorkersInEachModeGiveTheNetworksOutputs) {
  Model model = SmallModel();
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 6; ++i) {
    expected.push_back(
        Softmax(model.network->Output(Full({1, 28, 28, 1}, 0.5 * i))).ToVector<float>());
  }
  for (const WorkspaceMode mode : kEachMode) {
    for (const int workers : {1, 2, 3}) {
      std::vector<int> right(static_cast<size_t>(workers), 0);
      std::vector<std::thread> threads;
      for (int t = 0; t < workers; ++t) {
        threads.emplace_back([&, t] {
          Probabilities translator;
          Predictor<float, NDArray> predictor(model, translator, "worker", 0, ConfigFor(mode));
          for (int i = 0; i < 12; ++i) {
            const NDArray found = predictor.Predict(static_cast<float>(i % 6));
            right[static_cast<size_t>(t)] +=
                !found.IsAttached() &&
                        found.ToVector<float>() == expected[static_cast<size_t>(i % 6)]
                    ? 1
                    : 0;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_THAT(right, Each(12)) << static_cast<int>(mode) << ", " << workers << " workers";
    }
  }
}

TEST(PredictorTest, Nd4jCase141ABadInputIsItsCallersErrorAlone) {
  Model model = SmallModel();
  for (const WorkspaceMode mode : kEachMode) {
    Probabilities translator;
    Predictor<float, NDArray> predictor(model, translator, "mixed", 0, ConfigFor(mode));
    const std::vector<float> expected = predictor.Predict(1).ToVector<float>();
    for (int i = 0; i < 5; ++i) {
      EXPECT_THAT(CatchStatus([&] { predictor.Predict(-1); }).message(),
                  HasSubstr("translator: negative"));
      EXPECT_EQ(predictor.Predict(1).ToVector<float>(), expected);
    }
  }
}

TEST(PredictorTest, Nd4jCase143NewParametersReachAllWorkers) {
  Model model = SmallModel();
  Probabilities a, b;
  Predictor<float, NDArray> first(model, a),
      second(model, b, "separate", 0, ConfigFor(WorkspaceMode::kSeparate));
  const std::vector<float> before = first.Predict(1).ToVector<float>();
  EXPECT_EQ(second.Predict(1).ToVector<float>(), before);
  const Model other = MakeModel("mlp", {28, 28, 1}, 10, 8, WorkspaceMode::kEnabled);
  CopyInto(other.network->parameters(), model.network->parameters());
  const std::vector<float> after = first.Predict(1).ToVector<float>();
  EXPECT_NE(after, before);
  EXPECT_EQ(second.Predict(1).ToVector<float>(), after);
}

}  // namespace
}  // namespace tidepool::nn
