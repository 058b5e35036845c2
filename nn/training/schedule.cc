#include "tidepool/nn/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

constexpr const char* kNames[] = {"constant",  "exponential", "inverse", "polynomial",
                                  "step",      "multi_step",  "cosine",  "cosine_restarts",
                                  "one_cycle", "table"};

// Along half a cosine from `from` to `to` as `done` goes from 0 to 1.
double HalfCosine(double from, double to, double done) {
  return to + (from - to) * 0.5 * (1 + std::cos(M_PI * done));
}

double DoneOf(int64_t t, int64_t length) {
  return static_cast<double>(std::min(t, length)) / static_cast<double>(length);
}

[[noreturn]] void Refuse(const char* field, const std::string& found, const char* expected) {
  ThrowInvalidArgument(absl::StrCat("schedule: ", field, " ", found, ", expected ", expected));
}
void CheckPositive(const char* field, double value) {
  if (!(value > 0) || std::isinf(value)) Refuse(field, absl::StrCat(value), "more than 0");
}
void CheckNotNegative(const char* field, double value) {
  if (!(value >= 0) || std::isinf(value)) Refuse(field, absl::StrCat(value), "0 or more");
}
void CheckLength(const char* field, int64_t value) {
  if (value < 1) Refuse(field, absl::StrCat(value), "at least 1");
}
void CheckTimes(const std::vector<int64_t>& times, int64_t least) {
  if (times.empty()) Refuse("times", "are none", "at least one");
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] < least || (i > 0 && times[i] <= times[i - 1])) {
      Refuse("times", absl::StrJoin(times, " "),
             "ascending ones, from 0 in a table and from 1 else");
    }
  }
}

double RestartingCosine(const Schedule& s, int64_t t) {
  int64_t begin = 0, length = s.length;
  if (s.growth == 1) {
    begin = t / length * length;
  } else {
    // A handful of cycles: each is longer than all before it. None that would be longer than there
    // are numbers.
    while (t - begin >= length) {
      begin += length;
      if (length > INT64_MAX / s.growth) return HalfCosine(1, s.end, 0);
      length *= s.growth;
    }
  }
  return HalfCosine(1, s.end, DoneOf(t - begin, length));
}

double OneCycle(const Schedule& s, int64_t t) {
  const double last = static_cast<double>(s.length) - 1;
  const double top = s.rise * static_cast<double>(s.length) - 1,
               now = std::min(static_cast<double>(t), last);
  const double first = 1 / s.rise_from;
  if (now <= top) return top > 0 ? HalfCosine(first, 1, now / top) : 1;
  return last > top ? HalfCosine(1, first / s.fall_to, (now - top) / (last - top)) : 1;
}

}  // namespace

Schedule Schedule::Exponential(double gamma) {
  return {.kind = ScheduleKind::kExponential, .gamma = gamma};
}
Schedule Schedule::Inverse(double gamma, double power) {
  return {.kind = ScheduleKind::kInverse, .gamma = gamma, .power = power};
}
Schedule Schedule::Polynomial(int64_t length, double power, double end) {
  return {.kind = ScheduleKind::kPolynomial, .power = power, .end = end, .length = length};
}
Schedule Schedule::Step(int64_t length, double gamma) {
  return {.kind = ScheduleKind::kStep, .gamma = gamma, .length = length};
}
Schedule Schedule::MultiStep(std::vector<int64_t> times, double gamma) {
  return {.kind = ScheduleKind::kMultiStep, .gamma = gamma, .times = std::move(times)};
}
Schedule Schedule::Cosine(int64_t length, double end) {
  return {.kind = ScheduleKind::kCosine, .end = end, .length = length};
}
Schedule Schedule::CosineRestarts(int64_t length, int64_t growth, double end) {
  return {.kind = ScheduleKind::kCosineRestarts, .end = end, .length = length, .growth = growth};
}
Schedule Schedule::OneCycle(int64_t length, double rise, double rise_from, double fall_to) {
  return {.kind = ScheduleKind::kOneCycle,
          .length = length,
          .rise = rise,
          .rise_from = rise_from,
          .fall_to = fall_to};
}
Schedule Schedule::Table(std::vector<int64_t> times, std::vector<double> values) {
  return {.kind = ScheduleKind::kTable, .times = std::move(times), .values = std::move(values)};
}
Schedule Schedule::AfterWarmup(int64_t its_warmup, double its_from) const {
  Schedule schedule = *this;
  schedule.warmup = its_warmup;
  schedule.warmup_from = its_from;
  return schedule;
}
Schedule Schedule::PerEpoch() const {
  Schedule schedule = *this;
  schedule.unit = ScheduleUnit::kEpochs;
  return schedule;
}

void Schedule::Check() const {
  if (static_cast<size_t>(kind) >= std::size(kNames)) {
    Refuse("kind", absl::StrCat(static_cast<int>(kind)), "one of ScheduleKind");
  }
  if (static_cast<int>(unit) > 1)
    Refuse("unit", absl::StrCat(static_cast<int>(unit)), "one of ScheduleUnit");
  if (warmup < 0) Refuse("warmup", absl::StrCat(warmup), "0 or more");
  CheckNotNegative("warmup_from", warmup_from);
  switch (kind) {
    case ScheduleKind::kConstant:
      return;
    case ScheduleKind::kExponential:
      return CheckPositive("gamma", gamma);
    case ScheduleKind::kInverse:
      CheckNotNegative("gamma", gamma);
      return CheckNotNegative("power", power);
    case ScheduleKind::kPolynomial:
      CheckPositive("power", power);
      [[fallthrough]];
    case ScheduleKind::kCosine:
      CheckLength("length", length);
      return CheckNotNegative("end", end);
    case ScheduleKind::kCosineRestarts:
      CheckLength("length", length);
      CheckLength("growth", growth);
      return CheckNotNegative("end", end);
    case ScheduleKind::kStep:
      CheckLength("length", length);
      return CheckPositive("gamma", gamma);
    case ScheduleKind::kMultiStep:
      CheckTimes(times, 1);
      return CheckPositive("gamma", gamma);
    case ScheduleKind::kOneCycle:
      CheckLength("length", length);
      if (!(rise >= 0 && rise <= 1)) Refuse("rise", absl::StrCat(rise), "0 to 1");
      CheckPositive("rise_from", rise_from);
      return CheckPositive("fall_to", fall_to);
    case ScheduleKind::kTable:
      CheckTimes(times, 0);
      if (times[0] != 0) Refuse("times", absl::StrCat("begin at ", times[0]), "0");
      if (values.size() != times.size()) {
        Refuse("values", absl::StrCat("are ", values.size()),
               absl::StrCat(times.size(), ", one for each time").c_str());
      }
      for (const double value : values) CheckNotNegative("values", value);
  }
}

double Schedule::Factor(int64_t t) const {
  if (t < 0) t = 0;
  if (t < warmup) return warmup_from + (1 - warmup_from) * DoneOf(t, warmup);
  t -= warmup;
  const auto time = static_cast<double>(t);
  switch (kind) {
    case ScheduleKind::kConstant:
      return 1;
    case ScheduleKind::kExponential:
      return std::pow(gamma, time);
    case ScheduleKind::kInverse:
      return std::pow(1 + gamma * time, -power);
    case ScheduleKind::kPolynomial:
      return end + (1 - end) * std::pow(1 - DoneOf(t, length), power);
    case ScheduleKind::kStep:
      return std::pow(gamma, static_cast<double>(t / length));
    case ScheduleKind::kMultiStep:
      return std::pow(gamma, static_cast<double>(std::upper_bound(times.begin(), times.end(), t) -
                                                 times.begin()));
    case ScheduleKind::kCosine:
      return HalfCosine(1, end, DoneOf(t, length));
    case ScheduleKind::kCosineRestarts:
      return RestartingCosine(*this, t);
    case ScheduleKind::kOneCycle:
      return nn::OneCycle(*this, t);
    case ScheduleKind::kTable:
      return values[static_cast<size_t>(std::upper_bound(times.begin(), times.end(), t) -
                                        times.begin()) -
                    1];
  }
  return 1;
}

std::string Schedule::ToString() const {
  std::vector<std::string> numbers;
  const auto add = [&](const char* name, const auto& value) {
    numbers.push_back(absl::StrCat(name, " ", value));
  };
  switch (kind) {
    case ScheduleKind::kConstant:
      break;
    case ScheduleKind::kExponential:
      add("gamma", gamma);
      break;
    case ScheduleKind::kInverse:
      add("gamma", gamma), add("power", power);
      break;
    case ScheduleKind::kPolynomial:
      add("length", length), add("power", power), add("end", end);
      break;
    case ScheduleKind::kStep:
      add("length", length), add("gamma", gamma);
      break;
    case ScheduleKind::kMultiStep:
      add("at", absl::StrJoin(times, " ")), add("gamma", gamma);
      break;
    case ScheduleKind::kCosine:
      add("length", length), add("end", end);
      break;
    case ScheduleKind::kCosineRestarts:
      add("length", length), add("growth", growth), add("end", end);
      break;
    case ScheduleKind::kOneCycle:
      add("length", length), add("rise", rise), add("from", rise_from), add("to", fall_to);
      break;
    case ScheduleKind::kTable:
      for (size_t i = 0; i < times.size() && i < values.size(); ++i)
        add(absl::StrCat(times[i], ":").c_str(), values[i]);
  }
  std::string text = ScheduleName(kind);
  if (!numbers.empty()) absl::StrAppend(&text, "(", absl::StrJoin(numbers, ", "), ")");
  if (warmup > 0) absl::StrAppend(&text, " behind a warm-up of ", warmup, " from ", warmup_from);
  if (unit == ScheduleUnit::kEpochs) absl::StrAppend(&text, ", by epochs");
  return text;
}

const char* ScheduleName(ScheduleKind kind) {
  const auto place = static_cast<size_t>(kind);
  return place < std::size(kNames) ? kNames[place] : "?";
}

ScheduleKind ParseSchedule(const std::string& name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<ScheduleKind>(i);
  }
  ThrowInvalidArgument(
      absl::StrCat("schedule is \"", name, "\", expected one of ", absl::StrJoin(kNames, ", ")));
}

}  // namespace tidepool::nn
