#include "tidepool/tools/testing/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"

namespace tidepool::tools {
namespace {

struct Channel {
  int read_end = -1, write_end = -1;
};

Channel NewChannel(bool terminal) {
  Channel channel;
  if (terminal) {
    EXPECT_EQ(openpty(&channel.read_end, &channel.write_end, nullptr, nullptr, nullptr), 0)
        << std::strerror(errno);
    fcntl(channel.read_end, F_SETFD, FD_CLOEXEC);
  } else {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0) << std::strerror(errno);
    channel = {ends[0], ends[1]};
  }
  return channel;
}

[[noreturn]] void Become(const std::string& program, char** argv, const RunOptions& options,
                         int out, int err) {
  if (!options.stdout_path.empty()) {
    out = open(options.stdout_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  }
  if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(126);
  if (options.max_file_bytes >= 0) {
    const rlimit limit = {static_cast<rlim_t>(options.max_file_bytes),
                          static_cast<rlim_t>(options.max_file_bytes)};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(126);
  }
  if (options.stack_bytes >= 0) {
    rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0) _exit(126);
    limit.rlim_cur = std::min(static_cast<rlim_t>(options.stack_bytes), limit.rlim_max);
    if (setrlimit(RLIMIT_STACK, &limit) != 0) _exit(126);
  }
  if (options.address_bytes >= 0) {
    const rlimit limit = {static_cast<rlim_t>(options.address_bytes),
                          static_cast<rlim_t>(options.address_bytes)};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(126);
  }
  const int in = open("/dev/null", O_RDONLY);
  if (dup2(in, 0) != 0 || dup2(out, 1) != 1 || dup2(err, 2) != 2) _exit(126);
  // LeakSanitizer stops all threads and then maps memory, which the thread that watches memory
  // system calls would have to let pass.
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  execv(program.c_str(), argv);
  _exit(127);
}

// False at the end of the file; a terminal whose last writer has gone says EIO.
bool ReadSome(int descriptor, std::string& text) {
  char buffer[4096];
  const ssize_t got = read(descriptor, buffer, sizeof(buffer));
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) return false;
  text.append(buffer, static_cast<size_t>(got));
  return true;
}

}  // namespace

RunResult RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                     const RunOptions& options) {
  std::vector<std::string> all = arguments;
  all.insert(all.begin(), program);
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);

  const Channel out = NewChannel(options.terminal), err = NewChannel(false);
  const pid_t child = fork();
  if (child == 0) Become(program, argv.data(), options, out.write_end, err.write_end);
  EXPECT_GT(child, 0) << std::strerror(errno);
  close(out.write_end);
  close(err.write_end);
  if (options.on_start) options.on_start(child);

  RunResult result;
  bool interrupted = options.interrupt_after.empty();
  pollfd waits[] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
  while (waits[0].fd >= 0 || waits[1].fd >= 0) {
    if (poll(waits, 2, -1) < 0 && errno != EINTR) break;
    if (waits[0].revents != 0 && !ReadSome(waits[0].fd, result.out)) waits[0].fd = -1;
    if (waits[1].revents != 0 && !ReadSome(waits[1].fd, result.err)) waits[1].fd = -1;
    if (!interrupted && result.out.find(options.interrupt_after) != std::string::npos) {
      kill(child, SIGINT);
      interrupted = true;
    }
  }
  close(out.read_end);
  close(err.read_end);
  int status = 0;
  rusage usage = {};
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) continue;
  result.peak_bytes = int64_t{usage.ru_maxrss} << 10;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string DataPath(const std::string& path) {
  return (std::filesystem::current_path() / path).string();
}

std::string NewFolder() {
  std::string path = testing::TempDir();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  path += "/folder.XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr) << path << ": " << std::strerror(errno);
  return path;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace tidepool::tools
