// Ranks that are threads, against one network with a larger batch.
#include "tidepool/nn/distributed/distributed_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/distributed/sharded_testing.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/parallel/parallel_testing.h"

namespace tidepool::nn {
namespace {

// Kernels of ranks that are threads of one process take turns on its pool.
class OneThread {
 public:
  OneThread() : pool_(1), scope_(pool_) {}

 private:
  WorkerPool pool_;
  ThreadPoolScope scope_;
};

// Examples [begin, end) of a batch.
Batch PartOfBatch(const Batch& whole, int64_t begin, int64_t end) {
  return Batch(whole.features.Slice(0, begin, end).Dup(), whole.labels.Slice(0, begin, end).Dup());
}

// What each rank of a job has at its end, to be looked at when all are done.
struct Ended {
  std::mutex mutex;
  std::vector<std::vector<double>> parameters;  // by rank
  explicit Ended(int ranks) : parameters(static_cast<size_t>(ranks)) {}
  void Take(const Communicator& communicator, const NDArray& arrays) {
    std::vector<double> values = Cast(arrays, DType::kFloat64).ToVector<double>();
    const std::lock_guard<std::mutex> lock(mutex);
    parameters[static_cast<size_t>(communicator.rank())] = std::move(values);
  }
  void ExpectSame() const {
    for (const auto& values : parameters) EXPECT_EQ(values, parameters[0]);
  }
  double LargestDifference(const NDArray& other) const {
    const std::vector<double> values = Cast(other, DType::kFloat64).ToVector<double>();
    double largest = 0;
    for (size_t i = 0; i < values.size(); ++i)
      largest = std::max(largest, std::abs(values[i] - parameters[0][i]));
    return largest;
  }
};

// In f64: in f32 rounding turns a ReLU off that the other leaves on, and the two part.
void ExpectAsOneRank(const std::string& model, UpdaterKind kind, int size, int steps,
                     int64_t bucket_bytes) {
  const NetworkOptions options{.seed = 5, .dtype = DType::kFloat64};
  Network one = NetworkOf(model, options);
  Trainer alone(one, UpdaterConfig::Of(kind));
  Batches large(4 * size, DType::kFloat64);
  double loss = 0;
  for (int i = 0; i < steps; ++i) loss += alone.Step([&] { return large(i); });
  Ended ended(size);
  ThreadRanks ranks(size);
  ranks.Run([&](Communicator& communicator) {
    const OneThread thread;
    // Rank 0's parameters are everybody's, whatever others began with.
    Network network = NetworkOf(
        model, {.seed = 5 + static_cast<uint64_t>(communicator.rank()), .dtype = DType::kFloat64});
    Trainer trainer(network, UpdaterConfig::Of(kind));
    DistributedTrainer distributed(trainer, communicator,
                                   {.bucket_bytes = bucket_bytes, .ranks = size});
    Batches small(4, DType::kFloat64);
    int64_t at = communicator.rank();
    FunctionIterator<DataSet> batches(steps, [&](int64_t i) { return small(i * size + at); });
    const DistributedPass pass = distributed.Fit(batches);
    EXPECT_EQ(pass.steps, steps);
    EXPECT_EQ(pass.examples, int64_t{4} * size * steps);
    EXPECT_NEAR(pass.loss, loss / steps, 1e-9);
    EXPECT_EQ(trainer.steps(), steps);
    ended.Take(communicator, network.arrays());
  });
  ended.ExpectSame();
  EXPECT_LT(ended.LargestDifference(one.arrays()), 1e-9) << model << " on " << size << " ranks";
}

TEST(DistributedTrainer, FourRanksEqualOneRankWithAFourTimesLargerBatchOver100Steps) {
  constexpr int kSteps = kUnderThreadSanitizer ? 4 : 100;
  ExpectAsOneRank("mlp", UpdaterKind::kAdam, 4, kSteps, 100 << 10);
  ExpectAsOneRank("lenet", UpdaterKind::kNesterovs, 4, kSteps, 1 << 20);
}

TEST(DistributedTrainer, AnyNumberOfRanksAndBuckets) {
  for (const int size : {1, 2, 3}) {
    for (const int64_t bucket_bytes : {int64_t{1}, int64_t{1} << 30})
      ExpectAsOneRank("mlp", UpdaterKind::kSgd, size, 5, bucket_bytes);
  }
}

TEST(DistributedTrainer, EveryExampleCountsAlikeAndARankMayHaveNone) {
  Network one = NetworkOf("mlp");
  Trainer alone(one, UpdaterConfig::Of(UpdaterKind::kSgd));
  const Batch whole = Batches(20)(0);
  alone.Step([&] { return PartOfBatch(whole, 0, 20); });
  alone.Step([&] { return PartOfBatch(whole, 0, 7); });
  const std::vector<std::vector<std::pair<int64_t, int64_t>>> parts = {
      {{0, 13}, {13, 14}, {14, 20}}, {{0, 7}, {7, 7}, {7, 7}}};
  Ended ended(3);
  ThreadRanks(3).Run([&](Communicator& communicator) {
    const OneThread thread;
    Network network = NetworkOf("mlp");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    DistributedTrainer distributed(trainer, communicator);
    for (const auto& step : parts) {
      const auto [begin, end] = step[static_cast<size_t>(communicator.rank())];
      const auto done = distributed.Step([&]() -> std::optional<Batch> {
        if (begin == end) return std::nullopt;
        return PartOfBatch(whole, begin, end);
      });
      ASSERT_TRUE(done.has_value());
      EXPECT_EQ(done->examples, step.back().second);
      EXPECT_EQ(done->ranks, step[1].second > step[1].first ? 3 : 1);
    }
    EXPECT_FALSE(distributed.Step([] { return std::optional<Batch>(); }).has_value());
    ended.Take(communicator, network.arrays());
  });
  ended.ExpectSame();
  EXPECT_LT(ended.LargestDifference(one.arrays()), 1e-6);
}

TEST(DistributedTrainer, RunningAveragesAreTheRanksMean) {
  std::vector<Network> alone;
  Batches batches(6);
  for (int rank = 0; rank < 2; ++rank) {
    alone.push_back(NetworkOf("residual"));
    const Batch batch = batches(rank);
    alone.back().ComputeGradients(batch.features, batch.labels);
  }
  const NDArray mean = (alone[0].beside() + alone[1].beside()) * 0.5;
  EXPECT_GT(LargestDifference(alone[0].beside(), alone[1].beside()), 1e-4);
  Ended ended(3);
  ThreadRanks(3).Run([&](Communicator& communicator) {
    const OneThread thread;
    Network network = NetworkOf("residual");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    DistributedTrainer distributed(trainer, communicator, {.bucket_bytes = 4096});
    Batches small(6);
    distributed.Step([&]() -> std::optional<Batch> {
      if (communicator.rank() == 2) return std::nullopt;
      return small(communicator.rank());
    });
    ended.Take(communicator, network.beside());
  });
  ended.ExpectSame();
  EXPECT_LT(ended.LargestDifference(mean), 1e-7);
}

TEST(DistributedTrainer, RanksDrawOtherRandomNumbers) {
  // With inputs of ones the gradient of a weight is 0 where its input was dropped.
  std::mutex mutex;
  std::vector<std::set<int>> dropped(3);
  ThreadRanks(3).Run([&](Communicator& communicator) {
    const OneThread thread;
    Network network(NetworkConfig::Sequential({64}, {DropoutLayer(0.5), Dense(2)}), {.seed = 3});
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    DistributedTrainer distributed(trainer, communicator);
    // One rank has a batch, so that the sum is its own gradient.
    for (int whose = 0; whose < 3; ++whose) {
      network.set_step(4);
      distributed.Step([&]() -> std::optional<Batch> {
        if (communicator.rank() != whose) return std::nullopt;
        return Batch(Ones({1, 64}), Zeros({1}, DType::kInt64));
      });
      EXPECT_EQ(network.step(), 5u);
      if (communicator.rank() != 0) continue;
      const std::vector<float> gradients = network.gradients().ToVector<float>();
      const std::lock_guard<std::mutex> lock(mutex);
      for (int i = 0; i < 64; ++i) {
        if (gradients[static_cast<size_t>(i)] == 0) dropped[static_cast<size_t>(whose)].insert(i);
      }
    }
  });
  EXPECT_NE(dropped[0], dropped[1]);
  EXPECT_NE(dropped[1], dropped[2]);
  EXPECT_GT(dropped[2].size(), 10u);
}

// Both before anything was sent and in the middle of the forward pass: all ranks end the step, and
// go on from what they had.
TEST(DistributedTrainer, AStepThatFailsOnOneRankChangesNothingOnAny) {
  Network one = NetworkOf("residual");
  Trainer alone(one, UpdaterConfig::Of(UpdaterKind::kSgd));
  Ended with(3), without(3);
  for (const bool fails : {true, false}) {
    ThreadRanks(3).Run([&](Communicator& communicator) {
      const OneThread thread;
      Network network = NetworkOf("residual");
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      DistributedTrainer distributed(trainer, communicator, {.bucket_bytes = 4096});
      Batches small(4);
      const auto step = [&](int64_t i) {
        distributed.Step([&] { return std::optional<Batch>(small(i * 3 + communicator.rank())); });
      };
      step(0);
      if (fails) {
        const bool mine = communicator.rank() == 1;
        const Error unmade = ErrorOf([&] {
          distributed.Step([&]() -> std::optional<Batch> {
            if (mine) ThrowDataLoss("digit.png: truncated");
            return small(communicator.rank());
          });
        });
        EXPECT_THAT(unmade, mine ? IsError(absl::StatusCode::kDataLoss, {"digit.png: truncated"})
                                 : IsError(absl::StatusCode::kAborted,
                                           {"rank 1 could not make its batch behind step 1"}));
        const Error refused = ErrorOf([&] {
          distributed.Step([&]() -> std::optional<Batch> {
            Batch batch = small(communicator.rank());
            if (mine) batch.labels = Full({4}, 77, DType::kInt64);  // of ten classes
            return batch;
          });
        });
        EXPECT_THAT(refused,
                    mine ? IsError(absl::StatusCode::kInvalidArgument, {"77"})
                         : IsError(absl::StatusCode::kAborted,
                                   {"rank 1 could not compute its gradients behind step 1"}));
        EXPECT_EQ(trainer.steps(), 1);
        // Fit says which batch of the pass it was.
        FunctionIterator<DataSet> batches(2, [&](int64_t i) {
          Batch batch = small(communicator.rank());
          if (mine && i == 0) batch.labels = Full({4}, 77, DType::kInt64);
          return batch;
        });
        EXPECT_THAT(
            ErrorOf([&] { distributed.Fit(batches); }),
            mine ? IsError(absl::StatusCode::kInvalidArgument, {"distributed: batch 0: ", "77"})
                 : IsError(absl::StatusCode::kAborted,
                           {"rank 1 could not compute its gradients behind step 1"}));
        EXPECT_EQ(trainer.steps(), 1);
      }
      step(1);
      step(2);
      (fails ? with : without).Take(communicator, network.arrays());
    });
  }
  with.ExpectSame();
  EXPECT_EQ(with.parameters, without.parameters);
}

TEST(DistributedTrainer, AStepThatALossScaleSkipsChangesNothing) {
  ThreadRanks(2).Run([&](Communicator& communicator) {
    const OneThread thread;
    Network network = NetworkOf("residual");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    trainer.set_loss_scale({.first = 0x1p120, .most = 0x1p120});
    DistributedTrainer distributed(trainer, communicator);
    const std::vector<float> before = network.arrays().ToVector<float>();
    Batches small(8);
    const auto step = distributed.Step([&]() -> std::optional<Batch> {
      Batch batch = small(communicator.rank());
      if (communicator.rank() == 1)
        batch.features *= std::numeric_limits<double>::infinity();  // of one rank alone
      return batch;
    });
    EXPECT_FALSE(step->updated);
    EXPECT_EQ(network.arrays().ToVector<float>(), before);
    EXPECT_EQ(trainer.loss_scale()->scale(), 0x1p119);
    EXPECT_EQ(network.loss_scale(), 1);
  });
}

TEST(DistributedTrainer, BytesSentAreThoseOfTheFormula) {
  for (const int size : {2, 4}) {
    std::atomic<int64_t> sent{0};
    int64_t elements = 0, buckets = 0;
    ThreadRanks(size).Run([&](Communicator& communicator) {
      const OneThread thread;
      Network network = NetworkOf("lenet");
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
      DistributedTrainer distributed(trainer, communicator, {.bucket_bytes = 256 << 10});
      Batches small(2);
      const auto step = [&] {
        distributed.Step([&] { return std::optional<Batch>(small(communicator.rank())); });
      };
      step();
      communicator.Barrier("test");
      const int64_t before = communicator.stats().bytes_sent;
      for (int i = 0; i < 3; ++i) step();
      sent += communicator.stats().bytes_sent - before;
      if (communicator.rank() != 0) return;
      elements = network.gradients().NumElements();
      buckets = distributed.buckets().count();
    });
    EXPECT_GT(buckets, 1);
    // Of all ranks together, for each of the three steps; two trees of four doubles.
    EXPECT_EQ(sent, 3 * (2 * (size - 1) * elements * 4 + 2 * 2 * (size - 1) * 32));
  }
}

TEST(DistributedTrainer, SteadyStepsTakeNoMemoryFromTheSystem) {
  ThreadRanks(2).Run([&](Communicator& communicator) {
    const OneThread thread;
    Network network = NetworkOf("lenet");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    DistributedTrainer distributed(trainer, communicator, {.bucket_bytes = 64 << 10});
    Batches small(8);
    ExpectSteady(communicator, 24, [&](int64_t i) {
      distributed.Step([&] { return std::optional<Batch>(small(2 * i + communicator.rank())); });
    });
    EXPECT_EQ(network.training_workspace().spilled_count(), 0u);
  });
}

}  // namespace
}  // namespace tidepool::nn
