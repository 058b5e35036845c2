// What waits, for how long and at whose cost, and what a batch may own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/parallel/inference_testing.h"
#include "tidepool/nn/parallel/parallel_inference.h"

namespace tidepool::nn {
namespace {

using namespace std::chrono_literals;  // NOLINT
using ::testing::HasSubstr;

TEST(InferenceLimitsTest, ARequestSaysWhetherItWaitsForRoomAndIsNotOvertaken) {
  Gate gate;
  ParallelInference service(Gated(gate),
                            {.workers = 1, .batch_limit = 1, .queue_limit = 1, .name = "limited"});
  gate.Close();
  const NDArray x = Ones({1, 100});
  std::vector<std::thread> clients;
  clients.emplace_back([&] { service.Output(x); });
  gate.AwaitInside(1);
  clients.emplace_back([&] { service.Output(x); });
  AwaitWaiting(service, 1);
  const auto refused = [&] { service.Run({{x}, {}, {}, WhenFull::kRefuse}); };
  EXPECT_THROW(refused(), QueueFullError);
  EXPECT_THAT(ErrorOf(refused), IsError(absl::StatusCode::kResourceExhausted,
                                        {"limited: 1 requests wait, of 1, and 0 for room"}));
  // Two that wait for room, as the configuration has it, are before whoever does not.
  for (int i = 0; i < 2; ++i) clients.emplace_back([&] { service.Output(x); });
  while (ErrorOf(refused).message().find("limited: 1 requests wait, of 1, and 2 ") ==
         std::string::npos) {
    std::this_thread::sleep_for(1ms);
  }
  gate.Open();
  for (std::thread& client : clients) client.join();
  refused();  // is served now
  EXPECT_EQ(service.stats().requests, 5);
  EXPECT_EQ(service.stats().waiting, 0);
}

// Each batch is one request: two rows of one that does not wait for room, one of those that do.
TEST(InferenceLimitsTest, RoomThatBecomesFreeIsForThoseWhoWaitForIt) {
  Gate gate;
  ParallelInference service(Gated(gate), {.workers = 1, .batch_limit = 1, .queue_limit = 1});
  gate.Close();
  std::vector<std::thread> waiting;
  for (int i = 0; i < 50; ++i) {
    waiting.emplace_back([&] { service.Output(Ones({1, 100})); });
    if (i == 0) gate.AwaitInside(1);
    if (i == 1) AwaitWaiting(service, 1);  // the others wait for room
  }
  const auto refused = [&] {
    return std::string(ErrorOf([&] {
                         service.Run({{Ones({2, 100})}, {}, {}, WhenFull::kRefuse});
                       }).message());
  };
  while (refused().find("1 requests wait, of 1, and 48 ") == std::string::npos) continue;
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      for (bool is_in = false; !is_in;) {
        try {
          service.Run({{Ones({2, 100})}, {}, {}, WhenFull::kRefuse});
          is_in = true;
        } catch (const QueueFullError&) {
        }
      }
    });
  }
  gate.Open();
  for (std::thread& thread : waiting) thread.join();
  for (std::thread& thread : others) thread.join();
  const std::vector<int64_t> batches = gate.batches();
  ASSERT_EQ(batches.size(), 53u);
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(batches[i], 1) << i;
}

TEST(InferenceLimitsTest, SizesOfBatchesAreCounted) {
  ParallelInference service(Plain(), {.workers = 1, .batch_limit = 1});
  for (const int64_t rows : {1, 1, 2, 3, 4, 5, 8, 9, 65536, 65537}) {
    service.Output(Ones({rows, 100}));
  }
  const auto sizes = service.stats().batches_by_size;
  EXPECT_THAT(std::vector<int64_t>(sizes.begin(), sizes.begin() + 5),
              ::testing::ElementsAre(2, 1, 2, 2, 1));
  EXPECT_EQ(sizes.back(), 2);
  EXPECT_EQ(service.stats().batch_examples, 33 + 65536 + 65537);
}

TEST(InferenceLimitsTest, ShutdownAnswersWhoWaitsForRoomToo) {
  Gate gate;
  ParallelInference service(Gated(gate), {.workers = 2, .batch_limit = 1, .queue_limit = 1});
  gate.Close();
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      service.Output(Ones({1, 100}));
      ++answered;
    });
  }
  gate.AwaitInside(2);
  // Else it would itself be who waits. Behind the workers nobody leaves the queue.
  AwaitWaiting(service, 1);
  const auto refused = [&] {
    return std::string(ErrorOf([&] {
                         service.Run({{Ones({1, 100})}, {}, {}, WhenFull::kRefuse});
                       }).message());
  };
  while (refused().find(": 1 requests wait, of 1, and 9 for room") == std::string::npos) continue;
  std::thread shuts([&] { service.Shutdown(); });
  while (refused().find("after Shutdown") == std::string::npos) continue;
  gate.Open();
  for (std::thread& client : clients) client.join();
  shuts.join();
  EXPECT_EQ(answered, 12);
  EXPECT_EQ(service.stats().waiting, 0);
}

TEST(InferenceLimitsTest, CancelEndsWhatWaitsWithoutComputingIt) {
  Gate gate;
  ParallelInference service(Gated(gate), {.workers = 1, .batch_limit = 1, .queue_limit = 3});
  gate.Close();
  std::atomic<int> answered = 0, cancelled = 0;
  std::vector<std::thread> clients;
  const auto ask = [&] {
    try {
      service.Output(Ones({1, 100}));
      ++answered;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kCancelled) << error.message();
      ++cancelled;
    }
  };
  clients.emplace_back(ask);
  gate.AwaitInside(1);
  for (int i = 0; i < 5; ++i) clients.emplace_back(ask);  // two of them for room
  AwaitWaiting(service, 3);
  service.Cancel();
  while (cancelled < 5) std::this_thread::sleep_for(1ms);  // though nothing more is computed
  EXPECT_EQ(answered, 0);
  gate.Open();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 1);
  ask();
  EXPECT_EQ(cancelled, 6);
  service.Shutdown();
  service.Cancel();
  EXPECT_EQ(gate.batches().size(), 1u);
  EXPECT_EQ(service.stats().waiting, 0);
}

TEST(InferenceLimitsTest, ABatchOwnsNoMoreThanItsBudgetAndTheNextIsComputed) {
  for (const InferenceMode mode :
       {InferenceMode::kBatched, InferenceMode::kSequential, InferenceMode::kInPlace}) {
    ParallelInference service(Plain(),
                              {.mode = mode, .workers = 2, .budget_bytes = 4096, .name = "frugal"});
    for (int i = 0; i < 5; ++i) {
      EXPECT_THAT(ErrorOf([&] {
                    service.Output(Ones({100, 100}));
                  }),
                  IsError(absl::StatusCode::kResourceExhausted, {"exceed a budget"}));
      EXPECT_EQ(service.Output(Ones({4, 100})).dim(0), 4);
    }
    EXPECT_THROW(service.Output(Ones({100, 100})), Error);
    EXPECT_EQ(service.stats().failed, 6);
    EXPECT_EQ(service.stats().requests, 5);
    std::ostringstream tree;
    NDManager::System().DebugDump(tree);
    EXPECT_THAT(tree.str(), HasSubstr("frugal"));
    EXPECT_THAT(tree.str(), HasSubstr(mode == InferenceMode::kInPlace ? "in place" : "worker 2"));
    EXPECT_THAT(tree.str(), ::testing::Not(HasSubstr("batch")));
  }
}

// Those that fit alone are answered where they do not fit together.
TEST(InferenceLimitsTest, RequestsThatTogetherExceedTheBudgetAreComputedAlone) {
  Gate gate;
  ParallelInference service(Gated(gate), {.workers = 1, .budget_bytes = 2048});
  gate.Close();
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  const auto ask = [&] {
    service.Output(Ones({1, 100}));
    ++answered;
  };
  clients.emplace_back(ask);
  gate.AwaitInside(1);
  for (int i = 0; i < 8; ++i) clients.emplace_back(ask);
  AwaitWaiting(service, 8);
  gate.Open();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 9);
  EXPECT_EQ(service.stats().failed, 0);
  EXPECT_THAT(ErrorOf([] { ParallelInference(Plain(), {.budget_bytes = -1}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"budget_bytes -1"}));
}

// Calls what a test says.
class CallingLayer final : public Layer {
 public:
  explicit CallingLayer(std::function<void()>* call) : call_(call) {}
  std::string Kind() const override { return "test_calling"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& x) const override {
    (*call_)();
    return x;
  }

 private:
  std::function<void()>* call_;
};

TEST(InferenceLimitsTest, ShutdownByWhoComputesARequestIsAnError) {
  for (const InferenceMode mode : {InferenceMode::kBatched, InferenceMode::kInPlace}) {
    std::function<void()> call = [] {};
    const auto network = std::make_shared<Network>(
        NetworkConfig::Sequential({100}, {CallingLayer(&call), Dense(7)}));
    ParallelInference service(network, {.mode = mode, .workers = 1, .name = "itself"});
    ParallelInference other(Plain(), {.mode = mode, .workers = 1});
    const NDArray x = Ones({1, 100});
    call = [&] { service.Shutdown(); };
    EXPECT_THAT(ErrorOf([&] { service.Output(x); }),
                IsError(absl::StatusCode::kFailedPrecondition,
                        {"itself: Shutdown by a thread that computes one of its requests"}));
    call = [&] {
      other.Output(x);
      other.Shutdown();
    };
    service.Output(x);
    EXPECT_EQ(ErrorOf([&] { other.Output(x); }).code(), absl::StatusCode::kFailedPrecondition);
    service.Shutdown();
    EXPECT_EQ(ErrorOf([&] { service.Output(x); }).code(), absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace tidepool::nn
