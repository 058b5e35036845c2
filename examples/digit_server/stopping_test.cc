// Ends of a server, and of connections that make room, at any moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/hostile_clients.h"
#include "tidepool/examples/digit_server/raw_client.h"
#include "tidepool/examples/digit_server/slow_layer.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

TEST(BoundedServer, APageThatDoesNotComeBackIsNotWaitedFor) {
  std::mutex mutex;
  std::condition_variable changed;
  bool has_begun = false, may_end = false;
  HttpLimits limits;
  limits.stop_time = std::chrono::milliseconds(100);
  BoundedServer server(limits);
  server.AddBodyPage("/digits", [&](std::string_view, httplib::Response&) {
    std::unique_lock<std::mutex> lock(mutex);
    has_begun = true;
    changed.notify_all();
    changed.wait(lock, [&] { return may_end; });
  });
  RawClient client(server.Start("127.0.0.1", 0));
  client.Send(Post(784) + kImage);
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return has_begun; });
  }
  EXPECT_FALSE(server.TryStop());
  EXPECT_TRUE(server.is_cut());
  EXPECT_FALSE(server.TryStop());
  EXPECT_EQ(client.Answer(), "");
  {
    const std::lock_guard<std::mutex> lock(mutex);
    may_end = true;
  }
  changed.notify_all();
  server.Stop();
  EXPECT_TRUE(server.TryStop());
  EXPECT_FALSE(server.is_listening());
}

void Answer(httplib::Response& response) { response.set_content("x", "text/plain"); }

const std::string kGet = "GET /page HTTP/1.1\r\nHost: h\r\n\r\n";

int StatusOfPage(int port) {
  RawClient client(port);
  client.Send(kGet);
  return client.AnswersStatus();
}

TEST(BoundedServer, StopsFromManyThreadsAtOnce) {
  HttpLimits limits;
  limits.stop_time = std::chrono::milliseconds(100);
  for (int round = 0; round < 20; ++round) {
    BoundedServer server(limits);
    server.AddPage("/page", Answer);
    const int port = server.Start("127.0.0.1", 0);
    RawClient client(port);
    client.Send(kGet);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        if (i % 2 == 0) {
          server.Stop();
          EXPECT_FALSE(server.is_listening());
        } else {
          server.TryStop();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(server.TryStop());
  }
}

TEST(BoundedServer, StartsOnce) {
  BoundedServer server(HttpLimits{});
  server.AddPage("/page", Answer);
  server.Stop();  // nothing yet
  const int port = server.Start("127.0.0.1", 0);
  EXPECT_EQ(CatchStatus([&] { server.Start("127.0.0.1", 0); }).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CatchStatus([&] { server.AddPage("/more", Answer); }).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StatusOfPage(port), 200);
  server.Stop();
  EXPECT_EQ(CatchStatus([&] { server.Start("127.0.0.1", 0); }).message(),
            "digit server: Start: found a server that has been started, expected a new one");
}

TEST(BoundedServer, StartsWhereItCouldNotBefore) {
  BoundedServer first(HttpLimits{}), second(HttpLimits{});
  second.AddPage("/page", Answer);
  const int taken = first.Start("127.0.0.1", 0);
  EXPECT_EQ(CatchStatus([&] { second.Start("127.0.0.1", taken); }).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StatusOfPage(second.Start("127.0.0.1", 0)), 200);
}

TEST(BoundedServer, APageDoesNotStopItsServer) {
  HttpLimits limits;
  limits.stop_time = std::chrono::milliseconds(10);
  BoundedServer server(limits);
  server.AddPage("/page", [&](httplib::Response&) { server.Stop(); });
  EXPECT_EQ(StatusOfPage(server.Start("127.0.0.1", 0)), 500);
  EXPECT_TRUE(server.is_listening());
}

TEST(BoundedServer, RefusesPortsThatAreNone) {
  for (const int port : {-1, 65536, 70000}) {
    BoundedServer server(HttpLimits{});
    EXPECT_EQ(CatchStatus([&] { server.Start("127.0.0.1", port); }).message(),
              "digit server: port is " + std::to_string(port) + ", expected 0 to 65535");
  }
}

TEST(BoundedServer, RefusesLimitsThatItCannotKeep) {
  const auto message = [](auto set) {
    HttpLimits limits;
    set(limits);
    return std::string(CatchStatus([&] { BoundedServer server(limits); }).message());
  };
  EXPECT_EQ(message([](HttpLimits& l) { l.connections = 0; }),
            "HTTP limits: connections is 0, expected 1 to 65536");
  EXPECT_EQ(message([](HttpLimits& l) { l.head_bytes = INT64_MAX; }),
            "HTTP limits: head_bytes is 9223372036854775807, expected 1 to 1048576");
  EXPECT_EQ(message([](HttpLimits& l) { l.all_bodies_bytes = INT64_MAX; }),
            "HTTP limits: all_bodies_bytes is 9223372036854775807, expected 1 to 1099511627776");
  EXPECT_EQ(message([](HttpLimits& l) { l.stop_time = std::chrono::milliseconds::max(); }),
            "HTTP limits: stop_time is 9223372036854775807 ms, expected 1 to 86400000");
}

TEST(BoundedServer, PathsOfPagesAreLiteral) {
  BoundedServer server(HttpLimits{});
  for (const char* const path : {"/(((", "/a.c", "/a/:id", "/[x]*\\"}) server.AddPage(path, Answer);
  const auto message = [&](const char* path, BoundedServer::Page page) {
    return std::string(CatchStatus([&] { server.AddPage(path, std::move(page)); }).message());
  };
  EXPECT_EQ(message("", Answer),
            "digit server: page \"\": expected a path that begins with a slash");
  EXPECT_EQ(message("/a.c", Answer),
            "digit server: page \"/a.c\": expected one that is not there yet");
  EXPECT_EQ(message("/none", nullptr), "digit server: page \"/none\": expected a function");
  const int port = server.Start("127.0.0.1", 0);
  const auto status = [&](const std::string& path) {
    RawClient client(port);
    client.Send("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n");
    return client.AnswersStatus();
  };
  for (const char* const path : {"/(((", "/a.c", "/a/:id", "/[x]*\\"})
    EXPECT_EQ(status(path), 200) << path;
  for (const char* const path : {"/abc", "/a/5", "/none"}) EXPECT_EQ(status(path), 404) << path;
}

// However many images a request has, and however long they would take together.
TEST_F(HostileClients, WhoIsNotAnsweredAnyMoreIsNotComputedOn) {
  SlowLayer::State state;
  model_ = SlowModel(state);
  options_.limits.stop_time = std::chrono::milliseconds(1);
  Start();
  RawClient client = Client();
  client.Send(Post(100 * kImage.size()));
  for (int i = 0; i < 100; ++i) client.Send(kImage);
  state.AwaitInside(1);
  std::vector<RawClient> waiting;  // for the other worker, which has one, and for both
  for (int i = 0; i < 5; ++i) {
    waiting.push_back(Client());
    waiting.back().Send(Post(kImage.size()) + kImage);
  }
  state.AwaitInside(2);
  AwaitMetric("tidepool_inference_waiting_requests{service=\"digit inference\",device=\"host\"}",
              4);
  std::thread stops([&] { server_->Stop(); });
  EXPECT_EQ(client.Answer(), "");  // cut
  // Cut, or told so in time.
  for (RawClient& cut : waiting) EXPECT_THAT(cut.AnswersStatus(), testing::AnyOf(0, 503));
  state.Open();
  stops.join();
  EXPECT_EQ(state.images, 2);
}

TEST_F(HostileClients, TryStopIsStopWhereAllComeBack) {
  Start();
  ExpectServed();
  EXPECT_TRUE(server_->TryStop());
  EXPECT_FALSE(server_->is_listening());
}

// A request that has arrived is no idle connection, whatever its thread has seen of it.
TEST_F(HostileClients, WhoHasAskedMakesNoRoom) {
  options_.limits.connections = 2;
  Start();
  for (int i = 0; i < 2000; ++i) {
    RawClient first = Client();
    first.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    const RawClient second = Client(), third = Client();
    const int status = first.AnswersStatus();
    ASSERT_TRUE(status == 200 || status == 503) << i << ": " << status;
  }
}

#if !defined(__SANITIZE_THREAD__)  // which needs larger ones
TEST(BoundedServer, StacksAreAsLargeAsItSays) {
  const pid_t child = fork();
  if (child == 0) {
    BoundedServer::KeepLittleFreedMemory();
    size_t bytes = 0;
    std::thread([&] {
      pthread_attr_t attributes;
      if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
      pthread_attr_getstacksize(&attributes, &bytes);
      pthread_attr_destroy(&attributes);
    }).join();
    _exit(bytes <= BoundedServer::kStackBytes && bytes > BoundedServer::kStackBytes / 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace tidepool
