// std::printf to the end of a string.
//
//   std::string table;
//   AppendFormat(&table, "%-10s %15lld\n", name.c_str(), static_cast<long long>(bytes));
//
// absl::StrFormat and its kin end in a destructor that appends, which is noexcept: where memory has
// run out the program is over, in the middle of the report about it. So libraries write this or
// absl::StrCat.
//
// Numbers with a point are written as the program's locale has it: what programs read takes
// AppendFixed or AppendGeneral.
//
// Threads: any. Errors: std::bad_alloc; `out` is what it was then. Cost: that of std::vsnprintf,
// twice for what is longer than 200 characters.
#ifndef TIDEPOOL_MEMORY_IO_APPEND_FORMAT_H_
#define TIDEPOOL_MEMORY_IO_APPEND_FORMAT_H_

#include <string>

namespace tidepool {

void AppendFormat(std::string* out, const char* format, ...) __attribute__((format(printf, 2, 3)));

// "%.*f" and "%.*g" with a point, whatever the locale is; at most 17 digits.
void AppendFixed(std::string* out, double value, int digits);
void AppendGeneral(std::string* out, double value, int digits);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_IO_APPEND_FORMAT_H_
