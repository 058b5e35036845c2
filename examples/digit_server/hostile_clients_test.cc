// Clients that nobody should trust: slow, greedy and lying ones. What they get is an answer that
// refuses them, never another client's turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/examples/digit_server/digit_server.h"
#include "tidepool/examples/digit_server/hostile_clients.h"
#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/refused_threads.h"
#include "tidepool/nn/model_file.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

TEST_F(HostileClients, SlowOnesHoldNoWorkerAndDoNotDelayTheEnd) {
  options_.limits.stop_time = kForEver;  // for answers, of which there are none
  Start();
  std::vector<RawClient> slow;
  for (const std::string& begun :
       {std::string(), std::string("PO"), std::string("POST /digits HTTP/1.1\r\nHost"), Post(784),
        Post(784) + kImage.substr(1), kChunked + "310\r\n" + kImage.substr(2),
        std::string("GET /metrics HTTP/1.1\r\nHost: h\r\n")}) {
    for (int i = 0; i < 3; ++i) {
      slow.push_back(Client());
      ASSERT_TRUE(slow.back().Send(begun));
    }
  }
  for (int i = 0; i < 5; ++i) ExpectServed();
  server_->Stop();  // in an hour, if it waited for them
  for (RawClient& client : slow) EXPECT_TRUE(client.Ends());
  EXPECT_FALSE(Client().is_open());
}

TEST_F(HostileClients, ARequestThatDoesNotArriveInItsTimeEnds) {
  options_.limits.request_time = std::chrono::milliseconds(200);
  Start();
  for (const auto& [begun, status] :
       std::vector<std::pair<std::string, int>>{{"P", 408},
                                                {"GET /health HTTP/1.1\r\nHost: h\r\n", 408},
                                                {Post(kBody), 408},
                                                {kChunked + "5000\r\n", 408}}) {
    RawClient client = Client();
    client.Send(begun);
    // A byte now and then is no reason to wait for longer.
    for (int i = 0; i < 3000 && !client.HasAnswer(10) && client.Send("x"); ++i) continue;
    const std::string answer = client.Answer();
    EXPECT_EQ(RawClient::StatusOf(answer), status) << begun;
    EXPECT_THAT(answer, HasSubstr("{\"error\":\"the request took too long to arrive\"}")) << begun;
    EXPECT_TRUE(client.Ends()) << begun;
  }
  ExpectServed();
}

TEST_F(HostileClients, IdleConnectionsEnd) {
  options_.limits.idle_time = std::chrono::milliseconds(100);
  Start();
  RawClient silent = Client(), done = Client();
  done.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(done.Answer(), HasSubstr("ok\n"));
  EXPECT_TRUE(silent.Ends());
  EXPECT_TRUE(done.Ends());
}

TEST_F(HostileClients, OneConnectionTooManyIsRefusedUnlessAnotherIsIdle) {
  options_.limits.connections = 4;
  Start();
  std::vector<RawClient> busy;
  for (int i = 0; i < 4; ++i) {
    busy.push_back(Client());
    busy.back().Send(Post(784, "Expect: 100-continue\r\n"));
    EXPECT_EQ(busy.back().AnswersStatus(), 100);
  }
  for (int i = 0; i < 10; ++i) {
    const std::string answer = Client().Answer();
    EXPECT_EQ(RawClient::StatusOf(answer), 503);
    EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
    EXPECT_THAT(answer, HasSubstr("{\"error\":\"too many connections at once\"}"));
  }
  for (RawClient& client : busy) client.Send(kImage);
  for (RawClient& client : busy) EXPECT_EQ(client.AnswersStatus(), 200);
  // They have been answered and wait for another request, or will in a moment: they make room.
  int status = 503;
  for (int i = 0; i < 3000 && status == 503; ++i) {
    RawClient client = Client();
    client.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    status = client.AnswersStatus();
  }
  EXPECT_EQ(status, 200);
}

// Those that were refused and do not close would have the places of those that ask.
TEST_F(HostileClients, ARefusedConnectionThatLingersMakesRoom) {
  options_.limits.connections = 2;
  options_.limits.idle_time = options_.limits.stop_time = std::chrono::hours(1);
  Start();
  std::vector<RawClient> refused;
  for (int i = 0; i < 2; ++i) {
    refused.push_back(Client());
    refused.back().Send("NONSENSE\r\n\r\n");
    ASSERT_EQ(refused.back().AnswersStatus(), 400);
  }
  int status = 503;
  for (int i = 0; i < 3000 && status == 503; ++i) {
    RawClient client = Client();
    client.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    status = client.AnswersStatus();
  }
  EXPECT_EQ(status, 200);
}

TEST_F(HostileClients, NeitherRangesNorCompressionMakeAnAnswerLarger) {
  Start();
  RawClient plain = Client();
  plain.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string expected = plain.Answer();
  std::string ranges = "Range: bytes=0-";
  while (ranges.size() < 8000) ranges += ",0-";
  for (const std::string& header :
       {ranges, std::string("Range: bytes=1-1"), std::string("Accept-Encoding: br, gzip")}) {
    RawClient client = Client();
    client.Send("GET /health HTTP/1.1\r\nHost: h\r\n" + header + "\r\n\r\n");
    EXPECT_EQ(client.Answer(), expected) << header.substr(0, 30);
  }
  const std::string no_range = "Range: bytes=" + std::string(8000, '1') + "\r\n\r\n";
  RawClient client = Client();
  client.Send("GET /health HTTP/1.1\r\nHost: h\r\n" + no_range);
  EXPECT_EQ(client.Answer(), expected);
  ExpectServed();
}

TEST_F(HostileClients, WhoTakesNoAnswersIsLetGo) {
  options_.limits.answer_time = std::chrono::milliseconds(200);
  Start();
  RawClient client(server_->port(), 4096);
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";
  // Until the server reads no more of them, as it waits for its answers to be taken, and ends.
  for (int i = 0; i < 1000 && client.Send(requests); ++i) continue;
  EXPECT_TRUE(client.Ends());
  ExpectServed();
}

TEST_F(HostileClients, SeveralRequestsInOnePacketAreAnsweredInOrder) {
  Start();
  RawClient client = Client();
  client.Send(Post(784) + kImage + "GET /health HTTP/1.1\r\nHost: h\r\n\r\n" + Post(3) + "abc");
  EXPECT_THAT(client.Answer(), HasSubstr("\"digit\""));
}

TEST_F(HostileClients, WhatHasArrivedWhenItStopsIsAnswered) {
  options_.limits.stop_time = kForEver;
  for (int round = 0; round < 20; ++round) {
    Start();
    std::vector<RawClient> clients;
    for (int i = 0; i < 30; ++i) {
      clients.push_back(Client());
      clients.back().Send(Post(784) + kImage);
    }
    server_->Stop();
    for (RawClient& client : clients) ASSERT_EQ(client.AnswersStatus(), 200) << round;
  }
}

TEST_F(HostileClients, StoppingUnderLoadCutsNoAnswer) {
  Start();
  std::atomic<int> served{0}, cut{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 6; ++c) {
    clients.emplace_back([&] {
      for (;;) {
        RawClient client = Client();
        if (!client.is_open()) return;
        while (client.Send(Post(784) + kImage)) {
          const std::string answer = client.Answer();
          if (answer.empty()) break;
          if (answer.back() == '}') {
            ++served;
          } else {
            ++cut;
          }
        }
      }
    });
  }
  while (served < 200) std::this_thread::yield();
  server_->Stop();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(cut, 0);
  server_->Stop();  // again
  options_.port = server_->port();
  Start();  // where it was
  ExpectServed();
}

TEST_F(HostileClients, AModelThatIsNoneAnswersWithAnError) {
  model_.network->parameters().mutable_data<float>()[5] = std::nanf("");
  NDArray bias = model_.network->named_parameters().back().value;
  bias.mutable_data<float>()[3] = std::nanf("");
  Start();
  RawClient client = Client();
  client.Send(Post(784) + kImage);
  const std::string answer = client.Answer();
  EXPECT_EQ(RawClient::StatusOf(answer), 500);
  EXPECT_THAT(answer, HasSubstr("{\"error\":\"the model's outputs are not finite"));
}

TEST_F(HostileClients, OptionsOutOfRangeAreNamed) {
  const auto refuses = [&](DigitServerOptions options, const std::string& part) {
    const absl::Status status = CatchStatus([&] { DigitServer(model_, options).Start(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << part;
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  for (const int workers : {-1, 0, 100000}) {
    refuses({.reader = {.workers = workers}},
            "workers is " + std::to_string(workers) + ", expected 1 to 256");
  }
  for (const int port : {-1, 65536, 99999}) {
    refuses({.port = port}, "port is " + std::to_string(port) + ", expected 0 to 65535");
  }
  refuses({.reader = {.budget_bytes = -1}}, "budget_bytes is -1");
  refuses({.limits = {.connections = 0}}, "HTTP limits");
  refuses({.limits = {.request_time = std::chrono::milliseconds(0)}}, "HTTP limits");
}

TEST_F(HostileClients, WithoutThreadsItSaysSo) {
  server_ = std::make_unique<DigitServer>(model_, options_);
  const RefusedThreads refused;
  const absl::Status status = CatchStatus([&] { server_->Start(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              HasSubstr("a thread to listen and one to answer: Resource temporarily"));
}

}  // namespace
}  // namespace tidepool
