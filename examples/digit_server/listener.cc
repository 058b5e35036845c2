#include "tidepool/examples/digit_server/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using Clock = std::chrono::steady_clock;

std::string Reason(int error) { return std::generic_category().message(error); }

// Bound and listening; -1: errno.
int ListenOn(const addrinfo& address, int backlog) {
  const int socket =
      ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
  if (socket < 0) return -1;
  const int yes = 1;  // after a restart; the port is shared with nobody
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(socket, address.ai_addr, address.ai_addrlen) == 0 && listen(socket, backlog) == 0) {
    return socket;
  }
  const int error = errno;
  close(socket);
  errno = error;
  return -1;
}

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// Once a minute.
void Tell(int error, Clock::time_point& told) {
  const Clock::time_point now = Clock::now();
  if (told != Clock::time_point() && now - told < std::chrono::minutes(1)) return;
  told = now;
  const bool files = error == EMFILE || error == ENFILE;
  std::fprintf(stderr, "digit_server: accept a connection: %s%s\n", Reason(error).c_str(),
               files ? " (ulimit -n): idle connections make room" : "");
}

}  // namespace

Listener::Listener(const std::string& host, int port, int backlog) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  int error = 0;
  for (const addrinfo* one = found; unknown == 0 && one != nullptr && socket_ < 0;
       one = one->ai_next) {
    socket_ = ListenOn(*one, backlog);
    if (socket_ < 0) error = errno;
  }
  if (socket_ < 0) {
    ThrowFailedPrecondition(absl::StrCat("digit server: cannot listen on ", host, ":", port, ": ",
                                         unknown != 0 && unknown != EAI_SYSTEM
                                             ? gai_strerror(unknown)
                                             : Reason(unknown != 0 ? errno : error)));
  }
  port_ = PortOf(socket_);
  spare_ = OpenSpare();
}

Listener::~Listener() {
  close(socket_);
  if (spare_ >= 0) close(spare_);
}

bool Listener::HasWaiting() const {
  pollfd waits = {socket_, POLLIN, 0};
  return !shut_ && poll(&waits, 1, 0) > 0;
}

void Listener::Shut() {
  shut_ = true;
  shutdown(socket_, SHUT_RDWR);  // ends waiting
}

int Listener::Accept(absl::FunctionRef<bool()> end_one, absl::FunctionRef<void(int)> refuse) {
  static constexpr auto kMoment = std::chrono::milliseconds(1);
  for (;;) {
    const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (shut_) {
      if (connection >= 0) close(connection);
      return -1;
    }
    if (connection >= 0) {
      const int yes = 1;
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      return connection;
    }
    switch (const int error = errno) {
      case EBADF:
      case EINVAL:
      case ENOTSOCK:
      case EFAULT:
        return -1;
      case EMFILE:
      case ENFILE:
        Tell(error, told_);
        if (!end_one()) Refuse(refuse);
        std::this_thread::sleep_for(kMoment);
        break;
      case ENOBUFS:
      case ENOMEM:
        Tell(error, told_);
        std::this_thread::sleep_for(10 * kMoment);
        break;
      case EINTR:
      case ECONNABORTED:
        break;
      default:  // what befell a connection that was not taken yet
        std::this_thread::sleep_for(kMoment);
    }
  }
}

void Listener::Refuse(absl::FunctionRef<void(int)> refuse) {
  if (spare_ < 0) spare_ = OpenSpare();
  if (spare_ < 0) return;
  close(spare_);
  const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection >= 0) {
    refuse(connection);
    close(connection);
  }
  spare_ = OpenSpare();
}

}  // namespace tidepool
