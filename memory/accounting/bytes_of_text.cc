#include "tidepool/memory/accounting/bytes_of_text.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

// Digits with at most one point between them: no sign, space or exponent.
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
  const auto refuse = [&] {
    ThrowInvalidArgument(
        absl::StrCat(what, " is \"", text.substr(0, 100),
                     "\", expected bytes, such as 67108864, 64MiB, 1.5GiB or 25%"));
  };
  absl::string_view number = text;
  double unit = 1;
  for (const auto& [suffix, bytes] : {std::pair<const char*, double>{"KiB", 1 << 10},
                                      {"MiB", 1 << 20},
                                      {"GiB", 1 << 30},
                                      {"TiB", 1024.0 * (1 << 30)}}) {
    if (unit == 1 && absl::ConsumeSuffix(&number, suffix)) unit = bytes;
  }
  double count = 0;
  if (unit == 1 && absl::ConsumeSuffix(&number, "%")) {
    if (!IsPlain(number) || !absl::SimpleAtod(number, &count) || count > 100) refuse();
    unit = static_cast<double>(MachineMemoryBytes()) / 100;
  } else {
    int64_t whole = 0;  // exact where it is one
    if (unit == 1 && (!IsPlain(number) || !absl::SimpleAtoi(number, &whole))) refuse();
    if (unit == 1) {
      if (whole < 1 || whole > kMostCountedBytes) refuse();
      return whole;
    }
    if (!IsPlain(number) || !absl::SimpleAtod(number, &count)) refuse();
  }
  const double bytes = count * unit;
  if (!(bytes >= 1) || bytes > static_cast<double>(kMostCountedBytes)) refuse();
  return static_cast<int64_t>(bytes);
}

}  // namespace tidepool
