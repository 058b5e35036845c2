#include "tidepool/nn/budget/spilled_trainer.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/budget/parameter_plan.h"
#include "tidepool/nn/budget/spilled_training_runs.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/network_config.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(SpilledTrainer, HasTheBitsOfATrainer) {
  UpdaterConfig adamw = UpdaterConfig::Of(UpdaterKind::kAdamW);
  adamw.schedule = Schedule::Cosine(10);
  adamw.clipping = {ClippingKind::kValue, 0.5};
  for (const char* const name : {"mlp", "lenet", "residual", "lstm", "transformer"}) {
    const auto make = [&] { return ExampleNetwork(name, Options(WorkspaceMode::kEnabled)); };
    const Trained expected = InMemory(make(), adamw, 12);
    for (const int ahead : {0, 1, 3, 64})
      EXPECT_EQ(InAFile(make(), adamw, 12, ahead), expected) << name << ", ahead " << ahead;
  }
}

// The norm is of the same elements in the same order, what pads a parameter included: of doubles too, whose last bits say so.
TEST(SpilledTrainer, ClipsByTheNormOfEachParameter) {
  for (const UpdaterKind kind : {UpdaterKind::kSgd, UpdaterKind::kNesterovs, UpdaterKind::kAdamW}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      UpdaterConfig updater = UpdaterConfig::Of(kind);
      updater.clipping = {ClippingKind::kNormOfEach, 1e-3};
      Network whole = NetworkOf(dtype), parts = NetworkOf(dtype), unclipped = NetworkOf(dtype);
      Trainer trainer(whole, updater);
      SpilledTrainer spilled(parts, updater, {.file = SmallBlocks(), .ahead = 1});
      updater.clipping = {};
      Trainer other(unclipped, updater);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(StepIn(dtype, spilled, i), StepIn(dtype, trainer, i))
            << UpdaterName(kind) << " " << i;
        StepIn(dtype, other, i);
      }
      Trained expected, trained;
      for (const NamedParameter& parameter : whole.named_parameters())
        expected.parameters.push_back(BitsOf(parameter.value));
      AddParameters(spilled, parts, &trained);
      EXPECT_EQ(trained, expected) << UpdaterName(kind) << " " << DTypeName(dtype);
      EXPECT_NE(BitsOf(unclipped.named_parameters()[0].value), expected.parameters[0]);
    }
  }
  UpdaterConfig clipped = UpdaterConfig::Of(UpdaterKind::kAdam);
  clipped.clipping = {ClippingKind::kNormOfEach, 0.05};
  for (const char* const name : {"lenet", "lstm", "transformer"}) {
    const auto make = [&] { return ExampleNetwork(name, Options(WorkspaceMode::kEnabled)); };
    EXPECT_EQ(InAFile(make(), clipped, 5, 1), InMemory(make(), clipped, 5)) << name;
  }
}

TEST(SpilledTrainer, OfEachUpdater) {
  for (const UpdaterKind kind : {UpdaterKind::kSgd, UpdaterKind::kNesterovs, UpdaterKind::kAdaGrad,
                                 UpdaterKind::kRmsProp, UpdaterKind::kAdam, UpdaterKind::kAdamW}) {
    UpdaterConfig updater = UpdaterConfig::Of(kind);
    if (kind != UpdaterKind::kAdamW) updater.l2 = 0.01;
    const auto make = [] { return ExampleNetwork("lenet", Options(WorkspaceMode::kEnabled)); };
    EXPECT_EQ(InAFile(make(), updater, 5, 1), InMemory(make(), updater, 5)) << UpdaterName(kind);
  }
}

TEST(SpilledTrainer, OfEachModeAndOfDoubles) {
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  for (const WorkspaceMode mode : kModes) {
    const auto make = [&] { return DeepNetwork("convolutions", 6, Options(mode)); };
    EXPECT_EQ(InAFile(make(), adam, 5, 2), InMemory(make(), adam, 5)) << static_cast<int>(mode);
  }
  constexpr DType kDoubles = DType::kFloat64;
  Network whole = NetworkOf(kDoubles), parts = NetworkOf(kDoubles);
  Trainer trainer(whole, adam);
  SpilledTrainer spilled(parts, adam, {.file = SmallBlocks(), .ahead = 1});
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(StepIn(kDoubles, spilled, i), StepIn(kDoubles, trainer, i)) << i;
}

// A parameter that the second and the last but one layer read is a unit by itself, which is there in between.
TEST(SpilledTrainer, ParametersOfSeveralLayers) {
  const auto make = [] {
    NetworkConfig config;
    config.AddInput("image", {28, 28, 1});
    config.Add(ReshapeLayer({28, 28}), {"image"}, "rows");
    std::string x = "rows";
    for (int i = 0; i < 6; ++i)
      x = config.Add(Dense(28, Activation::kTanh, {.last_axis = true}), {x},
                     absl::StrCat("dense", i));
    config.nodes[5].tied = {{"weight", "dense1.weight"}};
    config.Add(GlobalPooling(), {x}, "pool");
    config.Add(Dense(10), {"pool"}, "out");
    config.outputs = {"out"};
    return Network(config, Options(WorkspaceMode::kEnabled));
  };
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  const Trained expected = InMemory(make(), adam, 6);
  for (const int ahead : {0, 1, 2}) EXPECT_EQ(InAFile(make(), adam, 6, ahead), expected) << ahead;
}

TEST(SpilledTrainer, AModelOfFourTimesTheLimitTrains) {
  constexpr int kLayers = 48, kWidth = 160;
  constexpr int64_t kLayerBytes = (int64_t{kWidth} * kWidth + kWidth) * 4,
                    kParameters = kLayers * kLayerBytes;
  // Parameters and the two moments of Adam, beside gradients.
  constexpr int64_t kLimit = 3 * kParameters / 4;
  const auto make = [](bool hosted) {
    std::vector<AnyLayer> layers;
    for (int i = 0; i + 1 < kLayers; ++i) layers.push_back(Dense(kWidth, Activation::kTanh));
    layers.push_back(Dense(kWidth));
    return Network(NetworkConfig::Sequential({kWidth}, layers),
                   {.seed = 3, .hosted_parameters = hosted});
  };
  const auto batch = [](int i) {
    return [i] {
      return Batch(RandomUniform({2, kWidth}, -1, 1, static_cast<uint64_t>(i)),
                   Full({2}, i % kWidth, DType::kInt64));
    };
  };
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  std::vector<double> expected;
  {
    Network network = make(false);
    Trainer trainer(network, adam);
    for (int i = 0; i < 4; ++i) expected.push_back(trainer.Step(batch(i)));
  }
  MemoryOwner& small = MemoryOwner::Process().Child("a small machine");
  MemoryBudget::Global().SetOwnerLimit(small, Host(), kLimit);
  {
    const MemoryOwnerScope owner(small);
    EXPECT_THROW(
        {
          Network network = make(false);
          Trainer trainer(network, adam);
        },
        OutOfMemoryError);
    PeakScope peak(Host(), &small);
    const auto file =
        std::make_shared<SpillFile>(SpillFileOptions{.block_bytes = 65536, .in_flight = 2});
    Network network = make(true);
    SpilledTrainer trainer(network, adam, {.file = file, .ahead = 8, .memory_bytes = kLimit / 2});
    const SpilledTrainerStats before = trainer.stats();
    EXPECT_GE(before.ahead, 1);
    EXPECT_LT(before.ahead, 8);
    EXPECT_LE(before.step_bytes, kLimit / 2);
    EXPECT_EQ(before.parameter_bytes, kParameters);
    std::vector<double> losses;
    for (int i = 0; i < 4; ++i) losses.push_back(trainer.Step(batch(i)));
    EXPECT_EQ(losses, expected);
    EXPECT_LE(peak.peak_bytes(), kLimit);

    // What is moved: parameters twice but for those that stay from pass to pass, back once; state both ways.
    const SpilledTrainerStats first = trainer.stats();
    EXPECT_EQ(first.state_bytes, 2 * kParameters);
    trainer.Step(batch(4));
    const SpilledTrainerStats after = trainer.stats();
    EXPECT_EQ(after.read_bytes - first.read_bytes,
              4 * kParameters - (before.ahead + 1) * kLayerBytes);
    EXPECT_EQ(after.written_bytes - first.written_bytes, 3 * kParameters);
    EXPECT_EQ(network.Output(Ones({1, kWidth})).dim(1), kWidth);
  }
  MemoryBudget::Global().SetOwnerLimit(small, Host(), MemoryBudget::kUnlimited);
}

TEST(SpilledTrainer, FilesAreThoseOfAnyNetwork) {
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  const std::string path = testing::TempDir() + "/spilled.safetensors";
  Network network = DeepNetwork("residual", 3, Options(WorkspaceMode::kEnabled)),
          whole = DeepNetwork("residual", 3, {.seed = 77});
  const NDArray x = Features(3);
  SpilledTrainer trainer(network, adam, {.file = SmallBlocks()});
  Trained trained;
  Train(trainer, 0, 3, &trained);
  trainer.SaveParameters(path);
  LoadParameters(path, whole);
  EXPECT_EQ(BitsOf(network.Output(x)), BitsOf(whole.Output(x)));

  Network other = DeepNetwork("residual", 3, {.seed = 5, .hosted_parameters = true});
  SpilledTrainer again(other, adam, {.file = SmallBlocks()});
  EXPECT_NE(BitsOf(other.Output(x)), BitsOf(whole.Output(x)));
  again.LoadParameters(path);
  EXPECT_EQ(BitsOf(other.Output(x)), BitsOf(whole.Output(x)));

  NDArray value = again.Value(0);
  value *= 2.0;
  again.SetValue(0, value);
  EXPECT_EQ(BitsOf(again.Value(0)), BitsOf(value));
  EXPECT_EQ(BitsOf(again.Value(1)), BitsOf(trainer.Value(1)));
  EXPECT_THAT(MessageOf([&] { again.SetValue(0, Zeros({1})); }),
              AllOf(HasSubstr("parameter \"stem.filter\""), HasSubstr("[1]")));
  EXPECT_THAT(MessageOf([&] { again.Value(-1); }), HasSubstr("parameter -1"));
}

TEST(SpilledTrainer, WhatCannotBeIsRefusedAndChangesNothing) {
  Network network = DeepNetwork("convolutions", 4, Options(WorkspaceMode::kEnabled));
  const std::string before = BitsOf(network.parameters());
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  EXPECT_THAT(MessageOf([&] { SpilledTrainer trainer(network, adam, {.ahead = 65}); }),
              HasSubstr("ahead is 65"));
  EXPECT_THAT(MessageOf([&] { SpilledTrainer trainer(network, adam, {.memory_bytes = 100}); }),
              HasSubstr("memory_bytes is 100"));
  EXPECT_EQ(MessageOf([&] { SpilledTrainer trainer(network, adam, {.memory_bytes = -1}); }),
            "spilled trainer: memory_bytes is -1, expected 0 (no limit) or more");
  const auto full =
      std::make_shared<SpillFile>(SpillFileOptions{.capacity_bytes = 4096, .block_bytes = 4096});
  EXPECT_THROW(SpilledTrainer(network, adam, {.file = full}), Error);
  EXPECT_EQ(BitsOf(network.parameters()), before);
  Network program = ExampleNetwork("program", Options(WorkspaceMode::kEnabled));
  EXPECT_THAT(MessageOf([&] { SpilledTrainer trainer(program, adam); }),
              HasSubstr("hosted parameters of a program"));
  {
    SpilledTrainer trainer(network, adam, {.file = SmallBlocks()});
    trainer.Step([] { return SomeBatch(2, 1); });
  }
  EXPECT_THAT(MessageOf([&] { network.Output(Features(1)); }), HasSubstr("nobody hosts them now"));
}

// A second one would have the first one's steps compute with parameters that nobody updates.
TEST(SpilledTrainer, OneAtATimeTrainsANetwork) {
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  const auto make = [] { return ExampleNetwork("lenet", Options(WorkspaceMode::kEnabled)); };
  const Trained expected = InMemory(make(), adam, 6);
  Network network = make();
  Trained trained;
  auto first =
      std::make_unique<SpilledTrainer>(network, adam, SpilledTrainerOptions{.file = SmallBlocks()});
  Train(*first, 0, 2, &trained);
  const auto file = SmallBlocks();
  const absl::Status second =
      CatchStatus([&] { SpilledTrainer trainer(network, adam, {.file = file}); });
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.message(), HasSubstr("expected one at a time"));
  EXPECT_EQ(file->stats().written.bytes, 0);  // it is refused before anything is done
  Train(*first, 2, 6, &trained);
  AddParameters(*first, network, &trained);
  EXPECT_EQ(trained, expected);

  const std::string path = testing::TempDir() + "/one_at_a_time.safetensors";
  first->SaveCheckpoint(path);
  first.reset();
  SpilledTrainer next(network, adam, {.file = SmallBlocks()});
  next.LoadCheckpoint(path);
  Train(next, 6, 8, &trained);
  trained.parameters.clear();
  AddParameters(next, network, &trained);
  EXPECT_EQ(trained, InMemory(make(), adam, 8));
}

// Offsets of what is there at the same time lie apart: values and state from where reading begins to where writing has ended.
TEST(ParameterPlan, NothingThatIsThereOverlaps) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    uint32_t random = seed * 2654435761u;
    const auto draw = [&](uint32_t below) {
      return static_cast<int>((random = random * 1664525u + 1013904223u) >> 8) %
             static_cast<int>(below);
    };
    const int places = 1 + draw(12), ahead = draw(5), states = draw(3);
    std::vector<UnitUse> units;
    for (int i = 0, count = 1 + draw(14); i < count; ++i) {
      const int first = draw(static_cast<uint32_t>(places));
      units.push_back(
          {first, first + draw(static_cast<uint32_t>(places - first)), 64 * (1 + draw(9))});
    }
    const ParameterPlan plan = PlanParameters(units, places, ahead, states, 64);
    struct Range {
      int64_t begin, end;
    };
    for (int place = 0; place < places; ++place) {
      std::vector<Range> there;
      for (size_t u = 0; u < units.size(); ++u) {
        const UnitUse& unit = units[u];
        const auto add = [&](int from, int to, int64_t offset, int64_t bytes) {
          if (from <= place && place <= to && bytes > 0) there.push_back({offset, offset + bytes});
        };
        add(unit.first - ahead, unit.last + ahead, plan.values[u], unit.bytes);
        add(unit.first, unit.last, plan.gradients[u], unit.bytes);
        add(unit.first - ahead, unit.first + ahead, plan.states[u], unit.bytes * states);
      }
      for (size_t a = 0; a < there.size(); ++a) {
        EXPECT_LE(there[a].end, plan.bytes);
        for (size_t b = 0; b < a; ++b)
          EXPECT_TRUE(there[a].end <= there[b].begin || there[b].end <= there[a].begin)
              << "seed " << seed << ", place " << place;
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
