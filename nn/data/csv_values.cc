#include "tidepool/nn/data/csv_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/match.h"

namespace tidepool {
namespace {

// Of a number of integers: larger ones are as large as any, beside the length of a record.
constexpr int64_t kMostExponent = int64_t{1} << 40;

// Without blanks around it and its plus.
absl::string_view Unsigned(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (!text.empty() && text[0] == '+' && text.substr(0, 2) != "+-") text.remove_prefix(1);
  return text;
}

// `text` as a T, all of it.
template <typename T>
std::errc Parse(absl::string_view text, T& value) {
  const std::from_chars_result result =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ptr == text.data() + text.size() ? result.ec : std::errc::invalid_argument;
}

}  // namespace

bool ParseCsvNumber(absl::string_view text, double& value) {
  text = Unsigned(text);
  const std::errc error = Parse(text, value);
  if (error != std::errc::result_out_of_range) return error == std::errc();
  absl::from_chars(text.data(), text.data() + text.size(), value);  // which of the two ends it is
  value = std::abs(value) > 1 ? std::copysign(std::numeric_limits<double>::infinity(), value) : 0;
  return true;
}

bool ParseCsvInteger(absl::string_view text, int64_t& value) {
  text = Unsigned(text);
  if (Parse(text, value) == std::errc()) return true;
  std::string digits(absl::StartsWith(text, "-") ? "-" : "");
  const size_t sign = digits.size();
  int64_t behind = 0;  // digits behind the point
  bool has_point = false, has_digits = false;
  size_t i = sign;
  for (; i < text.size() && (absl::ascii_isdigit(static_cast<unsigned char>(text[i])) ||
                             (text[i] == '.' && !has_point));
       ++i) {
    if (text[i] == '.') {
      has_point = true;
      continue;
    }
    has_digits = true;
    behind += has_point;
    if (text[i] != '0' || digits.size() > sign) digits += text[i];
  }
  if (!has_digits) return false;
  int64_t exponent = 0;
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E') return false;
    absl::string_view power = text.substr(i + 1);
    if (absl::StartsWith(power, "+") && !absl::StartsWith(power, "+-")) power.remove_prefix(1);
    const std::errc error = Parse(power, exponent);
    if (error == std::errc::result_out_of_range) {
      exponent = power[0] == '-' ? -kMostExponent : kMostExponent;
    } else if (error != std::errc()) {
      return false;
    }
    exponent = std::clamp(exponent, -kMostExponent, kMostExponent);
  }
  if (digits.size() == sign) return value = 0, true;
  // What the point has behind it in the end is zeros.
  int64_t zeros = exponent - behind;
  for (; zeros < 0 && digits.back() == '0'; ++zeros) digits.pop_back();
  constexpr int64_t kMostDigits = 19;
  if (zeros < 0 || zeros + static_cast<int64_t>(digits.size() - sign) > kMostDigits) return false;
  digits.append(static_cast<size_t>(zeros), '0');
  return Parse(absl::string_view(digits), value) == std::errc();
}

}  // namespace tidepool
