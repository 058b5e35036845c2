#include "tidepool/nn/name_pattern.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

// Names that a message shows.
constexpr size_t kMostNames = 12;

}  // namespace

bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  // The last `*` takes one character more wherever what is behind it does not fit.
  size_t p = 0, n = 0, star = absl::string_view::npos, taken = 0;
  while (true) {
    if (p == pattern.size() && (n == name.size() || name[n] == '.')) return true;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && n < name.size() &&
               (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos && taken < name.size()) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
}

std::vector<bool> MatchNames(absl::Span<const std::string> patterns,
                             absl::Span<const std::string> names, absl::string_view where) {
  std::vector<bool> matched(names.size(), false);
  for (const std::string& pattern : patterns) {
    bool means_one = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!MatchesPattern(pattern, names[i])) continue;
      matched[i] = means_one = true;
    }
    if (means_one) continue;
    ThrowInvalidArgument(absl::StrCat(where, ": pattern \"", pattern, "\" matches none of ",
                                      names.size(), " parameters, expected one as ",
                                      absl::StrJoin(names.subspan(0, kMostNames), ", "),
                                      names.size() > kMostNames ? ", ..." : ""));
  }
  return matched;
}

}  // namespace tidepool::nn
