// A training whose model could not be loaded again ends before its first step.
#include "tidepool/examples/training_run/training_run.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/block.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/layer_kinds.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/network.h"

namespace tidepool::examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Doubled : nn::Layer {
  std::string Kind() const override { return "test_doubled"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(nn::LayerContext&, const NDArray& x) const override { return x * 2.0; }
};

struct Program final : nn::Block {
  nn::Part out{*this, "out", nn::Dense(3)};
  NDArray Forward(const NDArray& x) const override { return out(x); }
};

nn::Model ModelOf(nn::NetworkConfig config) {
  return nn::Model("mine", 3, std::make_unique<nn::Network>(std::move(config)));
}

struct Outcome {
  std::string refused;  // the error's message
  int batches = 0;      // that were made
};

Outcome TrainFor(nn::Model model, const std::string& save) {
  Outcome outcome;
  try {
    Train(
        model, nn::UpdaterConfig::Of(nn::UpdaterKind::kSgd),
        {.epochs = 1, .batch = 4, .save = save}, 8,
        [&](absl::Span<const int64_t> which, int64_t) {
          ++outcome.batches;
          const auto size = static_cast<int64_t>(which.size());
          return nn::Batch(Ones({size, 4}), Zeros({size}, DType::kInt64));
        },
        [] { return 0.0; });
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    outcome.refused = error.message();
  }
  return outcome;
}

TEST(TrainingRun, WhatCannotBeLoadedAgainIsRefusedBeforeTheFirstStep) {
  const std::string path = testing::TempDir() + "/training_run.safetensors";
  std::filesystem::remove(path);
  const auto unknown = [] {
    return ModelOf(nn::NetworkConfig::Sequential({4}, {Doubled(), nn::Dense(3)}));
  };
  const auto program = [] {
    return nn::Model("mine", 3,
                     std::make_unique<nn::Network>(std::vector<nn::InputConfig>{{"x", {4}}},
                                                   std::make_unique<Program>()));
  };
  // A request of it would be more than LoadModel takes.
  const auto large = [] {
    return ModelOf(nn::NetworkConfig::Sequential(
        {4}, {nn::Dense(3), nn::RepeatVector(1 << 26), nn::LastTimeStep()}));
  };
  using Make = nn::Model (*)();
  const std::pair<Make, const char*> cases[] = {
      {unknown, "test_doubled"}, {program, "program"}, {large, "max_example_elements"}};
  for (const auto& [make, why] : cases) {
    const Outcome outcome = TrainFor(make(), path);
    EXPECT_THAT(outcome.refused,
                AllOf(HasSubstr("\"mine\" could not be loaded again"), HasSubstr(why)));
    EXPECT_EQ(outcome.batches, 0);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  // Without a file they may be trained, and with one when the layer is known.
  for (const Make make : {Make(unknown), Make(program)}) {
    const Outcome outcome = TrainFor(make(), "");
    EXPECT_EQ(outcome.refused, "");
    EXPECT_GE(outcome.batches, 2);
  }
  nn::RegisterLayer<Doubled>("test_doubled");
  EXPECT_EQ(TrainFor(unknown(), path).refused, "");
  EXPECT_EQ(nn::LoadModel(path).name, "mine");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tidepool::examples
