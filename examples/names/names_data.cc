#include "tidepool/examples/names/names_data.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::examples {

Names ReadNames(const std::string& path) {
  std::ifstream file(path);
  if (!file) ThrowNotFound(absl::StrCat(path, ": cannot be opened"));
  Names names;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto refuse = [&](size_t column, const std::string& expected) {
      ThrowDataLoss(
          absl::StrCat(path, ": line ", number, ", column ", column + 1, ": expected ", expected));
    };
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || tab < 1 || tab > kLength)
      refuse(std::min(line.size(), tab),
             absl::StrCat("a name of 1 to ", kLength, " letters and a tab"));
    if (line.substr(tab) != "\tf" && line.substr(tab) != "\tm") refuse(tab + 1, "f or m");
    for (size_t i = 0; i < kLength; ++i) {
      const char letter = i < tab ? absl::ascii_tolower(static_cast<unsigned char>(line[i])) : '\0';
      if (letter != '\0' && letter != '-' && (letter < 'a' || letter > 'z'))
        refuse(i, "a letter or a hyphen");
      names.letters.push_back(letter == '\0' ? 0 : letter == '-' ? kLetters - 1 : letter - 'a' + 1);
    }
    names.labels.push_back(line[tab + 1] == 'm');
  }
  if (names.size() == 0) ThrowDataLoss(absl::StrCat(path, ": no names"));
  return names;
}

}  // namespace tidepool::examples
