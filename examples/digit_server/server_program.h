// The digit_server program, as a user starts it, for tests that have it among their data.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_SERVER_PROGRAM_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_SERVER_PROGRAM_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern char** environ;

namespace tidepool {

// Threads: one.
class ServerProgram {
 public:
  // Listens on a port of its own when this returns.
  explicit ServerProgram(std::vector<std::string> flags)
      : errors_(testing::TempDir() + "/errors-XXXXXX") {
    const int err = mkstemp(errors_.data());
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    flags.insert(flags.begin(), {"examples/digit_server/digit_server", "--port=0"});
    std::vector<char*> arguments;
    for (std::string& flag : flags) arguments.push_back(flag.data());
    arguments.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&process_, arguments[0], &actions, nullptr, arguments.data(), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err);
    out_ = out[0];
    const std::string line = NextLine();
    EXPECT_EQ(std::sscanf(line.c_str(), "digit_server: http://%*[^:]:%d/digits", &port_), 1)
        << line << Errors();
  }
  ~ServerProgram() {
    if (process_ > 0) {
      EXPECT_EQ(Stop(), 0) << Errors();
    }
    CloseOutput();
    unlink(errors_.c_str());
  }
  ServerProgram(const ServerProgram&) = delete;
  ServerProgram& operator=(const ServerProgram&) = delete;

  int port() const { return port_; }
  pid_t process() const { return process_; }
  // Nobody reads its standard output any more.
  void CloseOutput() {
    if (out_ >= 0) close(out_);
    out_ = -1;
  }
  // Of its standard output; waits for it. Empty at its end.
  std::string NextLine() const {
    std::string line;
    for (char c; read(out_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  void Signal(int signal) const { kill(process_, signal); }
  // SIGTERM; the exit status, or 128 + signal.
  int Stop() {
    Signal(SIGTERM);
    return AwaitEnd();
  }
  // The exit status, or 128 + signal.
  int AwaitEnd() {
    int status = -1;
    EXPECT_EQ(waitpid(process_, &status, 0), process_);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // What it wrote to standard error.
  std::string Errors() const {
    std::ifstream file(errors_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Of /proc/PID/status: VmRSS, VmHWM.
  int64_t Bytes(const std::string& field) const {
    std::ifstream status("/proc/" + std::to_string(process_) + "/status");
    for (std::string word; status >> word;) {
      int64_t kib = 0;
      if (word == field + ":" && status >> kib) return kib << 10;
    }
    ADD_FAILURE() << field;
    return 0;
  }

 private:
  std::string errors_;
  pid_t process_ = -1;
  int out_ = -1;
  int port_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_SERVER_PROGRAM_H_
