// A side of the comparison seen from the conductor: a child process that answers lines.
#ifndef TIDEPOOL_TOOLS_BENCHMARKS_SIDE_PROCESS_H_
#define TIDEPOOL_TOOLS_BENCHMARKS_SIDE_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace tidepool::tools {

class SideProcess {
 public:
  // Starts `command` (a path and its arguments) with a socket as standard input and output. Throws
  // when there is no such program.
  explicit SideProcess(const std::vector<std::string>& command);
  // Closes the child's input and waits for its end.
  ~SideProcess();
  SideProcess(const SideProcess&) = delete;
  SideProcess& operator=(const SideProcess&) = delete;

  // What follows "ok ". Throws kInternal naming program, request and what came instead: an error
  // answer, another line, or the end of the process.
  std::string Ask(const std::string& request);

 private:
  [[noreturn]] void Fail(const std::string& request, const std::string& what);

  std::string name_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string received_;  // what came after the last answer's end
};

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_BENCHMARKS_SIDE_PROCESS_H_
