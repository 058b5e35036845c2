#include "tidepool/nn/network/activation_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tidepool::nn {

const char* RetentionName(Retention retention) {
  switch (retention) {
    case Retention::kKeep:
      return "keep";
    case Retention::kSpill:
      return "spill";
    case Retention::kRecompute:
      return "recompute";
    case Retention::kRecomputeSpilled:
      return "recompute from file";
    case Retention::kRemake:
      return "remake";
  }
  return "";
}

bool ActivationPlan::spills() const {
  return std::any_of(segments.begin(), segments.end(),
                     [](const ActivationSegment& s) { return s.spills(); });
}

bool ActivationPlan::recomputes() const {
  return std::any_of(segments.begin(), segments.end(),
                     [](const ActivationSegment& s) { return s.recomputes(); });
}

bool ActivationPlan::remakes() const {
  return std::any_of(segments.begin(), segments.end(),
                     [](const ActivationSegment& s) { return s.retention == Retention::kRemake; });
}

std::string ActivationPlan::ToString() const {
  std::string text;
  for (size_t s = 0; s < segments.size();) {
    // Kept and spilled layers that stand side by side are told as one.
    int layers = segments[s].layers;
    size_t next = s + 1;
    while (!segments[s].recomputes() && next < segments.size() &&
           segments[next].retention == segments[s].retention) {
      layers += segments[next++].layers;
    }
    absl::StrAppend(&text, text.empty() ? "" : ", ", RetentionName(segments[s].retention), " ",
                    layers, s == 0 ? (layers == 1 ? " layer" : " layers") : "");
    if (segments[s].slice > 0) absl::StrAppend(&text, " in slices of ", segments[s].slice);
    s = next;
  }
  return text.empty() ? "keep everything" : text;
}

}  // namespace tidepool::nn
