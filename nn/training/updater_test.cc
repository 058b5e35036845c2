#include "tidepool/nn/training/updater.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::nn {
namespace {

constexpr UpdaterKind kKinds[] = {UpdaterKind::kSgd,     UpdaterKind::kNesterovs,
                                  UpdaterKind::kAdaGrad, UpdaterKind::kRmsProp,
                                  UpdaterKind::kAdam,    UpdaterKind::kAdamW};

// The published formulas in double, one parameter.
struct Model {
  double p = 0.5, first = 0, second = 0;
  int64_t step = 0;

  void Apply(const UpdaterConfig& c, double g) {
    ++step;
    g += c.l2 * p;
    switch (c.kind) {
      case UpdaterKind::kSgd:
        p -= c.learning_rate * g;
        break;
      case UpdaterKind::kNesterovs:
        first = c.momentum * first - c.learning_rate * g;
        p += c.momentum * first - c.learning_rate * g;
        break;
      case UpdaterKind::kAdaGrad:
        first += g * g;
        p -= c.learning_rate * g / (std::sqrt(first) + c.epsilon);
        break;
      case UpdaterKind::kRmsProp:
        first = c.decay * first + (1 - c.decay) * g * g;
        p -= c.learning_rate * g / (std::sqrt(first) + c.epsilon);
        break;
      case UpdaterKind::kAdamW:
        p -= c.learning_rate * c.weight_decay * p;
        [[fallthrough]];
      case UpdaterKind::kAdam: {
        first = c.beta1 * first + (1 - c.beta1) * g;
        second = c.beta2 * second + (1 - c.beta2) * g * g;
        const double corrected = first / (1 - std::pow(c.beta1, step));
        const double scale = std::sqrt(second / (1 - std::pow(c.beta2, step)));
        p -= c.learning_rate * corrected / (scale + c.epsilon);
        break;
      }
    }
  }
};

TEST(Updater, FollowsThePublishedFormulas) {
  for (UpdaterKind kind : kKinds) {
    for (double l2 : {0.0, 0.1}) {
      UpdaterConfig config = UpdaterConfig::Of(kind);
      config.l2 = l2;
      Updater updater(config, {37});
      NDArray parameters = Full({37}, 0.5);
      Model model;
      for (int i = 0; i < 50; ++i) {
        const double g = std::sin(i * 0.7) + 0.2;
        updater.Apply(Full({37}, g), parameters);
        model.Apply(config, static_cast<float>(g));
      }
      for (float p : parameters.ToVector<float>()) EXPECT_NEAR(p, model.p, 2e-5);
      EXPECT_EQ(updater.steps(), 50);
    }
  }
}

// In f64 to the last digits, where f32 would be off by 1e-6.
TEST(Updater, UpdatesParametersInDouble) {
  for (UpdaterKind kind : kKinds) {
    const UpdaterConfig config = UpdaterConfig::Of(kind);
    Updater updater(config, {5}, Host(), DType::kFloat64),
        by_numbers(config, {5}, Host(), DType::kFloat64);
    NDArray parameters = Full({5}, 0.5, DType::kFloat64), numbered = parameters.Dup();
    Model model;
    for (int i = 0; i < 50; ++i) {
      const NDArray g = Full({5}, std::sin(i * 0.7) + 0.2, DType::kFloat64);
      updater.Apply(g, parameters);
      by_numbers.SetNumbers();
      by_numbers.ApplyNumbers(g, numbered);
      by_numbers.Advance();
      model.Apply(config, std::sin(i * 0.7) + 0.2);
    }
    for (double p : parameters.ToVector<double>()) EXPECT_NEAR(p, model.p, 1e-14);
    EXPECT_EQ(parameters.ToVector<double>(), numbered.ToVector<double>());
  }
}

TEST(Updater, DecayOfWeightsIsOfOneKind) {
  UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kAdam);
  config.weight_decay = 0.1;
  EXPECT_THROW(Updater(config, {3}), Error);
  config.kind = UpdaterKind::kAdamW;
  EXPECT_NO_THROW(Updater(config, {3}));
  config.weight_decay = -1;
  EXPECT_THROW(Updater(config, {3}), Error);
  EXPECT_THROW(Updater({}, {3}, Host(), DType::kInt32), Error);
}

TEST(Updater, NumbersInAnArrayGiveTheSameBits) {
  for (UpdaterKind kind : kKinds) {
    UpdaterConfig config = UpdaterConfig::Of(kind);
    config.schedule = Schedule::Cosine(5);
    Updater by_attributes(config, {3}), by_numbers(config, {3});
    NDArray x = Full({3}, 0.5), y = Full({3}, 0.5);
    EXPECT_FALSE(by_numbers.numbers().is_defined());
    float last = 0;
    for (int i = 0; i < 7; ++i) {
      const NDArray gradient = Full({3}, std::sin(i * 0.7));
      by_attributes.Apply(gradient, x);
      by_numbers.SetNumbers();
      by_numbers.ApplyNumbers(gradient, y);
      by_numbers.Advance();
      EXPECT_EQ(x.ToVector<float>(), y.ToVector<float>());
      if (i < 5) {
        EXPECT_NE(by_numbers.numbers().At<float>({0}), last);
      }
      last = by_numbers.numbers().At<float>({0});
    }
    EXPECT_EQ(by_numbers.steps(), 7);
  }
}

// What a device finds out by itself: gradients that overflowed.
TEST(Updater, AMarkThatIsNotZeroLeavesParametersAndStateAsTheyAre) {
  const std::vector<ParameterGroup> groups = {{.begin = 0, .end = 3, .rate = 0.5},
                                              {.begin = 3, .end = 7}};
  for (UpdaterKind kind : kKinds) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const ClippingKind clipping : {ClippingKind::kNone, ClippingKind::kGlobalNorm}) {
        for (const bool grouped : {false, true}) {
          UpdaterConfig config = UpdaterConfig::Of(kind);
          config.clipping = {clipping, 1};
          const auto of = grouped ? groups : std::vector<ParameterGroup>();
          Updater updater(config, {7}, Host(), dtype, of), plain(config, {7}, Host(), dtype, of);
          NDArray x = Full({7}, 0.5, dtype), y = x.Dup();
          const auto apply = [&](double gradient, double mark) {
            const NDArray skip = Full({}, mark, dtype);
            updater.SetNumbers();
            updater.ApplyNumbers(Full({7}, gradient, dtype), x, &skip);
          };
          const auto bits = [&](const NDArray& parameters, const Updater& of_updater) {
            std::vector<double> all = Cast(parameters, DType::kFloat64).ToVector<double>();
            for (const NDArray* state : of_updater.state()) {
              for (double v : Cast(*state, DType::kFloat64).ToVector<double>()) all.push_back(v);
            }
            return all;
          };
          for (const double gradient : {0.25, -0.5}) {
            apply(INFINITY, NAN);
            apply(0.125, 1);
            apply(gradient, 0);
            updater.Advance();
            plain.SetNumbers();
            plain.ApplyNumbers(Full({7}, gradient, dtype), y);
            plain.Advance();
            EXPECT_EQ(bits(x, updater), bits(y, plain)) << UpdaterName(kind) << " " << grouped;
          }
        }
      }
    }
  }
}

TEST(Updater, TheRateFollowsItsScheduleByStepsOrEpochs) {
  UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kSgd);
  config.schedule = Schedule::Cosine(10);
  Updater updater(config, {1});
  NDArray parameters = Full({1}, 1.0);
  double expected = 1.0;
  for (int step = 0; step < 13; ++step) {
    const double rate =
        step < 10 ? 0.1 * (0.01 + 0.99 * (1 + std::cos(3.14159265358979 * step / 10)) / 2) : 0.001;
    EXPECT_NEAR(updater.learning_rate(), rate, 1e-12) << step;
    updater.Apply(Full({1}, 1.0), parameters);
    expected -= rate;
    EXPECT_NEAR(parameters.ToVector<float>()[0], expected, 1e-5) << step;
  }
  EXPECT_THROW(updater.set_steps(-1), Error);
  EXPECT_THROW(updater.set_epoch(-1), Error);
  EXPECT_THROW(updater.set_steps(std::numeric_limits<int64_t>::max()), Error);
  updater.set_steps(5);  // as a run that is resumed
  EXPECT_NEAR(updater.learning_rate(), 0.1 * (0.01 + 0.99 / 2), 1e-12);
  config.schedule = Schedule::Step(1, 0.5).PerEpoch();
  Updater by_epochs(config, {1});
  by_epochs.Apply(Full({1}, 1.0), parameters);
  EXPECT_EQ(by_epochs.learning_rate(), 0.1);
  by_epochs.set_epoch(2);
  EXPECT_EQ(by_epochs.learning_rate(), 0.025);
  config.schedule.gamma = -1;
  EXPECT_THROW(Updater(config, {1}), Error);
}

TEST(Updater, NamesAndNumbersAreChecked) {
  EXPECT_EQ(ParseUpdater("nesterovs"), UpdaterKind::kNesterovs);
  EXPECT_THROW(ParseUpdater("adadelta"), Error);
  for (const UpdaterKind kind : kKinds) EXPECT_EQ(ParseUpdater(UpdaterName(kind)), kind);
  UpdaterConfig config;
  config.learning_rate = std::nan("");
  try {
    Updater updater(config, {1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), testing::HasSubstr("learning_rate nan"));
  }
  const auto message = [](void (*change)(UpdaterConfig&)) {
    UpdaterConfig wrong;
    change(wrong);
    return std::string(CatchStatus([&] { wrong.Check(); }).message());
  };
  EXPECT_EQ(message([](UpdaterConfig& c) { c.decay = 1; }),
            "updater: decay 1, expected 0 or more and less than 1");
  EXPECT_EQ(message([](UpdaterConfig& c) { c.l1 = -1; }), "updater: l1 -1, expected 0 or more");
  EXPECT_EQ(message([](UpdaterConfig& c) { c.epsilon = 0; }),
            "updater: epsilon 0, expected more than 0");
  EXPECT_EQ(message([](UpdaterConfig& c) {
              c.clipping = {ClippingKind::kValue, 0};
            }),
            "updater: clipping limit 0, expected more than 0");
}

TEST(Updater, ConfigIsAValueWithAText) {
  UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kAdamW);
  config.schedule = Schedule::Step(5);
  config.clipping = {ClippingKind::kGlobalNorm, 1.5};
  EXPECT_EQ(config.ToString(),
            "adamw, learning rate 0.001, beta1 0.9, beta2 0.999, epsilon 1e-08, weight decay 0.01, "
            "schedule step(length 5, "
            "gamma 0.1), global norm clipped to 1.5");
  UpdaterConfig other = config;
  EXPECT_EQ(config, other);
  other.schedule.gamma = 0.5;
  EXPECT_NE(config, other);
}

TEST(Updater, ExactTextsOfConfigsThatDifferDiffer) {
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  EXPECT_EQ(adam.ToExactString(),
            "adam, learning rate 0.001, beta1 0.9, beta2 0.999, epsilon 1e-08");
  UpdaterConfig config = adam;
  config.learning_rate = std::nextafter(0.001, 1);
  EXPECT_EQ(config.ToString(), adam.ToString());
  EXPECT_EQ(config.ToExactString(),
            "adam, learning rate 0.0010000000000000002, beta1 0.9, beta2 0.999, epsilon 1e-08");
  config = adam;
  config.schedule = Schedule::Exponential(0.9999999);
  UpdaterConfig other = adam;
  other.schedule = Schedule::Exponential(0.9999996);
  EXPECT_EQ(config.ToString(), other.ToString());
  EXPECT_EQ(config.ToExactString(),
            adam.ToString() + ", schedule exponential(gamma 1) with gamma 0.9999999");
  EXPECT_NE(config.ToExactString(), other.ToExactString());
  config.schedule = Schedule::Table({0, 3}, {1, 0.25});
  other.schedule = Schedule::Table({0, 3}, {1, 0.2500001});
  EXPECT_EQ(other.ToExactString(),
            adam.ToString() + ", schedule table(0: 1, 3: 0.25) with value 1 0.2500001");
  EXPECT_NE(config.ToExactString(), other.ToExactString());
}

TEST(Updater, GroupsAreThoseOfAllElements) {
  Updater updater(UpdaterConfig::Of(UpdaterKind::kSgd), {10});
  const std::vector<ParameterGroup> one = {{.begin = 0, .end = 10}};
  EXPECT_EQ(updater.groups(), one);
  updater.SetGroups({{.begin = 2, .end = 4, .rate = 2},
                     {.begin = 4, .end = 5, .rate = 2},
                     {.begin = 5, .end = 7, .frozen = true}});
  const std::vector<ParameterGroup> all = {{.begin = 0, .end = 2},
                                           {.begin = 2, .end = 5, .rate = 2},
                                           {.begin = 5, .end = 7, .frozen = true},
                                           {.begin = 7, .end = 10}};
  EXPECT_EQ(updater.groups(), all);
  updater.KeepOnly({{3, 6}});
  EXPECT_EQ(updater.groups(), all);
  Updater other(UpdaterConfig::Of(UpdaterKind::kSgd), {10});
  other.SetGroups(all);
  EXPECT_EQ(other.groups(), all);
}

}  // namespace
}  // namespace tidepool::nn
