// Parameters in parts, against those of a job whose ranks have all of them.
#include "tidepool/nn/distributed/sharded_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/sharded_testing.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/parallel/parallel_testing.h"

namespace tidepool::nn {
namespace {

struct Job {
  std::string model = "lenet";
  UpdaterConfig updater = UpdaterConfig::Of(UpdaterKind::kAdamW);
  int64_t bucket_bytes = 256 << 10;
  int ahead = 1;
  DType dtype = DType::kFloat32;
  WorkspaceMode mode = WorkspaceMode::kEnabled;
  std::optional<LossScaleConfig> scale;
  int steps = 8;
};

struct Outcome {
  std::vector<double> parameters, beside;
  std::vector<double> losses;
  int64_t sent = 0;
};

Outcome OutcomeOf(int size, const Job& job, Parts parts) {
  Outcome outcome;
  std::mutex mutex;
  ThreadRanks(size).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    // Rank 0's parameters are everybody's.
    Network network = NetworkOf(job.model, {.seed = 5 + static_cast<uint64_t>(communicator.rank()),
                                            .mode = job.mode,
                                            .dtype = job.dtype,
                                            .hosted_parameters = parts == Parts::kHosted});
    Trainer trainer(network, job.updater);
    if (job.scale.has_value()) trainer.set_loss_scale(*job.scale);
    DistributedTrainer distributed(trainer, communicator,
                                   {.bucket_bytes = job.bucket_bytes,
                                    .shard_updater = true,
                                    .shard_parameters = parts != Parts::kUpdater,
                                    .gather_ahead = job.ahead});
    Batches small(4, job.dtype);
    std::vector<double> losses;
    for (int i = 0; i < job.steps; ++i) {
      // The last rank has no batch every third time.
      const auto step = distributed.Step([&]() -> std::optional<Batch> {
        if (i % 3 == 2 && size > 1 && communicator.rank() == size - 1) return std::nullopt;
        return small(i * size + communicator.rank());
      });
      losses.push_back(step->loss);
    }
    distributed.CheckSameParameters();
    std::vector<double> parameters = WholeOf(distributed);
    const std::lock_guard<std::mutex> lock(mutex);
    outcome.sent += communicator.stats().bytes_sent;
    if (communicator.rank() != 0) return;
    outcome.parameters = std::move(parameters);
    outcome.losses = std::move(losses);
    if (network.beside().is_defined())
      outcome.beside = Cast(network.beside(), DType::kFloat64).ToVector<double>();
  });
  return outcome;
}

void ExpectTheSameBits(int size, const Job& job, Parts parts, const std::string& what) {
  const Outcome whole = OutcomeOf(size, job, Parts::kUpdater),
                sharded = OutcomeOf(size, job, parts);
  EXPECT_EQ(sharded.parameters, whole.parameters) << what;
  EXPECT_EQ(sharded.beside, whole.beside) << what;
  EXPECT_EQ(sharded.losses, whole.losses) << what;
}

TEST(ShardedParameters, HaveTheBitsOfWholeOnes) {
  for (const int size : {1, 2, 3, 4}) {
    for (const UpdaterKind kind : {UpdaterKind::kSgd, UpdaterKind::kNesterovs, UpdaterKind::kAdamW})
      ExpectTheSameBits(size, {.updater = UpdaterConfig::Of(kind)},
                        size % 2 == 0 ? Parts::kHosted : Parts::kParameters,
                        absl::StrCat(UpdaterName(kind), " on ", size));
  }
}

TEST(ShardedParameters, InBucketsOfAnySizeGatheredAnyNumberAhead) {
  for (const int64_t bucket_bytes : {int64_t{1}, int64_t{8} << 10, int64_t{1} << 30}) {
    for (const int ahead : {0, 1, 3})
      ExpectTheSameBits(3, {.model = "residual", .bucket_bytes = bucket_bytes, .ahead = ahead},
                        Parts::kHosted, absl::StrCat(bucket_bytes, " ", ahead));
  }
}

TEST(ShardedParameters, InAnyWorkspaceModeWithClippingAndALossScale) {
  for (const WorkspaceMode mode :
       {WorkspaceMode::kNone, WorkspaceMode::kSingle, WorkspaceMode::kSeparate}) {
    ExpectTheSameBits(2, {.model = "residual", .bucket_bytes = 4096, .mode = mode}, Parts::kHosted,
                      "mode");
  }
  UpdaterConfig clips = UpdaterConfig::Of(UpdaterKind::kSgd);
  clips.clipping = {ClippingKind::kGlobalNorm, 0.5};
  clips.l2 = 0.01;
  ExpectTheSameBits(3, {.updater = clips, .dtype = DType::kFloat64}, Parts::kParameters,
                    "clipping");
  // Overflows at first, and comes down.
  const LossScaleConfig scale{.first = 0x1p126, .backoff = 0x1p-40, .most = 0x1p126};
  ExpectTheSameBits(2, {.scale = scale}, Parts::kHosted, "loss scale");
}

TEST(ShardedParameters, AStepThatFailsOnARankChangesNothingAndTheNextOneWorks) {
  for (const bool in_the_batch : {true, false}) {
    ThreadRanks(3).Run([&](Communicator& communicator) {
      WorkerPool pool(1);
      const ThreadPoolScope thread(pool);
      Network network = NetworkOf("residual", {.seed = 5, .hosted_parameters = true});
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      DistributedTrainer distributed(trainer, communicator,
                                     {.bucket_bytes = 4096, .shard_parameters = true});
      Batches small(4);
      const auto step = [&](int64_t i) {
        distributed.Step([&] { return std::optional<Batch>(small(3 * i + communicator.rank())); });
      };
      step(0);
      const std::vector<double> before = WholeOf(distributed);
      const Error error = ErrorOf([&] {
        distributed.Step([&]() -> std::optional<Batch> {
          Batch batch = small(communicator.rank());
          if (communicator.rank() != 1) return batch;
          if (in_the_batch) ThrowDataLoss("digit.png: truncated");
          // Fails in the loss, behind the forward pass.
          batch.labels.mutable_data<int64_t>()[2] = 77;
          return batch;
        });
      });
      if (communicator.rank() == 1) {
        EXPECT_THAT(error.message(), testing::HasSubstr(in_the_batch ? "truncated" : "77"));
      } else {
        EXPECT_THAT(error, IsError(absl::StatusCode::kAborted, {"rank 1 could not"}));
      }
      EXPECT_EQ(WholeOf(distributed), before);
      step(1);
      EXPECT_EQ(trainer.steps(), 2);
    });
  }
}

// The first layer's weights are the last one's as well, frozen ones lie between, and there are two
// of each.
TEST(ShardedParameters, TiedAndFrozenOnesAndSeveralInputs) {
  const auto outcome = [](Parts parts) {
    std::vector<double> parameters;
    ThreadRanks(3).Run([&](Communicator& communicator) {
      WorkerPool pool(1);
      const ThreadPoolScope thread(pool);
      NetworkConfig config;
      config.AddInput("left", {16});
      config.AddInput("right", {8});
      config.Add(Dense(16, Activation::kTanh), {"left"}, "first");
      config.Add(Dense(16, Activation::kTanh), {"right"}, "frozen");
      config.Add(Merge(MergeKind::kAdd), {"first", "frozen"}, "sum");
      config.Add(Dense(16, Activation::kTanh), {"sum"}, "middle");
      config.Add(Dense(16), {"middle"}, "last");
      config.nodes.back().tied["weight"] = "first.weight";
      config.Add(Dense(3), {"middle"}, "other");
      config.outputs = {"last", "other"};
      Network network(std::move(config), {.seed = 4,
                                          .dtype = DType::kFloat64,
                                          .frozen = {"frozen"},
                                          .hosted_parameters = parts == Parts::kHosted});
      network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
        const NDArray one = outputs[0] - inputs.labels[0], two = outputs[1] - inputs.labels[1];
        return Sum(one * one, 1) + Sum(two * two, 1) * 0.5;
      });
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kNesterovs));
      DistributedTrainer distributed(
          trainer, communicator,
          {.bucket_bytes = 1, .shard_updater = true, .shard_parameters = parts != Parts::kUpdater});
      const auto some = [&](int64_t width, int i) {
        return RandomUniform({4, width}, -1, 1, DType::kFloat64, static_cast<uint64_t>(width),
                             static_cast<uint64_t>(i));
      };
      FunctionIterator<MultiDataSet> sets(5, [&](int64_t i) {
        const int number = static_cast<int>(3 * i) + communicator.rank();
        return MultiDataSet({some(16, number), some(8, number)},
                            {some(16, 100 + number), some(3, number)});
      });
      const DistributedPass pass = distributed.Fit(sets);
      EXPECT_EQ(pass.steps, 5);
      EXPECT_EQ(pass.examples, 60);
      std::vector<double> found = WholeOf(distributed);
      if (communicator.rank() == 0) parameters = std::move(found);
    });
    return parameters;
  };
  const std::vector<double> whole = outcome(Parts::kUpdater);
  EXPECT_EQ(outcome(Parts::kHosted), whole);
  EXPECT_EQ(outcome(Parts::kParameters), whole);
}

}  // namespace
}  // namespace tidepool::nn
