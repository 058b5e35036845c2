// SpilledTrainer: gradients that are clipped by the norm of all of them, which wait in the file until that is known.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/budget/spilled_trainer.h"
#include "tidepool/nn/budget/spilled_training_runs.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

UpdaterConfig Clipped(UpdaterKind kind, double limit) {
  UpdaterConfig updater = UpdaterConfig::Of(kind);
  if (kind != UpdaterKind::kAdamW) updater.l2 = 0.01;
  updater.clipping = {ClippingKind::kGlobalNorm, limit};
  return updater;
}

// Weights decay and biases do not, so that each is a run of the updater's groups: the norm is of the same sums in the same order.
TEST(SpilledTrainer, ClipsByTheNormOfAllToTheBitsOfATrainer) {
  for (const UpdaterKind kind : {UpdaterKind::kSgd, UpdaterKind::kNesterovs, UpdaterKind::kAdamW}) {
    const UpdaterConfig updater = Clipped(kind, 1e-2);
    UpdaterConfig free = updater;
    free.clipping = {};
    for (const char* const name : {"lenet", "convolutions"}) {
      const auto make = [&] {
        return name == std::string("lenet")
                   ? ExampleNetwork(name, Options(WorkspaceMode::kEnabled))
                   : DeepNetwork(name, 6, Options(WorkspaceMode::kEnabled));
      };
      const Trained expected = InMemory(make(), updater, 6);
      EXPECT_NE(InMemory(make(), free, 6).parameters, expected.parameters);
      for (const int ahead : {0, 1, 3, 64})
        EXPECT_EQ(InAFile(make(), updater, 6, ahead), expected)
            << UpdaterName(kind) << " " << name << ", ahead " << ahead;
    }
  }
}

TEST(SpilledTrainer, ClipsDoublesAndGroupsByTheNormOfAll) {
  constexpr DType kDoubles = DType::kFloat64;
  const UpdaterConfig updater = Clipped(UpdaterKind::kAdamW, 1e-3);
  Network whole = NetworkOf(kDoubles), parts = NetworkOf(kDoubles);
  Trainer trainer(whole, updater);
  SpilledTrainer spilled(parts, updater, {.file = SmallBlocks(), .ahead = 1});
  for (int i = 0; i < 8; ++i) {
    if (i == 3 || i == 6) {
      // What is frozen counts in no norm; then neighbours are one run, all parameters of a layer and of two.
      std::vector<ParameterGroup> groups;
      for (const NamedParameter& parameter : whole.named_parameters()) {
        if (!groups.empty()) groups.back().end = parameter.begin;
        const bool is_fourth = groups.size() == 3;
        groups.push_back({.begin = parameter.begin,
                          .end = whole.trained_elements(),
                          .rate = i == 6 && groups.size() < 2 ? 3.0 : 1.0,
                          .decays = i == 6 || groups.size() % 2 == 0,
                          .frozen = i == 3 && is_fourth});
      }
      trainer.updater().SetGroups(groups);
      spilled.updater().SetGroups(groups);
    }
    const double expected = StepIn(kDoubles, trainer, i), loss = StepIn(kDoubles, spilled, i);
    // From the last groups on the norm of a run has two parts, whose last bits may be others.
    EXPECT_NEAR(loss, expected, i < 6 ? 0 : 1e-13) << i;
    for (size_t k = 0; i == 5 && k < parts.named_parameters().size(); ++k) {
      EXPECT_EQ(BitsOf(spilled.Value(static_cast<int>(k))),
                BitsOf(whole.named_parameters()[k].value))
          << parts.named_parameters()[k].name;
    }
  }
  EXPECT_EQ(spilled.steps(), 8);
}

// Runs of groups that go on from layer to layer (norms and biases of a transformer do not decay): as good as a Trainer's, and the same
// however far ahead is read.
TEST(SpilledTrainer, ClipsByTheNormOfAllWhereRunsGoOnInOtherLayers) {
  for (const char* const name : {"residual", "lstm", "transformer"}) {
    const auto make = [&] { return ExampleNetwork(name, Options(WorkspaceMode::kEnabled)); };
    const UpdaterConfig updater = Clipped(UpdaterKind::kSgd, 1e-2);
    const Trained expected = InMemory(make(), updater, 5), trained = InAFile(make(), updater, 5, 1);
    for (size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(trained.losses[i], expected.losses[i], 1e-5 * std::abs(expected.losses[i]))
          << name << " " << i;
    for (const int ahead : {0, 5}) EXPECT_EQ(InAFile(make(), updater, 5, ahead), trained) << name;
    for (size_t k = 0; k < expected.parameters.size(); ++k) {
      const auto elements = static_cast<int64_t>(expected.parameters[k].size() / sizeof(float));
      std::vector<float> a(static_cast<size_t>(elements)), b = a;
      std::memcpy(a.data(), expected.parameters[k].data(), expected.parameters[k].size());
      std::memcpy(b.data(), trained.parameters[k].data(), trained.parameters[k].size());
      for (size_t e = 0; e < a.size(); ++e) ASSERT_NEAR(a[e], b[e], 1e-5) << name << " " << k;
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
