#include "tidepool/tools/benchmarks/side_process.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

extern char** environ;

namespace tidepool::tools {

SideProcess::SideProcess(const std::vector<std::string>& command) : name_(command.at(0)) {
  // A socket, not a pipe: writing to a child that has died is then an error and no signal.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    ThrowErrno(errno, "socketpair");
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int error =
      posix_spawnp(&process_, name_.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  socket_ = ends[0];
  if (error != 0) {
    close(socket_);
    ThrowErrno(error, absl::StrCat("cannot start ", name_));
  }
}

SideProcess::~SideProcess() {
  close(socket_);
  if (process_ >= 0) waitpid(process_, nullptr, 0);
}

void SideProcess::Fail(const std::string& request, const std::string& what) {
  ThrowInternal(absl::StrCat(name_, ", asked \"", request, "\": ", what));
}

std::string SideProcess::Ask(const std::string& request) {
  const std::string line = request + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;  // the child has ended: reading says so
    sent += static_cast<size_t>(count);
  }
  size_t end;
  while ((end = received_.find('\n')) == std::string::npos) {
    char buffer[65536];
    const ssize_t count = recv(socket_, buffer, sizeof(buffer), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      int status = 0;
      if (process_ >= 0) waitpid(process_, &status, 0);
      process_ = -1;
      Fail(request, WIFSIGNALED(status)
                        ? absl::StrCat("the process was ended by signal ", WTERMSIG(status))
                        : absl::StrCat("the process ended with status ", WEXITSTATUS(status)));
    }
    received_.append(buffer, static_cast<size_t>(count));
  }
  const std::string answer = received_.substr(0, end);
  received_.erase(0, end + 1);
  if (answer.rfind("ok ", 0) == 0) return answer.substr(3);
  if (answer.rfind("error ", 0) == 0) Fail(request, answer.substr(6));
  Fail(request, absl::StrCat("answered \"", answer, "\", expected ok or error"));
}

}  // namespace tidepool::tools
