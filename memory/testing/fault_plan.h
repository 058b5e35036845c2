// FaultPlan: which of the requests that pass by are to fail.
//
//   plan.FailRequest(3);      // the fourth from now on
//   plan.FailRequest(3, 2);   // and the fifth
//
// Threads: any.
#ifndef TIDEPOOL_MEMORY_TESTING_FAULT_PLAN_H_
#define TIDEPOOL_MEMORY_TESTING_FAULT_PLAN_H_

#include <atomic>
#include <cstdint>

namespace tidepool {

class FaultPlan {
 public:
  // Requests number `n` (from 0, counted from now) to n + count - 1 fail. Forgets earlier plans.
  void FailRequest(int64_t n, int64_t count = 1) {
    next_ = 0;
    failed_ = 0;
    first_ = n;
    last_ = n + count - 1;
  }
  void Clear() { FailRequest(0, 0); }

  // For whoever serves requests: is this one to fail?
  bool Next() {
    const int64_t number = next_++;
    if (number < first_ || number > last_) return false;
    ++failed_;
    return true;
  }

  int64_t requests() const { return next_; }  // since the last FailRequest or Clear
  int64_t failed() const { return failed_; }

 private:
  std::atomic<int64_t> next_{0}, failed_{0}, first_{0}, last_{-1};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_FAULT_PLAN_H_
