// SingleWriter<T>: a number that one thread at a time changes and any thread may read.
//
// Statistics that a monitoring thread looks at while their owner works. Changing it costs what a plain
// variable costs, because there is nobody to race with: whatever makes the writers take turns (a gate,
// a lock) orders them. A reader sees some value it had; two of them need not be of the same moment.
#ifndef TIDEPOOL_MEMORY_SYNC_SINGLE_WRITER_H_
#define TIDEPOOL_MEMORY_SYNC_SINGLE_WRITER_H_

#include <atomic>

namespace tidepool {

template <typename T>
class SingleWriter {
 public:
  constexpr SingleWriter() = default;
  constexpr SingleWriter(T value) : value_(value) {}  // NOLINT: stands for its value
  SingleWriter(const SingleWriter& other) : value_(other.get()) {}
  SingleWriter& operator=(const SingleWriter& other) { return *this = other.get(); }

  T get() const { return value_.load(std::memory_order_relaxed); }
  operator T() const { return get(); }  // NOLINT: stands for its value
  SingleWriter& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  SingleWriter& operator+=(T value) { return *this = get() + value; }
  SingleWriter& operator-=(T value) { return *this = get() - value; }
  SingleWriter& operator++() { return *this += 1; }

 private:
  std::atomic<T> value_{};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_SINGLE_WRITER_H_
