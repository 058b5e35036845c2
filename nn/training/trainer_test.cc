// The life of a training step: its batch owns what it makes, the trainer and the model keep theirs.
#include "tidepool/nn/training/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/allocation_counter.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

Model SmallModel() { return MakeModel("mlp", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled); }
UpdaterConfig Adam() { return UpdaterConfig::Of(UpdaterKind::kAdam); }

Batch SomeBatch(int64_t size = 8) {
  return {RandomUniform({size, 28, 28, 1}, 0, 1, 3), Zeros({size}, DType::kInt64)};
}

TEST(TrainerTest, DjlCase112TheBatchOwnsTheStepAndClosingItFreesIt) {
  Model model = SmallModel();
  Trainer trainer(model, Adam());
  NDArray features, made;
  {
    Batch batch = trainer.NewBatch([] { return SomeBatch(); });
    features = batch.features;
    EXPECT_TRUE(batch.manager.Manages(features));
    EXPECT_TRUE(features.IsAttached());
    const ManagerScope scope(batch.manager);
    made = Add(features, features);
    EXPECT_TRUE(batch.manager.Manages(made));
    EXPECT_GT(trainer.ComputeGradients(batch), 0);
    trainer.Update();
  }
  EXPECT_FALSE(features.IsInScope());
  EXPECT_FALSE(made.IsInScope());
  EXPECT_EQ(trainer.steps(), 1);
  EXPECT_EQ(trainer.manager().arrays(), 2);  // Adam's moments
  EXPECT_EQ(model.manager.arrays(), 2);      // parameters, gradients
  EXPECT_EQ(model.network->training_workspace().stats().leaked_arrays, 0u);
}

TEST(TrainerTest, AnUpdateIsByGradientsOfItsOwn) {
  Model model = SmallModel();
  Trainer trainer(model, Adam());
  const std::vector<float> before = model.network->parameters().ToVector<float>();
  EXPECT_THROW(trainer.Update(), Error);
  EXPECT_EQ(trainer.steps(), 0);
  {
    Batch batch = trainer.NewBatch([] { return SomeBatch(); });
    trainer.ComputeGradients(batch);
    EXPECT_TRUE(trainer.Update());
    EXPECT_THROW(trainer.Update(), Error);
  }
  EXPECT_EQ(trainer.steps(), 1);
  trainer.Step([] { return SomeBatch(); });
  EXPECT_EQ(trainer.steps(), 2);
}

TEST(TrainerTest, DjlCase114BatchesMoveAndCloseTwice) {
  Model model = SmallModel();
  Trainer trainer(model, Adam());
  Batch batch = trainer.NewBatch([] { return SomeBatch(); });
  EXPECT_THROW(trainer.NewBatch([] { return SomeBatch(); }), Error);  // the cycle is taken
  Batch moved = std::move(batch);
  EXPECT_GT(trainer.ComputeGradients(moved), 0);
  moved.Close();
  moved.Close();
  EXPECT_FALSE(model.network->training_workspace().is_open());
  batch = trainer.NewBatch([] { return SomeBatch(); });
  EXPECT_EQ(batch.size(), 8);
}

TEST(TrainerTest, ATrainerThatEndsEndsItsBatchAsWell) {
  Model model = SmallModel();
  Batch batch;
  {
    Trainer trainer(model, Adam());
    batch = trainer.NewBatch([] { return SomeBatch(); });
    EXPECT_GT(trainer.ComputeGradients(batch), 0);
  }
  EXPECT_FALSE(batch.features.IsInScope());
  EXPECT_FALSE(Ones({2}).IsAttached());
  Trainer next(model, Adam());
  next.Step([] { return SomeBatch(); });
  EXPECT_EQ(next.steps(), 1);
}

TEST(TrainerTest, DjlCase113AThousandStepsGrowNothingAlsoWhenEveryThirdThrows) {
  Model model = SmallModel();
  Trainer trainer(model, Adam());
  const auto once = [&](int i) {
    if (i % 3 == 2) {
      EXPECT_THROW(trainer.Step([]() -> Batch {
        const Batch unused = SomeBatch();
        ThrowDataLoss("reader: broken file");
      }),
                   Error);
    } else {
      trainer.Step([] { return SomeBatch(); });
    }
  };
  for (int i = 0; i < 12; ++i) once(i);
  const OwnershipSnapshot before = NDManager::System().Snapshot();
  const int64_t system = MemoryTracker::Global().system_allocations();
  for (int i = 0; i < 1000; ++i) once(i);
  EXPECT_EQ(ToString(Diff(before, NDManager::System().Snapshot())), "");
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), system);
}

TEST(TrainerTest, StepsAreThoseOfABareNetwork) {
  Model with = SmallModel(), without = SmallModel();
  Trainer managed(with, Adam()), bare(*without.network, Adam());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(managed.Step([] { return SomeBatch(); }), bare.Step([] { return SomeBatch(); }));
  }
  EXPECT_EQ(with.network->parameters().ToVector<float>(),
            without.network->parameters().ToVector<float>());
  EXPECT_THAT(CatchStatus([&] { bare.NewBatch([] { return SomeBatch(); }); }).message(),
              HasSubstr("needs a trainer of a model"));
}

TEST(TrainerTest, DjlCase123ATrainerLeavesNothingBehind) {
  Model model = SmallModel();
  const OwnershipSnapshot before = NDManager::System().Snapshot();
  const int64_t heap = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated);
  for (int i = 0; i < 20; ++i) {
    Trainer trainer(model, Adam());
    trainer.Step([] { return SomeBatch(); });
  }
  EXPECT_EQ(ToString(Diff(before, NDManager::System().Snapshot())), "");
  EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated), heap);
}

TEST(TrainerTest, ABatchOfNoExamplesIsRefusedAndTheNextStepIsAsEver) {
  Model with = SmallModel(), without = SmallModel(), reference = SmallModel();
  Trainer managed(with, Adam()), bare(*without.network, Adam()), expected(reference, Adam());
  for (Trainer* trainer : {&managed, &bare}) {
    const auto refused = CatchStatus([&] { trainer->Step([] { return SomeBatch(0); }); });
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(),
                HasSubstr("a batch of no examples, shape [0, 28, 28, 1], expected "
                          "at least one"));
    EXPECT_EQ(trainer->steps(), 0);
  }
  {
    const Batch batch = managed.NewBatch([] { return SomeBatch(0); });
    EXPECT_THAT(CatchStatus([&] { managed.ComputeGradients(batch); }).message(),
                HasSubstr("a batch of no examples"));
  }
  const double loss = expected.Step([] { return SomeBatch(); });
  EXPECT_EQ(managed.Step([] { return SomeBatch(); }), loss);
  EXPECT_EQ(bare.Step([] { return SomeBatch(); }), loss);
  EXPECT_EQ(with.network->parameters().ToVector<float>(),
            reference.network->parameters().ToVector<float>());
}

TEST(TrainerTest, ANetworkThatWasMovedFromIsRefused) {
  Model model = SmallModel();
  Trainer bare(*model.network, Adam()), managed(model, Adam());
  const Network moved = std::move(*model.network);
  for (Trainer* trainer : {&bare, &managed}) {
    EXPECT_THAT(CatchStatus([&] { trainer->Step([] { return SomeBatch(); }); }).message(),
                HasSubstr("the network was moved from"));
  }
  EXPECT_THAT(CatchStatus([&] { Trainer(model, Adam()); }).message(),
              HasSubstr("the network was moved from"));
}

TEST(TrainerTest, ClosingTheModelEndsTheTrainer) {
  Model model = SmallModel();
  Trainer trainer(model, Adam());
  trainer.Step([] { return SomeBatch(); });
  model.Close();
  EXPECT_THAT(CatchStatus([&] { trainer.Step([] { return SomeBatch(); }); }).message(),
              HasSubstr("model \"mlp\" is closed"));
  EXPECT_THAT(CatchStatus([&] { Trainer(model, Adam()); }).message(), HasSubstr("is closed"));
  Model other = SmallModel();
  Trainer closed(other, Adam());
  closed.Close();
  closed.Close();
  EXPECT_THROW(closed.Step([] { return SomeBatch(); }), Error);
}

TEST(TrainerTest, ASteadyStepAllocatesNothing) {
  for (const char* name : {"mlp", "lenet"}) {
    Model model = MakeModel(name, {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled);
    Trainer trainer(model, Adam());
    const auto step = [&] { trainer.Step([] { return SomeBatch(); }); };
    for (int i = 0; i < 5; ++i) step();
    model.network->training_workspace().FinishPlanSearch();
    step();
    const int64_t before = AllocationCount();
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(AllocationCount() - before, 0) << name;
  }
}

TEST(TrainerTest, GoesOnWhenItsModelIsMovedAndSaysSoWhenItIsGone) {
  auto model = std::make_unique<Model>(SmallModel());
  Trainer trainer(*model, Adam());
  const double first = trainer.Step([] { return SomeBatch(); });
  Model moved = std::move(*model);
  model.reset();
  EXPECT_LT(trainer.Step([] { return SomeBatch(); }), first);
  moved = SmallModel();  // the trainer's model is gone
  EXPECT_THAT(CatchStatus([&] { trainer.Step([] { return SomeBatch(); }); }).message(),
              HasSubstr("trainer: model \"mlp\" was destroyed"));
  EXPECT_THAT(CatchStatus([&] { trainer.NewBatch([] { return SomeBatch(); }); }).message(),
              HasSubstr("was destroyed"));
  Model nothing;
  EXPECT_THAT(CatchStatus([&] { Trainer none(nothing, Adam()); }).message(),
              HasSubstr("trainer: the model has no network"));
}

TEST(TrainerTest, FeaturesOfAnotherTypeAreNamed) {
  Model model = SmallModel();
  Trainer trainer(model, Adam());
  const auto step = [&](DType dtype) {
    return CatchStatus([&] {
      trainer.Step([&]() -> Batch {
        return {Zeros({2, 28, 28, 1}, dtype), Zeros({2}, DType::kInt64)};
      });
    });
  };
  EXPECT_THAT(step(DType::kFloat64).message(),
              HasSubstr("network: features are f64, expected f32"));
  EXPECT_THAT(step(DType::kUInt8).message(), HasSubstr("network: features are u8, expected f32"));
  EXPECT_TRUE(step(DType::kFloat32).ok());
}

// ---- The workspace's configuration ----

TEST(TrainerTest, AWorkspaceIsConfiguredByTheTrainer) {
  for (const WorkspaceMode mode :
       {WorkspaceMode::kSingle, WorkspaceMode::kSeparate, WorkspaceMode::kEnabled}) {
    SCOPED_TRACE(static_cast<int>(mode));
    Model plain = MakeModel("mlp", {28, 28, 1}, 10, 7, mode),
          model = MakeModel("mlp", {28, 28, 1}, 10, 7, mode),
          bare = MakeModel("mlp", {28, 28, 1}, 10, 7, mode);
    WorkspaceConfig config;
    config.initial_size = 24 << 20;
    config.policy_learning = LearningPolicy::kNone;
    Trainer expected(plain, Adam()), of_model(model, Adam(), config),
        of_network(*bare.network, Adam(), config);
    for (const Model* const configured : {&model, &bare}) {
      const Workspace& workspace = configured->network->training_workspace();
      EXPECT_EQ(workspace.size(), size_t{24} << 20);
      EXPECT_EQ(workspace.config().policy_learning, LearningPolicy::kNone);
      EXPECT_EQ(configured->network->training_mode(), mode);
    }
    for (int i = 0; i < 3; ++i) {
      const double loss = expected.Step([] { return SomeBatch(); });
      EXPECT_EQ(of_model.Step([] { return SomeBatch(); }), loss);
      EXPECT_EQ(of_network.Step([] { return SomeBatch(); }), loss);
    }
    EXPECT_EQ(model.network->parameters().ToVector<float>(),
              plain.network->parameters().ToVector<float>());
    EXPECT_EQ(model.network->training_workspace().size(), size_t{24} << 20);  // learns nothing
    // With all reasons, and the network keeps what it has.
    const WorkspaceConfig valid = config;
    config.alignment = 3;
    config.workspace_mode =
        mode == WorkspaceMode::kSingle ? WorkspaceMode::kSeparate : WorkspaceMode::kSingle;
    for (const bool of_a_model : {true, false}) {
      const auto refused = CatchStatus([&] {
        of_a_model ? Trainer(model, Adam(), config) : Trainer(*model.network, Adam(), config);
      });
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(refused.message(),
                  testing::AllOf(HasSubstr("workspace_mode is "), HasSubstr("the network's is "),
                                 HasSubstr("alignment")));
    }
    EXPECT_EQ(model.network->training_workspace().size(), size_t{24} << 20);
    EXPECT_EQ(of_model.Step([] { return SomeBatch(); }), expected.Step([] { return SomeBatch(); }));
    // Not while a step is under way.
    const Batch batch = of_model.NewBatch([] { return SomeBatch(); });
    EXPECT_EQ(CatchStatus([&] { Trainer(model, Adam(), valid); }).code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

// The layer goes by averages that are frozen, as it does where all of it is, and trains the rest.
TEST(TrainerTest, RunningAveragesThatAreFrozenStayAndAreGoneBy) {
  for (const char* const frozen : {"1.batch_norm.running_*", "*.running_mean"}) {
    NetworkOptions options;
    options.seed = 3;
    options.frozen = {frozen};
    Network network(NetworkConfig::Sequential({3}, {Dense(4), BatchNormalization(), Dense(2)}),
                    options);
    const auto value = [&](const std::string& name) {
      for (const NamedParameter& parameter : network.named_parameters()) {
        if (parameter.name == "1.batch_norm." + name) return parameter.value;
      }
      return NDArray();
    };
    NDArray mean = value("running_mean"), variance = value("running_variance");
    CopyInto(RandomUniform({4}, -1, 1, 1), mean);
    CopyInto(RandomUniform({4}, 0.5, 2, 2), variance);
    const std::vector<float> means = mean.ToVector<float>(), variances = variance.ToVector<float>(),
                             scales = value("scale").ToVector<float>();
    EXPECT_FALSE(network.beside().is_defined());  // nothing moves in a step
    const NDArray x = RandomUniform({8, 3}, 1, 2, 3);
    const Network::RunOptions training{.training = true};
    EXPECT_EQ(network.Run({x}, training)[0].ToVector<float>(),
              network.Run({x})[0].ToVector<float>());
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    for (int i = 0; i < 3; ++i)
      trainer.Step([&] { return Batch(x, RandomIntegers({8}, 0, 2, 4)); });
    EXPECT_EQ(mean.ToVector<float>(), means) << frozen;
    EXPECT_EQ(variance.ToVector<float>(), variances) << frozen;
    EXPECT_NE(value("scale").ToVector<float>(), scales) << frozen;
  }
}

// Counts its steps in a state of its own.
struct Counting : Block {
  NDArray Forward(const NDArray& x) const override {
    NDArray steps = count();
    if (is_training()) steps += 1;
    return dense(x);
  }
  Part dense{*this, "dense", Dense(2)};
  BlockParameter count{*this, "count", ParameterSpec{.shape = {1}, .is_trained = false}};
};

TEST(TrainerTest, WhatAProgramKeepsStaysWhereItIsFrozen) {
  for (const bool is_frozen : {false, true}) {
    NetworkOptions options;
    if (is_frozen) options.frozen = {"count"};
    Network network({{"x", {3}}}, std::make_unique<Counting>(), options);
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    for (int i = 0; i < 3; ++i)
      trainer.Step([] { return Batch(Ones({2, 3}), Zeros({2}, DType::kInt64)); });
    EXPECT_EQ(network.named_parameters()[2].name, "count");
    EXPECT_EQ(network.named_parameters()[2].value.ToVector<float>(),
              std::vector<float>{is_frozen ? 0.0f : 3.0f});
  }
}

}  // namespace
}  // namespace tidepool::nn
