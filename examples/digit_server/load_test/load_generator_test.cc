// The load itself, against a server that answers as the test says: counts, not times.
#include "tidepool/examples/digit_server/load_test/load_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/load_test/server_times.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using std::chrono::milliseconds;

TEST(Arrivals, AreOfASeedAndOfThatRate) {
  const auto arrivals = Arrivals(1000, std::chrono::seconds(100), 7);
  EXPECT_EQ(arrivals, Arrivals(1000, std::chrono::seconds(100), 7));
  EXPECT_NE(arrivals, Arrivals(1000, std::chrono::seconds(100), 8));
  // 100,000 to five standard deviations.
  EXPECT_NEAR(static_cast<double>(arrivals.size()), 1e5, 5 * 317);
  // Gaps of an exponential distribution: 1 / e of them are longer than the mean.
  int64_t longer = 0;
  for (size_t i = 1; i < arrivals.size(); ++i) {
    ASSERT_LE(arrivals[i - 1], arrivals[i]);
    longer += arrivals[i] - arrivals[i - 1] > milliseconds(1);
  }
  EXPECT_NEAR(static_cast<double>(longer) / static_cast<double>(arrivals.size()), 0.3679, 0.01);
}

TEST(LoadResult, PercentilesAreOfTheNearestRank) {
  LoadResult result;
  for (int i = 1; i <= 1000; ++i) result.latencies[200].push_back(static_cast<float>(i));
  EXPECT_EQ(result.Percentile(200, 50), 500);
  EXPECT_EQ(result.Percentile(200, 99.9), 999);
  EXPECT_EQ(result.Percentile(200, 100), 1000);
  EXPECT_EQ(result.Percentile(200, 0), 1);
  EXPECT_EQ(result.Percentile(503, 99), 0);
}

constexpr char kPage[] =
    "# TYPE digit_server_request_seconds histogram\n"
    "digit_server_request_seconds_bucket{le=\"0.05\"} 7\n"
    "digit_server_request_seconds_bucket{le=\"0.1\"} 106\n"
    "digit_server_request_seconds_bucket{le=\"+Inf\"} 107\n"
    "digit_server_request_seconds_sum 3.5\n"
    "digit_server_request_seconds_count 107\n"
    "other_seconds_bucket{le=\"0.1\"} 1\n";

TEST(ServerTimes, PercentilesAreBoundsOfWhatCameBetweenTwoReadings) {
  const ServerTimes after = ServerTimesOf(kPage);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_THAT(after, ::testing::ElementsAre(::testing::Pair(0.05, 7), ::testing::Pair(0.1, 106),
                                            ::testing::Pair(kInfinite, 107)));
  const ServerTimes before = {{0.05, 7}, {0.1, 7}, {kInfinite, 7}};
  EXPECT_EQ(PercentileBetween(before, after, 99), 0.1);
  EXPECT_EQ(PercentileBetween(before, after, 99.9), kInfinite);
  EXPECT_EQ(PercentileBetween({}, after, 5), 0.05);
  EXPECT_TRUE(std::isnan(PercentileBetween(after, after, 99)));
  EXPECT_TRUE(std::isnan(PercentileBetween({}, {}, 99)));
  EXPECT_TRUE(ServerTimesOf("digit_server_request_seconds_bucket{le=\"x\"} 7\n").empty());
  EXPECT_TRUE(ServerTimesOf("").empty());
}

class LoadTest : public ::testing::Test {
 protected:
  LoadTest() : server_(Limits()) {
    server_.AddBodyPage("/digits", [this](std::string_view body, httplib::Response& response) {
      const int number = asked_++;
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return is_open_; });
      if (body != "one" && body != "two") return BoundedServer::AnswerError(response, 400, "body");
      if (number % 4 == 3) return BoundedServer::AnswerError(response, 503, "full");
      response.set_content("x", "text/plain");
    });
    server_.AddPage("/metrics",
                    [](httplib::Response& response) { response.set_content(kPage, "text/plain"); });
    load_.port = server_.Start("127.0.0.1", 0);
    load_.bodies = {"one", "two"};
    load_.rate = 2000;
    load_.time = milliseconds(100);
    load_.patience = std::chrono::hours(1);
  }
  static HttpLimits Limits() {
    HttpLimits limits;
    limits.connections = 1000;
    limits.request_time = limits.answer_time = limits.idle_time = std::chrono::hours(1);
    return limits;
  }
  void Open() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_open_ = true;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  std::atomic<int> asked_{0};
  BoundedServer server_;
  Load load_;
};

TEST_F(LoadTest, EveryRequestIsSentOnceAndCountedByItsStatus) {
  load_.connections = 4;
  const LoadResult result = RunLoad(load_);
  const auto requests = static_cast<int64_t>(Arrivals(2000, load_.time, 1).size());
  EXPECT_EQ(result.requests, requests);
  EXPECT_EQ(asked_, requests);
  EXPECT_EQ(result.Count(503), requests / 4);
  EXPECT_EQ(result.Count(200), requests - requests / 4);
}

TEST_F(LoadTest, WhatTheServerSaysIsRead) {
  EXPECT_EQ(FetchServerTimes(load_.host, load_.port), ServerTimesOf(kPage));
}

// A closed loop would have asked as often as it had connections' answers.
TEST_F(LoadTest, AServerThatStandsStillIsAskedOn) {
  is_open_ = false;
  std::thread opens([&] {
    const auto requests = static_cast<int>(Arrivals(2000, load_.time, 1).size());
    while (asked_ < requests) std::this_thread::sleep_for(milliseconds(1));
    Open();
  });
  load_.connections = 1000;
  const LoadResult result = RunLoad(load_);
  opens.join();
  EXPECT_EQ(result.Count(200) + result.Count(503), result.requests);
  // The last one was sent when all had their time: the first has waited for that long at least.
  const auto arrivals = Arrivals(2000, load_.time, 1);
  const double between = std::chrono::duration<double>(arrivals.back() - arrivals.front()).count();
  EXPECT_GE(std::max(result.Percentile(200, 100), result.Percentile(503, 100)), between * 0.999);
}

// With one connection the others wait for it, and their latency says so.
TEST_F(LoadTest, LatencyCountsFromWhenARequestShouldHaveBeenSent) {
  is_open_ = false;
  load_.connections = 1;
  std::thread opens([&] {
    while (asked_ < 1) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(2 * load_.time);
    Open();
  });
  const LoadResult result = RunLoad(load_);
  opens.join();
  EXPECT_EQ(result.Count(200) + result.Count(503), result.requests);
  // All had their time before the first was answered.
  EXPECT_GE(result.Percentile(200, 0), std::chrono::duration<double>(load_.time).count() * 0.99);
}

TEST_F(LoadTest, WhatIsNotAnsweredIsCounted) {
  is_open_ = false;
  load_.patience = milliseconds(50);
  const LoadResult all = RunLoad(load_);
  EXPECT_EQ(all.Count(LoadResult::kNoAnswer) + all.Count(LoadResult::kNotSent), all.requests);
  load_.connections = 3;
  load_.patience = milliseconds(1000);
  const LoadResult few = RunLoad(load_);
  EXPECT_EQ(few.Count(LoadResult::kNoAnswer), 3);
  EXPECT_EQ(few.Count(LoadResult::kNotSent), few.requests - 3);
  Open();
  server_.Stop();
  load_.patience = std::chrono::hours(1);
  const LoadResult result = RunLoad(load_);
  EXPECT_EQ(result.Count(LoadResult::kNoConnection), result.requests);
}

TEST_F(LoadTest, LoadsThatCannotBeAreNamed) {
  load_.rate = 0;
  EXPECT_EQ(CatchStatus([&] { RunLoad(load_); }).code(), absl::StatusCode::kInvalidArgument);
  load_.rate = 10;
  load_.host = "no host";
  EXPECT_THAT(CatchStatus([&] { RunLoad(load_); }).message(), ::testing::HasSubstr("\"no host\""));
}

}  // namespace
}  // namespace tidepool
