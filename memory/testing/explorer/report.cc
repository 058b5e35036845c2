// Results as text.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/memory/testing/explorer/explore.h"

namespace tidepool::explorer {

absl::string_view ToText(FailureKind kind) {
  switch (kind) {
    case FailureKind::kNone:
      return "passed";
    case FailureKind::kCheck:
      return "check failed";
    case FailureKind::kInvariant:
      return "invariant broken";
    case FailureKind::kDataRace:
      return "data race";
    case FailureKind::kUseAfterFree:
      return "use after free";
    case FailureKind::kDoubleFree:
      return "double free";
    case FailureKind::kLeak:
      return "leak";
    case FailureKind::kDeadlock:
      return "deadlock";
    case FailureKind::kLivelock:
      return "livelock";
    case FailureKind::kException:
      return "exception";
    case FailureKind::kMisuse:
      return "misuse";
    case FailureKind::kNotDeterministic:
      return "not deterministic";
  }
  return "unknown";
}

namespace {

std::string HowFar(const Result& result) {
  if (!result.exhausted) return "not exhausted";
  if (result.unbounded) return "exhausted; the bound kept nothing out";
  return absl::StrCat(
      "exhausted within the bound",
      result.yields_left_out
          ? ", but for threads that yield and go on at once more often in a row than "
            "Options::yields while others could go on"
          : "",
      result.stores_left_out
          ? ", but for stores placed before others that ran earlier (Options::stores_in_order)"
          : "");
}

}  // namespace

std::string Result::report() const {
  std::string text =
      absl::StrCat("exploration", name.empty() ? "" : " ", name, ": ", ToText(failure));
  if (!passed()) absl::StrAppend(&text, ": ", message);
  text += '\n';
  if (replayed) {
    absl::StrAppend(&text, "  one execution replayed\n");
  } else {
    absl::StrAppendFormat(&text, "  %d executions, %d steps, at most %d choices, %.3f s",
                          executions, steps, depth, seconds);
    if (seconds > 0)
      absl::StrAppendFormat(&text, ", %.2f M executions/s", executions / seconds * 1e-6);
    text += '\n';
    for (const Round& round : rounds) {
      absl::StrAppend(&text, "  ",
                      round.preemptions < 0
                          ? "any number of preemptions"
                          : absl::StrCat(round.preemptions, " preemptions at most"),
                      ": ", round.executions, " executions, ", round.distinct, " new, ",
                      round.pruned, " pruned\n");
    }
    if (passed()) {
      absl::StrAppend(&text, "  ", HowFar(*this), "\n");
    }
  }
  if (!trace.empty()) text += trace;
  if (!replay.empty()) {
    absl::StrAppend(&text, "  replay: TIDEPOOL_EXPLORER_REPLAY='", replay, "'\n");
  }
  return text;
}

}  // namespace tidepool::explorer
