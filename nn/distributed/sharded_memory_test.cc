// What parameters in parts take of memory and of links, by the ledger and by counts.
#include "tidepool/nn/distributed/sharded_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/sharded_testing.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/parallel/parallel_testing.h"

namespace tidepool::nn {
namespace {

// A chain of equal layers, in a bucket each.
constexpr int kLayers = 64, kWidth = 192;
constexpr int64_t kLayerBytes = (int64_t{kWidth} * kWidth + kWidth) * 4;

Network Deep(bool hosted) {
  std::vector<AnyLayer> layers;
  for (int i = 0; i + 1 < kLayers; ++i) layers.push_back(Dense(kWidth, Activation::kTanh));
  layers.push_back(Dense(kWidth));
  return Network(NetworkConfig::Sequential({kWidth}, layers),
                 {.seed = 3, .hosted_parameters = hosted});
}

Batch DeepBatch(int i) {
  NDArray labels({2}, DType::kInt64);
  labels.mutable_data<int64_t>()[0] = i % kWidth;
  labels.mutable_data<int64_t>()[1] = (7 * i) % kWidth;
  return Batch(RandomUniform({2, kWidth}, -1, 1, DType::kFloat32, 11, static_cast<uint64_t>(i)),
               labels);
}

constexpr DistributedConfig kDeepParts = {.bucket_bytes = kLayerBytes, .shard_parameters = true};

void DeepSteps(DistributedTrainer& distributed, int begin, int end) {
  const Communicator& communicator = distributed.communicator();
  for (int i = begin; i < end; ++i) {
    distributed.Step([&] {
      return std::optional<Batch>(DeepBatch(i * communicator.size() + communicator.rank()));
    });
  }
}

// 12 ranks, each with a quarter of what parameters and state take in one piece (beside gradients).
TEST(ShardedParameters, AModelOfFourTimesARanksBudgetTrainsToTheSameBits) {
  constexpr int kRanks = 12, kSteps = 5;
  constexpr int64_t kParameters = kLayers * kLayerBytes, kBudget = 3 * kParameters / 4;
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  MemoryBudget& budget = MemoryBudget::Global();

  MemoryOwner& alone = MemoryOwner::Process().Child("a rank with whole parameters");
  budget.SetOwnerLimit(alone, Host(), kBudget);
  const Error refused = ErrorOf([&] {
    const MemoryOwnerScope owner(alone);
    Network network = Deep(false);
    Trainer trainer(network, adam);
  });
  budget.SetOwnerLimit(alone, Host(), MemoryBudget::kUnlimited);
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted,
                               {"a rank with whole parameters", absl::StrCat(kBudget)}));

  std::vector<double> whole, parts;
  std::vector<int64_t> peaks(kRanks);
  std::string folder = testing::TempDir() + "/parts.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ThreadRanks(kRanks).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    MemoryOwner& rank = MemoryOwner::Process().Child(absl::StrCat("rank ", communicator.rank()));
    budget.SetOwnerLimit(rank, Host(), kBudget);
    const auto with_a_job = [&](absl::FunctionRef<void(DistributedTrainer&)> work) {
      const MemoryOwnerScope owner(rank);
      PeakScope peak(Host(), &rank);
      Network network = Deep(true);
      Trainer trainer(network, adam);
      DistributedTrainer distributed(trainer, communicator, kDeepParts);
      // Own parts, and five buckets of a step.
      EXPECT_EQ(distributed.sharded_parameters()->values().NumElements(), kParameters / 4 / kRanks);
      EXPECT_EQ(distributed.sharded_parameters()->plan().bytes, 5 * kLayerBytes);
      work(distributed);
      int64_t& most = peaks[static_cast<size_t>(communicator.rank())];
      most = std::max(most, peak.peak_bytes());
    };
    with_a_job([&](DistributedTrainer& distributed) {
      DeepSteps(distributed, 0, kSteps - 2);
      // What is larger than a rank is saved and asked as well.
      CheckpointFolder checkpoints(folder);
      distributed.SaveLatest(checkpoints, {{"at", "3"}});
      EXPECT_EQ(distributed.trainer().network().Output(Ones({1, kWidth})).dim(1), kWidth);
    });
    with_a_job([&](DistributedTrainer& distributed) {
      EXPECT_EQ(distributed.LoadLatest(CheckpointFolder(folder))->at("at"), "3");
      DeepSteps(distributed, kSteps - 2, kSteps);
      std::vector<double> found = WholeOf(distributed);
      if (communicator.rank() == 0) parts = std::move(found);
    });
    budget.SetOwnerLimit(rank, Host(), MemoryBudget::kUnlimited);
  });
  for (const int64_t peak : peaks) {
    EXPECT_LE(peak, kBudget);
    EXPECT_GE(peak, 4 * kParameters / kRanks + 5 * kLayerBytes);  // the ledger has all of it
  }
  ThreadRanks(kRanks).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    Network network = Deep(false);
    Trainer trainer(network, adam);
    DistributedTrainer distributed(trainer, communicator,
                                   {.bucket_bytes = kLayerBytes, .shard_updater = true});
    DeepSteps(distributed, 0, kSteps);
    if (communicator.rank() == 0) whole = WholeOf(distributed);
  });
  EXPECT_EQ(parts, whole);
}

TEST(ShardedParameters, BytesAreOneAndAHalfTimesThoseOfWholeOnesLessTheLastLayers) {
  for (const int size : {2, 3, 4}) {
    const auto bytes_of_step = [&](bool parts) {
      std::mutex mutex;
      int64_t sent = 0;
      ThreadRanks(size).Run([&](Communicator& communicator) {
        WorkerPool pool(1);
        const ThreadPoolScope thread(pool);
        Network network = Deep(parts);
        Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
        DistributedConfig config = kDeepParts;
        config.shard_parameters = parts;
        DistributedTrainer distributed(trainer, communicator, config);
        DeepSteps(distributed, 0, 1);  // learns the order of buckets
        const int64_t before = communicator.stats().bytes_sent;
        DeepSteps(distributed, 1, 3);
        const std::lock_guard<std::mutex> lock(mutex);
        sent += communicator.stats().bytes_sent - before;
      });
      // Of each step two trees of four numbers.
      return sent / 2 - 2 * 2 * (size - 1) * 32;
    };
    const int64_t all = kLayers * kLayerBytes, others = size - 1;
    EXPECT_EQ(bytes_of_step(false), others * 2 * all);
    EXPECT_EQ(bytes_of_step(true), others * (3 * all - kLayerBytes));
  }
}

TEST(ShardedParameters, SteadyStepsTakeNoMemoryFromTheSystem) {
  ThreadRanks(2).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    Network network = NetworkOf("lenet", {.seed = 5, .hosted_parameters = true});
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    DistributedTrainer distributed(trainer, communicator,
                                   {.bucket_bytes = 64 << 10, .shard_parameters = true});
    Batches small(8);
    ExpectSteady(communicator, 16, [&](int64_t i) {
      distributed.Step([&] { return std::optional<Batch>(small(2 * i + communicator.rank())); });
    });
  });
}

}  // namespace
}  // namespace tidepool::nn
