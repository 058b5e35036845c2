#ifndef ABACUS_WORK_QUEUE_H_
#define ABACUS_WORK_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/ndarray/kernel/kept_call.h"

namespace abacus {

using tidepool::ByteExtent;

// Work in the order it is added, on a thread of its own. Each piece has a ticket, from 1 on; it is
// done when all before it is. Any thread.
class WorkQueue {
 public:
  WorkQueue() = default;
  // What was added is done first.
  ~WorkQueue();

  // `uses`: bytes of the device that `work` reads or writes. The first one starts the thread. Where
  // it throws (std::bad_alloc, std::system_error) nothing is added.
  uint64_t Add(std::vector<ByteExtent> uses, std::function<void()> work);
  uint64_t last() const;  // ticket added; 0 before the first
  bool IsDone(uint64_t ticket) const;
  void Await(uint64_t ticket);
  void AwaitUsersOf(ByteExtent bytes);
  // Of the first piece that failed since it was asked for; empty when none did.
  std::string TakeFailure();

 private:
  struct Piece {
    std::vector<ByteExtent> uses;
    std::function<void()> work;
  };
  void Serve();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;  // the first one is being done
  uint64_t done_ = 0;
  std::exception_ptr failure_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace abacus

#endif  // ABACUS_WORK_QUEUE_H_
