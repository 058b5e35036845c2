// An HTTP client that sends what it likes when it likes, for tests: slow, greedy and lying.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_RAW_CLIENT_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_RAW_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace tidepool {

class RawClient {
 public:
  // Longer than any server takes that answers at all, on a busy machine and under a sanitizer too.
  static constexpr int kPatienceMs = 600'000;

  // To 127.0.0.1. Small buffers of the system's fill soon where nobody reads.
  explicit RawClient(int port, int buffer_bytes = 0) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (buffer_bytes > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    }
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_open_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        is_open_(other.is_open_),
        answer_(std::move(other.answer_)) {}
  ~RawClient() {
    if (socket_ >= 0) close(socket_);
  }
  bool is_open() const { return is_open_; }

  // As far as the server takes it; false: it has closed, or takes no more for `wait_ms`.
  bool Send(std::string_view bytes, int wait_ms = kPatienceMs) {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!Wait(POLLOUT, wait_ms)) return false;
      } else if (errno != EINTR) {
        return false;
      }
    }
    return true;
  }
  // Whether there is an answer, or the connection's end.
  bool HasAnswer(int wait_ms = 0) { return Wait(POLLIN, wait_ms); }
  // One answer, whole, or what there was of it at the connection's end or after a time in which any
  // server would have answered.
  std::string Answer() {
    while (!IsWhole() && Wait(POLLIN, kPatienceMs)) {
      char bytes[65536];
      const ssize_t got = recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
      if (got > 0) answer_.append(bytes, static_cast<size_t>(got));
    }
    return std::exchange(answer_, "");
  }
  // Of an answer; 0: there was none.
  static int StatusOf(const std::string& answer) {
    return answer.rfind("HTTP/1.1 ", 0) == 0 ? std::atoi(answer.c_str() + 9) : 0;
  }
  int AnswersStatus() { return StatusOf(Answer()); }
  // Whether the server closes it, at once or when what it sends has been read.
  bool Ends() {
    while (Wait(POLLIN, kPatienceMs)) {
      char bytes[65536];
      const ssize_t got = recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    }
    return false;
  }

 private:
  bool Wait(short events, int wait_ms) const {
    pollfd wait = {socket_, events, 0};
    return poll(&wait, 1, wait_ms) > 0;
  }
  bool IsWhole() const {
    const size_t head = answer_.find("\r\n\r\n");
    if (head == std::string::npos) return false;
    const size_t length = answer_.find("Content-Length: ");
    if (length == std::string::npos || length > head) return StatusOf(answer_) == 100;
    return answer_.size() >=
           head + 4 + static_cast<size_t>(std::atoll(answer_.c_str() + length + 16));
  }

  int socket_;
  bool is_open_ = false;
  std::string answer_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_RAW_CLIENT_H_
