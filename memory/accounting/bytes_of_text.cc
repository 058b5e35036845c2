#include "tidepool/memory/accounting/bytes_of_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

// Digits with at most one point between them: no sign, blank or exponent.
bool IsPlain(absl::string_view number) {
  const size_t point = number.find('.');
  if (number.empty() || number.front() == '.' || number.back() == '.') return false;
  for (size_t i = 0; i < number.size(); ++i) {
    if (i != point && (number[i] < '0' || number[i] > '9')) return false;
  }
  return true;
}

}  // namespace

int64_t BytesOfText(absl::string_view what, absl::string_view text) {
  return BytesOfText(what, text, MachineMemoryBytes());
}

int64_t BytesOfText(absl::string_view what, absl::string_view text, int64_t whole) {
  const auto refuse = [&] {
    ThrowInvalidArgument(
        absl::StrCat(what, " is \"", text.substr(0, 100),
                     "\", expected bytes, such as 67108864, 64MiB, 1.5GiB or 25%"));
  };
  absl::string_view number = text;
  const bool is_share = absl::ConsumeSuffix(&number, "%");
  double unit = 1;
  for (const auto& [suffix, bytes] : {std::pair<const char*, double>{"KiB", 1 << 10},
                                      {"MiB", 1 << 20},
                                      {"GiB", 1 << 30},
                                      {"TiB", 1024.0 * (1 << 30)}}) {
    if (number.size() == text.size() && absl::ConsumeSuffix(&number, suffix)) unit = bytes;
  }
  const bool has_unit = number.size() < text.size();
  while (has_unit && (absl::ConsumeSuffix(&number, " ") || absl::ConsumeSuffix(&number, "\t"))) {
  }
  if (!IsPlain(number)) refuse();
  if (!has_unit) {  // exact
    int64_t bytes = 0;
    if (!absl::SimpleAtoi(number, &bytes) || bytes < 1 || bytes > kMostCountedBytes) refuse();
    return bytes;
  }
  double count = 0;
  if (!absl::SimpleAtod(number, &count) || (is_share && (count > 100 || !(count > 0)))) refuse();
  const double bytes =
      is_share ? std::max(1.0, static_cast<double>(whole) * count / 100) : count * unit;
  if (!(bytes >= 1) || bytes > static_cast<double>(kMostCountedBytes)) refuse();
  return static_cast<int64_t>(bytes);
}

}  // namespace tidepool
