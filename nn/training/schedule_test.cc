#include "tidepool/nn/training/schedule.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

std::string MessageOf(const Schedule& schedule) {
  return std::string(CatchStatus([&] { schedule.Check(); }).message());
}

// Values that PyTorch's schedulers gave (schedule_values.py).
TEST(Schedule, FactorsAreThoseOfPyTorch) {
  const std::map<std::string, Schedule> schedules = {
      {"constant", Schedule::Constant()},
      {"exponential", Schedule::Exponential(0.9)},
      {"inverse", Schedule::Inverse(0.5)},
      {"inverse_root", Schedule::Inverse(2, 0.5)},
      {"polynomial", Schedule::Polynomial(20, 2)},
      {"polynomial_to_a_tenth", Schedule::Polynomial(20, 1, 0.1)},
      {"step", Schedule::Step(7, 0.3)},
      {"multi_step", Schedule::MultiStep({4, 5, 21}, 0.5)},
      {"cosine", Schedule::Cosine(20)},
      {"cosine_restarts", Schedule::CosineRestarts(4, 2, 0.05)},
      {"cosine_restarts_alike", Schedule::CosineRestarts(9)},
      {"one_cycle", Schedule::OneCycle(31, 0.25)},
      {"one_cycle_steep", Schedule::OneCycle(31, 0.5, 10, 100)},
      {"table", Schedule::Table({0, 3, 17}, {1, 0.25, 0.0625})},
      {"behind_warmup", Schedule::Step(5, 0.5).AfterWarmup(6, 0.25)},
  };
  std::ifstream file("nn/training/schedule_values.txt");
  std::string line;
  int compared = 0;
  while (std::getline(file, line)) {
    std::istringstream values(line);
    std::string name;
    values >> name;
    SCOPED_TRACE(name);
    ASSERT_EQ(schedules.count(name), 1u);
    const Schedule& schedule = schedules.at(name);
    EXPECT_NO_THROW(schedule.Check());
    double value;
    for (int64_t t = 0; values >> value; ++t, ++compared)
      EXPECT_NEAR(schedule.Factor(t), value, 1e-12) << t;
  }
  EXPECT_EQ(compared, 15 * 30);
}

TEST(Schedule, BehindTheLastStepTheyStayWhereTheyAre) {
  for (const int64_t t : {30, 31, 1000, 1 << 30}) {
    EXPECT_EQ(Schedule::Cosine(30).Factor(t), 0.01);
    EXPECT_EQ(Schedule::Polynomial(30, 2, 0.25).Factor(t), 0.25);
    EXPECT_NEAR(Schedule::OneCycle(31).Factor(t), 1 / 25e4, 1e-18);
  }
  EXPECT_EQ(Schedule::Cosine(30).Factor(-5), 1);
  EXPECT_NEAR(Schedule::OneCycle(1).Factor(0), 1 / 25e4, 1e-18);  // the only one is the last
  EXPECT_EQ(Schedule::CosineRestarts(1, 1 << 30).Factor(INT64_MAX),
            1);  // no cycle that is longer than there are numbers
  EXPECT_EQ(Schedule::Constant().AfterWarmup(4).Factor(0), 0);
  EXPECT_EQ(Schedule::Constant().AfterWarmup(4).Factor(3), 0.75);
  EXPECT_EQ(Schedule::Constant().AfterWarmup(4).Factor(4), 1);
}

TEST(Schedule, IsAValueWithAText) {
  const Schedule schedule = Schedule::Cosine(100).AfterWarmup(5, 0.1).PerEpoch();
  EXPECT_EQ(schedule.ToString(),
            "cosine(length 100, end 0.01) behind a warm-up of 5 from 0.1, by epochs");
  EXPECT_EQ(Schedule::Table({0, 5}, {1, 0.5}).ToString(), "table(0: 1, 5: 0.5)");
  EXPECT_EQ(Schedule::MultiStep({4, 9}).ToString(), "multi_step(at 4 9, gamma 0.1)");
  EXPECT_EQ(Schedule::Constant().ToString(), "constant");
  EXPECT_EQ(schedule, Schedule::Cosine(100).AfterWarmup(5, 0.1).PerEpoch());
  EXPECT_NE(schedule, Schedule::Cosine(101).AfterWarmup(5, 0.1).PerEpoch());
  for (int kind = 0; kind <= static_cast<int>(ScheduleKind::kTable); ++kind) {
    EXPECT_EQ(ParseSchedule(ScheduleName(static_cast<ScheduleKind>(kind))),
              static_cast<ScheduleKind>(kind));
  }
  EXPECT_EQ(CatchStatus([] { ParseSchedule("linear"); }).message(),
            "schedule is \"linear\", expected one of constant, exponential, inverse, polynomial, "
            "step, multi_step, cosine, "
            "cosine_restarts, one_cycle, table");
}

TEST(Schedule, NumbersAreChecked) {
  EXPECT_EQ(MessageOf(Schedule::Exponential(0)), "schedule: gamma 0, expected more than 0");
  EXPECT_EQ(MessageOf(Schedule::Cosine(0)), "schedule: length 0, expected at least 1");
  EXPECT_EQ(MessageOf(Schedule::Cosine(5, -1)), "schedule: end -1, expected 0 or more");
  EXPECT_EQ(MessageOf(Schedule::Step(5, -2)), "schedule: gamma -2, expected more than 0");
  EXPECT_EQ(MessageOf(Schedule::CosineRestarts(5, 0)), "schedule: growth 0, expected at least 1");
  EXPECT_EQ(MessageOf(Schedule::OneCycle(5, 1.5)), "schedule: rise 1.5, expected 0 to 1");
  EXPECT_EQ(MessageOf(Schedule::OneCycle(5, 0.3, 0)),
            "schedule: rise_from 0, expected more than 0");
  EXPECT_EQ(MessageOf(Schedule::Polynomial(5, 0)), "schedule: power 0, expected more than 0");
  EXPECT_EQ(MessageOf(Schedule::Inverse(-1)), "schedule: gamma -1, expected 0 or more");
  EXPECT_EQ(MessageOf(Schedule::MultiStep({})), "schedule: times are none, expected at least one");
  EXPECT_THAT(MessageOf(Schedule::MultiStep({3, 3})),
              HasSubstr("times 3 3, expected ascending ones"));
  EXPECT_THAT(MessageOf(Schedule::MultiStep({0, 3})), HasSubstr("from 1 else"));
  EXPECT_EQ(MessageOf(Schedule::Table({1}, {1})), "schedule: times begin at 1, expected 0");
  EXPECT_EQ(MessageOf(Schedule::Table({0, 4}, {1})),
            "schedule: values are 1, expected 2, one for each time");
  EXPECT_EQ(MessageOf(Schedule::Table({0}, {NAN})), "schedule: values nan, expected 0 or more");
  EXPECT_EQ(MessageOf(Schedule::Constant().AfterWarmup(-1)),
            "schedule: warmup -1, expected 0 or more");
  Schedule odd;
  odd.kind = static_cast<ScheduleKind>(77);
  EXPECT_EQ(MessageOf(odd), "schedule: kind 77, expected one of ScheduleKind");
}

}  // namespace
}  // namespace tidepool::nn
