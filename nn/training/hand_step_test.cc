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
  const auto by_hand = NetworkOf(model, "hand"), by_tape = NetworkOf(model, "tape"),
             by_network = NetworkOf(model, "network");
  const Shape shape = model == "lenet" ? Shape{32, 28, 28, 1} : Shape{32, 784};
  NDArray expected = Zeros(by_hand->gradients().shape(), DType::kFloat32, Place::Heap());
  NDArray found = Zeros(by_hand->gradients().shape(), DType::kFloat32, Place::Heap());
  GradientTape tape;
  tape.Clear();
  for (uint64_t step = 0; step < 8; ++step) {
    const auto loss_of = [&](Network& network, const auto& gradients_of) {
      WorkspaceScope scope(network.training_workspace());
      return gradients_of(RandomUniform(shape, 0, 1, step), RandomIntegers({32}, 0, 10, step));
    };
    const double hand_loss = loss_of(*by_hand, [&](const NDArray& x, const NDArray& labels) {
      return GradientsByHand(*by_hand, expected, x, labels);
    });
    const double tape_loss = loss_of(*by_tape, [&](const NDArray& x, const NDArray& labels) {
      return GradientsByTape(tape, *by_tape, found, x, labels);
    });
    const double network_loss = loss_of(*by_network, [&](const NDArray& x, const NDArray& labels) {
      return by_network->ComputeGradients(x, labels);
    });
    EXPECT_NEAR(tape_loss, hand_loss, 1e-6 * std::abs(hand_loss));
    EXPECT_NEAR(network_loss, hand_loss, 1e-6 * std::abs(hand_loss));
    for (const NDArray& gradients : {found, by_network->gradients()}) {
      const std::vector<float> values = gradients.ToVector<float>(),
                               right = expected.ToVector<float>();
      for (size_t i = 0; i < right.size(); ++i) {
        ASSERT_NEAR(values[i], right[i], 1e-6f + 1e-4f * std::abs(right[i]))
            << "step " << step << ", element " << i;
      }
    }
  }
  const auto peak_of = [](Network& network) {
    return network.training_workspace().stats().planned_peak_bytes;
  };
  EXPECT_GT(peak_of(*by_hand), 0u);
  EXPECT_LE(peak_of(*by_tape), peak_of(*by_hand));
  EXPECT_LE(peak_of(*by_network), peak_of(*by_hand));
}

INSTANTIATE_TEST_SUITE_P(Models, HandStep, testing::Values("mlp", "lenet"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tidepool::nn
