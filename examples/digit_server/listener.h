// The socket that a server listens on. It gives connections as they come and goes on where the
// system has no more descriptors or memory for one, which the HTTP library's own does not.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_LISTENER_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_LISTENER_H_

#include <atomic>
#include <chrono>
#include <string>

#include "absl/functional/function_ref.h"

namespace tidepool {

class Listener {
 public:
  // Port 0: any that is free. `backlog`: connections that the system takes before Accept does.
  // Throws kFailedPrecondition naming host, port and the system's reason.
  Listener(const std::string& host, int port, int backlog);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  // Waits for the next connection; the caller's then. -1: Shut, or the system has ended the socket.
  // Where the process or the system has no more descriptors, `end_one` is asked to let a connection
  // go, and who waits is served when it has gone; where it returns false, `refuse` gets a
  // connection to answer without waiting, which is closed then. Both are told of on stderr, once a
  // minute. One thread at a time.
  int Accept(absl::FunctionRef<bool()> end_one, absl::FunctionRef<void(int)> refuse);
  // Whether somebody waits to be accepted. Any thread, as Shut.
  bool HasWaiting() const;
  // Nobody is taken any more; who waits in the system is refused.
  void Shut();

 private:
  // Without a free descriptor one that was kept for that is used.
  void Refuse(absl::FunctionRef<void(int)> refuse);

  int socket_ = -1;
  int spare_ = -1;
  int port_ = 0;
  std::atomic<bool> shut_{false};
  std::chrono::steady_clock::time_point told_;  // on stderr
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_LISTENER_H_
