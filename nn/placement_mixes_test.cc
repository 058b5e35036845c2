// Every mix of a mode of training and one of inference, on small networks of every kind: the same
// bits over 200 steps.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/transformer_block.h"
#include "tidepool/nn/memory_report.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

Conv2D Same(int64_t filters, Activation activation) {
  return Conv2D(filters, 3, 3, activation, Conv2D::SamePadding(3));
}

struct Small {
  const char* name;
  Shape input;
  Network (*make)(const NetworkOptions&);
  bool is_masked = false;
};

struct SmallProgram final : Block {
  Part first{*this, "first", Dense(12, Activation::kTanh)};
  Part middle{*this, "middle", Dense(12, Activation::kTanh)};
  Part out{*this, "out", Dense(3)};
  NDArray Forward(const NDArray& x) const override {
    const NDArray h = first(x);
    return out(Relu(middle(middle(h)) + h));
  }
};

NetworkConfig Residual() {
  NetworkConfig config;
  const std::string stem =
      config.Add(Same(4, Activation::kRelu), {config.AddInput("image", {6, 6, 1})}, "stem");
  const std::string first = config.Add(Same(4, Activation::kRelu), {stem}, "first");
  const std::string norm = config.Add(BatchNormalization(), {first}, "norm");
  const std::string sum = config.Add(Merge(MergeKind::kAdd), {norm, stem}, "sum");
  config.outputs = {
      config.Add(Dense(3), {config.Add(DropoutLayer(0.2), {sum}, "dropout")}, "classes")};
  return config;
}

const Small kSmall[] = {
    {"dense",
     {6},
     [](const NetworkOptions& o) {
       return Network(NetworkConfig::Sequential({6}, {Dense(10, Activation::kRelu), Dense(3)}), o);
     }},
    {"convolution",
     {8, 8, 1},
     [](const NetworkOptions& o) {
       return Network(NetworkConfig::Sequential(
                          {8, 8, 1}, {Same(4, Activation::kRelu), MaxPool2D(),
                                      Same(3, Activation::kTanh), DropoutLayer(0.25), Dense(3)}),
                      o);
     }},
    {"residual", {6, 6, 1}, [](const NetworkOptions& o) { return Network(Residual(), o); }},
    {"program",
     {6},
     [](const NetworkOptions& o) {
       return Network({{"x", {6}}}, std::make_unique<SmallProgram>(), o);
     }},
    {"recurrent",
     {5, 3},
     [](const NetworkOptions& o) {
       return Network(NetworkConfig::Sequential(
                          {5, 3}, {Lstm(6), LayerNormalization(),
                                   Gru(4, {.output = RecurrentOutput::kLast}), Dense(3)}),
                      o);
     },
     true},
    {"attention",
     {5, 8},
     [](const NetworkOptions& o) {
       return Network(
           NetworkConfig::Sequential(
               {5, 8}, {TransformerBlock(2, 16, {.causal = true, .dropout = 0.1}), Dense(3)}),
           o);
     },
     true},
};

NDArray FeaturesOf(const Small& small, int64_t size, uint64_t seed) {
  std::vector<int64_t> dims = {size};
  dims.insert(dims.end(), small.input.span().begin(), small.input.span().end());
  return RandomUniform(Shape(dims), -1, 1, seed);
}

Batch BatchFor(const Small& small, int i) {
  const int64_t size = i % 7 == 3 ? 3 : 4;
  const auto seed = static_cast<uint64_t>(i);
  Batch batch{FeaturesOf(small, size, seed), RandomIntegers({size}, 0, 3, seed)};
  if (small.is_masked) {
    batch.features_mask = Ones({size, small.input[0]});
    batch.features_mask.Slice(0, 0, 1).Slice(1, 1 + i % 3, small.input[0]) = 0;
  }
  return batch;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> arrays, outputs;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Train(const Small& small, Network& network) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  Outcome outcome;
  for (int i = 0; i < 200; ++i) {
    outcome.losses.push_back(trainer.Step([&] { return BatchFor(small, i); }));
    if (i % 20 != 19) continue;
    const std::vector<float> output =
        network.Output(FeaturesOf(small, 2 + i / 20 % 2, 99)).ToVector<float>();
    outcome.outputs.insert(outcome.outputs.end(), output.begin(), output.end());
  }
  outcome.arrays = network.arrays().ToVector<float>();
  return outcome;
}

TEST(PlacementMixes, TwoHundredStepsGiveTheSameBitsInAllSixteen) {
  for (const Small& small : kSmall) {
    Network first = small.make(Options(WorkspaceMode::kNone));
    const Outcome expected = Train(small, first);
    ASSERT_TRUE(std::isfinite(expected.losses.back()));
    for (WorkspaceMode training : kModes) {
      for (WorkspaceMode inference : kModes) {
        SCOPED_TRACE(testing::Message() << small.name << ", training " << static_cast<int>(training)
                                        << ", inference " << static_cast<int>(inference));
        Network network = small.make(Options(training, inference));
        EXPECT_TRUE(Train(small, network) == expected);
        for (const LayerWorkspaceManager* manager :
             {&network.training_workspaces(), &network.inference_workspaces()}) {
          EXPECT_EQ(manager->mode(),
                    manager == &network.training_workspaces() ? training : inference);
          for (const Workspace* workspace : manager->workspaces()) {
            EXPECT_EQ(workspace->stats().leaked_arrays, 0u) << workspace->id();
            EXPECT_EQ(workspace->stats().findings, 0u) << workspace->id();
            EXPECT_FALSE(workspace->is_open()) << workspace->id();
          }
        }
      }
    }
  }
}

// A request whose input is made in its workspace, as the report counts it. What kernels keep of weights is theirs, and on
// processors where XNNPACK runs it comes in chunks.
TEST(PlacementMixes, TheReportOfARequestIsWhatTheLedgerMeasures) {
  for (const char* name : kExampleNetworks) {
    for (WorkspaceMode mode : kModes) {
      constexpr int64_t kBatch = 32;
      Network reported = ExampleNetwork(name, Options(mode));
      const MemoryReport report = ReportMemory(reported, {.batch = kBatch});
      const auto in_use = [] { return MemoryTracker::Global().Snapshot()[Host()].total; };
      const auto of_kernels = [] {
        int64_t bytes = 0;
        for (const OwnerMemory& owner : MemoryTracker::Global().Snapshot().owners) {
          if (owner.owner == "xnnpack") bytes += owner.total.current_bytes;
        }
        return bytes;
      };
      const int64_t before = in_use().current_bytes - of_kernels();
      int64_t measured;
      {
        Network network = ExampleNetwork(name, Options(mode));
        const auto request = [&] {
          network.Infer([] { return Zeros({kBatch, 28, 28, 1}); }, [](const NDArray&) {});
        };
        for (int i = 0; i < 4; ++i) request();
        if (mode != WorkspaceMode::kNone) network.inference_workspace().FinishPlanSearch();
        MemoryTracker::Global().ResetPeaks();
        request();
        measured = in_use().peak_bytes - of_kernels() - before;
      }
      std::printf("%-9s mode %d: request reported %lld, measured %lld\n", name,
                  static_cast<int>(mode), static_cast<long long>(report.inference_bytes()),
                  static_cast<long long>(measured));
      EXPECT_NEAR(static_cast<double>(report.inference_bytes()), static_cast<double>(measured),
                  0.02 * static_cast<double>(measured))
          << name << ", mode " << static_cast<int>(mode);
    }
  }
}

// JSON of reports is for others to read: no reader here, and all numbers are in it.
TEST(PlacementMixes, JsonOfAReportHasItsNumbers) {
  Network network =
      ExampleNetwork("lenet", Options(WorkspaceMode::kSeparate, WorkspaceMode::kEnabled));
  const MemoryReport report = ReportMemory(network, {.batch = 8});
  const nlohmann::json json = nlohmann::json::parse(report.ToJson());
  EXPECT_EQ(json["network"], report.network);
  EXPECT_EQ(json["batch"], 8);
  EXPECT_EQ(json["parameter_bytes"], report.parameter_bytes);
  EXPECT_EQ(json["gradient_bytes"], report.gradient_bytes);
  EXPECT_EQ(json["updater_bytes"], report.updater_bytes);
  for (const bool training : {true, false}) {
    const PhaseMemory& phase = training ? report.training : report.inference;
    const nlohmann::json& found = json[training ? "training" : "inference"];
    EXPECT_EQ(found["mode"], training ? "separate" : "enabled");
    EXPECT_EQ(found["total_bytes"], training ? report.training_bytes() : report.inference_bytes());
    EXPECT_EQ(found["input_bytes"], phase.input_bytes);
    EXPECT_EQ(found["lower_bound_bytes"], phase.lower_bound_bytes);
    EXPECT_EQ(found["planned_bytes"], phase.planned_bytes);
    EXPECT_EQ(found["workspace_bytes"], phase.workspace_bytes);
    ASSERT_EQ(found["layers"].size(), phase.layers.size());
    for (size_t i = 0; i < phase.layers.size(); ++i) {
      EXPECT_EQ(found["layers"][i]["name"], phase.layers[i].layer);
      for (int t = 0; t < kArrayTypes; ++t) {
        const int64_t bytes = found["layers"][i]
                                  .value("bytes", nlohmann::json::object())
                                  .value(ArrayTypeName(static_cast<ArrayType>(t)), int64_t{0});
        EXPECT_EQ(bytes, phase.layers[i].bytes[t]);
      }
    }
  }
}

// From the moment on that the loss is there, in the backward pass, requests of the system fail, or
// (n of -2) its first operator says that there is no memory: a workspace in its first cycle asks
// the system for little.
TEST(PlacementMixes, OutOfMemoryInTheBackwardPassLeavesTheNetworkUsable) {
  FailingProvider memory{Host()};
  for (const char* name : kExampleNetworks) {
    for (WorkspaceMode mode : kModes) {
      const auto run = [&](int64_t n, int* refused) {
        Network network = ExampleNetwork(name, Options(mode));
        bool armed = n != -1;
        network.set_loss([&](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
          // Of ten classes, or of images that are drawn again.
          NDArray loss = outputs[0].rank() == 2
                             ? SoftmaxCrossEntropy(outputs[0], inputs.labels[0]).loss
                             : BinaryCrossEntropy(outputs[0], inputs.features[0]);
          if (armed && n >= 0) memory.faults().FailRequest(n, 1 << 20);
          if (!armed || n >= 0) return loss;
          const NDArray copy = loss.Dup();
          NDArray failing;
          {
            const NoGradientScope constant;
            failing = copy * 1.0;
          }
          SetGradient("failing", {copy}, {failing},
                      [](absl::Span<const NDArray>) -> std::vector<NDArray> {
                        throw OutOfMemoryError("no memory in the backward pass", "");
                      });
          return failing;
        });
        Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
        std::vector<double> losses;
        while (trainer.steps() < 3) {
          try {
            losses.push_back(
                trainer.Step([&] { return SomeBatch(4, static_cast<uint64_t>(trainer.steps())); }));
          } catch (const OutOfMemoryError&) {
            ++*refused;
            EXPECT_FALSE(network.training_workspace().is_open());
          }
          armed = false;
          memory.faults().Clear();
        }
        return std::pair(losses, network.parameters().ToVector<float>());
      };
      int refused = 0;
      const auto expected = run(-1, &refused);
      ASSERT_EQ(refused, 0);
      for (const int64_t n : {-2, 1, 2, 3, 5, 7}) {  // 0 is the mean of the losses
        EXPECT_TRUE(run(n, &refused) == expected)
            << name << ", mode " << static_cast<int>(mode) << ", request " << n;
        if (n == -2) {
          EXPECT_EQ(refused, 1);
        }
      }
      if (mode == WorkspaceMode::kNone) {
        EXPECT_GT(refused, 3) << name;
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
