// Patterns of parameters' names ("block1.first.filter"): `*` stands for any characters, dots among
// them, and `?` for one. A pattern means the names that it is and those that go on behind a dot:
// "block1" is all of that block, "block?.*.bias" biases in blocks.
#ifndef TIDEPOOL_NN_NAME_PATTERN_H_
#define TIDEPOOL_NN_NAME_PATTERN_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::nn {

// Whether `pattern` means `name`.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// Of each name whether one of the patterns means it. Throws kInvalidArgument naming `where` and the
// pattern that means none.
std::vector<bool> MatchNames(absl::Span<const std::string> patterns,
                             absl::Span<const std::string> names, absl::string_view where);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NAME_PATTERN_H_
