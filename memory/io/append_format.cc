#include "tidepool/memory/io/append_format.h"

#include <charconv>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <new>

namespace tidepool {
namespace {

void AppendNumber(std::string* out, double value, std::chars_format format, int digits) {
  // A sign, all digits before the point, the point, those behind it.
  char text[std::numeric_limits<double>::max_exponent10 + 32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value, format, digits);
  out->append(text, end.ptr);
}

}  // namespace

void AppendFormat(std::string* out, const char* format, ...) {
  char text[200];
  std::va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const size_t before = out->size();
  try {
    if (length < 0) throw std::bad_alloc();  // more than an int counts
    const auto added = static_cast<size_t>(length);
    if (added < sizeof text) {
      out->append(text, added);
    } else {
      out->resize(before + added);
      // The final null character goes where the string has its own.
      std::vsnprintf(out->data() + before, added + 1, format, again);
    }
  } catch (...) {
    va_end(again);
    throw;
  }
  va_end(again);
}

void AppendFixed(std::string* out, double value, int digits) {
  AppendNumber(out, value, std::chars_format::fixed, digits);
}

void AppendGeneral(std::string* out, double value, int digits) {
  AppendNumber(out, value, std::chars_format::general, digits);
}

}  // namespace tidepool
