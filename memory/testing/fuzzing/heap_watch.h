// The most heap memory that was held at once, whoever asked malloc for it: our own code or a
// library's.
//
//   HeapWatch watch;
//   Parse(bytes);
//   EXPECT_LT(watch.peak_bytes(), 64 * bytes.size() + kConstant);
//
// Counts malloc and its like in the program that links this: glibc's by taking their place, those
// of AddressSanitizer and ThreadSanitizer by their hooks. Memory that is mapped directly is not
// seen; pages of ours are on the ledger.
//
// Threads: all threads' memory is counted; one watch at a time.
#ifndef TIDEPOOL_MEMORY_TESTING_FUZZING_HEAP_WATCH_H_
#define TIDEPOOL_MEMORY_TESTING_FUZZING_HEAP_WATCH_H_

#include <cstdint>

namespace tidepool {

class HeapWatch {
 public:
  HeapWatch();
  HeapWatch(const HeapWatch&) = delete;
  HeapWatch& operator=(const HeapWatch&) = delete;

  // Beyond what was held when it began, since then.
  int64_t peak_bytes() const;

 private:
  int64_t before_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_FUZZING_HEAP_WATCH_H_
