// Schedule: how a learning rate goes from step to step, or from epoch to epoch, as a factor of the
// rate that is configured.
//
//   UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kAdamW);
//   config.schedule = Schedule::Cosine(10000).AfterWarmup(500);
//
// A plain value: a kind and numbers, of which a kind reads those that are named beside it; the
// others stay as they are made. Factor() is a pure function of the time, so that a run that is
// resumed goes on as it would have.
#ifndef TIDEPOOL_NN_TRAINING_SCHEDULE_H_
#define TIDEPOOL_NN_TRAINING_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool::nn {

// t is the time from 0, behind the warm-up. Behind them PyTorch's schedulers that give the same.
enum class ScheduleKind : uint8_t {
  kConstant,     // 1
  kExponential,  // gamma^t; ExponentialLR
  kInverse,      // (1 + gamma * t)^-power; for power 1 the lr_decay of Adagrad
  // end + (1 - end) * (1 - t / length)^power, then end; PolynomialLR, for end 0
  kPolynomial,
  kStep,       // gamma^(t / length, rounded down); StepLR
  kMultiStep,  // gamma^(how many of `times` are at most t); MultiStepLR
  // end + (1 - end) * (1 + cos(pi * t / length)) / 2, then end; CosineAnnealingLR up to its T_max
  kCosine,
  // The same again and again, each `growth` times as long as the one before;
  // CosineAnnealingWarmRestarts
  kCosineRestarts,
  // From 1 / rise_from along half a cosine to 1 at the end of the first `rise` of `length`, then
  // down to 1 / (rise_from * fall_to) at the last of them, where it stays; OneCycleLR
  kOneCycle,
  kTable,  // of the last of `times` that is at most t, the value; LambdaLR
};
// What times count.
enum class ScheduleUnit : uint8_t { kSteps, kEpochs };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;  // whose line names which of the numbers it reads
  ScheduleUnit unit = ScheduleUnit::kSteps;     // of t, length, times, growth and the warm-up
  // The numbers of the kinds' formulas, by these names.
  double gamma = 0.1;
  double power = 1;
  double end = 0;
  int64_t length = 1;
  int64_t growth = 1;
  double rise = 0.3;
  double rise_from = 25;
  double fall_to = 1e4;
  std::vector<int64_t> times;  // ascending; the first of a table is 0
  std::vector<double> values;  // of a table, as many
  // For the first `warmup` the factor is a line from warmup_from to 1, whatever the kind
  // (LinearLR); t begins behind it.
  int64_t warmup = 0;
  double warmup_from = 0;

  // Each kind with its numbers; they are checked by Check() alone.
  static Schedule Constant() { return {}; }
  static Schedule Exponential(double gamma);
  static Schedule Inverse(double gamma, double power = 1);
  static Schedule Polynomial(int64_t length, double power = 1, double end = 0);
  static Schedule Step(int64_t length, double gamma = 0.1);
  static Schedule MultiStep(std::vector<int64_t> times, double gamma = 0.1);
  static Schedule Cosine(int64_t length, double end = 0.01);
  static Schedule CosineRestarts(int64_t length, int64_t growth = 1, double end = 0);
  static Schedule OneCycle(int64_t length, double rise = 0.3, double rise_from = 25,
                           double fall_to = 1e4);
  static Schedule Table(std::vector<int64_t> times, std::vector<double> values);
  // This one with a warm-up in front of it, or by epochs.
  Schedule AfterWarmup(int64_t warmup, double warmup_from = 0) const;
  Schedule PerEpoch() const;

  // Throws kInvalidArgument naming the field, what it holds and what is expected. Those that the
  // kind does not read are not looked at.
  void Check() const;
  // Of the time `t` from 0, warm-up included. Any t; the schedule is one that Check() accepts.
  double Factor(int64_t t) const;
  // "cosine(length 1000, end 0.01) behind a warm-up of 50 from 0, by epochs"
  std::string ToString() const;
  bool operator==(const Schedule&) const = default;
};

// "constant", "exponential", "inverse", "polynomial", "step", "multi_step", "cosine",
// "cosine_restarts", "one_cycle", "table"
const char* ScheduleName(ScheduleKind kind);
// Throws kInvalidArgument for anything else, naming them.
ScheduleKind ParseSchedule(const std::string& name);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_SCHEDULE_H_
