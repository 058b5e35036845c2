// Says which explored thread's stack was too small, where a bare fault would end the program.
//
// Changes the process: while the first exploration begins, a handler of SIGSEGV is put in front of what
// was there, which everything else is handed on to. Not under sanitizers, which report by themselves.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_OVERFLOW_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_OVERFLOW_H_

#include <memory>

namespace tidepool::explorer::internal {

// While it lives the calling thread has a stack for the handler.
class OverflowReports {
 public:
  OverflowReports();
  ~OverflowReports();
  OverflowReports(const OverflowReports&) = delete;
  OverflowReports& operator=(const OverflowReports&) = delete;

 private:
  std::unique_ptr<char[]> stack_;  // null where the thread has one
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_OVERFLOW_H_
