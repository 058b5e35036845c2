// What ranks have in common, and what they make of their parts of an evaluation.
#include "tidepool/nn/distributed/rank_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/eval/do_evaluation.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/merge_evaluations.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/parallel/parallel_testing.h"

namespace tidepool::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What rank `whose` of three says, of which rank 2 is another one than rank 0.
std::string Refusal(int whose, const std::function<void(int rank, Communicator&)>& begin) {
  std::mutex mutex;
  std::vector<std::string> messages(3);
  ThreadRanks(3).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    const Error error = ErrorOf([&] { begin(communicator.rank(), communicator); });
    EXPECT_EQ(error.code(), communicator.rank() == 2 ? absl::StatusCode::kFailedPrecondition
                                                     : absl::StatusCode::kAborted);
    const std::lock_guard<std::mutex> lock(mutex);
    messages[static_cast<size_t>(communicator.rank())] = error.message();
  });
  EXPECT_THAT(messages[0],
              HasSubstr("rank 2 has another program, network, updater or data than rank 0"));
  return messages[static_cast<size_t>(whose)];
}

TEST(RankAgreement, RanksThatDifferAreRefusedAtTheStart) {
  EXPECT_THAT(
      Refusal(2,
              [](int rank, Communicator& communicator) {
                Network network = NetworkOf(rank == 2 ? "lenet" : "mlp");
                Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
                DistributedTrainer distributed(trainer, communicator);
              }),
      AllOf(HasSubstr("rank 2: network: found"), HasSubstr("conv2d"), HasSubstr("as rank 0 has")));
  EXPECT_THAT(Refusal(2,
                      [](int rank, Communicator& communicator) {
                        Network network = NetworkOf("mlp");
                        UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kSgd);
                        if (rank == 2) config.learning_rate = 0.05;
                        Trainer trainer(network, config);
                        DistributedTrainer distributed(trainer, communicator);
                      }),
              AllOf(HasSubstr("rank 2: updater: found sgd, learning rate 0.05"),
                    HasSubstr("expected sgd, learning rate 0.1")));
  EXPECT_THAT(Refusal(2,
                      [](int rank, Communicator& communicator) {
                        Network network = NetworkOf("mlp");
                        if (rank == 2) network.SetFrozen({"0.dense.bias"});
                        Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
                        DistributedTrainer distributed(trainer, communicator);
                      }),
              HasSubstr("rank 2: parameters: found"));
  // A program of another version says another number, and may have more to say than that.
  for (const bool says_more : {false, true}) {
    EXPECT_THAT(Refusal(2,
                        [&](int rank, Communicator& communicator) {
                          Network network = NetworkOf("mlp");
                          Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
                          RankFacts facts = FactsOf(trainer);
                          ASSERT_EQ(facts.front().first, "version");
                          if (rank == 2) facts.front().second = "1000";
                          if (rank == 2 && says_more) facts.emplace_back("what is new", "a text");
                          CheckFacts(communicator, facts);
                        }),
                HasSubstr("rank 2: version: found 1000, expected "));
  }
  ThreadRanks(2).Run([](Communicator& communicator) {
    Network network = NetworkOf("mlp");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    EXPECT_THAT(
        ErrorOf([&] { DistributedTrainer distributed(trainer, communicator, {.ranks = 3}); }),
        IsError(absl::StatusCode::kFailedPrecondition, {"a job of 2 ranks, expected 3"}));
  });
}

// Down to the last bit of a number, and whatever is set beside the updater's configuration.
TEST(RankAgreement, SettingsThatDifferAreRefused) {
  const auto refusal = [](const std::function<void(Trainer&)>& set_on_rank_2,
                          const UpdaterConfig& of_rank_2, double dropout_of_rank_2 = 0.3) {
    return Refusal(2, [&](int rank, Communicator& communicator) {
      Network network({6}, {Dense(8, Activation::kTanh),
                            DropoutLayer(rank == 2 ? dropout_of_rank_2 : 0.3), Dense(4)});
      Trainer trainer(network, rank == 2 ? of_rank_2 : UpdaterConfig::Of(UpdaterKind::kSgd));
      if (rank == 2) set_on_rank_2(trainer);
      DistributedTrainer distributed(trainer, communicator, {.shard_updater = true});
    });
  };
  const auto nothing = [](Trainer&) {};
  const UpdaterConfig sgd = UpdaterConfig::Of(UpdaterKind::kSgd);
  UpdaterConfig other = sgd;
  other.learning_rate = 0.1 * (1 + 4e-7);
  EXPECT_THAT(refusal(nothing, other),
              AllOf(HasSubstr("rank 2: updater: found sgd, learning rate 0.100000"),
                    HasSubstr(", expected sgd, learning rate 0.1, as rank 0 has")));
  EXPECT_THAT(refusal(nothing, sgd, 0.30000001),
              AllOf(HasSubstr("rank 2: layers: found"), HasSubstr("\"rate\":0.30000001")));
  EXPECT_THAT(
      refusal([](Trainer& t) { t.updater().SetGroups({{.begin = 8, .end = 16, .rate = 10}}); },
              sgd),
      AllOf(HasSubstr("rank 2: groups of parameters: found [0, 8) rate 1, [8, 16) rate 10, [16, "),
            HasSubstr("expected [0, ")));
  EXPECT_THAT(refusal([](Trainer& t) { t.updater().set_gradient_scale(0.5); }, sgd),
              HasSubstr("rank 2: gradient scale: found 0.5, expected 1,"));
  EXPECT_THAT(
      refusal([](Trainer& t) { t.network().set_loss(Loss(LossConfig{.label_smoothing = 0.5})); },
              sgd),
      AllOf(HasSubstr("rank 2: loss: found softmax_cross_entropy"),
            HasSubstr("expected the default one")));
}

TEST(RankAgreement, SettingsThatOneRankChangesAreNoticedBeforeAPass) {
  for (const bool in_parts : {false, true}) {
    const std::string message = Refusal(2, [&](int rank, Communicator& communicator) {
      Network network({6}, {Dense(8, Activation::kTanh), Dense(4)});
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
      DistributedTrainer distributed(trainer, communicator, {.shard_updater = in_parts});
      const auto fit = [&] {
        FunctionIterator<DataSet> batches(3, [](int64_t) {
          return DataSet(Ones({4, 6}), Zeros({4}, DType::kInt64));
        });
        distributed.Fit(batches);
      };
      fit();
      // All alike: no matter.
      trainer.updater().SetGroups({{.begin = 0, .end = 48, .rate = 2}});
      fit();
      const std::vector<float> before = network.parameters().ToVector<float>();
      if (rank == 2) trainer.updater().SetGroups({});
      const Error error = ErrorOf(fit);
      EXPECT_EQ(network.parameters().ToVector<float>(), before);
      throw Error(error);
    });
    EXPECT_THAT(message, HasSubstr("rank 2: groups of parameters: found [0, "));
  }
}

TEST(RankAgreement, ParametersThatPartAreNoticed) {
  ThreadRanks(3).Run([](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    Network network = NetworkOf("mlp");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    DistributedTrainer distributed(trainer, communicator);
    distributed.CheckSameParameters();
    if (communicator.rank() == 1) network.parameters().mutable_data<float>()[12345] += 1e-6f;
    EXPECT_THAT(ErrorOf([&] { distributed.CheckSameParameters(); }),
                IsError(absl::StatusCode::kFailedPrecondition,
                        {"parameters of rank 1 are not rank 0's behind step 0"}));
  });
}

TEST(MergeEvaluations, EvaluationsAreMergedToTheBitsOfOnePass) {
  Network network = NetworkOf("mlp");
  Evaluation whole(10);
  Batches batches(10);
  int64_t next = 0;
  DoEvaluation(
      network, [&] { return next < 12 ? std::optional<Batch>(batches(next++)) : std::nullopt; }, {},
      whole);
  ThreadRanks(3).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    Network mine = NetworkOf("mlp");
    Batches small(10);
    Evaluation evaluation(10);
    int64_t at = communicator.rank();
    DoEvaluation(
        mine,
        [&]() -> std::optional<Batch> {
          if (at >= 12) return std::nullopt;
          return small(std::exchange(at, at + 3));
        },
        {}, evaluation);
    MergeEvaluations(communicator, evaluation);
    EXPECT_EQ(evaluation.Serialize(), whole.Serialize());
  });
}

}  // namespace
}  // namespace tidepool::nn
