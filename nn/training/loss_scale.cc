#include "tidepool/nn/training/loss_scale.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

template <typename Number>
void Expect(bool holds, const char* what, Number found, const char* expected) {
  if (holds) return;
  ThrowInvalidArgument(absl::StrCat("loss scale: ", what, " ", found, ", expected ", expected));
}

bool IsPositive(double x) { return x > 0 && std::isfinite(x); }

// The fewest digits that mean this number alone: files are compared by them.
std::string Whole(double number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), number).ptr);
}

}  // namespace

LossScale::LossScale(const LossScaleConfig& config) : config_(config), scale_(config.first) {
  Expect(IsPositive(config.least), "least", config.least, "more than 0");
  Expect(IsPositive(config.most) && config.most >= config.least, "most", config.most,
         "at least `least`");
  Expect(config.first >= config.least && config.first <= config.most, "first", config.first,
         "`least` to `most`");
  Expect(config.growth >= 1 && std::isfinite(config.growth), "growth", config.growth, "at least 1");
  Expect(config.backoff > 0 && config.backoff <= 1, "backoff", config.backoff,
         "more than 0, at most 1");
  Expect(config.growth_interval >= 1, "growth_interval", config.growth_interval, "at least 1");
  Expect(config.diverges_after >= 1, "diverges_after", config.diverges_after, "at least 1");
}

LossScaleConfig LossScale::Constant(double scale) {
  return {.first = scale,
          .growth = 1,
          .backoff = 1,
          .most = scale,
          .least = scale,
          .diverges_after = 16};
}

std::string LossScaleConfig::ToString() const {
  return absl::StrCat("first ", Whole(first), ", growth ", Whole(growth), " after ",
                      growth_interval, ", backoff ", Whole(backoff), ", from ", Whole(least),
                      " to ", Whole(most), ", diverged after ", diverges_after);
}

bool LossScale::Observe(bool finite) {
  if (!finite) {
    ++skipped_;
    good_steps_ = 0;
    const double lower = std::max(config_.least, scale_ * config_.backoff);
    stuck_ = lower < scale_ ? 0 : stuck_ + 1;
    scale_ = lower;
    return false;
  }
  stuck_ = 0;
  if (++good_steps_ >= config_.growth_interval) {
    good_steps_ = 0;
    scale_ = std::min(config_.most, scale_ * config_.growth);
  }
  return true;
}

void LossScale::Restore(double scale, int64_t good_steps, int64_t skipped, int64_t stuck) {
  Expect(IsPositive(scale), "scale", scale, "more than 0");
  Expect(good_steps >= 0, "good steps", good_steps, "0 or more");
  Expect(skipped >= 0, "skipped", skipped, "0 or more");
  Expect(stuck >= 0, "overflows running", stuck, "0 or more");
  scale_ = scale, good_steps_ = good_steps, skipped_ = skipped, stuck_ = stuck;
}

std::string LossScale::ToString() const {
  return absl::StrCat("loss scale ", Whole(scale_), ", ", good_steps_, " good steps, ", skipped_,
                      " skipped");
}

}  // namespace tidepool::nn
