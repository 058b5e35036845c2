// Updaters against PyTorch's optimizers, by the values that updater_values.py wrote.
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {
namespace {

struct Case {
  UpdaterConfig config;
  std::vector<ParameterGroup> groups;
};

UpdaterConfig With(UpdaterKind kind, void (*change)(UpdaterConfig&)) {
  UpdaterConfig config = UpdaterConfig::Of(kind);
  change(config);
  return config;
}

std::map<std::string, Case> Cases() {
  using C = UpdaterConfig;
  using enum UpdaterKind;
  const std::vector<ParameterGroup> both = {{.begin = 0, .end = 2}, {.begin = 2, .end = 6}};
  return {
      {"sgd", {C::Of(kSgd), {}}},
      {"sgd_l2", {With(kSgd, [](C& c) { c.l2 = 0.3; }), both}},
      {"sgd_l1", {With(kSgd, [](C& c) { c.l1 = 0.3; }), {}}},
      {"sgd_clipped_values",
       {With(kSgd,
             [](C& c) {
               c.clipping = {ClippingKind::kValue, 0.5};
             }),
        {}}},
      {"sgd_clipped_each",
       {With(kSgd,
             [](C& c) {
               c.l2 = 0.3, c.clipping = {ClippingKind::kNormOfEach, 0.5};
             }),
        both}},
      {"sgd_clipped_together",
       {With(kSgd,
             [](C& c) {
               c.clipping = {ClippingKind::kGlobalNorm, 0.75};
             }),
        {}}},
      {"sgd_clipped_without_frozen",
       {With(kSgd,
             [](C& c) {
               c.clipping = {ClippingKind::kGlobalNorm, 0.75};
             }),
        {{.begin = 2, .end = 6, .frozen = true}}}},
      {"sgd_step", {With(kSgd, [](C& c) { c.schedule = Schedule::Step(5, 0.5); }), {}}},
      {"nesterovs", {C::Of(kNesterovs), {}}},
      {"adagrad", {C::Of(kAdaGrad), {}}},
      {"adagrad_l2",
       {With(kAdaGrad, [](C& c) { c.learning_rate = 0.1, c.epsilon = 0.001, c.l2 = 0.3; }), {}}},
      {"rmsprop", {C::Of(kRmsProp), {}}},
      {"rmsprop_l2",
       {With(kRmsProp,
             [](C& c) { c.learning_rate = 0.1, c.decay = 0.8, c.epsilon = 0.001, c.l2 = 0.3; }),
        {}}},
      {"adam", {C::Of(kAdam), {}}},
      {"adam_l2",
       {With(kAdam,
             [](C& c) {
               c.learning_rate = 0.1, c.beta1 = 0.8, c.beta2 = 0.95, c.epsilon = 0.001, c.l2 = 0.3;
             }),
        {}}},
      {"adam_clipped_together",
       {With(kAdam,
             [](C& c) {
               c.epsilon = 1, c.clipping = {ClippingKind::kGlobalNorm, 0.75};
             }),
        both}},
      {"adamw", {C::Of(kAdamW), {}}},
      {"adamw_groups",
       {With(kAdamW, [](C& c) { c.learning_rate = 0.1, c.weight_decay = 0.3; }),
        {{.begin = 2, .end = 6, .rate = 0.5, .decays = false}}}},
  };
}

// Applies steps by attributes or by numbers, on parameters [6] or [2, 3].
std::vector<double> StepsOf(const Case& c, DType dtype, bool by_numbers, const Shape& shape) {
  Updater updater(c.config, shape, Host(), dtype, c.groups);
  std::vector<double> values(6);
  for (int j = 0; j < 6; ++j) values[static_cast<size_t>(j)] = (j - 2) / 4.0;
  const auto array = [&] {
    NDArray made(shape, dtype);
    CopyInto(FromValues(absl::MakeConstSpan(values), shape), made);
    return made;
  };
  NDArray parameters = array();
  for (int step = 0; step < 12; ++step) {
    for (int j = 0; j < 6; ++j)
      values[static_cast<size_t>(j)] = std::sin(0.7 * step + j) + 0.2 * j - 0.4;
    for (const ParameterGroup& group : c.groups) {
      // Nobody reads it.
      for (int64_t j = group.begin; j < group.end && group.frozen; ++j)
        values[static_cast<size_t>(j)] = NAN;
    }
    if (by_numbers) {
      updater.SetNumbers();
      updater.ApplyNumbers(array(), parameters);
      updater.Advance();
    } else {
      updater.Apply(array(), parameters);
    }
  }
  return Cast(parameters, DType::kFloat64).ToVector<double>();
}

TEST(UpdaterValues, AreThoseOfPyTorch) {
  const std::map<std::string, Case> cases = Cases();
  std::ifstream file("nn/training/updater_values.txt");
  std::string line;
  size_t found = 0;
  for (; std::getline(file, line); ++found) {
    std::istringstream values(line);
    std::string name;
    values >> name;
    SCOPED_TRACE(name);
    ASSERT_EQ(cases.count(name), 1u);
    std::vector<double> expected;
    for (double value; values >> value;) expected.push_back(value);
    ASSERT_EQ(expected.size(), 6u);
    for (const bool by_numbers : {false, true}) {
      for (const Shape& shape : {Shape{6}, Shape{2, 3}}) {
        const std::vector<double> wide =
            StepsOf(cases.at(name), DType::kFloat64, by_numbers, shape);
        const std::vector<double> narrow =
            StepsOf(cases.at(name), DType::kFloat32, by_numbers, shape);
        for (size_t j = 0; j < 6; ++j) {
          EXPECT_NEAR(wide[j], expected[j], 1e-13) << j << " by numbers " << by_numbers;
          EXPECT_NEAR(narrow[j], expected[j], 2e-6) << j << " by numbers " << by_numbers;
        }
      }
    }
  }
  EXPECT_EQ(found, cases.size());
}

}  // namespace
}  // namespace tidepool::nn
