#include <cmath>
#include <iterator>

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

std::string UpdaterConfig::ToString() const {
  std::string text = absl::StrCat(UpdaterName(kind), ", learning rate ", learning_rate);
  const auto add = [&](const char* name, double value) {
    absl::StrAppend(&text, ", ", name, " ", value);
  };
  switch (kind) {
    case UpdaterKind::kSgd:
      break;
    case UpdaterKind::kNesterovs:
      add("momentum", momentum);
      break;
    case UpdaterKind::kRmsProp:
      add("decay", decay);
      [[fallthrough]];
    case UpdaterKind::kAdaGrad:
      add("epsilon", epsilon);
      break;
    case UpdaterKind::kAdam:
    case UpdaterKind::kAdamW:
      add("beta1", beta1), add("beta2", beta2), add("epsilon", epsilon);
      break;
  }
  if (l2 != 0) add("l2", l2);
  if (l1 != 0) add("l1", l1);
  if (weight_decay != 0) add("weight decay", weight_decay);
  if (schedule != Schedule()) absl::StrAppend(&text, ", schedule ", schedule.ToString());
  constexpr const char* kClipping[] = {"", "values clipped to", "norm of each clipped to",
                                       "global norm clipped to"};
  if (clipping.kind != ClippingKind::kNone)
    add(kClipping[static_cast<int>(clipping.kind)], clipping.limit);
  return text;
}

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
