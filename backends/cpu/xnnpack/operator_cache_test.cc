#include "tidepool/backends/cpu/xnnpack/operator_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cpu/xnnpack/operators.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/kept_operands.h"

namespace tidepool::cpu {
namespace {

using Key = XnnpackOperators::Key;
using Weights = XnnpackOperators::Weights;
using Versions = XnnpackOperators::Versions;

int64_t now = 0;

int64_t Kept() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kExternal); }

class OperatorCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!XnnpackIsUsable()) GTEST_SKIP() << XnnpackDescription();
    cache_.Clear();
    now = 1000;
    cache_.SetClockForTesting([] { return now; });
  }
  void TearDown() override {
    cache_.Clear();
    cache_.SetClockForTesting(nullptr);
  }

  static Key KeyOf(uint64_t filter) { return {1, {filter, 64 * filter, 0, 0}, {kSize, kSize}}; }
  void Use(uint64_t filter, Versions versions = {1, 0}) {
    Use(filter, versions, [](xnn_operator_t op) {
      std::vector<float> x(kSize + XNN_EXTRA_BYTES, 1.0f), z(kSize);
      const xnn_status status = RunFullyConnected(op, 1, x.data(), z.data());
      EXPECT_EQ(z[kSize - 1], kSize);
      return status;
    });
  }
  void Use(uint64_t filter, Versions versions, absl::FunctionRef<xnn_status(xnn_operator_t)> use) {
    cache_.With(
        KeyOf(filter), versions, "test",
        [&](xnn_operator_t* op) {
          ++made_;
          const std::vector<float> ones(kSize * kSize, 1.0f);
          return CreateFullyConnected(kSize, kSize, kSize, ones.data(), nullptr,
                                      -std::numeric_limits<float>::infinity(), 0, op);
        },
        use);
  }

  static constexpr size_t kSize = 64;
  XnnpackOperators& cache_ = XnnpackOperators::Global();
  std::atomic<int> made_{0};
};

TEST_F(OperatorCacheTest, ThousandsOfLayersArePackedOnce) {
  for (int round = 0; round < 3; ++round) {
    for (uint64_t layer = 1; layer <= 2000; ++layer) Use(layer);
  }
  EXPECT_EQ(made_, 2000);
  EXPECT_EQ(cache_.size(), 2000u);
  EXPECT_GT(Kept(), 2000 * static_cast<int64_t>(kSize * kSize * sizeof(float)));
}

TEST_F(OperatorCacheTest, CallsAtTheSameTimeHaveOneEachAndKeepThem) {
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> inside = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        Use(1, {1, 0}, [&](xnn_operator_t) {
          ++inside;
          while (inside < 3) std::this_thread::yield();  // for ever, where one waits for another
          return xnn_status_success;
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(made_, 3);
  EXPECT_EQ(cache_.size(), 3u);
}

// At once, where their owner says so; packed weights of networks that were gone stayed for a minute, and then until
// something new was packed.
TEST_F(OperatorCacheTest, WhatWasPackedGoesWithTheWeights) {
  Use(1);
  const int64_t one = Kept();
  Use(2);
  const Weights weights{2, 128, 3, 64};
  EXPECT_TRUE(cache_.Remember(weights, {1, 1}, 4, [] { return true; }));
  EXPECT_EQ(cache_.answers(), 1u);
  ForgetKeptOperand(3);
  EXPECT_EQ(cache_.answers(), 0u);
  EXPECT_EQ(cache_.size(), 2u);
  ForgetKeptOperand(2);
  EXPECT_EQ(cache_.size(), 1u);
  EXPECT_EQ(Kept(), one);
  // What runs goes when it is done, and is made again if it is wanted.
  Use(1, {1, 0}, [&](xnn_operator_t) {
    ForgetKeptOperand(1);
    EXPECT_EQ(cache_.size(), 0u);
    Use(1);
    return xnn_status_success;
  });
  EXPECT_EQ(cache_.size(), 1u);
  EXPECT_EQ(Kept(), one);
  EXPECT_EQ(made_, 3);
}

TEST_F(OperatorCacheTest, WrittenWeightsArePackedAnewAndTheOldGo) {
  const int64_t before = Kept();
  Use(1, {1, 0});
  const int64_t one = Kept() - before;
  for (uint64_t version = 2; version < 50; ++version) Use(1, {version, version % 3});
  EXPECT_EQ(made_, 49);
  EXPECT_EQ(cache_.size(), 1u);
  EXPECT_EQ(Kept() - before, one);
  // One that still runs on the old ones deletes them when it ends.
  Use(1, {60, 0}, [&](xnn_operator_t) {
    Use(1, {61, 0});
    return xnn_status_success;
  });
  EXPECT_EQ(cache_.size(), 1u);
  EXPECT_EQ(Kept() - before, one);
}

TEST_F(OperatorCacheTest, WhatWasNotUsedForAMinuteGoesWhenSomethingIsPacked) {
  for (uint64_t layer = 1; layer <= 10; ++layer) Use(layer);
  now += XnnpackOperators::kKeptSeconds;
  Use(1);
  now += XnnpackOperators::kKeptSeconds;
  Use(1);  // nothing is packed
  EXPECT_EQ(cache_.size(), 10u);
  Use(100);
  EXPECT_EQ(cache_.size(), 2u);
  EXPECT_EQ(made_, 11);
}

TEST_F(OperatorCacheTest, TheReclaimerTakesAllThatDoNotRun) {
  Use(1);
  Use(2, {1, 0}, [&](xnn_operator_t) {
    std::thread([&] { cache_.Reclaim(ReclaimDepth::kIdle); }).join();
    EXPECT_EQ(cache_.size(), 1u);
    return xnn_status_success;
  });
  Use(2);
  EXPECT_EQ(made_, 2);
}

TEST_F(OperatorCacheTest, ErrorsLeaveItUsable) {
  EXPECT_THROW(
      cache_.With(
          KeyOf(1), {1, 0}, "test", [](xnn_operator_t*) { return xnn_status_invalid_parameter; },
          [](xnn_operator_t) { return xnn_status_success; }),
      Error);
  EXPECT_EQ(cache_.size(), 0u);
  EXPECT_THROW(Use(1, {1, 0}, [](xnn_operator_t) { return xnn_status_invalid_state; }), Error);
  EXPECT_EQ(cache_.size(), 1u);
  Use(1);
  EXPECT_EQ(made_, 1);
  EXPECT_THROW(Use(2, {1, 0}, [](xnn_operator_t) { return xnn_status_out_of_memory; }),
               OutOfMemoryError);
}

TEST_F(OperatorCacheTest, AnswersAreKeptUntilTheWeightsChange) {
  int asked = 0;
  const auto answer = [&](uint64_t filter, uint64_t version, bool is) {
    return cache_.Remember({filter, 1, 0, 0}, {version, 0}, 10, [&] { return ++asked, is; });
  };
  for (int round = 0; round < 3; ++round) {
    for (uint64_t filter = 1; filter <= 1000; ++filter)
      EXPECT_EQ(answer(filter, 1, filter % 2 == 0), filter % 2 == 0);
  }
  EXPECT_EQ(asked, 1000);
  EXPECT_TRUE(answer(1, 2, true));
  EXPECT_TRUE(answer(1, 2, false));
  EXPECT_EQ(asked, 1001);
  EXPECT_EQ(cache_.answers(), 1000u);
  now += XnnpackOperators::kKeptSeconds + 1;
  EXPECT_TRUE(answer(5000, 1, true));
  EXPECT_EQ(cache_.answers(), 1u);
}

std::atomic<bool> is_within = false;  // the cache's lock

// The clock is read under the lock.
TEST_F(OperatorCacheTest, AForkWaitsForTheLock) {
  Use(1);
  cache_.SetClockForTesting([] {
    is_within = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // in which the child is made
    return now;
  });
  std::thread other([&] { Use(1); });
  while (!is_within) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    cache_.SetClockForTesting([] { return now; });
    Use(1);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  other.join();
}

}  // namespace
}  // namespace tidepool::cpu
