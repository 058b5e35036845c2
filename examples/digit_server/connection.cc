#include "tidepool/examples/digit_server/connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/string_view.h"

namespace tidepool {
namespace {

// Chunks of fewer than some 50 bytes are more framing than they are worth.
constexpr int64_t kFramingBytes = int64_t{64} << 10;
constexpr int64_t kBodyPerFraming = 8;

using GetName = int (*)(int, sockaddr*, socklen_t*);

void NumbersOf(int socket, GetName get_name, std::string& ip, int& port) {
  sockaddr_storage address;
  socklen_t size = sizeof address;
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (get_name(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, service,
                  sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  ip = host;
  port = std::atoi(service);
}

}  // namespace

bool Connection::WaitUntil(short events, Clock::time_point until) const {
  for (;;) {
    // Up, or the last millisecond would be spent asking.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wait = {socket_, events, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX)));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;  // reading or writing tells which
  }
}

bool Connection::WaitForRequest() {
  return begin_ < end_ || WaitUntil(POLLIN, Clock::now() + limits_.idle_time);
}

bool Connection::ReadHead() {
  in_head_ = true;
  answering_ = false;
  read_bytes_ = body_bytes_ = 0;
  framing_.reset();
  request_until_ = Clock::now() + limits_.request_time;
  // There is room for the longest head from the buffer's start on.
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  HeadLines lines;
  for (size_t line = 0;;) {
    const absl::string_view rest(buffer_.data() + line, end_ - line);
    const size_t end = rest.find('\n');
    if (end != rest.npos) {
      refusal_ = lines.Add(rest.substr(0, end + 1));
      if (refusal_.status != 0) return Fail(Failure::kBadHead), false;
      // A name that nobody knows, of the same length.
      if (lines.is_hidden()) std::fill_n(buffer_.data() + line, rest.find(':'), 'x');
      line += end + 1;
      if (!lines.is_whole()) continue;
      if (lines.has_chunks()) framing_.emplace(limits_.body_bytes);
      return head_left_ = line, true;
    } else if (end_ == buffer_.size()) {
      return Fail(Failure::kHeadTooLarge), false;
    } else if (!Receive()) {
      return false;
    }
  }
}

bool Connection::Receive() {
  for (;;) {
    if (!WaitUntil(POLLIN, request_until_)) return Fail(Failure::kTooSlow), false;
    const ssize_t got = recv(socket_, buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
    if (got > 0) return end_ += static_cast<size_t>(got), true;
    if (got == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
      return Fail(Failure::kClosed), false;
    }
  }
}

ssize_t Connection::Fail(Failure failure) {
  if (failure_ == Failure::kNone) failure_ = failure;
  must_close_ = true;
  return -1;
}

bool Connection::is_readable() const { return begin_ < end_ || WaitUntil(POLLIN, request_until_); }

ssize_t Connection::read(char* to, size_t size) {
  if (failure_ != Failure::kNone) return -1;
  if (in_head_) {
    size = std::min(size, head_left_);
    if (size == 0) return Fail(Failure::kBadHead);
    head_left_ -= size;
  }
  if (!in_head_ && read_bytes_ - body_bytes_ > kFramingBytes + body_bytes_ / kBodyPerFraming) {
    return Fail(Failure::kFramingTooLarge);
  }
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (!Receive()) return -1;
  }
  const size_t bytes = std::min(size, end_ - begin_);
  if (!in_head_ && framing_.has_value()) {
    refusal_ = framing_->Add(absl::string_view(buffer_.data() + begin_, bytes));
    if (refusal_.status != 0) return Fail(Failure::kBadChunk);
  }
  std::memcpy(to, buffer_.data() + begin_, bytes);
  begin_ += bytes;
  if (!in_head_) read_bytes_ += static_cast<int64_t>(bytes);
  answering_ = false;  // what was written was "100 Continue"
  return static_cast<ssize_t>(bytes);
}

ssize_t Connection::write(const char* bytes, size_t size) {
  if (!answering_) {
    answering_ = true;
    answer_until_ = Clock::now() + limits_.answer_time;
  }
  for (;;) {
    const ssize_t sent = send(socket_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) break;
    if (!WaitUntil(POLLOUT, answer_until_)) break;
  }
  must_close_ = true;
  return -1;
}

void Connection::Linger() {
  shutdown(socket_, SHUT_WR);
  const Clock::time_point until =
      Clock::now() + std::min<Clock::duration>(limits_.stop_time, limits_.idle_time);
  int64_t left = 4 * limits_.body_bytes;
  while (left > 0 && WaitUntil(POLLIN, until)) {
    const ssize_t got = recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) return;
    left -= got;
  }
}

bool Connection::HasArrived() const {
  char first;
  return recv(socket_, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void Connection::ShutDown() { shutdown(socket_, SHUT_RDWR); }

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  NumbersOf(socket_, &getpeername, ip, port);
}
void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  NumbersOf(socket_, &getsockname, ip, port);
}

}  // namespace tidepool
