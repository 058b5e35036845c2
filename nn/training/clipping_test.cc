// Groups of parameters and clipping: what values from elsewhere (updater_values_test.cc) do not
// say.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

UpdaterConfig Sgd(ClippingKind kind, double limit) {
  UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kSgd);
  config.learning_rate = 1;
  config.clipping = {kind, limit};
  return config;
}

std::vector<float> AfterOne(Updater& updater, std::vector<float> gradient) {
  NDArray parameters = Zeros({static_cast<int64_t>(gradient.size())});
  updater.Apply(FromValues(absl::MakeConstSpan(gradient), parameters.shape()), parameters);
  return parameters.ToVector<float>();
}

TEST(Clipping, NormsAreAddedUpInDouble) {
  // 3e19 squared is more than a float; ten thousand of them likewise, in two runs.
  Updater one(Sgd(ClippingKind::kGlobalNorm, 1), {10000});
  EXPECT_THAT(AfterOne(one, std::vector<float>(10000, 3e19f)),
              Each(testing::FloatNear(-0.01f, 1e-7f)));
  Updater two(Sgd(ClippingKind::kGlobalNorm, 1), {10000}, Host(), DType::kFloat32,
              {{.begin = 0, .end = 17, .decays = false}});
  EXPECT_THAT(AfterOne(two, std::vector<float>(10000, 3e19f)),
              Each(testing::FloatNear(-0.01f, 1e-7f)));
}

TEST(Clipping, LeavesSmallGradientsAsTheyAre) {
  for (const ClippingKind kind :
       {ClippingKind::kValue, ClippingKind::kNormOfEach, ClippingKind::kGlobalNorm}) {
    Updater updater(Sgd(kind, 5), {3});
    EXPECT_THAT(AfterOne(updater, {1, -2, 3}), ElementsAre(-1, 2, -3));
    Updater zero(Sgd(kind, 5), {2});
    EXPECT_THAT(AfterOne(zero, {0, 0}), ElementsAre(0, 0));
    Updater none(Sgd(kind, 5), {0});
    EXPECT_TRUE(AfterOne(none, {}).empty());
  }
}

TEST(Clipping, OfNanAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  Updater by_value(Sgd(ClippingKind::kValue, 5), {3});
  const std::vector<float> values = AfterOne(by_value, {nan, infinity, -infinity});
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], -5);
  EXPECT_EQ(values[2], 5);
  // All of them are what one makes them.
  Updater by_norm(Sgd(ClippingKind::kGlobalNorm, 5), {3});
  for (const float value : AfterOne(by_norm, {nan, 1, 2})) EXPECT_TRUE(std::isnan(value));
}

TEST(Clipping, GradientsOfAScaledLossAreScaledBackFirst) {
  for (const ClippingKind kind : {ClippingKind::kNone, ClippingKind::kValue,
                                  ClippingKind::kNormOfEach, ClippingKind::kGlobalNorm}) {
    Updater plain(Sgd(kind, 2), {3}), scaled(Sgd(kind, 2), {3});
    scaled.set_gradient_scale(1.0 / 1024);
    const std::vector<float> expected = AfterOne(plain, {1, -2, 3});
    const std::vector<float> found = AfterOne(scaled, {1024, -2048, 3072});
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-6) << static_cast<int>(kind);
  }
  Updater updater(Sgd(ClippingKind::kNone, 1), {1});
  EXPECT_FALSE(CatchStatus([&] { updater.set_gradient_scale(0); }).ok());
}

TEST(Groups, FrozenElementsAndTheirStateStay) {
  Updater updater(UpdaterConfig::Of(UpdaterKind::kAdam), {6}, Host(), DType::kFloat32,
                  {{.begin = 1, .end = 3, .frozen = true}, {.begin = 4, .end = 5, .frozen = true}});
  NDArray parameters = Ones({6});
  updater.Apply(Ones({6}), parameters);
  const std::vector<float> moved = parameters.ToVector<float>(),
                           moment = updater.state()[0]->ToVector<float>();
  for (size_t i = 0; i < 6; ++i) {
    const bool frozen = i == 1 || i == 2 || i == 4;
    EXPECT_EQ(moved[i] == 1, frozen) << i;
    EXPECT_EQ(moment[i] == 0, frozen) << i;
  }
  // Thawed, all of them move; their state goes on.
  updater.SetGroups({});
  updater.Apply(Ones({6}), parameters);
  for (const float value : parameters.ToVector<float>()) EXPECT_LT(value, 1);
  EXPECT_EQ(updater.steps(), 2);
}

TEST(Groups, EverythingFrozenIsNoUpdate) {
  for (const ClippingKind kind : {ClippingKind::kNone, ClippingKind::kGlobalNorm}) {
    Updater updater(Sgd(kind, 1), {4}, Host(), DType::kFloat32,
                    {{.begin = 0, .end = 4, .frozen = true}});
    EXPECT_THAT(AfterOne(updater, {1, 2, 3, 4}), Each(0));
    updater.SetNumbers();
    NDArray parameters = Zeros({4});
    updater.ApplyNumbers(Ones({4}), parameters);
    EXPECT_THAT(parameters.ToVector<float>(), Each(0));
  }
}

TEST(Groups, BiasesAreNotDecayed) {
  UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kSgd);
  config.learning_rate = 1, config.l2 = 0.5, config.l1 = 0.125;
  Updater updater(config, {4}, Host(), DType::kFloat32,
                  {{.begin = 2, .end = 4, .rate = 0.5, .decays = false}});
  NDArray parameters = Ones({4});
  updater.Apply(Full({4}, 0.25), parameters);
  EXPECT_THAT(parameters.ToVector<float>(), ElementsAre(0.125f, 0.125f, 0.875f, 0.875f));
}

TEST(Groups, RowsOfNumbersAreThoseOfRunsThatAreTreatedAlike) {
  const std::vector<ParameterGroup> alike = {{.begin = 0, .end = 2}, {.begin = 2, .end = 6}};
  Updater together(Sgd(ClippingKind::kGlobalNorm, 1), {6}, Host(), DType::kFloat32, alike);
  together.SetNumbers();
  EXPECT_EQ(together.numbers().shape(), Shape{5});
  Updater each(Sgd(ClippingKind::kNormOfEach, 1), {6}, Host(), DType::kFloat32, alike);
  each.SetNumbers();
  EXPECT_EQ(each.numbers().shape(), (Shape{2, 5}));
}

TEST(Groups, AreChecked) {
  const auto message = [](std::vector<ParameterGroup> groups) {
    return std::string(
        CatchStatus([&] { Updater({}, {6}, Host(), DType::kFloat32, groups); }).message());
  };
  EXPECT_THAT(message({{.begin = 2, .end = 4}, {.begin = 3, .end = 5}}),
              HasSubstr("group [3, 5) behind element 4 of 6"));
  EXPECT_THAT(message({{.begin = 2, .end = 7}}), HasSubstr("group [2, 7)"));
  EXPECT_THAT(message({{.begin = 2, .end = 1}}), HasSubstr("group [2, 1)"));
  EXPECT_THAT(message({{.begin = -1, .end = 1}}), HasSubstr("group [-1, 1)"));
  EXPECT_THAT(message({{.begin = 0, .end = 1, .rate = -1}}), HasSubstr("rate -1"));
}

}  // namespace
}  // namespace tidepool::nn
