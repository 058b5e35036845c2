// Parameters in parts, against those of a job whose ranks have all of them.
#include "tidepool/nn/distributed/sharded_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/eval/do_evaluation.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/merge_evaluations.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/parallel/parallel_testing.h"

namespace tidepool::nn {
namespace {

enum class Parts { kUpdater, kParameters, kHosted };

// All that ranks have of the parameters, on each.
std::vector<double> WholeOf(DistributedTrainer& distributed) {
  Network& network = distributed.trainer().network();
  ShardedParameters* const parts = distributed.sharded_parameters();
  if (parts == nullptr) return Cast(network.parameters(), DType::kFloat64).ToVector<double>();
  std::vector<double> whole;
  for (int bucket = distributed.buckets().count() - 1; bucket >= 0; --bucket) {
    const NDArray values = Cast(parts->Gather(parts->values(), bucket, "test"), DType::kFloat64);
    const std::vector<double> more = values.ToVector<double>();
    whole.insert(whole.end(), more.begin(), more.end());
  }
  return whole;
}

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
    const auto step = [&](int64_t i) {
      distributed.Step([&] { return std::optional<Batch>(small(2 * i + communicator.rank())); });
    };
    for (int i = 0; i < 4; ++i) step(i);
    communicator.Barrier("test");
    const int64_t before = MemoryTracker::Global().system_allocations();
    communicator.Barrier("test");
    for (int i = 4; i < 16; ++i) step(i);
    communicator.Barrier("test");
    EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
    communicator.Barrier("test");
  });
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

TEST(ShardedParameters, EvaluationsAreThoseOfWholeParametersWhateverRanksHaveOfTheData) {
  // 7 batches on 3 ranks.
  const auto evaluate = [](Parts parts) {
    Evaluation merged(10);
    ThreadRanks(3).Run([&](Communicator& communicator) {
      WorkerPool pool(1);
      const ThreadPoolScope thread(pool);
      Network network =
          NetworkOf("residual", {.seed = 5, .hosted_parameters = parts == Parts::kHosted});
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      DistributedTrainer distributed(trainer, communicator,
                                     {.bucket_bytes = 4096,
                                      .shard_updater = true,
                                      .shard_parameters = parts == Parts::kHosted});
      Batches small(8);
      const auto at = [&](int64_t i) {
        return i < 7 ? std::optional<Batch>(small(i)) : std::nullopt;
      };
      for (int round = 0; round < 3; ++round) {
        distributed.Step([&] { return at(3 * (round % 2) + communicator.rank()); });
        Evaluation evaluation(10);
        int64_t next = communicator.rank();
        const auto mine = [&] {
          next += 3;
          return at(next - 3);
        };
        DoEvaluation(
            network, [&] { return distributed.NextForAll(mine); }, {.outputs = OutputsAre::kLogits},
            evaluation);
        MergeEvaluations(communicator, evaluation);
        if (communicator.rank() == 0) merged.Merge(evaluation);
      }
    });
    return merged.Report();
  };
  EXPECT_EQ(evaluate(Parts::kHosted), evaluate(Parts::kUpdater));
}

TEST(ShardedParameters, ModelsAreSavedFromPartsAsFromWholeOnes) {
  const std::string folder = testing::TempDir();
  const auto save = [&](Parts parts, const std::string& path) {
    ThreadRanks(3).Run([&](Communicator& communicator) {
      WorkerPool pool(1);
      const ThreadPoolScope thread(pool);
      Model model("residual", 10,
                  std::make_unique<Network>(NetworkOf(
                      "residual", {.seed = 5, .hosted_parameters = parts == Parts::kHosted})));
      model.notes["of"] = "a job";
      Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
      DistributedTrainer distributed(trainer, communicator,
                                     {.bucket_bytes = 4096,
                                      .shard_updater = true,
                                      .shard_parameters = parts != Parts::kUpdater});
      Batches small(4);
      for (int i = 0; i < 2; ++i) {
        distributed.Step([&] { return std::optional<Batch>(small(3 * i + communicator.rank())); });
      }
      distributed.SaveModel(model, path);
      const Error error = ErrorOf([&] { distributed.SaveModel(model, folder + "/none/model"); });
      EXPECT_EQ(error.code(),
                communicator.rank() == 0 ? absl::StatusCode::kNotFound : absl::StatusCode::kAborted)
          << error.message();
    });
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  };
  const std::string whole = save(Parts::kUpdater, folder + "/whole");
  EXPECT_GT(whole.size(), 1000u);
  EXPECT_TRUE(save(Parts::kHosted, folder + "/hosted") == whole);
  EXPECT_TRUE(save(Parts::kParameters, folder + "/parts") == whole);
  EXPECT_EQ(LoadModel(folder + "/hosted").notes.at("of"), "a job");
}

// The first layer's weights are the last one's as well, frozen ones lie between, and there are two of each.
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

TEST(ShardedParameters, WhatHasNoneOfItsOwnSaysSo) {
  ThreadRanks(2).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    Network network = NetworkOf("mlp", {.seed = 5, .hosted_parameters = true});
    const NDArray input = Zeros({1, 28, 28, 1});
    EXPECT_THAT(ErrorOf([&] { network.Output(input); }),
                IsError(absl::StatusCode::kFailedPrecondition, {"network [", "nobody hosts them"}));
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    EXPECT_EQ(trainer.updater().state().size(), 0u);
    const Error whole = ErrorOf([&] { DistributedTrainer distributed(trainer, communicator); });
    EXPECT_THAT(whole,
                IsError(absl::StatusCode::kFailedPrecondition, {"expected shard_parameters"}));
    NDArray value;
    {
      DistributedTrainer distributed(trainer, communicator, {.shard_parameters = true});
      EXPECT_THAT(ErrorOf([&] { network.parameters(); }),
                  IsError(absl::StatusCode::kFailedPrecondition, {"parameters are hosted"}));
      EXPECT_EQ(ErrorOf([&] { network.gradients(); }).code(),
                absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(ErrorOf([&] { network.SetFrozen({}); }).code(),
                absl::StatusCode::kFailedPrecondition);
      // A pass of all ranks.
      const NDArray output = network.Output(input);
      EXPECT_EQ(output.dim(1), 10);
      value = distributed.sharded_parameters()->value(0);
      EXPECT_THAT(ErrorOf([&] { value.ToVector<float>(); }),
                  IsError(absl::StatusCode::kFailedPrecondition, {"in parts on the ranks"}));
    }
    EXPECT_EQ(ErrorOf([&] { network.Output(input); }).code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ErrorOf([&] { value.ToVector<float>(); }).code(),
              absl::StatusCode::kFailedPrecondition);
  });
}

TEST(ShardedParameters, WhatCannotBeInPartsIsRefused) {
  ThreadRanks(2).Run([&](Communicator& communicator) {
    const auto error_of = [&](Network& network, const UpdaterConfig& config) {
      Trainer trainer(network, config);
      return ErrorOf([&] {
        DistributedTrainer distributed(trainer, communicator, {.shard_parameters = true});
      });
    };
    const UpdaterConfig sgd = UpdaterConfig::Of(UpdaterKind::kSgd);
    Network half = NetworkOf("mlp", {.compute_type = DType::kFloat16});
    EXPECT_THAT(error_of(half, sgd),
                IsError(absl::StatusCode::kUnimplemented, {"layers that compute by f16"}));
    EXPECT_TRUE(half.parameters().is_defined());
    UpdaterConfig clips = sgd;
    clips.clipping.kind = ClippingKind::kNormOfEach;
    Network network = NetworkOf("mlp");
    EXPECT_THAT(error_of(network, clips),
                IsError(absl::StatusCode::kUnimplemented, {"clipping by each one's norm"}));
    EXPECT_TRUE(network.parameters().is_defined());
    Trainer trainer(network, sgd);
    EXPECT_EQ(ErrorOf([&] {
                DistributedTrainer distributed(trainer, communicator,
                                               {.shard_parameters = true, .gather_ahead = -1});
              }).code(),
              absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace tidepool::nn
