// Requests as they come through a socket: head, framing and body.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/digit_image.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/nn/data/testing/png_files.h"

namespace tidepool {
namespace {

constexpr int64_t kMostBody = 4096;

std::string Post(absl::string_view headers, absl::string_view body) {
  return absl::StrCat("POST /digits HTTP/1.1\r\nHost: h\r\n", headers, "\r\n", body);
}

std::string WithLength(const std::string& body, absl::string_view more = "") {
  return Post(absl::StrCat("Content-Length: ", body.size(), "\r\n", more), body);
}

std::string InChunks(const std::vector<std::string>& chunks) {
  std::string body;
  for (const std::string& chunk : chunks) {
    absl::StrAppend(&body, absl::Hex(chunk.size()), "\r\n", chunk, "\r\n");
  }
  return Post("Transfer-Encoding: chunked\r\n", body + "0\r\n\r\n");
}

std::vector<std::string> Requests() {
  const std::string image(kPngSide * kPngSide, 'i');
  return {
      WithLength(image),
      WithLength(image + image, "Content-Type: application/x-www-form-urlencoded\r\n"),
      WithLength(Png(8, 2, 12)),
      InChunks({image.substr(0, 5), image.substr(5)}),
      "GET /health HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: h\r\n\r\n" + WithLength(image) + WithLength(image, "A: b\r\n"),
      "HEAD /health?a=b&%41=%zz HTTP/1.0\r\nConnection: keep-alive, Close\r\n\r\n",
      WithLength(image, "Expect: 100-continue\r\nRange: bytes=0-1,0-\r\n"),
      WithLength(std::string(kMostBody + 1, 'b')),
      WithLength("--x\r\n\r\n--x--\r\n", "Content-Type: multipart/form-data; boundary=x\r\n"),
      Post("Content-Length: 16\r\nTransfer-Encoding: chunked\r\n", image),
      Post("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n")};
}

// A line of a head or of framing, a length, or a whole request.
void MutateRequest(ByteMutator& mutator, std::string& bytes) {
  static constexpr const char* kLines[] = {"Transfer-Encoding: chunked",
                                           "Transfer-Encoding : chunked",
                                           "Content-Length: 16",
                                           "Content-Length: 0",
                                           "Content-Encoding: gzip",
                                           "Connection: close",
                                           "Expect: 100-continue",
                                           "Range: bytes=1-0,-5",
                                           " folded",
                                           "",
                                           "0",
                                           "ffffffffffffffff",
                                           "-1",
                                           "GET /health HTTP/1.1",
                                           "POST /digits HTTP/1.1"};
  std::vector<std::string> lines = absl::StrSplit(bytes, "\r\n");
  const size_t chosen = mutator.Below(lines.size());
  std::string& line = lines[chosen];
  switch (mutator.Below(9)) {
    case 8:  // a line that ends with less
      if (const size_t end = bytes.find('\r', mutator.Below(bytes.size())); end != bytes.npos) {
        bytes.erase(end + mutator.Below(2), 1);
      }
      return;
    case 0:
      lines.insert(lines.begin() + static_cast<ptrdiff_t>(chosen),
                   kLines[mutator.Below(std::size(kLines))]);
      break;
    case 1:
      line = kLines[mutator.Below(std::size(kLines))];
      break;
    case 2:
      lines.erase(lines.begin() + static_cast<ptrdiff_t>(chosen));
      break;
    case 3:
      std::swap(line, lines[mutator.Below(lines.size())]);
      break;
    case 4: {  // a number, wherever one is
      const size_t digits = line.find_first_of("0123456789");
      if (digits == line.npos) break;
      const size_t end = line.find_first_not_of("0123456789", digits);
      line.replace(digits, end == line.npos ? line.npos : end - digits,
                   absl::StrCat(mutator.Number(16)));
      break;
    }
    case 5:
      bytes += mutator.Below(2) == 0 ? WithLength(std::string(16, 'm')) : InChunks({"chunk"});
      return;
    case 6:
      bytes = InChunks({bytes.substr(0, mutator.Below(bytes.size() + 1)), bytes.substr(0, 16)});
      return;
    default:
      return mutator.Mutate(bytes);
  }
  bytes.clear();
  for (size_t i = 0; i < lines.size(); ++i) absl::StrAppend(&bytes, i == 0 ? "" : "\r\n", lines[i]);
}

// A second opinion: what a reader who knows no more than lengths makes of the stream.

std::optional<std::string> TakeLine(absl::string_view& rest) {
  const size_t end = rest.find("\r\n");
  if (end == rest.npos) return std::nullopt;
  std::string line(rest.substr(0, end));
  rest.remove_prefix(end + 2);
  return line;
}

// The body of a request; none: it is not whole, or has no business having one.
std::optional<std::string> TakeBody(absl::string_view& rest, int64_t length) {
  if (static_cast<uint64_t>(length) > rest.size()) return std::nullopt;
  std::string body(rest.substr(0, static_cast<size_t>(length)));
  rest.remove_prefix(static_cast<size_t>(length));
  return body;
}

// Of each request with a length, in order, up to the first that has none or is refused.
std::vector<std::string> BodiesByLength(absl::string_view rest) {
  std::vector<std::string> bodies;
  while (const std::optional<std::string> first = TakeLine(rest)) {
    int64_t length = 0;
    bool has_length = false;
    for (;;) {
      const std::optional<std::string> line = TakeLine(rest);
      if (!line) return bodies;
      if (line->empty()) break;
      const size_t colon = line->find(':');
      if (colon == line->npos) return bodies;
      const std::string name = absl::AsciiStrToLower(line->substr(0, colon));
      const absl::string_view value =
          absl::StripAsciiWhitespace(absl::string_view(*line).substr(colon + 1));
      if (name == "transfer-encoding") return bodies;
      if (name != "content-length") continue;
      if (has_length || !absl::SimpleAtoi(value, &length) || length < 0) return bodies;
      has_length = true;
    }
    const std::optional<std::string> body = TakeBody(rest, length);
    if (!body) return bodies;
    if (absl::StartsWith(*first, "POST ")) bodies.push_back(*body);
  }
  return bodies;
}

// Whether the first head has a length and a coding: what follows it ends in two places.
bool EndsInTwoPlaces(absl::string_view bytes) {
  const std::string head = absl::AsciiStrToLower(bytes.substr(0, bytes.find("\r\n\r\n")));
  return absl::StrContains(head, "\r\ncontent-length:") &&
         absl::StrContains(head, "\r\ntransfer-encoding:");
}

// Reads what is sent, and what the pages see.
class Service {
 public:
  Service() : server_(Limits()) {
    server_.AddPage(
        "/health", [](httplib::Response& response) { response.set_content("ok\n", "text/plain"); });
    server_.AddBodyPage("/digits", [this](std::string_view body, httplib::Response& response) {
      bodies_.emplace_back(body);
      try {
        const int64_t images =
            LooksLikePng(body) ? static_cast<int64_t>(DecodePng(body, kPngSide, kPngSide).size())
                               : CountRawImages(body, kPngSide, kPngSide);
        response.set_content(absl::StrCat(images), "text/plain");
      } catch (const Error& error) {
        BoundedServer::AnswerError(response, 400, error.message());
      }
    });
  }

  // All answers.
  std::string Answers(const std::string& bytes) {
    bodies_.clear();
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return "";
    const int room = 1 << 22;  // nobody reads before all is answered
    setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(sockets[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    EXPECT_EQ(send(sockets[0], bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    shutdown(sockets[0], SHUT_WR);
    server_.ServeConnection(sockets[1]);
    std::string answers;
    char read[4096];
    for (ssize_t got; (got = recv(sockets[0], read, sizeof read, 0)) > 0;) {
      answers.append(read, static_cast<size_t>(got));
    }
    close(sockets[0]);
    return answers;
  }
  const std::vector<std::string>& bodies() const { return bodies_; }

 private:
  static HttpLimits Limits() {
    HttpLimits limits;
    limits.head_bytes = 2048;
    limits.body_bytes = kMostBody;
    limits.all_bodies_bytes = 2 * kMostBody;
    return limits;
  }

  std::vector<std::string> bodies_;
  BoundedServer server_;
};

void ReadRequests(const std::string& bytes) {
  static Service& service = *new Service();
  const std::string answers = service.Answers(bytes);
  // What pages got is what stands in the request. Chunks, whose end the library finds, may be of
  // one only, the last.
  const std::vector<std::string> expected = BodiesByLength(bytes);
  const std::vector<std::string>& found = service.bodies();
  EXPECT_TRUE(found.empty() || !EndsInTwoPlaces(bytes));
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_LE(found[i].size(), size_t{kMostBody});
    if (i < expected.size()) {
      EXPECT_EQ(found[i], expected[i]);
    } else {
      EXPECT_EQ(i + 1, found.size()) << "a request behind one in chunks";
    }
  }
  // Answers are whole and follow one another; behind one that closes there is none.
  int worst = 200;
  bool closed = false;
  for (absl::string_view answers_left = answers; !answers_left.empty();) {
    EXPECT_FALSE(closed) << answers;
    const size_t head = answers_left.find("\r\n\r\n");
    int status = 0;
    ASSERT_NE(head, answers_left.npos) << answers;
    ASSERT_TRUE(absl::StartsWith(answers_left, "HTTP/1.1 ") &&
                absl::SimpleAtoi(answers_left.substr(9, 3), &status))
        << answers;
    const absl::string_view lines = answers_left.substr(0, head);
    answers_left.remove_prefix(head + 4);
    if (status == 100) continue;
    worst = std::max(worst, status);
    EXPECT_NE(status, 500) << answers;
    closed = absl::StrContains(lines, "Connection: close");
    const size_t length = lines.find("Content-Length: ");
    size_t body = 0;
    ASSERT_NE(length, lines.npos) << answers;
    absl::string_view digits = lines.substr(length + 16);
    digits = digits.substr(0, digits.find('\r'));
    ASSERT_TRUE(absl::SimpleAtoi(digits, &body)) << answers;
    // HEAD has the length alone.
    answers_left.remove_prefix(
        absl::StartsWith(answers_left, "HTTP/1.1 ") ? 0 : std::min(body, answers_left.size()));
  }
  if (worst >= 400 || answers.empty()) ThrowInvalidArgument(absl::StrCat("status ", worst));
}

TIDEPOOL_FUZZ_TARGET(HttpRequest, {.corpus = &Requests,
                                   .mutate = &MutateRequest,
                                   .run = &ReadRequests,
                                   .cases = 6000,
                                   .max_bytes = size_t{1} << 13});

}  // namespace
}  // namespace tidepool
