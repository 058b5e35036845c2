// Requests of many threads against the network asked alone.
#include "tidepool/nn/parallel/parallel_inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/parallel/inference_testing.h"

namespace tidepool::nn {
namespace {

using namespace std::chrono_literals;  // NOLINT

NDArray Expected(const Network& network, const NDArray& x) { return network.Run({x})[0]; }

void ExpectNear(const NDArray& found, const NDArray& expected) {
  ASSERT_EQ(found.shape(), expected.shape());
  const std::vector<float> x = found.ToVector<float>(), y = expected.ToVector<float>();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-5);
}

TEST(ParallelInferenceTest, Nd4jCase138EveryModeGivesTheNetworksOutputsDetached) {
  const auto network = Plain();
  for (const InferenceMode mode :
       {InferenceMode::kBatched, InferenceMode::kSequential, InferenceMode::kInPlace}) {
    for (const int workers : {1, 2, 3}) {
      for (const int64_t limit : {1, 5, 32}) {
        ParallelInference service(network,
                                  {.mode = mode, .workers = workers, .batch_limit = limit});
        std::vector<std::thread> clients;
        for (int client = 0; client < 4; ++client) {
          clients.emplace_back([&, client] {
            for (int i = 0; i < 12; ++i) {
              const NDArray x = RandomUniform({1 + (client + i) % 4, 100}, 0, 1,
                                              static_cast<uint64_t>(100 * client + i));
              const NDArray y = service.Output(x);
              EXPECT_FALSE(y.IsAttached());
              ExpectNear(y, Expected(*network, x));
            }
          });
        }
        for (std::thread& client : clients) client.join();
        const ParallelInferenceStats stats = service.stats();
        EXPECT_EQ(stats.requests, 48);
        EXPECT_EQ(stats.failed + stats.expired + stats.refused + stats.waiting + stats.running, 0);
        EXPECT_LE(stats.batches, 48);
        EXPECT_EQ(mode == InferenceMode::kBatched ? 48 : stats.batches, 48);
        EXPECT_LE(stats.largest_batch, std::max<int64_t>(4, limit));
      }
    }
  }
}

TEST(ParallelInferenceTest, ResultsLieInTheCallersPlace) {
  ParallelInference service(Plain());
  Workspace workspace("caller");
  const WorkspaceScope scope(workspace);
  const NDArray x = Ones({2, 100}), y = service.Output(x);
  EXPECT_TRUE(x.IsAttached());
  EXPECT_TRUE(y.IsAttached());
  ExpectNear(y, Expected(*service.network(), x));
}

TEST(ParallelInferenceTest, Nd4jCase139WhatWaitsIsComputedTogetherUpToTheLimit) {
  Gate gate;
  ParallelInference service(Gated(gate), {.workers = 1, .batch_limit = 8});
  gate.Close();
  std::vector<std::thread> clients;
  const auto ask = [&](int64_t rows, uint64_t seed) {
    clients.emplace_back([&service, rows, seed] {
      const NDArray x = RandomUniform({rows, 100}, 0, 1, seed);
      const NDArray y = service.Output(x);
      EXPECT_EQ(y.shape(), Shape({rows, 7}));
    });
  };
  ask(1, 1);
  gate.AwaitInside(1);
  const int64_t rows[] = {1, 3, 5, 4, 20, 2};
  for (int i = 0; i < 6; ++i) {
    ask(rows[i], static_cast<uint64_t>(i));
    AwaitWaiting(service, i + 1);
  }
  // A network takes one shape: whoever asks for another is told at once, and what waits is as before.
  EXPECT_THAT(ErrorOf([&] {
                service.Output(Ones({3, 72, 72}));
              }),
              IsError(absl::StatusCode::kInvalidArgument, {"[3, 72, 72]", "[100]"}));
  EXPECT_EQ(service.stats().waiting, 6);
  gate.Open();
  for (std::thread& client : clients) client.join();
  // The oldest first, and what fits beside it: 1 + 3 + 4; 5 + 2; 20 is a batch of its own.
  EXPECT_THAT(gate.batches(), ::testing::ElementsAre(1, 8, 7, 20));
  EXPECT_EQ(service.stats().batches, 4);
  EXPECT_EQ(service.stats().largest_batch, 20);
}

// What requests to one network may differ in: whether they have a mask. Others wait meanwhile, and are
// not overtaken by what comes behind them.
TEST(ParallelInferenceTest, Nd4jCase139RequestsThatDoNotFitTogetherAreBatchesOfTheirOwn) {
  Gate gate;
  const auto network = std::make_shared<const Network>(
      NetworkConfig::Sequential({6, 4},
                                {GateLayer(&gate), Lstm(5, {.output = RecurrentOutput::kLast})}),
      NetworkOptions{.seed = 1});
  ParallelInference service(network, {.workers = 1, .batch_limit = 8});
  gate.Close();
  std::vector<std::thread> clients;
  std::vector<ParallelInference::Request> requests(6);
  std::vector<NDArray> found(6);
  for (size_t i = 0; i < 6; ++i) {
    const auto rows = static_cast<int64_t>(i) + 1;
    requests[i].inputs = {RandomUniform({rows, 6, 4}, 0, 1, i)};
    if (i % 2 == 1) requests[i].masks = {RandomIntegers({rows, 6}, 0, 2, i) != 0};
    clients.emplace_back([&, i] { found[i] = service.Run(requests[i])[0]; });
    if (i == 0) {
      gate.AwaitInside(1);
    } else {
      AwaitWaiting(service, static_cast<int64_t>(i));
    }
  }
  gate.Open();
  for (std::thread& client : clients) client.join();
  // Masked, 2 + 4 and no room for 6; then 3 + 5 without; then 6.
  EXPECT_THAT(gate.batches(), ::testing::ElementsAre(1, 6, 8, 6));
  for (size_t i = 0; i < 6; ++i) {
    Network::RunOptions options;
    options.masks = requests[i].masks;
    ExpectNear(found[i], network->Run(requests[i].inputs, options)[0]);
  }
}

TEST(ParallelInferenceTest, Nd4jCases139And142MaskedRequestsAreComputedApartFromOthers) {
  const auto network = std::make_shared<const Network>(
      NetworkConfig::Sequential({6, 4}, {Lstm(5, {.output = RecurrentOutput::kLast})}),
      NetworkOptions{.seed = 1});
  ParallelInference service(network, {.workers = 1});
  std::vector<std::thread> clients;
  for (int client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 20; ++i) {
        ParallelInference::Request request{
            {RandomUniform({2, 6, 4}, -1, 1, static_cast<uint64_t>(client + 10 * i))}, {}, {}};
        if (client % 2 == 0)
          request.masks = {RandomIntegers({2, 6}, 0, 2, static_cast<uint64_t>(i)) != 0};
        Network::RunOptions options;
        options.masks = request.masks;
        ExpectNear(service.Run(request)[0], network->Run(request.inputs, options)[0]);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(service.stats().requests, 120);
}

TEST(ParallelInferenceTest, Nd4jCase141OnlyTheBadRequestOfABatchFails) {
  Gate gate;
  ParallelInference service(Gated(gate), {.workers = 1});
  gate.Close();
  std::atomic<int> refused = 0, answered = 0;
  std::vector<std::thread> clients;
  const auto ask = [&](double value) {
    clients.emplace_back([&, value] {
      try {
        service.Output(Full({1, 100}, value));
        ++answered;
      } catch (const Error& error) {
        EXPECT_THAT(error, IsError(absl::StatusCode::kInvalidArgument, {"a negative element"}));
        ++refused;
      }
    });
  };
  ask(1);
  gate.AwaitInside(1);
  for (int i = 0; i < 5; ++i) ask(i == 2 ? -1 : 1);
  AwaitWaiting(service, 5);
  gate.Open();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(answered, 5);
  EXPECT_EQ(service.stats().failed, 1);
  EXPECT_THAT(ErrorOf([&] {
                service.Output(Ones({1, 99}));
              }),
              IsError(absl::StatusCode::kInvalidArgument, {"[1, 99]"}));
  EXPECT_THAT(ErrorOf([&] {
                service.Output(Ones({0, 100}));
              }),
              IsError(absl::StatusCode::kInvalidArgument, {"no examples"}));
  EXPECT_THAT(ErrorOf([&] { service.Output(NDArray()); }),
              IsError(absl::StatusCode::kInvalidArgument, {"undefined"}));
  EXPECT_THAT(ErrorOf([&] {
                service.Run({{Ones({1, 100})}, {Ones({2, 3})}, {}});
              }),
              IsError(absl::StatusCode::kInvalidArgument, {"mask 0", "[2, 3]"}));
  service.Output(Ones({1, 100}));
}

TEST(ParallelInferenceTest, AFullQueueRefusesOrWaitsAndDeadlinesEndWhatWaits) {
  for (const WhenFull when_full : {WhenFull::kRefuse, WhenFull::kWait}) {
    Gate gate;
    ParallelInference service(Gated(gate),
                              {.workers = 1, .queue_limit = 2, .when_full = when_full});
    gate.Close();
    const NDArray x = Ones({1, 100});
    std::vector<std::thread> clients;
    clients.emplace_back([&] { service.Output(x); });
    gate.AwaitInside(1);
    for (int i = 0; i < 2; ++i) clients.emplace_back([&] { service.Output(x); });
    AwaitWaiting(service, 2);
    const auto late = [&] { service.Run({{x}, {}, 20ms}); };
    if (when_full == WhenFull::kRefuse) {
      EXPECT_THAT(ErrorOf(late),
                  IsError(absl::StatusCode::kResourceExhausted, {"2 requests wait"}));
      EXPECT_EQ(service.stats().refused, 1);
    } else {
      EXPECT_THAT(ErrorOf(late), IsError(absl::StatusCode::kDeadlineExceeded, {"no room among 2"}));
      EXPECT_EQ(service.stats().expired, 1);
      clients.emplace_back([&] { service.Output(x); });  // waits for room as long as it takes
    }
    gate.Open();
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(service.stats().requests, when_full == WhenFull::kRefuse ? 3 : 4);
    // One that waits in the queue; one that has begun is finished.
    gate.Close();
    std::thread begun([&] { EXPECT_EQ(service.Run({{x}, {}, 20ms})[0].dim(0), 1); });
    gate.AwaitInside(1);
    EXPECT_THAT(ErrorOf(late),
                IsError(absl::StatusCode::kDeadlineExceeded, {"no worker was free"}));
    EXPECT_EQ(service.stats().waiting, 0);
    gate.Open();
    begun.join();
  }
}

TEST(ParallelInferenceTest, Nd4jCase143AnUpdateTakesEffectForAllRequestsBehindIt) {
  const auto first = Plain(1), second = Plain(2);
  const NDArray x = RandomUniform({1, 100}, 0, 1, 9), of_first = Expected(*first, x),
                of_second = Expected(*second, x);
  for (const InferenceMode mode : {InferenceMode::kBatched, InferenceMode::kInPlace}) {
    ParallelInference service(first, {.mode = mode, .workers = 3});
    std::atomic<bool> stop = false;
    std::vector<std::thread> clients;
    for (int client = 0; client < 3; ++client) {
      clients.emplace_back([&] {
        while (!stop) {
          const std::vector<float> y = service.Output(x).ToVector<float>();
          const bool is_first = std::abs(y[0] - of_first.ToVector<float>()[0]) < 1e-5;
          const bool is_second = std::abs(y[0] - of_second.ToVector<float>()[0]) < 1e-5;
          EXPECT_NE(is_first, is_second);
        }
      });
    }
    for (int i = 0; i < 20; ++i) {
      const bool now = i % 2 == 0;
      service.UpdateModel(now ? second : first);
      ExpectNear(service.Output(x), now ? of_second : of_first);
    }
    stop = true;
    for (std::thread& client : clients) client.join();
    const auto other =
        std::make_shared<Network>(NetworkConfig::Sequential({99}, {Dense(7)}), NetworkOptions());
    EXPECT_THAT(ErrorOf([&] { service.UpdateModel(other); }),
                IsError(absl::StatusCode::kInvalidArgument, {"[99]", "same inputs"}));
    EXPECT_THAT(ErrorOf([&] { service.UpdateModel(nullptr); }),
                IsError(absl::StatusCode::kInvalidArgument, {"no network"}));
  }
  EXPECT_EQ(first.use_count(), 1);  // replaced networks go
}

TEST(ParallelInferenceTest, ShutdownAnswersWhatWaitsAndRefusesWhatComes) {
  Gate gate;
  ParallelInference service(Gated(gate), {.workers = 2, .batch_limit = 1});
  gate.Close();
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&] {
      service.Output(Ones({1, 100}));
      ++answered;
    });
  }
  gate.AwaitInside(2);
  AwaitWaiting(service, 6);
  std::thread ends([&] { service.Shutdown(); });
  while (true) {  // until the shutdown has begun
    try {
      service.Run({{Ones({1, 100})}, {}, 1ms});
    } catch (const Error& error) {
      if (error.code() == absl::StatusCode::kFailedPrecondition) break;
    }
  }
  gate.Open();
  ends.join();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 8);
  service.Shutdown();
  EXPECT_THAT(ErrorOf([&] {
                service.Output(Ones({1, 100}));
              }),
              IsError(absl::StatusCode::kFailedPrecondition, {"after Shutdown"}));
}

TEST(ParallelInferenceTest, ThousandsOfRequestsOfMixedSizesHoldFlatMemory) {
  ParallelInference service(Plain(), {.workers = 2});
  uint64_t plans = 0;
  for (int round = 0; round < 6; ++round) {
    std::vector<std::thread> clients;
    for (int client = 0; client < 3; ++client) {
      clients.emplace_back([&, client] {
        Workspace own("client");
        for (int i = 0; i < 500; ++i) {
          const WorkspaceScope scope(own);
          const NDArray x = Ones({1 + (i + client) % 5, 100});
          service.Output(x);
        }
      });
    }
    for (std::thread& client : clients) client.join();
    // What a pool of such small cycles may hold (workspace_pool.h); inputs and outputs kept would
    // be 20 MiB in all.
    EXPECT_LE(service.workspaces().stats().held_bytes, size_t{8} << 20);
    if (round == 2) plans = service.workspaces().stats().plans;
  }
  EXPECT_LE(service.workspaces().stats().plans, plans + 15);
  EXPECT_EQ(service.workspaces().stats().leaked_arrays, 0u);
  EXPECT_EQ(service.stats().requests, 9000);
}

TEST(ParallelInferenceTest, RefusesWhatCannotBe) {
  EXPECT_THAT(ErrorOf([] { ParallelInference(nullptr); }),
              IsError(absl::StatusCode::kInvalidArgument, {"no network"}));
  for (const ParallelInferenceConfig& config :
       {ParallelInferenceConfig{.workers = 0}, ParallelInferenceConfig{.batch_limit = 0},
        ParallelInferenceConfig{.queue_limit = -1},
        ParallelInferenceConfig{.threads_of_worker = 0}}) {
    EXPECT_THAT(ErrorOf([&] { ParallelInference(Plain(), config); }),
                IsError(absl::StatusCode::kInvalidArgument, {"at least 1 of each"}));
  }
  EXPECT_THAT(ErrorOf([] { ParallelInference(Plain(), {.deadline = 0ns}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"deadline of 0 ns"}));
  EXPECT_THAT(
      ErrorOf([] { ParallelInference(Plain(), {.mode = InferenceMode::kInPlace, .workers = -1}); }),
      IsError(absl::StatusCode::kInvalidArgument, {"workers -1", "workers in place 0"}));
  ParallelInference(Plain(), {.mode = InferenceMode::kInPlace, .workers = 0})
      .Output(Ones({1, 100}));
  ParallelInference service(Plain(), {.deadline = std::chrono::nanoseconds::max()});
  service.Output(Ones({1, 100}));
}

}  // namespace
}  // namespace tidepool::nn
