// The place in a source file that an operation was written at.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_WHERE_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_WHERE_H_

#include <source_location>
#include <string>

namespace tidepool::explorer {

#if defined(__cpp_lib_source_location)
using Where = std::source_location;
#else
// For compilers whose standard library has none (Clang before 16).
class Where {
 public:
  static constexpr Where current(const char* file = __builtin_FILE(),
                                 unsigned line = __builtin_LINE()) {
    Where where;
    where.file_ = file;
    where.line_ = line;
    return where;
  }
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }
  constexpr unsigned column() const { return 0; }

 private:
  const char* file_ = "";
  unsigned line_ = 0;
};
#endif

// "stack.h:31"; "?" where nothing is known. Without folders, so that texts are short.
std::string ToText(const Where& where);

}  // namespace tidepool::explorer

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_WHERE_H_
