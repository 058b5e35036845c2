// The text of all services is read back by a parser of its own and compared with what services say.
#include "tidepool/nn/parallel/inference_metrics.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/parallel/inference_census.h"
#include "tidepool/nn/parallel/inference_testing.h"

namespace tidepool::nn {
namespace {

using Labels = ExpositionLabels;

Exposition Scrape() {
  Exposition read = ExpositionParser::Parse(InferenceMetricsText());
  EXPECT_EQ(read.error, "");
  return read;
}

double Outcome(const Exposition& read, const std::string& service, const std::string& outcome) {
  return read.Value("tidepool_inference_requests_total",
                    {{"service", service}, {"device", "host"}, {"outcome", outcome}});
}

TEST(InferenceMetricsTest, EveryOutcomeIsToldAndStaysWhenTheServiceIsGone) {
  const Labels labels = {{"service", "outcomes"}, {"device", "host"}};
  Gate gate;
  {
    ParallelInference service(Gated(gate), {.workers = 1,
                                            .batch_limit = 4,
                                            .queue_limit = 2,
                                            .when_full = WhenFull::kRefuse,
                                            .name = "outcomes"});
    service.Output(Full({3, 100}, 1));
    EXPECT_EQ(ErrorOf([&] {
                service.Output(Full({1, 100}, -1));
              }).code(),
              absl::StatusCode::kInvalidArgument);
    gate.Close();
    std::vector<std::thread> clients;
    clients.emplace_back([&] { service.Output(Full({1, 100}, 1)); });
    gate.AwaitInside(1);
    clients.emplace_back([&] { service.Output(Full({2, 100}, 1)); });
    AwaitWaiting(service, 1);
    ParallelInference::Request late;
    late.inputs.push_back(Full({1, 100}, 1));
    late.deadline = std::chrono::milliseconds(1);
    EXPECT_EQ(ErrorOf([&] { service.Run(late); }).code(), absl::StatusCode::kDeadlineExceeded);
    clients.emplace_back([&] { service.Output(Full({2, 100}, 1)); });
    AwaitWaiting(service, 2);
    EXPECT_EQ(ErrorOf([&] {
                service.Output(Full({1, 100}, 1));
              }).code(),
              absl::StatusCode::kResourceExhausted);
    const Exposition read = Scrape();
    EXPECT_EQ(read.Value("tidepool_inference_services", labels), 1);
    EXPECT_EQ(read.Value("tidepool_inference_workers", labels), 1);
    EXPECT_EQ(read.Value("tidepool_inference_waiting_requests", labels), 2);
    EXPECT_EQ(read.Value("tidepool_inference_running_requests", labels), 1);
    EXPECT_EQ(read.Value("tidepool_inference_queue_limit_requests", labels), 2);
    gate.Open();
    for (std::thread& client : clients) client.join();
  }
  const Exposition read = Scrape();
  EXPECT_EQ(read.Value("tidepool_inference_services", labels), 0);
  EXPECT_EQ(read.Value("tidepool_inference_workers", labels), 0);
  EXPECT_EQ(read.Value("tidepool_inference_queue_limit_requests", labels), 0);
  EXPECT_EQ(Outcome(read, "outcomes", "answered"), 4);
  EXPECT_EQ(Outcome(read, "outcomes", "failed"), 1);
  EXPECT_EQ(Outcome(read, "outcomes", "expired"), 1);
  EXPECT_EQ(Outcome(read, "outcomes", "refused"), 1);
  EXPECT_EQ(read.Value("tidepool_inference_examples_total", labels), 8);
  // Batches: 3, the one that fails, 1, 4 of two requests.
  EXPECT_EQ(read.Value("tidepool_inference_batch_examples_count", labels), 4);
  EXPECT_EQ(read.Value("tidepool_inference_batch_examples_sum", labels), 9);
  EXPECT_EQ(read.Value("tidepool_inference_largest_batch_examples", labels), 4);
  const auto at_most = [&](const std::string& examples) {
    Labels bucket = labels;
    bucket["le"] = examples;
    return read.Value("tidepool_inference_batch_examples_bucket", bucket);
  };
  EXPECT_EQ(at_most("1"), 2);
  EXPECT_EQ(at_most("2"), 2);
  EXPECT_EQ(at_most("4"), 4);
  EXPECT_EQ(read.Value("tidepool_inference_request_seconds_count", labels), 4);
  EXPECT_GT(read.Value("tidepool_inference_request_seconds_sum", labels), 0);
}

TEST(InferenceMetricsTest, ServicesOfOneNameAreAddedUp) {
  const Labels labels = {{"service", "twins"}, {"device", "host"}};
  const auto network = Plain();
  ParallelInference first(network, {.workers = 2, .name = "twins"});
  {
    ParallelInference second(network, {.mode = InferenceMode::kInPlace, .name = "twins"});
    first.Output(Full({2, 100}, 1));
    second.Output(Full({5, 100}, 1));
    const Exposition read = Scrape();
    EXPECT_EQ(read.Value("tidepool_inference_services", labels), 2);
    EXPECT_EQ(read.Value("tidepool_inference_workers", labels), 2);  // none in place
    EXPECT_EQ(Outcome(read, "twins", "answered"), 2);
    EXPECT_EQ(read.Value("tidepool_inference_examples_total", labels), 7);
  }
  first.Output(Full({1, 100}, 1));
  const Exposition read = Scrape();
  EXPECT_EQ(read.Value("tidepool_inference_services", labels), 1);
  EXPECT_EQ(Outcome(read, "twins", "answered"), 3);
  EXPECT_EQ(read.Value("tidepool_inference_examples_total", labels), 8);
}

TEST(InferenceMetricsTest, ARequestIsCountedByHowLongItTook) {
  ParallelInferenceStats stats;
  using std::chrono::microseconds;
  using std::chrono::nanoseconds;
  for (const nanoseconds time : {nanoseconds(0), nanoseconds(1), nanoseconds(1000)})
    internal::CountAnswer(stats, 1, time);
  EXPECT_EQ(stats.requests_by_time[0], 3);
  internal::CountAnswer(stats, 1, nanoseconds(1001));
  internal::CountAnswer(stats, 1, microseconds(2));
  EXPECT_EQ(stats.requests_by_time[1], 2);
  internal::CountAnswer(stats, 1, microseconds(1024));
  EXPECT_EQ(stats.requests_by_time[10], 1);
  internal::CountAnswer(stats, 1, microseconds(1025));
  EXPECT_EQ(stats.requests_by_time[11], 1);
  internal::CountAnswer(stats, 1, std::chrono::hours(1000));
  EXPECT_EQ(stats.requests_by_time.back(), 1);
  EXPECT_EQ(stats.requests, 8);
}

TEST(InferenceMetricsTest, WhatIsWrittenIsDocumented) {
  std::ifstream file("docs/metrics.md");
  ASSERT_TRUE(file.good());
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `tidepool_inference_"))
      documented.insert(line.substr(3, line.find('`', 3) - 3));
  }
  ParallelInference service(Plain(), {.workers = 1});
  service.Output(Full({1, 100}, 1));
  std::set<std::string> written;
  for (const auto& [name, family] : Scrape().families) {
    if (family.type.empty()) continue;  // a histogram's parts
    written.insert(name);
    EXPECT_EQ(family.type == "counter", name.ends_with("_total")) << name;
    EXPECT_NE(family.help, "") << name;
  }
  EXPECT_EQ(written, documented);
}

TEST(InferenceMetricsTest, AChildOfForkReadsThemWhateverServicesAreAt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "gcc 12's AddressSanitizer leaves its own allocator locked in the child";
#endif
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's children of processes with threads end by themselves";
#endif
  ParallelInference service(Plain(), {.workers = 2, .name = "forked"});
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&] {
      while (!stop) service.Output(Full({1, 100}, 1));
    });
    others.emplace_back([&] {
      while (!stop) ParallelInference(Plain(), {.mode = InferenceMode::kInPlace, .name = "brief"});
    });
    others.emplace_back([&] {
      while (!stop) static_cast<void>(InferenceMetricsText());
    });
  }
  for (int round = 0; round < 60; ++round) {
    const pid_t id = fork();
    ASSERT_GE(id, 0);
    if (id == 0) {
      alarm(20);
      std::_Exit(InferenceMetricsText().find("forked") == std::string::npos ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(id, &status, 0), id);
    if (status != 0) stop = true;
    EXPECT_EQ(status, 0) << "child " << round;
    if (stop) break;
  }
  stop = true;
  for (std::thread& other : others) other.join();
}

}  // namespace
}  // namespace tidepool::nn
