// The numbered cases of ND4J's networks (group K), in each mode, and the memory report.
//
// Others of groups K, L and M: nd4j_cases_test.cc, nn/inference/predictor_test.cc and
// nn/data/async_iterator_test.cc; what differs by design is told in docs/training.md.
#include <sys/resource.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/allocation_counter.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/memory_report.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

TEST(Placement, Nd4jCase122OutputsAreNeverAttached) {
  for (const char* name : kExampleNetworks) {
    for (WorkspaceMode mode : kModes) {
      Network network = ExampleNetwork(name, Options(mode));
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(network.Output(Features(2)).IsAttached()) << name;
      if (network.config() == nullptr) continue;
      network.ForwardByLayers(
          Features(2), [](int, const NDArray& output) { EXPECT_FALSE(output.IsAttached()); });
    }
  }
}

TEST(Placement, Nd4jCase123AnOutputIsPutIntoTheCallersWorkspace) {
  // ND4J refuses a workspace where the network has none; here it is the caller's affair.
  for (WorkspaceMode mode : kModes) {
    Network network = ExampleNetwork("lenet", Options(mode));
    Workspace mine("mine");
    const std::vector<float> expected = network.Output(Features(2)).ToVector<float>();
    for (int i = 0; i < 3; ++i) {
      const WorkspaceScope scope(mine);
      const NDArray here = network.Output(Features(2)),
                    there = network.Output(Features(2), Place::In(mine));
      NDArray into = Zeros({2, 10});
      network.OutputInto(Features(2), into);
      for (const NDArray* output : {&here, &there, static_cast<const NDArray*>(&into)}) {
        EXPECT_EQ(output->buffer()->owner->WorkspaceId(), "mine");
        EXPECT_EQ(output->ToVector<float>(), expected);
      }
      EXPECT_FALSE(network.Output(Features(2), Place::Heap()).IsAttached());
      EXPECT_FALSE(network.inference_workspace().is_open());
    }
    EXPECT_THAT(MessageOf([&] { network.Output(Features(2), Place::In(mine)); }),
                HasSubstr("workspace [mine] is not open"));
    EXPECT_EQ(network.Output(Features(2)).ToVector<float>(), expected);
    NDArray wrong = Zeros({2, 9});
    EXPECT_THAT(MessageOf([&] { network.OutputInto(Features(2), wrong); }),
                HasSubstr("written into f32 [2, 9] on host, expected f32 [2] + [10] on host"));
  }
}

TEST(Placement, Nd4jCase124ANetworkOfOneLayerPutsItsOutputThere) {
  for (WorkspaceMode mode : kModes) {
    Network network(NetworkConfig::Sequential({4}, {Dense(3)}), Options(mode));
    Workspace mine("mine");
    const WorkspaceScope scope(mine);
    EXPECT_EQ(network.Output(Ones({2, 4})).buffer()->owner->WorkspaceId(), "mine");
  }
}

TEST(Placement, Nd4jCase127AScoreInTheCallersScopedOutWorkspaceIsDetached) {
  for (WorkspaceMode mode : kModes) {
    Network network = ExampleNetwork("mlp", Options(mode));
    Workspace mine("mine");
    const WorkspaceScope scope(mine);
    const ScopeOutOfWorkspaces out;
    EXPECT_FALSE(network.Output(Features(2)).IsAttached());
    EXPECT_FALSE(network.Run({Features(2)})[0].IsAttached());
    // The losses of examples, and their mean, which training computes as well.
    const NDArray labels = SomeBatch(2, 1).labels,
                  losses = SoftmaxCrossEntropy(network.Output(Features(2)), labels).loss;
    EXPECT_FALSE(losses.IsAttached());
    const NDArray score = Mean(losses);
    EXPECT_FALSE(score.IsAttached());
    const WorkspaceScope step(network.training_workspace());
    EXPECT_NEAR(network.ComputeGradients(Features(2), labels), score.Item<float>(), 1e-5);
    EXPECT_FALSE(network.gradients().IsAttached());
  }
}

TEST(Placement, Nd4jCase130GradientsOfAnErrorFromOutsideAreTheSame) {
  std::vector<float> expected;
  for (WorkspaceMode mode : kModes) {
    Network network = ExampleNetwork("residual", Options(mode));
    const NDArray error = RandomUniform({4, 10}, -1, 1, 5);
    network.set_loss([&](absl::Span<const NDArray> outputs, const NetworkInputs&) {
      return MatMul(outputs[0] * error, Ones({10, 1})).Reshape({4});
    });
    for (int i = 0; i < 3; ++i) {
      const WorkspaceScope scope(network.training_workspace());
      network.ComputeGradients(Features(4), NDArray({4}, DType::kInt64));
    }
    const std::vector<float> gradients = network.gradients().ToVector<float>();
    if (expected.empty()) expected = gradients;
    EXPECT_EQ(gradients, expected);
  }
}

TEST(Placement, Nd4jCase134NothingIsOpenAfterwards) {
  for (const char* name : kExampleNetworks) {
    for (WorkspaceMode mode : kModes) {
      Network network = ExampleNetwork(name, Options(mode));
      {
        Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
        for (int i = 0; i < 2; ++i) trainer.Step([] { return SomeBatch(4, 1); });
      }
      network.Output(Features(2));
      EXPECT_FALSE(Ones({2}).IsAttached());
      for (const LayerWorkspaceManager* manager :
           {&network.training_workspaces(), &network.inference_workspaces()}) {
        for (const Workspace* workspace : manager->workspaces()) EXPECT_FALSE(workspace->is_open());
      }
    }
  }
}

TEST(Placement, Nd4jCase137TheReportOfDenseTenTwentyTwentySeven) {
  Network network(NetworkConfig::Sequential({10}, {Dense(20), Dense(27)}),
                  Options(WorkspaceMode::kEnabled));
  EXPECT_EQ(network.NumParameters(), 787);
  const MemoryReport report = ReportMemory(network, {.batch = 16});  // whose rows fill cache lines
  EXPECT_EQ(report.training.layers.size(), 3);
  const auto of = [&](const PhaseMemory& phase, size_t layer, ArrayType type) {
    return phase.layers[layer].bytes[static_cast<int>(type)];
  };
  EXPECT_EQ(of(report.training, 1, ArrayType::kActivations), 16 * 20 * 4);
  EXPECT_EQ(of(report.training, 2, ArrayType::kActivations), 16 * 27 * 4);
  EXPECT_EQ(report.inference.layers.size(), 2);  // without a loss
  EXPECT_EQ(of(report.inference, 0, ArrayType::kActivations), 16 * 20 * 4);
  EXPECT_EQ(of(report.inference, 1, ArrayType::kActivations), 16 * 27 * 4);
  EXPECT_EQ(of(report.training, 2, ArrayType::kActivationGradients), 16 * 20 * 4);
  EXPECT_EQ(of(report.inference, 1, ArrayType::kActivationGradients), 0);
  EXPECT_THAT(report.ToJson(), HasSubstr("\"batch\": 16"));
  EXPECT_THAT(report.ToString(), HasSubstr("training, mode enabled"));
}

// Letters of which 0 is none: a layer makes the mask that those behind it read.
struct Reader final : Block {
  Part letters{*this, "letters", Embedding(5, 4, {.mask_index = 0})};
  Part first{*this, "first", Bidirectional(Lstm(3))};
  Part second{*this, "second", Bidirectional(Lstm(3))};
  Part last{*this, "last", Lstm(3, {.output = RecurrentOutput::kLast})};
  Part out{*this, "out", Dense(2)};
  NDArray Forward(const NDArray& x) const override {
    NDArray mask, h = letters(x, mask);
    h = second(first(h, mask), mask);
    return out(last(h, mask));
  }
};

TEST(Placement, MasksThatLayersMakeAreThereAsLongAsTheyAreRead) {
  const NDArray x = RandomIntegers({7, 6}, 0, 5, 3);
  const InputConfig input{"letters", {6}, DType::kInt64};
  std::vector<float> expected;
  for (const bool is_program : {false, true}) {
    for (WorkspaceMode mode : kModes) {
      Network network =
          is_program ? Network({input}, std::make_unique<Reader>(), Options(mode))
                     : Network(NetworkConfig::Sequential(
                                   input, {Embedding(5, 4, {.mask_index = 0}),
                                           Bidirectional(Lstm(3)), Bidirectional(Lstm(3)),
                                           Lstm(3, {.output = RecurrentOutput::kLast}), Dense(2)}),
                               Options(mode));
      for (int i = 0; i < 3; ++i) {
        const std::vector<float> found = network.Output(x).ToVector<float>();
        if (expected.empty()) expected = found;
        EXPECT_EQ(found, expected) << "mode " << static_cast<int>(mode);
      }
      for (const Workspace* workspace : network.inference_workspaces().workspaces())
        EXPECT_EQ(workspace->stats().leaked_arrays, 0u) << workspace->id();
    }
  }
}

TEST(Placement, TheReportIsWhatTheLedgerMeasures) {
  for (const char* name : kExampleNetworks) {
    for (WorkspaceMode mode : kModes) {
      constexpr int64_t kBatch = 32;
      Network reported = ExampleNetwork(name, Options(mode));
      const std::vector<float> before_it = reported.parameters().ToVector<float>();
      const MemoryReport report = ReportMemory(reported, {.batch = kBatch, .updater_arrays = 2});
      EXPECT_EQ(reported.parameters().ToVector<float>(), before_it);
      const int64_t measured = MeasuredTrainingBytes(name, Options(mode), kBatch);
      EXPECT_NEAR(static_cast<double>(report.training_bytes()), static_cast<double>(measured),
                  0.02 * measured)
          << name << ", mode " << static_cast<int>(mode);
      std::printf("%-9s mode %d: reported %lld, measured %lld\n", name, static_cast<int>(mode),
                  static_cast<long long>(report.training_bytes()),
                  static_cast<long long>(measured));
    }
  }
}

TEST(Placement, TheLargestBatchIsTheLargestThatFits) {
  Network network = ExampleNetwork("lenet", Options(WorkspaceMode::kEnabled));
  const int64_t budget = int64_t{32} << 20;
  const int64_t batch = LargestBatch(network, {}, budget);
  ASSERT_GT(batch, 1);
  EXPECT_LE(ReportMemory(network, {.batch = batch}).training_bytes(), budget);
  EXPECT_GT(ReportMemory(network, {.batch = batch + 1}).training_bytes(), budget);
  EXPECT_EQ(LargestBatch(network, {}, 1000), 0);
  EXPECT_EQ(LargestBatch(network, {}, budget, true, 0), 0);
  EXPECT_EQ(LargestBatch(network, {}, budget, true, batch - 1), batch - 1);
  EXPECT_EQ(LargestBatch(network, {}, budget, true, std::numeric_limits<int64_t>::max()), batch);
  const int64_t requests = LargestBatch(network, {}, budget, /*training=*/false);
  EXPECT_GT(requests, batch);
  EXPECT_LE(ReportMemory(network, {.batch = requests}).inference_bytes(), budget);
  EXPECT_GT(ReportMemory(network, {.batch = requests + 1}).inference_bytes(), budget);
}

// Halving meets a batch that takes more than the next one.
TEST(Placement, TheLargestBatchIsFoundBehindOneThatTakesMore) {
  Network network(NetworkConfig::Sequential({4096}, {Dense(2)}), Options(WorkspaceMode::kEnabled));
  network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
    const NDArray scratch = Zeros({inputs.features[0].dim(0) == 62 ? 400'000 : 1});
    return Sum(outputs[0] * outputs[0], 1);
  });
  const int64_t budget = ReportMemory(network, {.batch = 63}).training_bytes();
  EXPECT_GT(ReportMemory(network, {.batch = 62}).training_bytes(), budget);
  EXPECT_EQ(LargestBatch(network, {}, budget), 63);
  EXPECT_EQ(LargestBatch(network, {}, budget, true, 62), 61);
}

// Of group_norm, and of networks that take less beyond a jump wherever it is.
TEST(Placement, TheLargestBatchIsFoundBehindManyThatTakeMore) {
  Network groups({4}, {GroupNormalization(2), Dense(2)});
  const int64_t of_48 = ReportMemory(groups, {.batch = 48}).training_bytes();
  EXPECT_GE(LargestBatch(groups, {}, of_48), 48);
  Network network(NetworkConfig::Sequential({4096}, {Dense(2)}), Options(WorkspaceMode::kEnabled));
  network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
    const int64_t batch = inputs.features[0].dim(0);
    const NDArray scratch = Zeros({batch >= 24 && batch <= 32 ? 400'000 : 1});
    return Sum(outputs[0] * outputs[0], 1);
  });
  const int64_t budget = ReportMemory(network, {.batch = 45}).training_bytes();
  EXPECT_GT(ReportMemory(network, {.batch = 32}).training_bytes(), budget);
  EXPECT_EQ(LargestBatch(network, {}, budget), 45);
  EXPECT_EQ(LargestBatch(network, {}, budget, true, 40), 40);
  EXPECT_EQ(LargestBatch(network, {}, budget, true, 30), 23);
}

int64_t MostResidentBytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{1024} * usage.ru_maxrss;
}

// Half a gigabyte of integers, which nobody writes for it.
TEST(Placement, AReportOfALargeBatchTouchesNoneOfIt) {
  Network network({1}, {Dense(1)});
  network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs&) {
    return outputs[0].Index(1, 0);
  });
  constexpr int64_t kBatch = 1 << 20, kLabel = 64 * 8;
  const int64_t before = MostResidentBytes();
  const MemoryReport report =
      ReportMemory(network, {.batch = kBatch, .labels = {{"label", {64}, DType::kInt64}}});
  EXPECT_GE(report.training.input_bytes, kBatch * kLabel);
  EXPECT_LT(MostResidentBytes() - before, kBatch * kLabel / 4);
}

// Returns what is gone already.
class ClosesItsOutput final : public Layer {
 public:
  std::string Kind() const override { return "closes"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& x) const override {
    NDArray output = x * 2.0;
    output.Close();
    return output;
  }
};

TEST(Placement, WhatALayerHasClosedIsSaidToBeClosed) {
  for (const WorkspaceMode mode : kModes) {
    Network network =
        Network(NetworkConfig::Sequential({4}, {ClosesItsOutput(), Dense(2)}), Options(mode));
    try {
      network.Output(Ones({3, 4}));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr("an array that was closed"));
      EXPECT_THAT(error.message(), testing::Not(HasSubstr("cycle has ended")));
    }
  }
}

TEST(Placement, AReportOfWhatCannotBeIsRefused) {
  Network network = ExampleNetwork("lenet", Options(WorkspaceMode::kEnabled));
  EXPECT_THROW(ReportMemory(network, {.updater_arrays = -1}), Error);
  EXPECT_THROW(ReportMemory(network, {.labels = {}}), Error);
  EXPECT_GT(ReportMemory(network, {}).training_bytes(), 0);
}

}  // namespace
}  // namespace tidepool::nn
