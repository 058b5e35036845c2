// Networks whose layers compute in 16 bits, and the scale of their loss: what is skipped, what ends
// a training, what is resumed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/allocation_counter.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

Network SmallNetwork(std::optional<DType> compute_type,
                     WorkspaceMode mode = WorkspaceMode::kEnabled) {
  NetworkOptions options;
  options.seed = 3;
  options.mode = mode;
  options.compute_type = compute_type;
  return Network(NetworkConfig::Sequential(
                     {6}, {Dense(16, Activation::kTanh), BatchNormalization(), Dense(3)}),
                 options);
}

Batch BatchOf(int64_t i) {
  const auto seed = static_cast<uint64_t>(i);
  return {RandomUniform({16, 6}, -1, 1, seed), RandomIntegers({16}, 0, 3, seed)};
}
// What no scale makes finite.
Batch BrokenBatch() {
  return {Full({16, 6}, std::numeric_limits<float>::infinity()), Zeros({16}, DType::kInt64)};
}

UpdaterConfig Adam() { return UpdaterConfig::Of(UpdaterKind::kAdam); }

// Powers of two go through f32 unchanged: scaled and scaled back, gradients are the same bits.
TEST(MixedPrecision, AScaleThatIsTakenBackChangesNoBitOfF32) {
  for (const ClippingKind clipping : {ClippingKind::kNone, ClippingKind::kGlobalNorm}) {
    UpdaterConfig config = Adam();
    config.clipping = {clipping, 0.25};
    Network plain = SmallNetwork({}), scaled = SmallNetwork({});
    Trainer expected(plain, config), trainer(scaled, config);
    trainer.set_loss_scale({.first = 4096, .growth_interval = 3});
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(trainer.Step([&] { return BatchOf(i); }),
                expected.Step([&] { return BatchOf(i); }));
    }
    EXPECT_EQ(trainer.loss_scale()->scale(), 65536);
    EXPECT_EQ(trainer.loss_scale()->skipped(), 0);
    const std::vector<float> a = scaled.arrays().ToVector<float>(),
                             b = plain.arrays().ToVector<float>();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-6) << i;
    EXPECT_EQ(scaled.loss_scale(), 1);  // the program's own gradients are as ever
  }
}

// f16 reaches to 65504: a scale of 2^24 is too large until it has been halved often enough.
TEST(MixedPrecision, StepsWhoseGradientsOverflowAreSkippedAndCounted) {
  for (WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kSingle,
                             WorkspaceMode::kSeparate, WorkspaceMode::kNone}) {
    Network network = SmallNetwork(DType::kFloat16, mode);
    Trainer trainer(network, Adam());
    trainer.set_loss_scale({.first = 0x1p24});
    int64_t skipped = 0;
    for (int i = 0; i < 12; ++i) {
      const std::vector<float> before = network.parameters().ToVector<float>(),
                               moments = trainer.updater().state()[0]->ToVector<float>();
      const int64_t steps = trainer.steps();
      const double scale = trainer.loss_scale()->scale(),
                   loss = trainer.Step([&] { return BatchOf(i); });
      EXPECT_TRUE(std::isfinite(loss));
      const bool is_skipped = trainer.loss_scale()->skipped() > skipped;
      skipped = trainer.loss_scale()->skipped();
      EXPECT_EQ(trainer.steps(), steps + (is_skipped ? 0 : 1));
      EXPECT_EQ(network.parameters().ToVector<float>() == before, is_skipped);
      EXPECT_EQ(trainer.updater().state()[0]->ToVector<float>() == moments, is_skipped);
      EXPECT_EQ(trainer.loss_scale()->scale(), is_skipped ? scale / 2 : scale);
    }
    EXPECT_GT(skipped, 2);
    EXPECT_GT(trainer.steps(), 2);
    EXPECT_EQ(network.step(), 12u);  // random numbers of a skipped step are not drawn again
  }
}

// Gradients of a loss that is small are nothing in f16, and something by its scale.
TEST(MixedPrecision, SmallGradientsSurviveByTheScale) {
  const auto moved = [](bool scales) {
    Network network = SmallNetwork(DType::kFloat16);
    network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
      return SoftmaxCrossEntropy(outputs[0], inputs.labels[0]).loss * 1e-7;
    });
    const std::vector<float> before = network.parameters().ToVector<float>();
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    if (scales) trainer.set_loss_scale({.first = 0x1p22});
    trainer.Step([] { return BatchOf(1); });
    const std::vector<float> after = network.parameters().ToVector<float>();
    int count = 0;
    for (size_t i = 0; i < after.size(); ++i) count += after[i] != before[i] ? 1 : 0;
    return count;
  };
  const int without = moved(false), with = moved(true);
  EXPECT_LT(without, with / 10);
  EXPECT_GT(with, 100);
}

TEST(MixedPrecision, WhereTheScaleCanGoNoLowerTrainingHasDiverged) {
  Network network = SmallNetwork(DType::kFloat16);
  Trainer trainer(network, Adam());
  trainer.set_loss_scale({.first = 8, .least = 2});
  trainer.Step([] { return BatchOf(1); });
  const std::vector<float> before = network.parameters().ToVector<float>(),
                           arrays = network.arrays().ToVector<float>();
  trainer.Step([] { return BrokenBatch(); });
  trainer.Step([] { return BrokenBatch(); });
  EXPECT_EQ(trainer.loss_scale()->scale(), 2);
  const auto broken = [&] { trainer.Step([] { return BrokenBatch(); }); };
  EXPECT_THROW(broken(), DivergedError);
  const Error error = ErrorOf(broken);
  EXPECT_THAT(error, IsError(StatusCode::kDataLoss, {"gradients of network [network",
                                                     "are not finite behind step 1 at loss scale 2",
                                                     "training has diverged"}));
  EXPECT_EQ(network.parameters().ToVector<float>(), before);
  EXPECT_EQ(trainer.loss_scale()->skipped(), 4);
  EXPECT_FALSE(network.training_workspace().is_open());
  EXPECT_EQ(network.arrays().ToVector<float>(), arrays);
  // A program that goes on all the same may.
  trainer.set_loss_scale({.first = 8, .least = 2});
  EXPECT_EQ(trainer.steps(), 1);
}

// Running averages too: forward passes that overflow would leave NaN in them for ever.
TEST(MixedPrecision, ASkippedStepLeavesRunningAveragesAsTheyWere) {
  for (const bool in_parts : {false, true}) {
    Network network = SmallNetwork(DType::kFloat16);
    Trainer trainer(network, Adam());
    trainer.set_loss_scale({.first = 1024});
    trainer.Step([] { return BatchOf(0); });
    const std::vector<float> before = network.arrays().ToVector<float>();
    if (in_parts) {
      const WorkspaceScope scope(network.training_workspace());
      trainer.ComputeGradients(BrokenBatch());
      EXPECT_NE(network.beside().ToVector<float>(),
                std::vector<float>(before.end() - network.beside().NumElements(), before.end()));
      EXPECT_FALSE(trainer.Update());
    } else {
      trainer.Step([] { return BrokenBatch(); });
    }
    EXPECT_EQ(trainer.loss_scale()->skipped(), 1);
    EXPECT_EQ(network.arrays().ToVector<float>(), before);
    trainer.Step([] { return BatchOf(1); });
    EXPECT_NE(network.arrays().ToVector<float>(), before);
  }
}

// Running averages are of the network's type whatever it computes in: as those of f64 alone, as far as that type tells.
TEST(MixedPrecision, ANetworkOfF64AveragesWhatItComputesInAnotherType) {
  const auto trained = [](std::optional<DType> compute_type) {
    NetworkOptions options{.seed = 3, .dtype = DType::kFloat64};
    options.compute_type = compute_type;
    Network network(NetworkConfig::Sequential({6}, {Dense(16), BatchNormalization(), Dense(3)}),
                    options);
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    for (int64_t i = 0; i < 5; ++i) {
      trainer.Step(
          [&] { return Batch(Cast(BatchOf(i).features, DType::kFloat64), BatchOf(i).labels); });
    }
    std::vector<double> numbers = network.beside().ToVector<double>();
    const NDArray output = network.Output(Cast(BatchOf(9).features, DType::kFloat64));
    for (const double value : output.ToVector<double>()) numbers.push_back(value);
    return numbers;
  };
  const std::vector<double> expected = trained(std::nullopt);
  ASSERT_EQ(expected.size(), 2 * 16 + 16 * 3u);
  EXPECT_NE(expected[0], 0);
  for (const auto& [type, tolerance] :
       {std::pair(DType::kFloat32, 1e-5), std::pair(DType::kFloat16, 1e-2),
        std::pair(DType::kBFloat16, 1e-1)}) {
    EXPECT_THAT(trained(type), ::testing::Pointwise(::testing::DoubleNear(tolerance), expected))
        << DTypeName(type);
  }
}

// A loss of the program's in 16 bits, or one that is a column of something.
TEST(MixedPrecision, ALossMayBeOfAnyTypeAndPartOfAnArray) {
  const auto loss_of = [](int way) {
    Network network = SmallNetwork(std::nullopt);
    network.set_loss([way](absl::Span<const NDArray> outputs, const NetworkInputs&) {
      const NDArray squares = outputs[0] * outputs[0];
      if (way == 2) return Cast(squares.Index(1, 0), DType::kFloat16);
      return way == 1 ? squares.Index(1, 0) : squares.Index(1, 0).Dup();
    });
    Trainer trainer(network, Adam());
    const double loss = trainer.Step([] { return BatchOf(0); });
    return std::pair(loss, network.parameters().ToVector<float>());
  };
  const auto [loss, parameters] = loss_of(0);
  EXPECT_EQ(loss_of(1).first, loss);
  EXPECT_EQ(loss_of(1).second, parameters);
  EXPECT_NEAR(loss_of(2).first, loss, 1e-2);
}

TEST(MixedPrecision, InPartsAnUpdateSaysWhetherItWasDone) {
  Model model("small", 3, std::make_unique<Network>(SmallNetwork(DType::kFloat16)));
  Trainer trainer(model, Adam());
  trainer.set_loss_scale({.first = 1024});
  for (const bool is_broken : {false, true, false}) {
    const Batch batch = trainer.NewBatch([&] { return is_broken ? BrokenBatch() : BatchOf(1); });
    trainer.ComputeGradients(batch);
    EXPECT_EQ(trainer.Update(), !is_broken);
    if (is_broken) break;
  }
  EXPECT_EQ(trainer.loss_scale()->ToString(), "loss scale 512, 0 good steps, 1 skipped");
}

TEST(MixedPrecision, ASteadyStepAllocatesNothing) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    Network network = SmallNetwork(type);
    Trainer trainer(network, Adam());
    if (type == DType::kFloat16) trainer.set_loss_scale({.first = 1024});
    const auto step = [&] {
      trainer.Step([]() -> Batch { return {Zeros({16, 6}), Zeros({16}, DType::kInt64)}; });
    };
    for (int i = 0; i < 5; ++i) step();
    network.training_workspace().FinishPlanSearch();
    step();
    const int64_t before = AllocationCount();
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(AllocationCount() - before, 0) << DTypeName(type);
  }
}

TEST(MixedPrecision, ANetworkWithAnEmbeddingLearns) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    Network network(NetworkConfig::Sequential({.name = "x", .shape = {5}, .dtype = DType::kInt64},
                                              {Embedding(7, 4), Dense(3)}),
                    {.seed = 1, .compute_type = type});
    Trainer trainer(network, Adam());
    const auto step = [&] {
      return trainer.Step([]() -> Batch {
        return {Ones({3, 5}, DType::kInt64), Zeros({3}, DType::kInt64)};
      });
    };
    const double first = step();
    for (int i = 0; i < 50; ++i) step();
    EXPECT_LT(step(), first / 2) << DTypeName(type);
  }
}

TEST(MixedPrecision, ACheckpointCarriesTheScaleAndGoesOnToTheLastBit) {
  const std::string path = testing::TempDir() + "/mixed.safetensors";
  const LossScaleConfig config{.first = 0x1p24, .growth_interval = 4};
  Network whole = SmallNetwork(DType::kFloat16);
  Trainer trainer(whole, Adam());
  trainer.set_loss_scale(config);
  for (int i = 0; i < 30; ++i) trainer.Step([&] { return BatchOf(i); });
  EXPECT_GT(trainer.loss_scale()->skipped(), 3);
  for (const int stop : {2, 11, 12, 13}) {
    Network first = SmallNetwork(DType::kFloat16), then = SmallNetwork(DType::kFloat16);
    Trainer before(first, Adam()), after(then, Adam());
    before.set_loss_scale(config);
    after.set_loss_scale(config);
    for (int i = 0; i < stop; ++i) before.Step([&] { return BatchOf(i); });
    SaveCheckpoint(before, path, {{"batch", std::to_string(stop)}});
    EXPECT_EQ(LoadCheckpoint(path, after).at("batch"), std::to_string(stop));
    EXPECT_EQ(*after.loss_scale(), *before.loss_scale());
    for (int i = stop; i < 30; ++i) after.Step([&] { return BatchOf(i); });
    EXPECT_EQ(then.arrays().ToVector<float>(), whole.arrays().ToVector<float>()) << stop;
    EXPECT_EQ(*after.loss_scale(), *trainer.loss_scale()) << stop;
  }
  Network other = SmallNetwork(DType::kFloat16);
  Trainer without(other, Adam());
  EXPECT_THAT(ErrorOf([&] { LoadCheckpoint(path, without); }),
              IsError(StatusCode::kDataLoss,
                      {path, "\"loss_scale_config\" is \"first 16777216, growth 2 after 4",
                       "expected \"none\""}));
  without.set_loss_scale({});
  EXPECT_THAT(ErrorOf([&] { LoadCheckpoint(path, without); }),
              IsError(StatusCode::kDataLoss, {"\"loss_scale_config\"", "growth 2 after 2000"}));
  EXPECT_EQ(without.loss_scale()->scale(), 65536);
  LossScale broken(config);
  SaveCheckpoint(other, without.updater(), path, {}, &broken);
  broken.Restore(0x1p30, 0, 0);
  SaveCheckpoint(other, without.updater(), path, {}, &broken);
  without.set_loss_scale(config);
  EXPECT_THAT(ErrorOf([&] { LoadCheckpoint(path, without); }),
              IsError(StatusCode::kDataLoss, {"\"loss_scale\" is \"1073741824\"",
                                              "of first 16777216, ", "from 1 to 16777216"}));
}

TEST(MixedPrecision, NumbersAreChecked) {
  Network network = SmallNetwork({});
  EXPECT_THAT(ErrorOf([&] { network.set_loss_scale(0); }),
              IsError(StatusCode::kInvalidArgument, {"loss scale 0, expected a positive"}));
  EXPECT_THAT(ErrorOf([&] { network.set_loss_scale(NAN); }),
              IsError(StatusCode::kInvalidArgument, {"loss scale nan"}));
  Trainer trainer(network, Adam());
  EXPECT_THAT(ErrorOf([&] { trainer.set_loss_scale({.backoff = 2}); }),
              IsError(StatusCode::kInvalidArgument, {"backoff 2"}));
  EXPECT_EQ(trainer.loss_scale(), nullptr);
}

struct Learned {
  double accuracy = 0;
  std::vector<float> parameters, scores;  // of the test images
  int64_t skipped = 0;
};

Learned LearnDigits(std::optional<DType> compute_type, bool scales) {
  static const ImageFolder* const digits = new ImageFolder(LoadImageFolder("examples/data/mnist"));
  NetworkOptions options;
  options.seed = 5;
  options.compute_type = compute_type;
  Network network(NetworkConfig::Sequential({28, 28, 1}, {Dense(64, Activation::kRelu), Dense(10)}),
                  options);
  Trainer trainer(network, Adam());
  if (scales) trainer.set_loss_scale({.first = 0x1p24, .growth_interval = 50});
  ImageBatches train(digits->train, 64);
  for (int epoch = 0; epoch < 2; ++epoch) {
    train.Shuffle(5, epoch);
    for (int64_t i = 0; i < train.size(); ++i) trainer.Step([&] { return train.Make(i); });
  }
  const ImageBatches test(digits->test, 250);
  int64_t right = 0, all = 0;
  std::vector<float> all_scores;
  for (int64_t i = 0; i < test.size(); ++i) {
    const Batch batch = test.Make(i);
    const std::vector<float> scores = network.Output(batch.features).ToVector<float>();
    all_scores.insert(all_scores.end(), scores.begin(), scores.end());
    const std::vector<int64_t> labels = batch.labels.ToVector<int64_t>();
    for (size_t k = 0; k < labels.size(); ++k, ++all) {
      const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(10 * k);
      right += std::max_element(begin, begin + 10) - begin == labels[k] ? 1 : 0;
    }
  }
  return {static_cast<double>(right) / static_cast<double>(all),
          network.parameters().ToVector<float>(), all_scores,
          trainer.loss_scale() != nullptr ? trainer.loss_scale()->skipped() : 0};
}

// Within one in a hundred of the accuracy by f32, however they round.
TEST(MixedPrecision, DigitsAreLearnedAsByF32) {
  const Learned f32 = LearnDigits({}, false), bf16 = LearnDigits(DType::kBFloat16, false),
                f16 = LearnDigits(DType::kFloat16, true);
  std::printf("accuracy f32 %.4f, bf16 %.4f, f16 %.4f with %lld steps skipped\n", f32.accuracy,
              bf16.accuracy, f16.accuracy, static_cast<long long>(f16.skipped));
  EXPECT_GT(f32.accuracy, 0.9);
  EXPECT_NEAR(bf16.accuracy, f32.accuracy, 0.01);
  EXPECT_NEAR(f16.accuracy, f32.accuracy, 0.01);
  EXPECT_GT(f16.skipped, 0);
  for (const Learned* other : {&bf16, &f16}) {
    EXPECT_NE(other->parameters, f32.parameters);
    double difference = 0, size = 0;
    for (size_t i = 0; i < f32.scores.size(); ++i) {
      difference += std::abs(other->scores[i] - f32.scores[i]);
      size += std::abs(f32.scores[i]);
    }
    std::printf("scores differ by %.2e of their size\n", difference / size);
  }
}

}  // namespace
}  // namespace tidepool::nn
