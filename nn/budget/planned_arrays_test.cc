// What steps make beside features and labels, and what planning leaves as it was.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel_scopes.h"
#include "tidepool/ndarray/ops/ctc.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/budget/gradients_aside.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 16, kLength = 9, kWidth = 5;

class CountingListener final : public GradientListener {
 public:
  void GradientIsFinal(int) override { ++told; }
  int told = 0;
};

// Gradients that were computed and not applied yet are applied behind it, with the bits they had; the trainer knows whose they are.
TEST(StepBudgetTest, PlanningLeavesGradientsAndTheirListenerAlone) {
  const NetworkOptions options = SearchingBriefly(Options(WorkspaceMode::kEnabled));
  Network network = DeepNetwork("residual", 8, options), kept = DeepNetwork("residual", 8, options);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam)),
      keeping(kept, UpdaterConfig::Of(UpdaterKind::kAdam));
  CountingListener listener;
  network.set_gradient_listener(&listener);
  trainer.ComputeGradients(SomeBatch(4, 1));
  keeping.ComputeGradients(SomeBatch(4, 1));
  const int told = listener.told;
  EXPECT_GT(told, 0);
  const NDArray gradients = network.gradients();
  const std::string before = BytesOf(gradients);
  const uint32_t version = gradients.buffer()->version.load();
  const StepBudgetReport report =
      SetStepBudget(network, {.limit = "50%", .shape = {.batch = kBatch}});
  EXPECT_GE(report.timed_batch, 1);
  EXPECT_EQ(listener.told, told);
  EXPECT_EQ(network.gradients().buffer().get(), gradients.buffer().get());
  EXPECT_EQ(BytesOf(network.gradients()), before);
  EXPECT_EQ(gradients.buffer()->version.load(), version);
  EXPECT_TRUE(trainer.Update());
  EXPECT_TRUE(keeping.Update());
  EXPECT_EQ(BytesOf(network.arrays()), BytesOf(kept.arrays()));
  SetStepBudget(network, {.limit = "60%", .shape = {.batch = kBatch}});
  EXPECT_THAT(MessageOf([&] { trainer.Update(); }), HasSubstr("Update without gradients"));
  // One that fails, too.
  EXPECT_THAT(
      MessageOf([&] { SetStepBudget(network, {.limit = "1", .shape = {.batch = kBatch}}); }),
      HasSubstr("would have been enough"));
  EXPECT_EQ(BytesOf(network.gradients()), before);
  // And steps are as ever.
  EXPECT_EQ(trainer.Step([] { return SomeBatch(kBatch, 2); }),
            keeping.Step([] { return SomeBatch(kBatch, 2); }));
  EXPECT_GT(listener.told, told);
  EXPECT_EQ(BytesOf(network.arrays()), BytesOf(kept.arrays()));
}

// A few pages stand for all gradients of steps that are measured.
TEST(GradientsAside, TakesAThousandthOfTheMemory) {
  Network network(Shape{1000}, {Dense(1000), Dense(10)});
  const NDArray own = network.gradients();
  const int64_t process = MemoryBudget::Global().process().taken_bytes;
  {
    const GradientsAside aside(network);
    const NDArray& other = network.gradients();
    EXPECT_NE(other.raw_data(), own.raw_data());
    EXPECT_EQ(other.shape(), own.shape());
    EXPECT_EQ(MemoryBudget::Global().process().taken_bytes, process);
    constexpr size_t kPart = 64 << 10;
    std::set<std::byte> found;
    other.raw_data()[5] = std::byte{77};
    for (size_t at = 5; at < other.buffer()->bytes; at += kPart) found.insert(other.raw_data()[at]);
    EXPECT_EQ(found, std::set<std::byte>{std::byte{77}});
  }
  EXPECT_EQ(network.gradients().buffer().get(), own.buffer().get());
  EXPECT_EQ(own.At<float>({1}), 0);
}

// ---- Masks ----

struct MaskedCase {
  std::string name;
  std::vector<AnyLayer> layers;
  std::optional<Loss> loss;
  StepShape shape;
};

const InputConfig kOfLength = {"mask", {kLength}, DType::kFloat32};

std::vector<MaskedCase> MaskedCases() {
  std::vector<AnyLayer> deep(12, Lstm(16)), frames = deep;
  deep.push_back(GlobalPooling());
  deep.push_back(Dense(3));
  frames.push_back(Lstm(3));
  const InputConfig each_frame = {"label", {kLength}, DType::kInt64},
                    of_example = {"weight", {}, DType::kBool};
  StepShape shape{.batch = kBatch, .features_masks = {kOfLength}};
  std::vector<MaskedCase> cases = {{"lengths", deep, {}, shape}};
  shape.labels_masks = {of_example};
  cases.push_back({"lengths and weights", deep, {}, shape});
  shape.labels = {each_frame};
  shape.labels_masks = {kOfLength};
  cases.push_back({"frames", frames, Loss(LossKind::kSoftmaxCrossEntropy), shape});
  shape.features_masks = {std::nullopt};
  cases.push_back({"frames that count", frames, Loss(LossKind::kSoftmaxCrossEntropy), shape});
  return cases;
}

Network Made(const MaskedCase& one) {
  Network network(NetworkConfig::Sequential({kLength, kWidth}, one.layers),
                  SearchingBriefly(Options(WorkspaceMode::kEnabled)));
  if (one.loss.has_value()) network.set_loss(*one.loss);
  return network;
}

NDArray Prefixes(int64_t seed) {
  NDArray mask({kBatch, kLength}, DType::kFloat32);
  for (int64_t i = 0; i < kBatch * kLength; ++i)
    mask.mutable_data<float>()[i] = i % kLength <= (i / kLength + seed) % kLength ? 1.0f : 0.0f;
  return mask;
}

// The order in which a batch is made: one letter for features, labels and their masks (F, L).
Batch MaskedBatch(const StepShape& shape, const std::string& order, int64_t seed) {
  Batch batch;
  for (const char part : order) {
    if (part == 'f') {
      batch.features = RandomUniform({kBatch, kLength, kWidth}, -1, 1, static_cast<uint64_t>(seed));
    } else if (part == 'l') {
      std::vector<int64_t> dims = {kBatch};
      for (const int64_t dim : shape.labels[0].shape.span()) dims.push_back(dim);
      batch.labels = RandomIntegers(Shape(dims), 0, 3, static_cast<uint64_t>(seed));
    } else if (part == 'F' && !shape.features_masks.empty() && shape.features_masks[0]) {
      batch.features_mask = Prefixes(seed);
    } else if (part == 'L' && !shape.labels_masks.empty()) {
      if (shape.labels_masks[0]->dtype == DType::kFloat32) {
        batch.labels_mask = Prefixes(seed + 1);
      } else {
        batch.labels_mask = NDArray({kBatch}, DType::kBool);
        for (int64_t i = 0; i < kBatch; ++i)
          batch.labels_mask.mutable_data<bool>()[i] = (i + seed) % 3 != 0;
      }
    }
  }
  return batch;
}

TEST(StepBudgetTest, StepsWithMasksKeepToTheirBudgetsAndChangeNoBit) {
  constexpr int kSteps = 5;
  for (const MaskedCase& one : MaskedCases()) {
    Network unlimited = Made(one);
    TrainingBits expected;
    {
      Trainer trainer(unlimited, UpdaterConfig::Of(UpdaterKind::kAdam));
      for (int i = 0; i < kSteps; ++i)
        expected.losses.push_back(trainer.Step([&] { return MaskedBatch(one.shape, "flFL", i); }));
      expected.arrays = BytesOf(unlimited.arrays());
    }
    for (const std::string limit : {"75%", "50%"}) {
      for (const std::string order : {"flFL", "fFlL", "lLfF", "lfFL", "LFlf", "outside"}) {
        if (limit == "50%" && order != "flFL" && order != "outside") continue;
        SCOPED_TRACE(absl::StrCat(one.name, " ", limit, " ", order));
        Network network = Made(one);
        StepBudget budget{.limit = limit, .shape = one.shape};
        // Costs are given but once, so that it does not take long.
        const bool is_measured = order == "flFL" && limit == "75%";
        const size_t parts = one.layers.size() + 1;
        if (!is_measured) {
          budget.costs = StepCosts{std::vector<double>(parts, 1e-3),
                                   std::vector<double>(parts, 2e-3), 1e9, 1e9};
        }
        if (order == "outside") budget.strategy = BudgetStrategy::kSpill;
        const StepBudgetReport report = SetStepBudget(network, budget);
        EXPECT_EQ(report.timed_batch > 0, is_measured);
        EXPECT_LE(report.planned_bytes, report.limit_bytes);
        Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
        TrainingBits found;
        for (int i = 0; i < kSteps; ++i) {
          Batch outside = MaskedBatch(one.shape, order == "outside" ? "flFL" : "", i);
          found.losses.push_back(trainer.Step([&] {
            return order == "outside" ? std::move(outside) : MaskedBatch(one.shape, order, i);
          }));
          const StepBudgetOutcome outcome = OutcomeOf(network, report, 0);
          EXPECT_EQ(outcome.misses, 0u) << i;
          EXPECT_LE(outcome.actual_bytes, report.planned_bytes) << i;
          EXPECT_EQ(outcome.spilled_bytes, report.predicted.spilled_bytes) << i;
        }
        found.arrays = BytesOf(network.arrays());
        EXPECT_EQ(found, expected);
        if (order != "flFL") continue;
        EXPECT_EQ(OutcomeOf(network, report, 0).actual_bytes, report.planned_bytes);
      }
    }
  }
}

TEST(StepBudgetTest, MasksThatDoNotFitTheNetworkAreRefused) {
  const MaskedCase one = MaskedCases()[0];
  Network network = Made(one);
  const auto refused = [&](const StepShape& shape) {
    return MessageOf([&] { SetStepBudget(network, {.limit = "75%", .shape = shape}); });
  };
  StepShape shape = one.shape;
  shape.features_masks = {InputConfig{"mask", {kLength + 1}, DType::kFloat32}};
  EXPECT_THAT(refused(shape), HasSubstr("[16, 10]"));
  shape = one.shape;
  shape.labels_masks = {kOfLength};
  EXPECT_THAT(refused(shape), HasSubstr("the mask of labels 0 has shape [16, 9]"));
  EXPECT_EQ(network.activations(), nullptr);
}

// ---- Losses whose labels are not zeros ----

TEST(StepBudgetTest, StepsOfCtcArePlanned) {
  constexpr int64_t kMostLabels = 4;
  for (const int64_t blank : {0, 1, 4}) {
    for (const bool masked : {false, true}) {
      SCOPED_TRACE(absl::StrCat("blank ", blank, masked ? ", masked" : ""));
      const Loss loss(LossConfig{.kind = LossKind::kCtc, .blank = blank});
      StepShape shape{.batch = kBatch, .labels = {{"label", {kMostLabels}, DType::kInt64}}};
      if (masked) shape.labels_masks = {kOfLength};
      std::vector<AnyLayer> layers(12, Lstm(16));
      layers.push_back(Lstm(5));
      const MaskedCase one{"ctc", layers, loss, shape};
      const auto batch = [&](int64_t seed) {
        Batch made{RandomUniform({kBatch, kLength, kWidth}, -1, 1, static_cast<uint64_t>(seed)),
                   NDArray({kBatch, kMostLabels}, DType::kInt64)};
        for (int64_t i = 0; i < kBatch * kMostLabels; ++i) {
          const int64_t label = (i + seed) % 4;  // that are no blank
          made.labels.mutable_data<int64_t>()[i] = i % kMostLabels > (i / kMostLabels) % 3 ? -1
                                                   : label >= blank ? label + 1
                                                                    : label;
        }
        if (!masked) return made;
        made.labels_mask = Ones({kBatch, kLength});
        made.labels_mask.Slice(0, 2, 5).Slice(1, 7, kLength) = 0.0;
        return made;
      };
      Network network = Made(one), unlimited = Made(one);
      const StepBudgetReport report = SetStepBudget(network, {.limit = "60%", .shape = shape});
      EXPECT_GE(report.timed_batch, 1);
      EXPECT_LE(report.planned_bytes, report.limit_bytes);
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam)),
          keeping(unlimited, UpdaterConfig::Of(UpdaterKind::kAdam));
      for (int64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(trainer.Step([&] { return batch(i); }), keeping.Step([&] { return batch(i); }));
        const StepBudgetOutcome outcome = OutcomeOf(network, report, 0);
        EXPECT_EQ(outcome.misses, 0u) << i;
        EXPECT_EQ(outcome.actual_bytes, report.planned_bytes) << i;
      }
      EXPECT_EQ(BytesOf(network.arrays()), BytesOf(unlimited.arrays()));
    }
  }
}

// Classes of a program's own loss begin with 1 and are looked at on the host; whatever the program writes them by is in no plan.
TEST(StepBudgetTest, LabelsOfAProgramsOwnLossAreWrittenByIt) {
  const auto make = [] {
    std::vector<AnyLayer> layers(8, Dense(24, Activation::kTanh));
    layers.push_back(Dense(3));
    Network network(NetworkConfig::Sequential({20}, layers),
                    SearchingBriefly(Options(WorkspaceMode::kEnabled)));
    network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
      for (const int64_t label : inputs.labels[0].ToVector<int64_t>())
        if (label < 1 || label > 3) ThrowInvalidArgument("classes are 1 to 3");
      return SoftmaxCrossEntropy(outputs[0], inputs.labels[0] - 1).loss;
    });
    return network;
  };
  Network network = make(), unlimited = make();
  StepBudget budget{.limit = "80%", .shape = {.batch = 64, .other_batches = {5}}};
  EXPECT_EQ(MessageOf([&] { SetStepBudget(network, budget); }), "classes are 1 to 3");
  int calls = 0;
  std::set<int64_t> sizes;
  budget.shape.write_labels = [&](size_t number, NDArray& labels) {
    EXPECT_EQ(number, 0u);
    EXPECT_THAT(labels.ToVector<int64_t>(), testing::Each(0));
    sizes.insert(labels.dim(0));
    labels += 2;
    ++calls;
  };
  const StepBudgetReport report = SetStepBudget(network, budget);
  EXPECT_GE(calls, 10);
  EXPECT_TRUE(sizes.contains(64) && sizes.contains(5));
  EXPECT_LE(report.planned_bytes, report.limit_bytes);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam)),
      keeping(unlimited, UpdaterConfig::Of(UpdaterKind::kAdam));
  for (uint64_t i = 0; i < 4; ++i) {
    const auto batch = [i] {
      Batch made{RandomUniform({64, 20}, -1, 1, i), NDArray({64}, DType::kInt64)};
      for (int k = 0; k < 64; ++k) made.labels.mutable_data<int64_t>()[k] = 1 + k % 3;
      return made;
    };
    EXPECT_EQ(trainer.Step(batch), keeping.Step(batch));
    EXPECT_EQ(OutcomeOf(network, report, 0).misses, 0u) << i;
    EXPECT_EQ(OutcomeOf(network, report, 0).actual_bytes, report.planned_bytes) << i;
  }
  EXPECT_EQ(BytesOf(network.arrays()), BytesOf(unlimited.arrays()));
}

// As many as there is room and time for, beside any blank.
TEST(LossTest, SomeLabelsOfCtcAreTaken) {
  for (const int64_t classes : {1, 2, 3, 5}) {
    for (int64_t blank = 0; blank < classes; ++blank) {
      for (const int64_t frames : {1, 2, 7}) {
        for (const int64_t most : {1, 4, 9}) {
          SCOPED_TRACE(absl::StrCat(classes, " ", blank, " ", frames, " ", most));
          const Loss loss(LossConfig{.kind = LossKind::kCtc, .blank = blank});
          NDArray labels({2, most}, DType::kInt64);
          const NDArray output = Zeros({2, frames, classes});
          loss.WriteSomeLabels(output.shape(), labels);
          EXPECT_EQ(MessageOf([&] { loss.CheckLabels(output, labels); }), "nothing was thrown");
          int64_t count = 0;
          for (const int64_t label : labels.ToVector<int64_t>()) count += label >= 0;
          const int64_t frames_needed = classes > 2 ? frames : (frames + 1) / 2;
          EXPECT_EQ(count, classes == 1 ? 0 : 2 * std::min(most, frames_needed));
        }
      }
    }
  }
}

// What labels and lengths hold in a dry run is whatever memory held.
TEST(StepBudgetTest, LabelsAreNotLookedAtInDryRuns) {
  const NDArray garbage = Full({2, 3}, -7.0, DType::kInt64),
                lengths = Full({2}, 99.0, DType::kInt64);
  const NDArray row = garbage.Index(0, 0);
  EXPECT_THAT(MessageOf([&] { CheckCtcLabels(garbage, lengths, lengths, 5, 4); }),
              HasSubstr("input length 99"));
  EXPECT_THAT(MessageOf([&] { CheckSoftmaxLabels(row, 4); }), HasSubstr("label 0 is -7"));
  const KernelsOffScope off;
  EXPECT_NO_THROW(CheckCtcLabels(garbage, lengths, lengths, 5, 4));
  EXPECT_NO_THROW(CheckSoftmaxLabels(row, 4));
}

// ---- What updates make ----

TEST(StepBudgetTest, NormsThatGradientsAreClippedByAreInThePlanOfTheirTrainer) {
  for (const ClippingKind clipping : {ClippingKind::kGlobalNorm, ClippingKind::kNormOfEach}) {
    for (const bool scaled : {false, true}) {
      for (const char* const name : {"residual", "lstm"}) {
        SCOPED_TRACE(absl::StrCat(name, " ", static_cast<int>(clipping), scaled ? " scaled" : ""));
        const NetworkOptions options = SearchingBriefly(Options(WorkspaceMode::kEnabled));
        Network network = DeepNetwork(name, 8, options), unlimited = DeepNetwork(name, 8, options);
        UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kAdam);
        config.clipping = {clipping, 0.01};
        Trainer trainer(network, config), keeping(unlimited, config);
        if (scaled) {
          trainer.set_loss_scale({});
          keeping.set_loss_scale({});
        }
        const StepBudgetReport report = SetStepBudget(
            network, {.limit = "60%", .shape = {.batch = kBatch, .trainer = &trainer}});
        for (uint64_t i = 0; i < 4; ++i) {
          EXPECT_EQ(trainer.Step([&] { return SomeBatch(kBatch, i); }),
                    keeping.Step([&] { return SomeBatch(kBatch, i); }));
          const StepBudgetOutcome outcome = OutcomeOf(network, report, 0);
          EXPECT_EQ(outcome.misses, 0u) << i;
          EXPECT_EQ(outcome.actual_bytes, report.planned_bytes) << i;
        }
        EXPECT_EQ(BytesOf(network.arrays()), BytesOf(unlimited.arrays()));
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
