// What ranks send while they compute, by the order of events: what was begun when, not how long it
// took.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/nn/distributed/delayed_transport.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {
namespace {

// What it is given; calls back when a pass comes by.
class Probe final : public Layer {
 public:
  struct Calls {
    std::function<void()> forward, backward;
  };
  explicit Probe(const Calls& calls) : calls_(calls) {}
  std::string Kind() const override { return "probe"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext& context, const NDArray& input) const override {
    if (calls_.forward && context.training) calls_.forward();
    NDArray output;
    {
      const NoGradientScope none;
      output = input.Dup();
    }
    SetGradient("probe", {&input, 1}, {&output, 1}, [this](absl::Span<const NDArray> gradients) {
      if (calls_.backward) calls_.backward();
      return std::vector<NDArray>{gradients[0].Dup()};
    });
    return output;
  }

 private:
  const Calls& calls_;
};

// Messages wait while it is closed.
class Gate {
 public:
  void Set(bool open) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      open_ = open;
    }
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};

class GatedTransport final : public Transport {
 public:
  GatedTransport(std::unique_ptr<Transport> below, Gate& gate)
      : below_(std::move(below)), gate_(gate) {}
  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  bool Run(const Exchange& exchange) override {
    gate_.Pass();
    return below_->Run(exchange);
  }
  void Interrupt() noexcept override {
    gate_.Set(true);
    below_->Interrupt();
  }

 private:
  const std::unique_ptr<Transport> below_;
  Gate& gate_;
};

int BegunOf(const Communicator& communicator, CollectiveKind kind) {
  int count = 0;
  for (const CollectiveRecord& record : communicator.Log()) count += record.kind == kind ? 1 : 0;
  return count;
}

// The communicator's thread begins what was started when it comes to it. False: it never did.
bool Eventually(const std::function<bool()>& is_so) {
  for (int i = 0; i < 20000; ++i) {
    if (is_so()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Two ranks, threads, with a gate each.
void OnTwoGatedRanks(const std::function<void(Communicator&, Gate&)>& body) {
  ThreadRanks ranks(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&ranks, &body, rank] {
      Gate gate;
      Communicator communicator(
          [&] { return std::make_unique<GatedTransport>(ranks.Open(rank), gate); });
      WorkerPool pool(1);
      const ThreadPoolScope thread(pool);
      try {
        body(communicator, gate);
        communicator.Barrier("end");
      } catch (const Error& error) {
        ADD_FAILURE() << error.message();
        communicator.Abort(error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Batch Ones(int64_t width) { return Batch(tidepool::Ones({2, width}), Zeros({2}, DType::kInt64)); }

TEST(Overlap, BucketsAreUnderWayWhileTheBackwardPassRuns) {
  OnTwoGatedRanks([](Communicator& communicator, Gate& gate) {
    Probe::Calls first, last;
    Network network(NetworkConfig::Sequential(
        {64}, {Dense(64), Probe(first), Dense(64), Dense(64), Dense(8), Probe(last)}));
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    DistributedTrainer distributed(trainer, communicator, {.bucket_bytes = 1});
    const auto step = [&] { distributed.Step([] { return std::optional<Batch>(Ones(64)); }); };
    step();  // learns the order
    RankProgress before, then;
    int begun = 0;
    last.backward = [&] {
      before = communicator.Progress();
      gate.Set(false);
    };
    first.backward = [&] {
      EXPECT_TRUE(Eventually([&] { return communicator.Progress().begun > before.begun; }));
      then = communicator.Progress();
      begun = distributed.buckets().begun();
      gate.Set(true);
    };
    step();
    // The first bucket waits at the gate, five behind it in the queue, while the backward pass has
    // come to the first layers.
    EXPECT_EQ(before.begun, before.done);
    EXPECT_EQ(then.begun, before.begun + 1);
    EXPECT_EQ(then.done, before.done);
    EXPECT_EQ(begun, 6);
    EXPECT_EQ(distributed.buckets().begun(), 8);
  });
}

TEST(Overlap, TheNextBucketIsGatheredWhileALayerComputes) {
  for (const int ahead : {0, 1, 2}) {
    OnTwoGatedRanks([ahead](Communicator& communicator, Gate&) {
      Probe::Calls second;
      // A bucket for each layer: of places 0, 1, 3, 4, 5.
      Network network(NetworkConfig::Sequential(
          {64}, {Dense(64, Activation::kIdentity, {.bias = false}),
                 Dense(64, Activation::kIdentity, {.bias = false}), Probe(second),
                 Dense(64, Activation::kIdentity, {.bias = false}),
                 Dense(64, Activation::kIdentity, {.bias = false}),
                 Dense(8, Activation::kIdentity, {.bias = false})}));
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
      DistributedTrainer distributed(
          trainer, communicator,
          {.bucket_bytes = 1, .shard_parameters = true, .gather_ahead = ahead});
      int forward = 0, sums = 0, again = 0;
      second.forward = [&] {
        EXPECT_TRUE(Eventually(
            [&] { return BegunOf(communicator, CollectiveKind::kAllGather) >= 2 + ahead; }));
        forward = BegunOf(communicator, CollectiveKind::kAllGather);
      };
      second.backward = [&] {
        // Behind the three layers at the end, whose last one was not gathered again.
        const int expected = 5 + 2 + std::min(ahead, 2);
        EXPECT_TRUE(Eventually([&] {
          return BegunOf(communicator, CollectiveKind::kAllGather) >= expected &&
                 BegunOf(communicator, CollectiveKind::kReduceScatter) >= 3;
        }));
        again = BegunOf(communicator, CollectiveKind::kAllGather);
        sums = BegunOf(communicator, CollectiveKind::kReduceScatter);
      };
      distributed.Step([] { return std::optional<Batch>(Ones(64)); });
      EXPECT_EQ(forward, 2 + ahead);
      EXPECT_EQ(again, 5 + 2 + std::min(ahead, 2));
      EXPECT_EQ(sums, 3);
      EXPECT_EQ(BegunOf(communicator, CollectiveKind::kAllGather), 5 + 4);
      EXPECT_EQ(BegunOf(communicator, CollectiveKind::kReduceScatter), 5);
    });
  }
}

TEST(DelayedTransport, HoldsEachMessageBackByItsBytes) {
  constexpr LinkCost kDelay{100e-6, 1e-9};
  ThreadRanks ranks(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&ranks, kDelay, rank] {
      DelayedTransport* transport = nullptr;
      Communicator communicator([&] {
        auto made = std::make_unique<DelayedTransport>(ranks.Open(rank), kDelay);
        transport = made.get();
        return made;
      });
      std::vector<float> values(30000, static_cast<float>(rank + 1));
      communicator.AllReduce(absl::MakeSpan(values), "test");
      EXPECT_THAT(values, testing::Each(6.0f));
      const CommunicatorStats stats = communicator.stats();
      EXPECT_GT(stats.messages_sent, 0);
      EXPECT_NEAR(transport->seconds(),
                  kDelay.alpha * static_cast<double>(stats.messages_sent) +
                      kDelay.beta * static_cast<double>(stats.bytes_sent),
                  1e-12);
      communicator.Barrier("end");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DelayedTransport, IsLeftWhenItIsInterruptedAndRefusesWhatIsNoDelay) {
  ThreadRanks ranks(2);
  const auto open = [&](int rank, const LinkCost& delay) {
    return std::make_unique<DelayedTransport>(ranks.Open(rank), delay);
  };
  for (const LinkCost& delay : {LinkCost{-1, 0}, LinkCost{0, std::nan("")}}) {
    EXPECT_EQ(ErrorOf([&] { open(0, delay); }).code(), absl::StatusCode::kInvalidArgument);
  }
  // An hour for the first message.
  Communicator communicator([&] { return open(0, {3600, 0}); });
  float value = 1;
  Pending pending;
  communicator.Start(CollectiveKind::kAllReduce, absl::MakeSpan(&value, 1), pending, "test");
  communicator.Abort(Error(absl::StatusCode::kUnavailable, "rank 1 is gone"));
  EXPECT_THAT(ErrorOf([&] { pending.Wait(); }),
              IsError(absl::StatusCode::kUnavailable, {"rank 1 is gone"}));
}

}  // namespace
}  // namespace tidepool::nn
