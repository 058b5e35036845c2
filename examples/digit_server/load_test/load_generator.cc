#include "tidepool/examples/digit_server/load_test/load_generator.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using Clock = std::chrono::steady_clock;

// How an answer ends, by what has arrived of it.
struct AnswerForm {
  bool is_whole = false;
  bool closes = false;  // the connection
  int status = 0;
};

AnswerForm FormOf(absl::string_view bytes) {
  AnswerForm form;
  const size_t head = bytes.find("\r\n\r\n");
  if (head == bytes.npos || bytes.size() < 12) return form;
  if (!absl::SimpleAtoi(bytes.substr(9, 3), &form.status)) form.status = 0;
  const std::string fields = absl::AsciiStrToLower(bytes.substr(0, head + 2));
  form.closes = fields.find("connection: close\r\n") != std::string::npos;
  int64_t length = 0;
  constexpr absl::string_view kLength = "content-length:";
  if (const size_t at = fields.find(kLength.data(), 0, kLength.size()); at != std::string::npos) {
    const size_t begin = at + kLength.size();
    const absl::string_view value =
        absl::string_view(fields).substr(begin, fields.find("\r\n", begin) - begin);
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(value), &length)) form.status = 0;
  }
  form.is_whole = static_cast<int64_t>(bytes.size() - head) - 4 >= length;
  return form;
}

class Generator {
 public:
  explicit Generator(const Load& load) : load_(load) {
    address_.sin_family = AF_INET;
    address_.sin_port = htons(static_cast<uint16_t>(load.port));
    if (!(load.rate > 0) || load.time.count() < 1 || load.connections < 1 || load.bodies.empty() ||
        inet_pton(AF_INET, load.host.c_str(), &address_.sin_addr) != 1) {
      ThrowInvalidArgument(absl::StrCat(
          "load: found a rate of ", load.rate, ", ", load.time.count(), " ms, ", load.connections,
          " connections, ", load.bodies.size(), " bodies and host \"", load.host,
          "\", expected positive ones and an IPv4 address"));
    }
    for (const std::string& body : load.bodies) {
      requests_.push_back(absl::StrCat("POST ", load.path, " HTTP/1.1\r\nHost: ", load.host,
                                       "\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    }
    events_ = epoll_create1(EPOLL_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (events_ < 0 || timer_ < 0) ThrowErrno(errno, "load: events");
    Watch(timer_, EPOLLIN, nullptr);
  }
  ~Generator() {
    for (const auto& connection : connections_) {
      if (connection->socket >= 0) close(connection->socket);
    }
    close(timer_);
    close(events_);
  }
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  LoadResult Run() {
    const std::vector<std::chrono::nanoseconds> arrivals =
        Arrivals(load_.rate, load_.time, load_.seed);
    result_.requests = static_cast<int64_t>(arrivals.size());
    begin_ = Clock::now();
    const Clock::time_point end = begin_ + load_.time + load_.patience;
    size_t next = 0;
    while (done_ < result_.requests && Clock::now() < end) {
      for (; next < arrivals.size() && begin_ + arrivals[next] <= Clock::now(); ++next) {
        waiting_.push_back(next);
        due_.push_back(begin_ + arrivals[next]);
      }
      SendWaiting();
      if (done_ == result_.requests) break;
      WakeAt(next < arrivals.size() ? begin_ + arrivals[next] : end);
      epoll_event events[64];
      const int count = epoll_wait(events_, events, 64, -1);
      if (count < 0 && errno != EINTR) ThrowErrno(errno, "load: wait");
      for (int i = 0; i < count; ++i) {
        if (events[i].data.ptr != nullptr) Go(*static_cast<Connection*>(events[i].data.ptr));
      }
    }
    auto not_sent = static_cast<int64_t>(waiting_.size() + arrivals.size() - next);
    for (; done_ < result_.requests; ++done_, --not_sent) {
      result_.latencies[not_sent > 0 ? LoadResult::kNotSent : LoadResult::kNoAnswer].push_back(
          static_cast<float>(std::chrono::duration<double>(load_.patience).count()));
    }
    for (auto& [status, seconds] : result_.latencies) std::sort(seconds.begin(), seconds.end());
    return std::move(result_);
  }

 private:
  struct Connection {
    int socket = -1;
    bool is_busy = false, is_watching_writes = false;
    size_t request = 0;  // that it is at
    size_t sent = 0;     // bytes of it
    std::string answer;
  };

  void Watch(int socket, uint32_t events, Connection* connection) {
    epoll_event event = {};
    event.events = events;
    event.data.ptr = connection;
    if (epoll_ctl(events_, EPOLL_CTL_ADD, socket, &event) != 0 &&
        epoll_ctl(events_, EPOLL_CTL_MOD, socket, &event) != 0) {
      ThrowErrno(errno, "load: watch a socket");
    }
  }

  void WakeAt(Clock::time_point time) {
    const auto since = time.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
    itimerspec timer = {};
    timer.it_value.tv_sec = seconds.count();
    timer.it_value.tv_nsec =
        std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count();
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &timer, nullptr);
  }

  void SendWaiting() {
    while (!waiting_.empty()) {
      Connection* const connection = Idle();
      if (connection == nullptr) return;
      connection->request = waiting_.front();
      waiting_.pop_front();
      connection->is_busy = true;
      connection->sent = 0;
      connection->answer.clear();
      Go(*connection);
    }
  }

  // Null: all are busy.
  Connection* Idle() {
    if (!idle_.empty()) {
      Connection* const connection = idle_.back();
      idle_.pop_back();
      return connection;
    }
    if (connections_.size() >= static_cast<size_t>(load_.connections)) return nullptr;
    connections_.push_back(std::make_unique<Connection>());
    return connections_.back().get();
  }

  bool Connect(Connection& connection) {
    connection.socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection.socket < 0) ThrowErrno(errno, "load: a socket");
    const int one = 1;
    setsockopt(connection.socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(connection.socket, reinterpret_cast<const sockaddr*>(&address_), sizeof address_) !=
            0 &&
        errno != EINPROGRESS) {
      return false;
    }
    connection.is_watching_writes = true;
    Watch(connection.socket, EPOLLIN | EPOLLOUT, &connection);
    return true;
  }

  // As far as the socket takes and gives.
  void Go(Connection& connection) {
    if (connection.is_busy && connection.socket < 0 && !Connect(connection)) {
      return End(connection, LoadResult::kNoConnection, /*closes=*/true);
    }
    if (connection.is_busy && !Send(connection)) return Lose(connection);
    char bytes[16384];
    for (;;) {
      const ssize_t got = recv(connection.socket, bytes, sizeof bytes, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
      if (got <= 0) return Lose(connection);
      if (!connection.is_busy) continue;  // nobody asked
      connection.answer.append(bytes, static_cast<size_t>(got));
      const AnswerForm form = FormOf({connection.answer.data(), connection.answer.size()});
      if (form.is_whole) return End(connection, form.status, form.closes);
    }
  }

  bool Send(Connection& connection) {
    const std::string& request = requests_[connection.request % requests_.size()];
    while (connection.sent < request.size()) {
      const ssize_t sent = send(connection.socket, request.data() + connection.sent,
                                request.size() - connection.sent, MSG_NOSIGNAL);
      if (sent > 0) {
        connection.sent += static_cast<size_t>(sent);
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != ENOTCONN) {
        // An answer may be there that says why it is not read.
        return errno == EPIPE || errno == ECONNRESET;
      }
      if (!connection.is_watching_writes) {
        connection.is_watching_writes = true;
        Watch(connection.socket, EPOLLIN | EPOLLOUT, &connection);
      }
      return true;
    }
    if (connection.is_watching_writes) {
      connection.is_watching_writes = false;
      Watch(connection.socket, EPOLLIN, &connection);
    }
    return true;
  }

  // The server has closed it. One that was idle takes a new socket for its next request; a server
  // that closes an idle one just when it is used has not read the request, which is sent again.
  void Lose(Connection& connection) {
    Close(connection);
    if (!connection.is_busy) return;
    if (was_used_.size() > connection.request && was_used_[connection.request]) {
      return End(connection, LoadResult::kNoConnection, /*closes=*/true);
    }
    was_used_.resize(std::max(was_used_.size(), connection.request + 1));
    was_used_[connection.request] = true;
    connection.sent = 0;
    connection.answer.clear();
    Go(connection);
  }

  void Close(Connection& connection) {
    if (connection.socket >= 0) close(connection.socket);
    connection.socket = -1;
  }

  void End(Connection& connection, int status, bool closes) {
    const Clock::duration latency = Clock::now() - due_[connection.request];
    result_.latencies[status].push_back(
        static_cast<float>(std::chrono::duration<double>(latency).count()));
    ++done_;
    connection.is_busy = false;
    if (closes) Close(connection);
    idle_.push_back(&connection);
  }

  const Load& load_;
  sockaddr_in address_ = {};
  std::vector<std::string> requests_;
  int events_ = -1, timer_ = -1;
  Clock::time_point begin_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> idle_;
  std::deque<size_t> waiting_;          // requests whose time has come
  std::vector<Clock::time_point> due_;  // of each
  std::vector<bool> was_used_;          // of each: whether it was lost once
  int64_t done_ = 0;
  LoadResult result_;
};

}  // namespace

int64_t LoadResult::Count(int status) const {
  const auto found = latencies.find(status);
  return found == latencies.end() ? 0 : static_cast<int64_t>(found->second.size());
}

double LoadResult::Percentile(int status, double percent) const {
  const auto found = latencies.find(status);
  if (found == latencies.end() || found->second.empty()) return 0;
  const auto size = static_cast<double>(found->second.size());
  const double rank = std::ceil(percent * size / 100 - 1e-6);  // 99.9 is no binary fraction
  return found->second[static_cast<size_t>(std::clamp(rank, 1.0, size)) - 1];
}

std::vector<std::chrono::nanoseconds> Arrivals(double rate, std::chrono::nanoseconds time,
                                               uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::chrono::nanoseconds> arrivals;
  for (double at = 0;;) {
    // Our own exponential distribution: the standard's differs between libraries.
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    at -= std::log1p(-uniform) / rate;
    if (at * 1e9 >= static_cast<double>(time.count())) return arrivals;
    arrivals.emplace_back(static_cast<int64_t>(at * 1e9));
  }
}

LoadResult RunLoad(const Load& load) { return Generator(load).Run(); }

}  // namespace tidepool
