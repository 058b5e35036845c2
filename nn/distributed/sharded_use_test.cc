// What is done with parameters in parts besides training, and what cannot be.
#include "tidepool/nn/distributed/sharded_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/eval/do_evaluation.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/merge_evaluations.h"
#include "tidepool/nn/distributed/sharded_testing.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/parallel/parallel_testing.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/checkpoint.h"

namespace tidepool::nn {
namespace {

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
      const std::string path = absl::StrCat(testing::TempDir(), "/of ", communicator.rank());
      for (const Error& error : {ErrorOf([&] { SaveCheckpoint(trainer, path); }),
                                 ErrorOf([&] { SaveParameters(network, path); })}) {
        EXPECT_THAT(error, IsError(absl::StatusCode::kFailedPrecondition,
                                   {"hosted", "DistributedTrainer"}));
      }
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

struct Program : Block {
  Part out{*this, "out", Dense(3)};
  NDArray Forward(const NDArray& x) const override { return out(x); }
};

// A layer whose activations are computed again.
class Again final : public Layer {
 public:
  std::string Kind() const override { return "again"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& input) const override {
    return Recomputed([](absl::Span<const NDArray> x) { return std::vector<NDArray>{x[0] * x[0]}; },
                      {&input, 1})[0];
  }
};

TEST(ShardedParameters, LayersThatComputeSegmentsAgainAreRefusedInTheStep) {
  ThreadRanks(2).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    Network network(NetworkConfig::Sequential({8}, {Dense(8), Again(), Dense(8), Dense(3)}));
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    DistributedTrainer distributed(trainer, communicator,
                                   {.bucket_bytes = 1, .shard_parameters = true});
    const std::vector<double> before = WholeOf(distributed);
    EXPECT_THAT(ErrorOf([&] {
                  distributed.Step([] {
                    return std::optional<Batch>(Batch(Ones({2, 8}), Zeros({2}, DType::kInt64)));
                  });
                }),
                IsError(absl::StatusCode::kUnimplemented, {"Recomputed"}));
    EXPECT_EQ(WholeOf(distributed), before);
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
    Network program({{"x", {8}}}, std::make_unique<Program>());
    EXPECT_THAT(error_of(program, sgd), IsError(absl::StatusCode::kUnimplemented, {"Block"}));
    EXPECT_TRUE(program.parameters().is_defined());
    EXPECT_EQ(
        ErrorOf([] {
          Network never({{"x", {8}}}, std::make_unique<Program>(), {.hosted_parameters = true});
        }).code(),
        absl::StatusCode::kUnimplemented);
  });
}

}  // namespace
}  // namespace tidepool::nn
