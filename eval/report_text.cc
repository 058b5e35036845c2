#include "tidepool/eval/report_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr size_t kMaxNameBytes = 24;

// Bytes that continue a character take no place.
size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

std::string ShortenedName(const std::string& given) {
  std::string name;
  for (const char c : given) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppend(&name, absl::CHexEscape(absl::string_view(&c, 1)));
    } else {
      name += c;
    }
  }
  if (name.size() <= kMaxNameBytes) return name;
  size_t end = kMaxNameBytes - 2;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
  return name.substr(0, end) + "..";
}

std::string ValueText(double value) {
  return std::isnan(value) ? "undefined" : absl::StrFormat("%.4f", value);
}

std::string TextTable::Text() const {
  std::vector<size_t> widths(rows_[0].size());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - Width(row[i]), ' ');
      if (i > 0) line += "  ";
      absl::StrAppend(&line, static_cast<int>(i) < left_ ? "" : blanks, row[i],
                      static_cast<int>(i) < left_ ? blanks : "");
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string NameOf(const std::vector<std::string>& names, int i) {
  return names.empty() ? absl::StrCat(i) : ShortenedName(names[i]);
}

void CheckNames(const char* who, const std::vector<std::string>& names, int count) {
  if (names.empty() || names.size() == static_cast<size_t>(count)) return;
  ThrowInvalidArgument(
      absl::StrCat(who, ": names: found ", names.size(), ", expected none or ", count));
}

void CheckRange(const char* who, const char* what, int64_t value, int64_t lowest, int64_t highest) {
  if (value >= lowest && value <= highest) return;
  ThrowInvalidArgument(
      absl::StrCat(who, ": ", what, ": found ", value, ", expected ", lowest, "..", highest));
}

double MeanOfNumbers(const std::vector<double>& values, const std::vector<double>& weights) {
  double sum = 0, count = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    const double weight = weights.empty() ? 1 : weights[i];
    sum += weight * values[i];
    count += weight;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / count;
}

}  // namespace tidepool
