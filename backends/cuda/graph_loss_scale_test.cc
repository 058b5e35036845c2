// Captured steps with a loss scale: the bits of steps that are queued kernel by kernel, the skipped
// ones among them.
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"

#ifdef TIDEPOOL_EMULATED
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#endif

namespace tidepool::nn {
namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};

Network SmallNetwork(std::optional<DType> compute_type,
                     WorkspaceMode mode = WorkspaceMode::kEnabled) {
  NetworkOptions options;
  options.seed = 3;
  options.mode = mode;
  options.compute_type = compute_type;
  options.device = kDevice;
  return Network(NetworkConfig::Sequential(
                     {6}, {Dense(16, Activation::kTanh), BatchNormalization(), Dense(3)}),
                 options);
}

Batch BatchOf(int64_t i, int64_t size = 16) {
  const auto seed = static_cast<uint64_t>(i);
  return {RandomUniform({size, 6}, -1, 1, seed), RandomIntegers({size}, 0, 3, seed)};
}
// What no scale makes finite.
Batch BrokenBatch() {
  return {Full({16, 6}, std::numeric_limits<float>::infinity()), Zeros({16}, DType::kInt64)};
}

// Bits, so that NaN equals itself.
std::vector<uint32_t> BitsOf(const NDArray& array) {
  const std::vector<float> values = array.ToVector<float>();
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), bits.size() * sizeof(float));
  return bits;
}
// Running averages too.
std::vector<std::vector<uint32_t>> BitsOf(Trainer& trainer) {
  std::vector<std::vector<uint32_t>> all = {BitsOf(trainer.network().arrays())};
  for (const NDArray* state : trainer.updater().state()) all.push_back(BitsOf(*state));
  return all;
}

UpdaterConfig ConfigOf(UpdaterKind kind, ClippingKind clipping = ClippingKind::kNone) {
  UpdaterConfig config = UpdaterConfig::Of(kind);
  config.clipping = {clipping, 0.25};
  config.schedule = Schedule::Cosine(150);
  return config;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> scales;
  std::vector<int64_t> steps;
  std::vector<std::vector<uint32_t>> bits;
  LossScale scale;
  ReplayedStep::Stats stats;
};

class GraphLossScale : public testing::Test {
 protected:
  void SetUp() override {
    if (FindDeviceProvider(kDevice) == nullptr) GTEST_SKIP() << "no CUDA device";
  }
};

Outcome Train(DType compute_type, const UpdaterConfig& config, WorkspaceMode mode, bool graphs) {
  Network network = SmallNetwork(compute_type, mode);
  Trainer trainer(network, config);
  trainer.set_graphs(graphs);
  trainer.set_loss_scale({.first = 0x1p24, .growth_interval = 12});
  Outcome run;
  for (int64_t i = 0; i < 200; ++i) {
    const bool is_broken = i == 1 || i == 60 || i == 120 || i == 121;
    const double loss = trainer.Step([&] { return is_broken ? BrokenBatch() : BatchOf(i % 7); });
    if (!is_broken) run.losses.push_back(loss);
    run.scales.push_back(trainer.loss_scale()->scale());
    run.steps.push_back(trainer.steps());
  }
  run.bits = BitsOf(trainer);
  run.scale = *trainer.loss_scale();
  if (graphs) run.stats = *trainer.graph_stats();
  return run;
}

TEST_F(GraphLossScale, TwoHundredStepsAreTheBitsOfUncapturedOnes) {
  struct Case {
    DType compute_type;
    UpdaterKind kind;
    ClippingKind clipping = ClippingKind::kNone;
    WorkspaceMode mode = WorkspaceMode::kEnabled;
  };
  for (const Case& c :
       {Case{DType::kFloat16, UpdaterKind::kAdam, ClippingKind::kGlobalNorm},
        Case{DType::kFloat16, UpdaterKind::kSgd, ClippingKind::kNormOfEach},
        Case{DType::kFloat16, UpdaterKind::kAdamW, ClippingKind::kNone, WorkspaceMode::kSingle},
        Case{DType::kBFloat16, UpdaterKind::kRmsProp}}) {
    SCOPED_TRACE(testing::Message() << DTypeName(c.compute_type) << " " << UpdaterName(c.kind));
    const UpdaterConfig config = ConfigOf(c.kind, c.clipping);
    const Outcome graphs = Train(c.compute_type, config, c.mode, true),
                  eager = Train(c.compute_type, config, c.mode, false);
    EXPECT_EQ(graphs.losses, eager.losses);
    EXPECT_EQ(graphs.scales, eager.scales);
    EXPECT_EQ(graphs.steps, eager.steps);
    EXPECT_EQ(graphs.bits, eager.bits);
    EXPECT_EQ(graphs.scale, eager.scale);
    // Those of broken batches, and in f16 those of scales that are too large: at first, and where it
    // has grown again.
    EXPECT_GE(eager.scale.skipped(), c.compute_type == DType::kFloat16 ? 8 : 4);
    EXPECT_EQ(eager.steps.back() + eager.scale.skipped(), 200);
    EXPECT_EQ(graphs.stats.captures, 1);
    EXPECT_EQ(graphs.stats.failures, 0) << graphs.stats.last_failure;
    EXPECT_EQ(graphs.stats.launches, 198);
  }
}

TEST_F(GraphLossScale, ASkippedStepLeavesEverythingAsItIs) {
  Network network = SmallNetwork(DType::kFloat16);
  Trainer trainer(network, ConfigOf(UpdaterKind::kAdam));
  trainer.set_loss_scale({.first = 1024});
  trainer.set_graphs(true);
  for (int i = 0; i < 5; ++i) trainer.Step([&] { return BatchOf(i); });
  const auto before = BitsOf(trainer);
  const int64_t launches = trainer.graph_stats()->launches;
  for (int i = 1; i < 4; ++i) {
    trainer.Step([] { return BrokenBatch(); });
    EXPECT_EQ(BitsOf(trainer), before);
    EXPECT_EQ(trainer.steps(), 5);
    EXPECT_EQ(trainer.loss_scale()->scale(), 1024 >> i);
    EXPECT_EQ(trainer.loss_scale()->skipped(), i);
  }
  trainer.Step([] { return BatchOf(5); });
  EXPECT_NE(BitsOf(trainer), before);
  EXPECT_EQ(trainer.steps(), 6);
  EXPECT_EQ(trainer.graph_stats()->launches, launches + 4);
  EXPECT_EQ(trainer.graph_stats()->captures, 1) << trainer.graph_stats()->last_failure;
}

TEST_F(GraphLossScale, WhereTheScaleCanGoNoLowerTrainingHasDivergedAndMayGoOn) {
  Network network = SmallNetwork(DType::kFloat16);
  Trainer trainer(network, ConfigOf(UpdaterKind::kAdam));
  trainer.set_graphs(true);
  trainer.set_loss_scale({.first = 2, .least = 2});
  for (int i = 0; i < 4; ++i) trainer.Step([&] { return BatchOf(i); });
  const auto before = BitsOf(trainer);
  EXPECT_THROW(trainer.Step([] { return BrokenBatch(); }), DivergedError);
  EXPECT_EQ(BitsOf(trainer), before);
  EXPECT_EQ(trainer.steps(), 4);
  trainer.Step([] { return BatchOf(4); });
  EXPECT_EQ(trainer.steps(), 5);
  EXPECT_EQ(trainer.graph_stats()->captures, 1);
}

// Scales that begin or change within a training, of other batch sizes, a network's own, and errors
// of the batch.
TEST_F(GraphLossScale, ScalesMayComeAndGo) {
  const auto train = [](bool graphs) {
    Network network = SmallNetwork(DType::kFloat16);
    Trainer trainer(network, ConfigOf(UpdaterKind::kSgd));
    trainer.set_graphs(graphs);
    std::vector<double> losses;
    for (int64_t i = 0; i < 40; ++i) {
      if (i == 6) network.set_loss_scale(8);  // which nobody takes back
      if (i == 8) network.set_loss_scale(1);
      if (i == 10) trainer.set_loss_scale(LossScale::Constant(512));
      if (i == 20) trainer.set_loss_scale({.first = 0x1p24});
      if (i == 27) {
        EXPECT_THROW(trainer.Step([] {
          return Batch(Ones({16, 6}), Full({16}, 3, DType::kInt64));
        }),
                     Error);
      }
      const int64_t size = i > 30 ? 1 : 16;
      losses.push_back(trainer.Step([&] { return BatchOf(i, size); }));
    }
    if (graphs) {
      EXPECT_EQ(trainer.graph_stats()->failures, 0) << trainer.graph_stats()->last_failure;
      EXPECT_GE(trainer.graph_stats()->launches, 20);
    }
    EXPECT_EQ(network.step(), 40u);
    return std::make_pair(losses, BitsOf(trainer));
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_F(GraphLossScale, ACheckpointOfEitherGoesOnByTheOther) {
  const std::string path = testing::TempDir() + "/graph_loss_scale.safetensors";
  const auto run = [&](Trainer& trainer, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) trainer.Step([&] { return BatchOf(i); });
  };
  Network whole = SmallNetwork(DType::kFloat16);
  Trainer expected(whole, ConfigOf(UpdaterKind::kAdam));
  expected.set_loss_scale({.first = 0x1p24});
  run(expected, 0, 30);
  for (const bool first_by_graphs : {false, true}) {
    Network a = SmallNetwork(DType::kFloat16), b = SmallNetwork(DType::kFloat16);
    Trainer first(a, ConfigOf(UpdaterKind::kAdam)), then(b, ConfigOf(UpdaterKind::kAdam));
    for (Trainer* trainer : {&first, &then}) trainer->set_loss_scale({.first = 0x1p24});
    (first_by_graphs ? first : then).set_graphs(true);
    run(first, 0, 15);
    SaveCheckpoint(first, path, {});
    LoadCheckpoint(path, then);
    run(then, 15, 30);
    EXPECT_EQ(BitsOf(then), BitsOf(expected));
    EXPECT_EQ(*then.loss_scale(), *expected.loss_scale());
    EXPECT_EQ(b.step(), whole.step());
  }
}

#ifdef TIDEPOOL_EMULATED
// A call that fails, and two in a row, so that results cannot be read: the step may have been done.
TEST_F(GraphLossScale, AFaultAnywhereLeavesTheBitsOfEagerSteps) {
  constexpr int64_t kSteps = 8;
  struct Run {
    std::vector<std::vector<uint32_t>> bits;
    int thrown = 0, unsettled = 0;
  };
  FaultPlan& faults = EmulatedCuda::Get().call_faults();
  const auto train = [&](bool graphs, int64_t fault, int64_t count) {
    Network network = SmallNetwork(DType::kFloat16);
    Trainer trainer(network, ConfigOf(UpdaterKind::kAdam));
    trainer.set_loss_scale({.first = 0x1p18});
    trainer.set_graphs(graphs);
    Run run;
    const auto counted = [&] { return trainer.steps() + trainer.loss_scale()->skipped(); };
    while (counted() < kSteps && run.thrown < 5) {
      const int64_t i = counted();
      if (i == 5 && fault >= 0 && run.thrown == 0) faults.FailRequest(fault, count);
      try {
        trainer.Step([&] { return i == 5 ? BrokenBatch() : BatchOf(i); });
      } catch (const Error&) {
        ++run.thrown;
        faults.Clear();
        const int64_t before = counted();
        trainer.Settle();
        run.unsettled += counted() != before ? 1 : 0;
      }
    }
    faults.Clear();
    EXPECT_EQ(counted(), kSteps);
    run.bits = BitsOf(trainer);
    return run;
  };
  const Run eager = train(false, -1, 0);
  int thrown = 0, unsettled = 0;
  for (const int64_t count : {1, 2, 3}) {
    for (int64_t n = 0; n < 40; ++n) {
      SCOPED_TRACE(testing::Message() << "call " << n << " and so many: " << count);
      const Run graphs = train(true, n, count);
      EXPECT_EQ(graphs.bits, eager.bits);
      thrown += graphs.thrown, unsettled += graphs.unsettled;
    }
  }
  EXPECT_GT(thrown, 3);
  EXPECT_GT(unsettled, 0);
}
#endif

}  // namespace
}  // namespace tidepool::nn
