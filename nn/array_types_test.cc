// Every array type in every mode and phase: where it is made, and where it may not be.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layer_workspace_manager.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/testing/placement_runs.h"

namespace tidepool::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Phase = LayerWorkspaceManager::Phase;

std::vector<ArrayType> AllTypes() {
  std::vector<ArrayType> types;
  for (int i = 0; i < kArrayTypes; ++i) types.push_back(static_cast<ArrayType>(i));
  return types;
}

// Where in a step or request.
enum class Moment { kForward, kBackward };

// The workspace that the table of layer_workspace_manager.h has; "" is the heap.
std::string ExpectedPlace(ArrayType type, WorkspaceMode mode, Phase phase, Moment moment) {
  if (mode == WorkspaceMode::kNone) return "";
  if (mode != WorkspaceMode::kSeparate) return "step";
  switch (type) {
    case ArrayType::kForwardWorkingMemory:
    case ArrayType::kBackwardWorkingMemory:
    case ArrayType::kRecurrentForwardLoop:
    case ArrayType::kRecurrentBackwardLoop:
      return "step working";
    case ArrayType::kActivations:
      return phase == Phase::kInference ? "step activations 1" : "step";
    case ArrayType::kActivationGradients:
      return moment == Moment::kBackward ? "step gradients 1" : "step";
    case ArrayType::kInput:
    case ArrayType::kUpdaterWorkingMemory:
    case ArrayType::kForwardCache:
      return "step";
  }
  return "?";
}

std::string PlaceOf(const NDArray& array) {
  return array.IsAttached() ? array.buffer()->owner->WorkspaceId() : "";
}

// What is called in a layer's forward call, and in training within its part of the backward pass.
void InALayer(WorkspaceMode mode, Phase phase,
              const std::function<void(const LayerWorkspaceManager&, Moment)>& call) {
  Workspace step("step", LayerWorkspaceManager::ConfigOf(mode, std::nullopt, "step", Host()));
  LayerWorkspaceManager manager(step, mode, phase, WorkspaceConfig());
  const NDArray x = Ones({4});
  for (int i = 0; i < 3; ++i) {  // the second cycle has the memory of the first
    const WorkspaceScope scope(step);
    std::optional<GradientTape> tape;
    if (phase == Phase::kTraining) {
      tape.emplace();
      tape->Watch(x);
    }
    const LayerWorkspaceManager::Call pass(manager, tape.has_value() ? &*tape : nullptr);
    NDArray y;
    {
      const LayerWorkspaceManager::Layer layer(&manager, 1, "mine");
      {
        const NoGradientScope by_hand;
        y = x * 2.0;
        call(manager, Moment::kForward);
      }
      if (tape.has_value()) {
        SetGradient("mine", {x}, {y}, [&](absl::Span<const NDArray> dy) -> std::vector<NDArray> {
          call(manager, Moment::kBackward);
          return {dy[0] * 2.0};
        });
      }
    }
    if (!tape.has_value()) continue;
    NDArray loss;
    {
      const LayerWorkspaceManager::Layer layer(&manager, 0, "loss");
      loss = Sum(y);
    }
    tape->Backward(loss);
    EXPECT_EQ(tape->Gradient(x).ToVector<float>(), std::vector<float>(4, 2));
  }
}

void InEveryModeAndPhase(
    const std::function<void(WorkspaceMode, Phase, const LayerWorkspaceManager&, Moment)>& call) {
  for (const WorkspaceMode mode : kModes) {
    for (const Phase phase : {Phase::kTraining, Phase::kInference}) {
      InALayer(mode, phase, [&](const LayerWorkspaceManager& manager, Moment moment) {
        SCOPED_TRACE(testing::Message()
                     << "mode " << static_cast<int>(mode) << ", phase " << static_cast<int>(phase)
                     << ", moment " << static_cast<int>(moment));
        call(mode, phase, manager, moment);
      });
    }
  }
}

TEST(ArrayTypes, EachIsMadeInItsPlace) {
  int moments = 0;
  InEveryModeAndPhase(
      [&](WorkspaceMode mode, Phase phase, const LayerWorkspaceManager& manager, Moment moment) {
        ++moments;
        for (const ArrayType type : AllTypes()) {
          SCOPED_TRACE(ArrayTypeName(type));
          const std::string expected = ExpectedPlace(type, mode, phase, moment);
          const NDArray made = manager.Create(type, {2, 3}, DType::kFloat64);
          EXPECT_EQ(PlaceOf(made), expected);
          EXPECT_EQ(made.shape(), (Shape{2, 3}));
          EXPECT_EQ(made.dtype(), DType::kFloat64);
          // From the place of every type, and from the heap, on which arrays may stay.
          for (const ArrayType other : AllTypes()) {
            const NDArray there = manager.Create(other, {4});
            const NDArray here = manager.LeverageTo(type, there);
            EXPECT_EQ(PlaceOf(here), expected) << ArrayTypeName(other);
            EXPECT_EQ(here.buffer().get() == there.buffer().get(), PlaceOf(there) == expected);
            const NDArray copy = manager.Dup(type, there);
            EXPECT_EQ(PlaceOf(copy), expected);
            EXPECT_NE(copy.buffer().get(), there.buffer().get());
          }
          const NDArray heap = Ones({4}, DType::kFloat32, Place::Heap());
          EXPECT_EQ(manager.LeverageTo(type, heap).buffer().get(), heap.buffer().get());
          EXPECT_EQ(PlaceOf(manager.Dup(type, heap)), expected);
        }
      });
  EXPECT_EQ(moments, 4 * (2 + 1) * 3);
}

// Each type in the place of each: an error that names the layer, the type and the place, unless they
// have one place. The one exception is an activation that is a view of the request's input.
TEST(ArrayTypes, OneInAnothersPlaceIsNamed) {
  std::map<WorkspaceMode, int> refused;
  InEveryModeAndPhase(
      [&](WorkspaceMode mode, Phase phase, const LayerWorkspaceManager& manager, Moment moment) {
        for (const ArrayType type : AllTypes()) {
          for (const ArrayType other : AllTypes()) {
            SCOPED_TRACE(testing::Message()
                         << ArrayTypeName(type) << " in the place of " << ArrayTypeName(other));
            const NDArray array = manager.Create(other, {4});
            const std::string found = ExpectedPlace(other, mode, phase, moment),
                              own = ExpectedPlace(type, mode, phase, moment);
            const std::string message = MessageOf([&] { manager.Validate(type, array, "mine"); });
            if (found == own || (type == ArrayType::kActivations && found == "step")) {
              EXPECT_EQ(message, "nothing was thrown");
              continue;
            }
            ++refused[mode];
            EXPECT_THAT(message,
                        AllOf(HasSubstr(std::string("layer \"mine\": its ") + ArrayTypeName(type) +
                                        " are in workspace [" + found + "], the place of "),
                              HasSubstr(type == ArrayType::kActivations
                                            ? "expected where arrays are made in its call"
                                            : "expected workspace [" + own + "]")));
          }
        }
      });
  EXPECT_EQ(refused.size(), 1u);  // the other modes have one place for all
  EXPECT_GT(refused[WorkspaceMode::kSeparate], 100);
}

TEST(ArrayTypes, OthersWorkspacesAndTheHeapAreNoTypesPlaceAndWhatIsGoneIsNamed) {
  Workspace mine("mine");
  InEveryModeAndPhase([&](WorkspaceMode, Phase, const LayerWorkspaceManager& manager, Moment) {
    NDArray gone;
    {
      const WorkspaceScope scope(mine);
      gone = Ones({4}, DType::kFloat32, Place::In(mine));
      for (const ArrayType type : AllTypes()) manager.Validate(type, gone, "mine");
    }
    for (const ArrayType type : AllTypes()) {
      manager.Validate(type, Ones({4}, DType::kFloat32, Place::Heap()), "mine");
      EXPECT_THAT(
          MessageOf([&] { manager.Validate(type, gone, "mine"); }),
          AllOf(HasSubstr(std::string("layer \"mine\": its ") + ArrayTypeName(type) + " are gone"),
                HasSubstr("[mine]")));
    }
  });
}

// Returns what it has made among a layer's working memory, or fails for a reason of its own then.
class Misplaced final : public Layer {
 public:
  Misplaced(const Workspace* const* working, bool fails) : working_(working), fails_(fails) {}
  std::string Kind() const override { return "test_misplaced"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& x) const override {
    if (*working_ == nullptr) return x * 1.0;
    const NDArray made = x.CopyTo(Place::In(*const_cast<Workspace*>(*working_)));
    if (fails_) ThrowDataLoss("my own error");
    return made;
  }

 private:
  const Workspace* const* const working_;
  const bool fails_;
};

TEST(ArrayTypes, ALayersOutputInTheWrongPlaceDoesNotHideTheUsersError) {
  for (const bool training : {false, true}) {
    for (const bool fails : {false, true}) {
      const Workspace* working = nullptr;
      NetworkConfig config =
          NetworkConfig::Sequential({4}, {Dense(4), Misplaced(&working, fails), Dense(10)});
      config.nodes[1].name = "wrong";
      config.nodes[2].inputs = {"wrong"};
      Network network(std::move(config), Options(WorkspaceMode::kSeparate));
      const auto pass = [&] {
        if (!training) {
          network.Output(Zeros({2, 4}));
          return;
        }
        const WorkspaceScope scope(network.training_workspace());
        network.ComputeGradients(Zeros({2, 4}), Zeros({2}, DType::kInt64));
      };
      pass();
      const std::vector<float> before = network.Output(Ones({2, 4})).ToVector<float>();
      working = (training ? network.training_workspaces() : network.inference_workspaces())
                    .workspaces()[1];
      const std::string message = MessageOf(pass);
      if (fails) {
        EXPECT_THAT(message, AllOf(HasSubstr("my own error"), HasSubstr("\"wrong\"")));
      } else {
        EXPECT_THAT(message, HasSubstr("layer \"wrong\": its activations are in workspace ["));
      }
      working = nullptr;
      pass();
      EXPECT_EQ(network.Output(Ones({2, 4})).ToVector<float>(), before);
    }
  }
}

// So does one from within the backward pass, of each mode.
TEST(ArrayTypes, AnErrorInABackwardPassIsTheUsers) {
  for (const WorkspaceMode mode : kModes) {
    EXPECT_THAT(MessageOf([&] {
                  InALayer(mode, Phase::kTraining,
                           [](const LayerWorkspaceManager& manager, Moment moment) {
                             if (moment == Moment::kForward) return;
                             manager.Create(ArrayType::kActivationGradients, {4});
                             ThrowDataLoss("my own error");
                           });
                }),
                HasSubstr("my own error"));
  }
}

}  // namespace
}  // namespace tidepool::nn
