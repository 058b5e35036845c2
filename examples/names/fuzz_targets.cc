// Files of names: what is read is the file, written again.
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tidepool/examples/names/names_data.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"

namespace tidepool::examples {
namespace {

std::vector<std::string> NamesFiles() {
  std::string many;
  for (int i = 0; i < 30; ++i) many += "Jean-Luc\tm\nzoe\tf\n";
  return {"anna\tf\nbert\tm\n", "abcdefghijklmno\tf", "abcdefghijklmnop\tf\n", "\tm\n", many};
}

// A letter, a line or its label.
void MutateNames(ByteMutator& mutator, std::string& bytes) {
  std::vector<std::string> lines = absl::StrSplit(bytes, '\n');
  std::string& line = lines[mutator.Below(lines.size())];
  switch (mutator.Below(4)) {
    case 0:
      lines.insert(lines.begin() + static_cast<ptrdiff_t>(mutator.Below(lines.size())), line);
      break;
    case 1:
      std::swap(line, lines[mutator.Below(lines.size())]);
      break;
    case 2:
      if (!line.empty()) line.back() = mutator.Below(2) == 0 ? 'f' : 'm';
      break;
    default:
      line.insert(mutator.Below(line.size() + 1), 1, "abcxyz-AZ\t\0"[mutator.Below(11)]);
  }
  bytes = absl::StrJoin(lines, "\n");
}

std::string WrittenAgain(const Names& names) {
  std::string text;
  for (int64_t i = 0; i < names.size(); ++i) {
    for (int64_t at = i * kLength; at < (i + 1) * kLength && names.letters[at] != 0; ++at) {
      const int64_t letter = names.letters[at];
      text += letter == kLetters - 1 ? '-' : static_cast<char>('a' + letter - 1);
    }
    text += names.labels[i] == 1 ? "\tm\n" : "\tf\n";
  }
  return text;
}

void ReadNamesFile(const std::string& bytes) {
  const Names names = ReadNames(FuzzFile(bytes));
  std::string expected = absl::AsciiStrToLower(bytes);
  if (expected.back() != '\n') expected += '\n';
  EXPECT_EQ(WrittenAgain(names), expected);
}

TIDEPOOL_FUZZ_TARGET(
    Names, {.corpus = &NamesFiles, .mutate = &MutateNames, .run = &ReadNamesFile, .cases = 10000});

}  // namespace
}  // namespace tidepool::examples
