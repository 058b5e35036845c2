#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/losses/loss.h"

namespace tidepool::nn {
namespace {

constexpr const char* kNames[] = {"softmax_cross_entropy",
                                  "binary_cross_entropy",
                                  "squared_error",
                                  "absolute_error",
                                  "huber",
                                  "hinge",
                                  "kullback_leibler",
                                  "poisson",
                                  "cosine_proximity",
                                  "ctc"};

}  // namespace

const char* LossName(LossKind kind) {
  const auto place = static_cast<size_t>(kind);
  return place < std::size(kNames) ? kNames[place] : "?";
}

LossKind ParseLoss(const std::string& name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<LossKind>(i);
  }
  ThrowInvalidArgument(
      absl::StrCat("loss is \"", name, "\", expected one of ", absl::StrJoin(kNames, ", ")));
}

void LossConfig::Check() const {
  const auto expect = [&](bool holds, const char* field, const auto& found, const char* expected) {
    if (!holds)
      ThrowInvalidArgument(
          absl::StrCat("loss ", LossName(kind), ": ", field, " ", found, ", expected ", expected));
  };
  expect(static_cast<size_t>(kind) < std::size(kNames), "kind", static_cast<int>(kind),
         "one of LossKind");
  const bool is_softmax = kind == LossKind::kSoftmaxCrossEntropy, is_ctc = kind == LossKind::kCtc;
  expect(delta > 0, "delta", delta, "more than 0");
  expect(delta == 1 || kind == LossKind::kHuber, "delta", delta, "1 of other kinds than huber");
  expect(label_smoothing >= 0 && label_smoothing <= 1, "label_smoothing", label_smoothing,
         "0 to 1");
  expect(label_smoothing == 0 || is_softmax || kind == LossKind::kBinaryCrossEntropy,
         "label_smoothing", label_smoothing, "0 of other kinds than cross-entropies");
  expect(class_weights.empty() || is_softmax, "class_weights", absl::StrJoin(class_weights, " "),
         "none of other kinds than softmax_cross_entropy");
  for (const double weight : class_weights) {
    expect(weight >= 0 && std::isfinite(weight), "class_weights", weight, "0 or more");
  }
  expect(blank >= 0, "blank", blank, "a class");
  expect(blank == 0 || is_ctc, "blank", blank, "0 of other kinds than ctc");
  expect(!zero_infinity || is_ctc, "zero_infinity", "true", "false of other kinds than ctc");
}

std::string LossConfig::ToString() const {
  std::vector<std::string> numbers;
  if (kind == LossKind::kHuber) numbers.push_back(absl::StrCat("delta ", delta));
  if (label_smoothing != 0) numbers.push_back(absl::StrCat("label smoothing ", label_smoothing));
  if (!class_weights.empty())
    numbers.push_back(absl::StrCat("class weights ", absl::StrJoin(class_weights, " ")));
  if (kind == LossKind::kCtc) numbers.push_back(absl::StrCat("blank ", blank));
  if (zero_infinity) numbers.push_back("zero infinity");
  if (numbers.empty()) return LossName(kind);
  return absl::StrCat(LossName(kind), "(", absl::StrJoin(numbers, ", "), ")");
}

}  // namespace tidepool::nn
