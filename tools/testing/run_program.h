// Runs a program as a user does, for end-to-end tests.
#ifndef TIDEPOOL_TOOLS_TESTING_RUN_PROGRAM_H_
#define TIDEPOOL_TOOLS_TESTING_RUN_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tidepool::tools {

struct RunOptions {
  std::string folder;           // working directory; empty: the test's
  std::string stdout_path;      // standard output goes to this file instead of RunResult::out
  bool terminal = false;        // standard output is a pseudo-terminal
  std::string interrupt_after;  // SIGINT once standard output holds this
  int64_t max_file_bytes = -1;  // RLIMIT_FSIZE; -1: none
  // RLIMIT_STACK, which threads get as well, up to the hard limit; -1: as it is.
  int64_t stack_bytes = -1;
  int64_t address_bytes = -1;             // RLIMIT_AS; -1: as it is
  std::function<void(int pid)> on_start;  // called once it runs, before it is waited for
};

struct RunResult {
  int status = -1;  // exit status, or 128 + signal
  // Resident, or what the test had when it started the program if that was more.
  int64_t peak_bytes = 0;
  std::string out, err;
};

// `program`: path of the executable. Waits for its end; both outputs are read as they come.
RunResult RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                     const RunOptions& options = {});

// `path`, relative to the workspace, among the test's data; absolute.
std::string DataPath(const std::string& path);
// A new empty folder in the test's temporary folder; no slash at the end.
std::string NewFolder();
// Names in the folder, sorted.
std::vector<std::string> FilesIn(const std::string& folder);
std::string ReadWhole(const std::string& path);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_TESTING_RUN_PROGRAM_H_
