#include "tidepool/examples/names/names_data.h"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool::examples {

Names ReadNames(const std::string& path) {
  FileReader file(path);
  std::string text(file.size(), '\0'), line;
  file.ReadExactly(absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size()), "names");
  std::istringstream lines(std::move(text));
  Names names;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto refuse = [&](size_t column, const std::string& expected) {
      constexpr size_t kMost = 20;
      const std::string found = line.substr(column, kMost);
      ThrowDataLoss(absl::StrCat(OneLine(path), ": line ", number, ", column ", column + 1,
                                 ": found \"", absl::CHexEscape(found),
                                 line.size() - column > kMost ? "...\"" : "\"", ", expected ",
                                 expected));
    };
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || tab < 1 || tab > kLength)
      refuse(std::min(line.size(), tab),
             absl::StrCat("a name of 1 to ", kLength, " letters and a tab"));
    if (line.substr(tab) != "\tf" && line.substr(tab) != "\tm") refuse(tab + 1, "f or m");
    for (size_t i = 0; i < kLength; ++i) {
      const char letter = i < tab ? absl::ascii_tolower(static_cast<unsigned char>(line[i])) : '\0';
      if (i < tab && letter != '-' && (letter < 'a' || letter > 'z'))
        refuse(i, "a letter or a hyphen");
      names.letters.push_back(letter == '\0' ? 0 : letter == '-' ? kLetters - 1 : letter - 'a' + 1);
    }
    names.labels.push_back(line[tab + 1] == 'm');
  }
  if (names.size() == 0) ThrowDataLoss(absl::StrCat(path, ": no names"));
  return names;
}

}  // namespace tidepool::examples
