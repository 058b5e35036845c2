// What was needed recently.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RECENT_PEAK_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RECENT_PEAK_H_

#include <algorithm>
#include <cstddef>

namespace tidepool {

// The largest of the last `window` to 2 * `window` values.
class RecentPeak {
 public:
  explicit RecentPeak(int window) : window_(window) {}

  void Add(size_t value) {
    if (added_ == window_) {
      previous_ = current_;
      current_ = 0;
      added_ = 0;
    }
    ++added_;
    current_ = std::max(current_, value);
  }
  size_t peak() const { return std::max(current_, previous_); }
  void Clear() { *this = RecentPeak(window_); }

 private:
  int window_;
  int added_ = 0;
  size_t current_ = 0;
  size_t previous_ = 0;
};

// The same of what comes again: 0 as long as fewer than kOften of those values were more than 0. A 0 that
// finds none of these changes nothing, so that it need not be added.
class RecentNeed {
 public:
  static constexpr int kOften = 3;

  explicit RecentNeed(int window) : values_(window), window_(window) {}

  void Add(size_t value) {
    if (value == 0 && is_clear()) return;
    if (added_ == window_) {
      before_ = now_;
      now_ = 0;
      added_ = 0;
    }
    ++added_;
    now_ += value > 0;
    values_.Add(value);
  }
  size_t peak() const { return now_ + before_ < kOften ? 0 : values_.peak(); }
  // No value that counts was more than 0.
  bool is_clear() const { return now_ + before_ == 0 && values_.peak() == 0; }
  void Clear() { *this = RecentNeed(window_); }

 private:
  RecentPeak values_;
  int window_;
  int added_ = 0;
  int now_ = 0;  // values of more than 0
  int before_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RECENT_PEAK_H_
