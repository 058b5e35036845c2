// Heads of requests that claim too much, or two things at once.
#include "tidepool/examples/digit_server/hostile_clients.h"

#include <string>
#include <utility>
#include <vector>

#include "tidepool/examples/digit_server/request_head.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(HostileClients, ClaimsAreCheckedBeforeAnythingIsRead) {
  Start();
  const std::string post = "POST /digits HTTP/1.1\r\nHost: h\r\n",
                    length = "Content-Length: 784\r\n";
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  for (const auto& [status, request] : std::vector<std::pair<int, std::string>>{
           {413, Post(kBody + 1)},
           {413, Post(size_t{1} << 40)},
           {413, post + "Content-Length: 99999999999999999999999999\r\n\r\n"},
           {413, Post(size_t{1} << 40, "Expect: 100-continue\r\n")},
           {400, post + "Content-Length: -1\r\n\r\n"},
           {400, post + "Content-Length: +784\r\n\r\n"},
           {400, post + "Content-Length: 784, 784\r\n\r\n"},
           {400, post + "Content-Length: \r\n" + length + length + "\r\n"},
           {400, post + length + chunked + "\r\n"},
           {400, post + chunked + chunked + "\r\n"},
           {400, post + "Transfer-Encoding: gzip\r\n\r\n"},
           {400, post + "Transfer-Encoding: gzip, chunked\r\n\r\n"},
           {411, post + "\r\n" + kImage},
           {411, "POST /digits HTTP/1.0\r\n\r\n" + kImage},
           {415, Post(784, "Content-Encoding: gzip\r\n")},
           {415, Post(784, "Content-Encoding: br\r\n")},
           {415, Post(784, "Content-Encoding: deflate\r\n")},
           {415, Post(784, "Content-Encoding: identity\r\nContent-Encoding: br\r\n")},
           {415, Post(784, "Content-Type: multipart/form-data; boundary=x\r\n")},
           {404, "POST /nothing HTTP/1.1\r\nHost: h\r\n" + chunked + "\r\n"},
           {404, "PUT /nothing HTTP/1.1\r\nHost: h\r\n\r\n"},
           {404, "PRI * HTTP/1.1\r\nHost: h\r\n\r\n"},
           {405, "PUT /digits HTTP/1.1\r\nHost: h\r\n" + chunked + "\r\n"},
           {405, "GET /digits HTTP/1.1\r\nHost: h\r\n\r\n"},
           {405, "DELETE /health HTTP/1.1\r\nHost: h\r\n\r\n"},
           {400, "GET /health HTTP/1.1\r\nHost: h\r\n" + length + "\r\n"},
           {400, "GET /health HTTP/1.1\r\nHost: h\r\n" + chunked + "\r\n"},
           {400, "GARBAGE\r\n\r\n"},
           {400, std::string(100, '\0') + "\r\n\r\n"},
       }) {
    const std::string answer = Refusal(request);
    EXPECT_EQ(RawClient::StatusOf(answer), status) << request << "\n-> " << answer;
    EXPECT_THAT(answer, HasSubstr("{\"error\":\"")) << request;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n")) << request;
    EXPECT_THAT(answer, Not(HasSubstr("Keep-Alive"))) << request;
  }
  ExpectServed();
}

TEST_F(HostileClients, HeadsThatTwoReadersCouldEndInTwoPlacesAreRefused) {
  Start();
  const std::string length = "Content-Length: 784\r\n", chunks = "Transfer-Encoding: chunked\r\n";
  const std::string nul(1, '\0');
  for (const std::string& headers :
       std::vector<std::string>{length + "Transfer-Encoding : chunked\r\n",
                                "Content-Length : 784\r\n",
                                length + "Transfer-Encoding\t: chunked\r\n",
                                length + "X: y\r\n " + chunks,
                                " " + chunks + length,
                                length + "Transfer-Encoding:\r\n",
                                length + "X: y\r\n\t\r\n",
                                length + "Transfer-Encoding:\r\n chunked\r\n",
                                "Content-Length:\r\n" + length,
                                "Content-Length: 784" + nul + "\r\n",
                                "Content-Length: 784" + nul + " 5\r\n",
                                length + nul + chunks,
                                length + "Transfer-Encoding" + nul + ": chunked\r\n",
                                length + "X: y\r" + chunks,
                                "Content-Length: 5\r" + length,
                                length + "X: y\n" + chunks,
                                length + "X: y\nContent-Length: 5\r\n",
                                length + "Transfer-Encoding chunked\r\n",
                                "Content-Length: %37%38%34\r\n",
                                "Transfer-Encoding: %63hunked\r\n",
                                length + length,
                                length + ": chunked\r\n",
                                length + "X(y): z\r\n",
                                length + "X: \x7f\r\n",
                                length + "Transfer-Encoding: \v chunked\r\n",
                                "Content-Length: 0x310\r\n"}) {
    const std::string head = "POST /digits HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n";
    const std::string answer = Refusal(head + kImage + "GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(RawClient::StatusOf(answer), 400) << head;
    EXPECT_THAT(answer, HasSubstr("{\"error\":\"")) << head;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n")) << head;
  }
  for (const char* line : {"GET /health HTTP/1.1\n", "\r\nGET /health HTTP/1.1\r\nHost: h\r\n",
                           "GET  /health HTTP/1.1\r\nHost: h\r\n", "GET /health\tHTTP/1.1 \r\n"}) {
    EXPECT_EQ(RawClient::StatusOf(Refusal(std::string(line) + "\r\n")), 400) << line;
  }
  EXPECT_EQ(RawClient::StatusOf(Refusal("POST /digits HTTP/1.0\r\n" + chunks + "\r\n")), 400);
  ExpectServed();
}

TEST_F(HostileClients, CloseIsUnderstoodInAnyCaseAndInLists) {
  Start();
  for (const char* close : {"close", "CLOSE", "x, Close", "close,x"}) {
    const std::string head = std::string("GET /health HTTP/1.1\r\nHost: h\r\nConnection: ") + close;
    EXPECT_THAT(Refusal(head + "\r\n\r\n"), HasSubstr("Connection: close\r\n")) << close;
  }
}

TEST_F(HostileClients, WhoSendsNoBodyOrIsOldIsNotToldToContinue) {
  Start();
  const std::string expect = "Expect: 100-continue\r\n\r\n";
  RawClient client = Client();
  client.Send("GET /health HTTP/1.1\r\nHost: h\r\n" + expect);
  EXPECT_EQ(client.AnswersStatus(), 200);
  RawClient old = Client();
  old.Send("POST /digits HTTP/1.0\r\nContent-Length: 784\r\n" + expect + kImage);
  EXPECT_EQ(old.AnswersStatus(), 200);
}

TEST_F(HostileClients, HeadsAreLimited) {
  Start();
  const std::string megabyte(1 << 20, 'h');
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "A: b\r\n";
  EXPECT_EQ(RawClient::StatusOf(Refusal("GET /health HTTP/1.1\r\nHost: h\r\nA: " + megabyte)), 431);
  EXPECT_EQ(RawClient::StatusOf(Refusal("GET /health HTTP/1.1\r\nHost: h\r\n" + many)), 431);
  EXPECT_THAT(RawClient::StatusOf(
                  Refusal("GET /" + megabyte.substr(0, 9000) + " HTTP/1.1\r\nHost: h\r\n\r\n")),
              414);
  EXPECT_EQ(RawClient::StatusOf(Refusal(megabyte)), 431);
  // Of one line: what the library would refuse without a reason.
  const auto field = [&](size_t bytes) {
    return Refusal("GET /health HTTP/1.1\r\nHost: h\r\nA: " + megabyte.substr(0, bytes - 3) +
                   "\r\nConnection: close\r\n\r\n");
  };
  EXPECT_EQ(RawClient::StatusOf(field(kMostLineBytes)), 200);
  EXPECT_EQ(RawClient::StatusOf(field(kMostLineBytes + 1)), 431);
  EXPECT_THAT(field(kMostLineBytes + 1), HasSubstr("more than 8190 bytes"));
  const auto target = [&](size_t bytes) {  // of the whole line
    return Refusal("GET /" + megabyte.substr(0, bytes - 14) +
                   " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  };
  EXPECT_EQ(RawClient::StatusOf(target(kMostLineBytes)), 404);
  EXPECT_EQ(RawClient::StatusOf(target(kMostLineBytes + 1)), 414);
  EXPECT_THAT(target(kMostLineBytes + 1), HasSubstr("more than 8190 bytes"));
  ExpectServed();
}

// The library takes a range apart by recursion before it asks anybody.
TEST_F(HostileClients, RangesAreNotSeen) {
  Start();
  for (const std::string& range : {std::string("1-0"), std::string("x"), std::string(8000, '0'),
                                   std::string(8000, '-'), "-," + std::string(8000, '\t')}) {
    for (const char* name : {"Range: bytes=", "rAnGe:bytes=", "Range: ", "If-Range: "}) {
      RawClient client = Client();
      client.Send("GET /health HTTP/1.1\r\nHost: h\r\n" + (name + range) + "\r\n\r\n");
      const std::string answer = client.Answer();
      EXPECT_EQ(RawClient::StatusOf(answer), 200) << name << range.substr(0, 20);
      EXPECT_THAT(answer, HasSubstr("\r\n\r\nok\n"));
    }
  }
}

TEST_F(HostileClients, PartsOfAHeadAreCounted) {
  Start();
  const auto with = [&](int fields, int parameters) {
    std::string head = "GET /health?a";
    for (int i = 1; i < parameters; ++i) head += "&a";
    head += " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
    for (int i = 2; i < fields; ++i) head += "a:b\r\n";
    return RawClient::StatusOf(Refusal(head + "\r\n"));
  };
  EXPECT_EQ(with(kMostFields, kMostParameters), 200);
  EXPECT_EQ(with(kMostFields + 1, 1), 431);
  EXPECT_EQ(with(2, kMostParameters + 1), 414);
}

TEST_F(HostileClients, AHostIsExpectedOnceAndNamesOne) {
  Start();
  const auto status = [&](const std::string& head) {
    return RawClient::StatusOf(Refusal(head + "Connection: close\r\n\r\n"));
  };
  const std::string get = "GET /health HTTP/1.1\r\n";
  for (const char* host : {"Host: h:80\r\n", "Host: [::1]:80\r\n", "host:\r\n"}) {
    EXPECT_EQ(status(get + host), 200) << host;
  }
  EXPECT_EQ(status("GET /health HTTP/1.0\r\n"), 200);
  for (const char* host : {"", "Host: h\r\nHost: h\r\n", "Host: h\r\nhost: i\r\n", "Host: a b\r\n",
                           "Host: h/x\r\n", "Host: u@h\r\n", "Host: h\xff\r\n"}) {
    EXPECT_EQ(status(get + host), 400) << host;
  }
}

TEST_F(HostileClients, TargetsMayNameTheHost) {
  Start();
  const auto status = [&](const std::string& target) {
    return RawClient::StatusOf(
        Refusal("GET " + target + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  };
  EXPECT_EQ(status("http://h/health"), 200);
  EXPECT_EQ(status("HTTP://h:80/health?a"), 200);
  for (const char* target : {"http://h", "http://health", "http:/health", "ftp://h/health",
                             "http://h/none", "http%3a//h/health"}) {
    EXPECT_EQ(status(target), 404) << target;
  }
}

}  // namespace
}  // namespace tidepool
