// Bytes of evaluations' states: "tidepool evaluation 1\n", the kind's name and a newline, then
// numbers of 8 bytes, the lowest byte first. A state of a machine is read on any other.
#ifndef TIDEPOOL_EVAL_STATE_FORMAT_H_
#define TIDEPOOL_EVAL_STATE_FORMAT_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool {

class StateWriter {
 public:
  explicit StateWriter(absl::string_view kind);
  void Int(int64_t value);
  void Double(double value);
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Throws kDataLoss naming the byte where the text ends early or a number is out of its range.
class StateReader {
 public:
  // So that sums of thousands of states do not overflow.
  static constexpr int64_t kMaxCount = int64_t{1} << 48;

  // `bytes` outlive this. Throws kInvalidArgument for a state of another kind.
  StateReader(absl::string_view bytes, absl::string_view kind);
  int64_t Int(int64_t lowest = std::numeric_limits<int64_t>::min(),
              int64_t highest = std::numeric_limits<int64_t>::max());
  int64_t Count() { return Int(0, kMaxCount); }
  // Not NaN.
  double Double();
  // Of a size up to `largest` and not 0.
  double DoubleOfSize(double largest);
  // A part of a configuration. Throws kInvalidArgument unless it is `expected`.
  void Same(const char* what, int64_t expected);
  void Same(const char* what, double expected);
  // Throws unless `count` items of so many bytes may follow: before room is made for them.
  void CheckRoom(int64_t count, int64_t bytes_each) const;
  // Nothing may follow.
  void End() const;

 private:
  uint64_t Bits();
  [[noreturn]] void Throw(absl::string_view what) const;

  absl::string_view bytes_;
  std::string kind_;
  size_t position_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_STATE_FORMAT_H_
