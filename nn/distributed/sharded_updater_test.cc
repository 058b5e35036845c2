// Parts of the updater's state on each rank, against whole ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/sharded_testing.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/parallel/parallel_testing.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"
#include "tidepool/nn/training/checkpoint.h"

namespace tidepool::nn {
namespace {

struct Outcome {
  std::vector<double> parameters;
  int64_t sent = 0;
  std::vector<int64_t> state;  // elements, by rank
  int64_t elements = 0;        // of the parameters
};

Outcome OutcomeOf(int size, const UpdaterConfig& config, bool shards, int64_t bucket_bytes,
                  DType dtype = DType::kFloat32,
                  const std::optional<LossScaleConfig>& scale = std::nullopt, int steps = 12) {
  Outcome outcome;
  outcome.state.resize(static_cast<size_t>(size));
  std::mutex mutex;
  ThreadRanks(size).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    Network network = NetworkOf("lenet", {.seed = 5, .dtype = dtype});
    Trainer trainer(network, config);
    if (scale.has_value()) trainer.set_loss_scale(*scale);
    DistributedTrainer distributed(trainer, communicator,
                                   {.bucket_bytes = bucket_bytes, .shard_updater = shards});
    Batches small(4, dtype);
    for (int i = 0; i < steps; ++i) {
      distributed.Step([&] { return std::optional<Batch>(small(i * size + communicator.rank())); });
    }
    distributed.CheckSameParameters();
    const std::lock_guard<std::mutex> lock(mutex);
    outcome.sent += communicator.stats().bytes_sent;
    for (const NDArray* const state : trainer.updater().state()) {
      outcome.state[static_cast<size_t>(communicator.rank())] += state->NumElements();
    }
    if (communicator.rank() != 0) return;
    outcome.parameters = Cast(network.parameters(), DType::kFloat64).ToVector<double>();
    outcome.elements = network.parameters().NumElements();
  });
  return outcome;
}

TEST(ShardedUpdater, HasTheBitsOfAWholeOneAndAnNthOfTheState) {
  for (const UpdaterKind kind : {UpdaterKind::kSgd, UpdaterKind::kNesterovs, UpdaterKind::kAdamW}) {
    for (const int size : {1, 2, 3, 4}) {
      const UpdaterConfig config = UpdaterConfig::Of(kind);
      const Outcome whole = OutcomeOf(size, config, false, 256 << 10);
      const Outcome parts = OutcomeOf(size, config, true, 256 << 10);
      EXPECT_EQ(parts.parameters, whole.parameters) << UpdaterName(kind) << " on " << size;
      const int64_t arrays = kind == UpdaterKind::kSgd ? 0 : kind == UpdaterKind::kAdamW ? 2 : 1;
      // Of eight buckets at most, an element each.
      for (const int64_t state : parts.state)
        EXPECT_LE(state, arrays * (whole.elements / size + 8));
      EXPECT_EQ(whole.state[0], arrays * whole.elements);
      // As many bytes: parameters go what is left of the sums' way.
      EXPECT_NEAR(static_cast<double>(parts.sent), static_cast<double>(whole.sent),
                  0.02 * static_cast<double>(whole.sent));
    }
  }
}

TEST(ShardedUpdater, HasTheBitsOfAWholeOneInBucketsOfAnySize) {
  // A bucket for each parameter: biases go up a tree and not round a ring.
  const UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kNesterovs);
  for (const int64_t bucket_bytes : {int64_t{1}, int64_t{64} << 10, int64_t{1} << 30}) {
    EXPECT_EQ(OutcomeOf(4, config, true, bucket_bytes).parameters,
              OutcomeOf(4, config, false, bucket_bytes).parameters)
        << bucket_bytes;
  }
}

TEST(ShardedUpdater, ClipsByTheNormOfAllParts) {
  UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kSgd);
  config.l2 = 0.01;  // of weights, not of biases
  const Outcome free = OutcomeOf(3, config, false, 256 << 10, DType::kFloat64);
  config.clipping = {ClippingKind::kGlobalNorm, 0.5};
  const Outcome whole = OutcomeOf(3, config, false, 256 << 10, DType::kFloat64),
                parts = OutcomeOf(3, config, true, 256 << 10, DType::kFloat64);
  double from_whole = 0, from_free = 0;
  for (size_t i = 0; i < whole.parameters.size(); ++i) {
    from_whole = std::max(from_whole, std::abs(parts.parameters[i] - whole.parameters[i]));
    from_free = std::max(from_free, std::abs(parts.parameters[i] - free.parameters[i]));
  }
  EXPECT_LT(from_whole, 1e-10);
  EXPECT_GT(from_free, 1e-4);
}

TEST(ShardedUpdater, ALossScaleSkipsOnAllRanksAlike) {
  // Overflows at first, and comes down.
  const LossScaleConfig scale{.first = 0x1p126, .backoff = 0x1p-40, .most = 0x1p126};
  const UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kAdam);
  const Outcome whole = OutcomeOf(2, config, false, 1 << 20, DType::kFloat32, scale),
                parts = OutcomeOf(2, config, true, 1 << 20, DType::kFloat32, scale);
  EXPECT_EQ(parts.parameters, whole.parameters);
}

TEST(ShardedUpdater, SteadyStepsTakeNoMemoryFromTheSystem) {
  ThreadRanks(2).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    Network network = NetworkOf("lenet");
    UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kAdam);
    config.clipping = {ClippingKind::kGlobalNorm, 1};
    Trainer trainer(network, config);
    DistributedTrainer distributed(trainer, communicator,
                                   {.bucket_bytes = 64 << 10, .shard_updater = true});
    Batches small(8);
    ExpectSteady(communicator, 16, [&](int64_t i) {
      distributed.Step([&] { return std::optional<Batch>(small(2 * i + communicator.rank())); });
    });
  });
}

TEST(ShardedUpdater, WhatPartsCannotDoIsRefused) {
  Updater updater(UpdaterConfig::Of(UpdaterKind::kAdam), {10});
  EXPECT_THAT(ErrorOf([&] {
                updater.KeepOnly({{4, 6}, {5, 8}});
              }),
              IsError(absl::StatusCode::kInvalidArgument, {"range [5, 8)", "behind element 6"}));
  EXPECT_THAT(ErrorOf([&] {
                updater.KeepOnly({{4, 11}});
              }),
              IsError(absl::StatusCode::kInvalidArgument, {"range [4, 11)"}));
  updater.KeepOnly({{1, 3}, {7, 7}, {8, 10}});
  EXPECT_EQ(updater.state()[0]->NumElements(), 4);
  EXPECT_EQ(ErrorOf([&] { updater.KeepOnly({}); }).code(), absl::StatusCode::kFailedPrecondition);
  UpdaterConfig clips = UpdaterConfig::Of(UpdaterKind::kSgd);
  clips.clipping.kind = ClippingKind::kNormOfEach;
  Updater other(clips, {10});
  EXPECT_EQ(ErrorOf([&] { other.KeepOnly({{0, 5}}); }).code(), absl::StatusCode::kUnimplemented);
}

// Who has a part and takes it for the whole would lose the rest in silence.
TEST(ShardedUpdater, ATrainerWithAPartIsOfUseToItsDistributedTrainerAlone) {
  std::string path = testing::TempDir() + "/part-XXXXXX";
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  for (const UpdaterKind kind : {UpdaterKind::kAdam, UpdaterKind::kSgd}) {
    ThreadRanks(2).Run([&](Communicator& communicator) {
      WorkerPool pool(1);
      const ThreadPoolScope thread(pool);
      Network network = NetworkOf("mlp");
      Trainer trainer(network, UpdaterConfig::Of(kind));
      {
        DistributedTrainer distributed(trainer, communicator, {.shard_updater = true});
        Batches batches(4);
        distributed.Step([&] { return std::optional<Batch>(batches(0)); });
      }
      const std::vector<float> before = network.parameters().ToVector<float>();
      Batches batches(4);
      CheckpointFolder folder(path);
      const std::string file = path + "/" + std::to_string(communicator.rank());
      const auto refused = [&](auto work, absl::StatusCode code) {
        EXPECT_THAT(ErrorOf(work), IsError(code, {""}));
      };
      const auto code = absl::StatusCode::kFailedPrecondition;
      EXPECT_THAT(ErrorOf([&] { trainer.Step([&] { return batches(1); }); }),
                  IsError(code, {"trainer: ", "DistributedTrainer"}));
      EXPECT_THAT(ErrorOf([&] { SaveCheckpoint(trainer, file); }),
                  IsError(code, {"SaveCheckpoint: ", "SaveLatest"}));
      EXPECT_THAT(ErrorOf([&] { LoadCheckpoint(file, trainer); }),
                  IsError(code, {"LoadCheckpoint: "}));
      refused([&] { SaveLatest(communicator, trainer, folder, {}); },
              communicator.rank() == 0 ? code : absl::StatusCode::kAborted);
      EXPECT_THAT(ErrorOf([&] { DistributedTrainer again(trainer, communicator); }),
                  IsError(code, {"DistributedTrainer"}));
      EXPECT_THAT(ErrorOf([&] { ParallelWrapper parallel(trainer); }),
                  IsError(code, {"DistributedTrainer"}));
      EXPECT_EQ(network.parameters().ToVector<float>(), before);
      EXPECT_FALSE(folder.Latest().has_value());
    });
  }
}

// Its parts are of other parameters than those that the file would say.
TEST(ShardedUpdater, APartIsNotSavedOfANetworkThatWasFrozenAnew) {
  std::string path = testing::TempDir() + "/stale-XXXXXX";
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  for (const bool shards : {false, true}) {
    ThreadRanks(2).Run([&](Communicator& communicator) {
      WorkerPool pool(1);
      const ThreadPoolScope thread(pool);
      Network network = NetworkOf("mlp");
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      DistributedTrainer distributed(trainer, communicator, {.shard_updater = shards});
      CheckpointFolder folder(path);
      network.SetFrozen(std::vector<std::string>{network.named_parameters()[0].name});
      EXPECT_THAT(ErrorOf([&] { distributed.SaveLatest(folder, {}); }),
                  IsError(communicator.rank() == 0 ? absl::StatusCode::kFailedPrecondition
                                                   : absl::StatusCode::kAborted,
                          {""}));
      Trainer again(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      network.SetFrozen({});
      EXPECT_THAT(ErrorOf([&] { DistributedTrainer of_stale(again, communicator); }),
                  IsError(absl::StatusCode::kFailedPrecondition,
                          {"were frozen or not since it was made, expected a trainer made"}));
      EXPECT_FALSE(folder.Latest().has_value());
    });
  }
}

}  // namespace
}  // namespace tidepool::nn
