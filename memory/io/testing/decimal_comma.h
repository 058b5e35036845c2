// A locale that writes 1,5, for tests that nothing depends on it.
#ifndef TIDEPOOL_MEMORY_IO_TESTING_DECIMAL_COMMA_H_
#define TIDEPOOL_MEMORY_IO_TESTING_DECIMAL_COMMA_H_

#include <string>

namespace tidepool {

// The process's locale for numbers as long as it lives. No locale need be installed: it is
// C.UTF-8's, which Debian's C library brings, with its point changed.
class DecimalCommaScope {
 public:
  DecimalCommaScope();
  ~DecimalCommaScope();
  DecimalCommaScope(const DecimalCommaScope&) = delete;
  DecimalCommaScope& operator=(const DecimalCommaScope&) = delete;

  // False where there is no C.UTF-8 to make it of.
  bool is_set() const { return is_set_; }

 private:
  std::string before_;
  bool is_set_ = false;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_IO_TESTING_DECIMAL_COMMA_H_
