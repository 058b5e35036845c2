#include "tidepool/nn/training/hand_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

class HandStep : public testing::TestWithParam<const char*> {};

std::unique_ptr<Network> NetworkOf(const std::string& model, const std::string& name) {
  const Shape input = model == "lenet" ? Shape{28, 28, 1} : Shape{784};
  return std::make_unique<Network>(input, LayersOf(model, 10), 7, WorkspaceMode::kEnabled, Host(),
                                   name);
}

// A step of each in a workspace of its own kind until it has settled: networks train by a tape.
TEST_P(HandStep, TakesNoLessMemoryThanTheTapeAndGivesTheSame) {
  const std::string model = GetParam();
  const auto by_hand = NetworkOf(model, "hand"), by_tape = NetworkOf(model, "tape");
  const Shape shape = model == "lenet" ? Shape{32, 28, 28, 1} : Shape{32, 784};
  NDArray gradients = Zeros(by_hand->gradients().shape(), DType::kFloat32, Place::Heap());
  for (int step = 0; step < 8; ++step) {
    const auto seed = static_cast<uint64_t>(step);
    double hand_loss = 0, tape_loss = 0;
    {
      WorkspaceScope scope(by_hand->training_workspace());
      hand_loss = GradientsByHand(*by_hand, gradients, RandomUniform(shape, 0, 1, seed),
                                  RandomIntegers({32}, 0, 10, seed));
    }
    {
      WorkspaceScope scope(by_tape->training_workspace());
      tape_loss = by_tape->ComputeGradients(RandomUniform(shape, 0, 1, seed),
                                            RandomIntegers({32}, 0, 10, seed));
    }
    EXPECT_NEAR(tape_loss, hand_loss, 1e-6 * std::abs(hand_loss));
    const std::vector<float> found = by_tape->gradients().ToVector<float>(),
                             expected = gradients.ToVector<float>();
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 1e-6f + 1e-4f * std::abs(expected[i]))
          << "step " << step << ", element " << i;
    }
  }
  const WorkspaceStats hand = by_hand->training_workspace().stats(),
                       tape = by_tape->training_workspace().stats();
  EXPECT_GT(hand.planned_peak_bytes, 0u);
  EXPECT_LE(tape.planned_peak_bytes, hand.planned_peak_bytes);
}

INSTANTIATE_TEST_SUITE_P(Models, HandStep, testing::Values("mlp", "lenet"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tidepool::nn
