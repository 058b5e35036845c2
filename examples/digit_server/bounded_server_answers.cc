// Answers without the library, and what is left of requests that were answered.
#include <malloc.h>
#include <pthread.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tidepool/examples/digit_server/bounded_server.h"

namespace tidepool {
namespace {

const char* ReasonOf(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 408:
      return "Request Timeout";
    case 414:
      return "URI Too Long";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

}  // namespace

void BoundedServer::Send(int socket, int status, const std::string& message) {
  CountAnswer(status);
  httplib::Response response;
  AnswerError(response, status, message);
  const std::string answer =
      absl::StrCat("HTTP/1.1 ", status, " ", ReasonOf(status), "\r\nConnection: close\r\n",
                   status == 503 ? "Retry-After: 1\r\n" : "",
                   "Content-Type: application/json\r\nContent-Length: ", response.body.size(),
                   "\r\n\r\n", response.body);
  send(socket, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void BoundedServer::CountAnswer(int status) {
  if (status > 0 && static_cast<size_t>(status) < kStatuses) {
    answers_[static_cast<size_t>(status)].fetch_add(1, std::memory_order_relaxed);
  }
}

std::map<int, int64_t> BoundedServer::answers() const {
  std::map<int, int64_t> counts;
  for (size_t status = 0; status < kStatuses; ++status) {
    const int64_t count = answers_[status].load(std::memory_order_relaxed);
    if (count > 0) counts[static_cast<int>(status)] = count;
  }
  return counts;
}

void BoundedServer::AnswerError(httplib::Response& response, int status,
                                const std::string& message) {
  response.status = status;
  // Bytes of a request may be quoted in errors.
  response.set_content(nlohmann::json{{"error", message}}.dump(
                           -1, ' ', false, nlohmann::json::error_handler_t::replace),
                       "application/json");
}

void BoundedServer::RefuseBody(int status, const Connection& connection,
                               httplib::Response& response) const {
  const Connection::Failure failure = connection.failure();
  if (status == 413) {
    AnswerError(
        response, 413,
        absl::StrCat("the body is larger than the limit of ", limits_.body_bytes, " bytes"));
  } else if (failure == Connection::Failure::kBadChunk) {
    AnswerError(response, connection.refusal().status, connection.refusal().message);
  } else if (failure == Connection::Failure::kFramingTooLarge) {
    AnswerError(response, 413,
                "the chunks' sizes and extensions are too many bytes beside what is in them; "
                "expected larger chunks");
  } else if (status == 503) {
    response.set_header("Retry-After", "1");
    AnswerError(response, 503, "too many bodies at once");
  } else if (failure == Connection::Failure::kTooSlow) {
    AnswerError(response, 408, "the request took too long to arrive");
  } else {
    AnswerError(response, 400, "the body is not whole");
  }
}

void BoundedServer::RefuseHead(Connection& connection) {
  const int socket = connection.socket();
  switch (connection.failure()) {
    case Connection::Failure::kTooSlow:
      return AnswerAtOnce(socket, 408, "the request took too long to arrive");
    case Connection::Failure::kHeadTooLarge:
      return Send(socket, 431, "the head of the request is too large");
    case Connection::Failure::kBadHead:
      return Send(socket, connection.refusal().status, connection.refusal().message);
    default:
      if (connection.has_bytes()) Send(socket, 400, "the head of the request is not whole");
  }
}

void BoundedServer::AnswerAtOnce(int socket, int status, const std::string& message) {
  Send(socket, status, message);
  shutdown(socket, SHUT_WR);
  char unread[4096];  // what has arrived, so that closing does not take the answer back
  for (int i = 0; i < 16 && recv(socket, unread, sizeof unread, MSG_DONTWAIT) > 0; ++i) continue;
}

void BoundedServer::KeepLittleFreedMemory() {
#ifdef __GLIBC__
  constexpr int kBlock = 256 << 10;  // larger ones are mapped, and unmapped when they are freed
  mallopt(M_MMAP_THRESHOLD, kBlock);
  mallopt(M_TRIM_THRESHOLD, kBlock);
  mallopt(M_ARENA_MAX, 1);
  // Else as large as `ulimit -s` says, and what a thread has touched of it stays.
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) return;
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
#endif
}

}  // namespace tidepool
