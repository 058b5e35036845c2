#include "tidepool/examples/digit_server/bounded_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tidepool/examples/digit_server/body_buffer.h"
#include "tidepool/examples/digit_server/request_head.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

// Of one connection; a client that keeps asking gets a new one then.
constexpr int kRequestsPerConnection = 1000;

// What this thread serves; the library's handlers know the request alone.
thread_local Connection* connection_here = nullptr;

// The library takes paths for regular expressions, and "/:" for the begin of a parameter.
std::string PatternOf(absl::string_view path) {
  std::string pattern;
  for (const char c : path) {
    if (absl::ascii_ispunct(static_cast<unsigned char>(c)) && c != '/') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// What the library compares as it stands, or asks of no request.
void Understand(httplib::Request& request) {
  // The target as proxies are asked: "http://host/path".
  constexpr absl::string_view kScheme = "http://";
  if (absl::StartsWithIgnoreCase(request.target, kScheme) &&
      absl::StartsWithIgnoreCase(request.path, kScheme)) {
    const size_t path = request.path.find('/', kScheme.size());
    request.path = path == request.path.npos ? "/" : request.path.substr(path);
  }
  const auto [begin, end] = request.headers.equal_range("Connection");
  for (auto header = begin; header != end; ++header) {
    for (absl::string_view word : absl::StrSplit(header->second, ',')) {
      word = absl::StripAsciiWhitespace(word);
      if (absl::EqualsIgnoreCase(word, "close")) connection_here->CloseAfterwards();
    }
  }
  const bool has_body =
      request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
  if (!has_body || request.version == "HTTP/1.0") request.headers.erase("Expect");
}

}  // namespace

BoundedServer::BoundedServer(const HttpLimits& limits) : limits_(limits) {
  CheckHttpLimits(limits);
  keep_alive_max_count_ = kRequestsPerConnection;
  keep_alive_timeout_sec_ = std::chrono::ceil<std::chrono::seconds>(limits.idle_time).count();
  set_default_headers({{"Accept-Ranges", "none"}});
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    return CheckHead(request, response) ? HandlerResponse::Handled : HandlerResponse::Unhandled;
  });
  // Before a client that asks first sends its body.
  set_expect_100_continue_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        return CheckHead(request, response) ? response.status : 100;
      });
  set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, std::exception_ptr thrown) {
        connection_here->CloseAfterwards();
        try {
          std::rethrow_exception(std::move(thrown));
        } catch (const std::exception& error) {
          AnswerError(response, 500, error.what());
        } catch (...) {
          AnswerError(response, 500, "unknown");
        }
      });
  // What the library refuses itself.
  set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return;
    connection_here->CloseAfterwards();
    switch (connection_here->failure()) {
      case Connection::Failure::kTooSlow:
        return AnswerError(response, 408, "the request took too long to arrive");
      default:
        return AnswerError(response, response.status, "the request is not understood");
    }
  });
  // Before it is sent: who has an answer finds it counted.
  set_post_routing_handler([this](const httplib::Request&, httplib::Response& response) {
    CountAnswer(response.status);
    if (!connection_here->must_close()) return;
    response.headers.erase("Keep-Alive");
    response.headers.erase("Connection");
    response.set_header("Connection", "close");
  });
}

void BoundedServer::AddPage(const std::string& path, Page page) {
  AddPath(path, page != nullptr, false);
  Get(PatternOf(path), [page = std::move(page)](const httplib::Request&,
                                                httplib::Response& response) { page(response); });
}

void BoundedServer::AddBodyPage(const std::string& path, BodyPage page) {
  AddPath(path, page != nullptr, true);
  Post(PatternOf(path),
       [this, page = std::move(page)](const httplib::Request&, httplib::Response& response,
                                      const httplib::ContentReader& reader) {
         ReadBody(page, response, reader);
       });
}

void BoundedServer::AddPath(const std::string& path, bool has_page, bool takes_body) {
  const auto refuse = [&](const char* expected) {
    ThrowInvalidArgument(
        absl::StrCat("digit server: page \"", absl::CHexEscape(path), "\": expected ", expected));
  };
  if (path.empty() || path[0] != '/') refuse("a path that begins with a slash");
  if (!has_page) refuse("a function");
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stage_ != Stage::kNew) {
    ThrowFailedPrecondition(absl::StrCat("digit server: page \"", absl::CHexEscape(path),
                                         "\": found a server that has been started, expected pages "
                                         "before that"));
  }
  if (!takes_body_.emplace(path, takes_body).second) refuse("one that is not there yet");
}

// ---- connections and their threads ----------------------------------------------------------

bool BoundedServer::AddThread() {
  if (threads_.size() >= static_cast<size_t>(limits_.connections)) return false;
  try {
    threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error&) {
    return false;
  }
  ++idle_threads_;
  return true;
}

void BoundedServer::Enqueue(int socket) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++accepted_;
    const auto has_room = [&] {
      return waiting_.size() < static_cast<size_t>(idle_threads_ + ending_);
    };
    // Connections end by themselves when it stops.
    if (has_room() || AddThread() || stopping_ || EndAnIdleConnection()) {
      waiting_.push_back(socket);
      changed_.notify_all();
      return;
    }
  }
  AnswerAtOnce(socket, 503, "too many connections at once");
  close(socket);
}

bool BoundedServer::EndAnIdleConnection() {
  Connection* longest = nullptr;
  for (auto& [connection, open] : open_) {
    if (!open.is_idle || open.must_end) continue;
    if (longest != nullptr && open_[longest].since <= open.since) continue;
    // Its thread has not seen yet that it asks.
    if (open.lingers || !connection->HasArrived()) longest = connection;
  }
  if (longest == nullptr) return false;
  open_[longest].must_end = true;
  ++ending_;
  longest->ShutDown();
  return true;
}

void BoundedServer::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return threads_end_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const int socket = waiting_.front();
    waiting_.pop_front();
    --idle_threads_;
    ++serving_;
    lock.unlock();
    try {
      ServeConnection(socket);
    } catch (const std::exception&) {
      // No memory for as much as a connection; it is closed.
    }
    lock.lock();
    ++idle_threads_;
    --serving_;
    changed_.notify_all();
  }
}

void BoundedServer::ServeConnection(int socket) {
  const absl::Cleanup closes = [socket] { close(socket); };
  Connection connection(socket, limits_);
  Open* open;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    open = &open_[&connection];
    if (stopping_) shutdown(socket, cut_ ? SHUT_RDWR : SHUT_RD);
  }
  connection_here = &connection;
  server_here_ = this;
  try {
    Serve(connection, *open);
  } catch (const std::exception&) {
    // Out of memory for a head; the next connection may have some.
  }
  const bool is_slow = connection.failure() == Connection::Failure::kTooSlow;
  if (connection.must_close() && !is_slow && !stopping_) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      open->is_idle = open->lingers = true;
      open->since = {};  // it makes room before those that may ask again
    }
    connection.Linger();
  }
  connection_here = nullptr;
  server_here_ = nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (open->must_end) --ending_;
  open_.erase(&connection);
  changed_.notify_all();
}

void BoundedServer::Serve(Connection& connection, Open& open) {
  for (int i = 1; i <= kRequestsPerConnection && connection.WaitForRequest(); ++i) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (open.must_end) return;
      open.is_idle = false;
    }
    bool closed_by_client = false;
    if (!connection.ReadHead()) return RefuseHead(connection);
    // When the answer has been taken or nobody will.
    const absl::Cleanup gives_back = [&] { body_bytes_ -= connection.TakeAnswerBytes(); };
    const bool answered = process_request(connection, i == kRequestsPerConnection, closed_by_client,
                                          [&](httplib::Request& request) {
                                            connection.BodyFollows();
                                            // Brotli takes 100 ms for an answer.
                                            request.headers.erase("Accept-Encoding");
                                            Understand(request);
                                          });
    if (!answered || closed_by_client || connection.must_close() || stopping_) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    open.is_idle = !connection.has_bytes();
    open.since = Connection::Clock::now();
  }
}

// ---- requests -------------------------------------------------------------------------------

bool BoundedServer::CheckHead(const httplib::Request& request, httplib::Response& response) {
  // A proxy that reads their framing more freely could see another end.
  if (request.has_header("Transfer-Encoding")) connection_here->CloseAfterwards();
  HeadRefusal refusal = CheckRequestHead(request, takes_body_, limits_.body_bytes);
  int64_t claimed = 0;
  if (refusal.status == 0 &&
      absl::SimpleAtoi(request.get_header_value("Content-Length"), &claimed) &&
      body_bytes_.load() + claimed > limits_.all_bodies_bytes) {
    refusal = {503, "too many bodies at once", "Retry-After", "1"};
  }
  if (refusal.status == 0) return false;
  connection_here->CloseAfterwards();
  if (!refusal.header.empty()) response.set_header(refusal.header, refusal.value);
  AnswerError(response, refusal.status, refusal.message);
  return true;
}

bool BoundedServer::TakeRoom(int64_t bytes) {
  if (body_bytes_.fetch_add(bytes) + bytes <= limits_.all_bodies_bytes && IsWithinLimits()) {
    return true;
  }
  body_bytes_ -= bytes;
  return false;
}

bool BoundedServer::TakeWorkRoom(int64_t bytes) {
  work_bytes_ += bytes;
  if (IsWithinLimits()) return true;
  work_bytes_ -= bytes;
  return false;
}

void BoundedServer::ReadBody(const BodyPage& page, httplib::Response& response,
                             const httplib::ContentReader& reader) {
  Connection& connection = *connection_here;
  BodyBuffer body;
  int64_t room = 0;  // of this body
  const absl::Cleanup gives_back = [&] { body_bytes_ -= room; };
  int refused = 0;
  const bool is_whole = reader([&](const char* bytes, size_t size) {
    connection.CountBody(size);
    const auto more = static_cast<int64_t>(size);
    if (room + more > limits_.body_bytes) return refused = 413, false;
    if (!TakeRoom(more)) return refused = 503, false;
    room += more;
    body.Append(bytes, size);
    return true;
  });
  if (is_whole) {
    page(body.bytes(), response);
    body.Clear();
    // Until the client has taken it, the answer stands for the body.
    const auto answer = static_cast<int64_t>(response.body.size());
    if (answer <= room || TakeRoom(answer - room)) {
      body_bytes_ -= std::max<int64_t>(room - answer, 0);
      room = 0;
      return connection.set_answer_bytes(answer);
    }
    refused = 503;
  }
  connection.CloseAfterwards();
  std::string().swap(response.body);
  RefuseBody(refused, connection, response);
}

}  // namespace tidepool
