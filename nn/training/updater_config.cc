#include <charconv>
#include <cmath>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {
namespace {

constexpr const char* kNames[] = {"sgd", "nesterovs", "adagrad", "rmsprop", "adam", "adamw"};

void Expect(bool holds, const char* field, double found, const char* expected) {
  if (holds) return;
  ThrowInvalidArgument(absl::StrCat("updater: ", field, " ", found, ", expected ", expected));
}

// The shortest text that is read back to the same bits.
std::string Exact(double number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), number).ptr);
}
std::string SixDigits(double number) { return absl::StrCat(number); }

// The numbers of a schedule that its text, of six digits, leaves open.
std::string RestOf(const Schedule& schedule) {
  std::string rest;
  const auto add = [&](const std::string& name, double value) {
    double told = 0;
    if (absl::SimpleAtod(SixDigits(value), &told) && told == value) return;
    absl::StrAppend(&rest, rest.empty() ? " with " : " ", name, " ", Exact(value));
  };
  add("gamma", schedule.gamma), add("power", schedule.power), add("end", schedule.end);
  add("rise", schedule.rise), add("from", schedule.rise_from), add("to", schedule.fall_to);
  add("warm-up from", schedule.warmup_from);
  for (size_t i = 0; i < schedule.values.size(); ++i)
    add(absl::StrCat("value ", i), schedule.values[i]);
  return rest;
}

std::string TextOf(const UpdaterConfig& config, std::string (*number)(double)) {
  std::string text =
      absl::StrCat(UpdaterName(config.kind), ", learning rate ", number(config.learning_rate));
  const auto add = [&](const char* name, double value) {
    absl::StrAppend(&text, ", ", name, " ", number(value));
  };
  switch (config.kind) {
    case UpdaterKind::kSgd:
      break;
    case UpdaterKind::kNesterovs:
      add("momentum", config.momentum);
      break;
    case UpdaterKind::kRmsProp:
      add("decay", config.decay);
      [[fallthrough]];
    case UpdaterKind::kAdaGrad:
      add("epsilon", config.epsilon);
      break;
    case UpdaterKind::kAdam:
    case UpdaterKind::kAdamW:
      add("beta1", config.beta1), add("beta2", config.beta2), add("epsilon", config.epsilon);
      break;
  }
  if (config.l2 != 0) add("l2", config.l2);
  if (config.l1 != 0) add("l1", config.l1);
  if (config.weight_decay != 0) add("weight decay", config.weight_decay);
  if (config.schedule != Schedule())
    absl::StrAppend(&text, ", schedule ", config.schedule.ToString(),
                    number == Exact ? RestOf(config.schedule) : "");
  constexpr const char* kClipping[] = {"", "values clipped to", "norm of each clipped to",
                                       "global norm clipped to"};
  if (config.clipping.kind != ClippingKind::kNone)
    add(kClipping[static_cast<int>(config.clipping.kind)], config.clipping.limit);
  return text;
}

}  // namespace

UpdaterConfig UpdaterConfig::Of(UpdaterKind kind) {
  UpdaterConfig config;
  config.kind = kind;
  if (kind == UpdaterKind::kSgd) config.learning_rate = 0.1;
  if (kind == UpdaterKind::kNesterovs) config.learning_rate = 0.02;
  if (kind == UpdaterKind::kAdaGrad) config.epsilon = 1e-10;
  if (kind == UpdaterKind::kAdaGrad || kind == UpdaterKind::kRmsProp) config.learning_rate = 0.01;
  if (kind == UpdaterKind::kAdamW) config.weight_decay = 0.01;
  return config;
}

void UpdaterConfig::Check() const {
  const auto positive = [](double x) { return x > 0 && std::isfinite(x); };
  const auto not_negative = [](double x) { return x >= 0 && std::isfinite(x); };
  const auto in_unit = [](double x) { return x >= 0 && x < 1; };
  Expect(static_cast<size_t>(kind) < std::size(kNames), "kind", static_cast<int>(kind),
         "one of UpdaterKind");
  Expect(positive(learning_rate), "learning_rate", learning_rate, "more than 0");
  for (const auto& [field, value] :
       {std::pair{"momentum", momentum}, {"decay", decay}, {"beta1", beta1}, {"beta2", beta2}}) {
    Expect(in_unit(value), field, value, "0 or more and less than 1");
  }
  Expect(positive(epsilon), "epsilon", epsilon, "more than 0");
  Expect(not_negative(l2), "l2", l2, "0 or more");
  Expect(not_negative(l1), "l1", l1, "0 or more");
  Expect(not_negative(weight_decay), "weight_decay", weight_decay, "0 or more");
  Expect(weight_decay == 0 || kind == UpdaterKind::kAdamW, "weight_decay", weight_decay,
         "0 of other kinds than adamw");
  Expect(static_cast<int>(clipping.kind) <= static_cast<int>(ClippingKind::kGlobalNorm), "clipping",
         static_cast<int>(clipping.kind), "one of ClippingKind");
  Expect(clipping.kind == ClippingKind::kNone || positive(clipping.limit), "clipping limit",
         clipping.limit, "more than 0");
  schedule.Check();
}

std::string UpdaterConfig::ToString() const { return TextOf(*this, SixDigits); }
std::string UpdaterConfig::ToExactString() const { return TextOf(*this, Exact); }

const char* UpdaterName(UpdaterKind kind) {
  const auto place = static_cast<size_t>(kind);
  return place < std::size(kNames) ? kNames[place] : "?";
}

UpdaterKind ParseUpdater(const std::string& name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<UpdaterKind>(i);
  }
  ThrowInvalidArgument(absl::StrCat(
      "updater is \"", name, "\", expected sgd, nesterovs, adagrad, rmsprop, adam or adamw"));
}

}  // namespace tidepool::nn
