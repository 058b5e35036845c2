// Frozen parameters: what stays, what is not computed or kept for their sake, and what must not
// change by it.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/memory_report.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Patterns = std::vector<std::string>;

// Layers 0.dense, 1.batch_norm, 2.dropout, 3.dense.
Network SmallNetwork(Patterns frozen = {}, uint64_t seed = 3) {
  NetworkOptions options;
  options.seed = seed;
  options.frozen = std::move(frozen);
  return Network(NetworkConfig::Sequential({6}, {Dense(8, Activation::kTanh), BatchNormalization(),
                                                 DropoutLayer(0.25), Dense(3)}),
                 options);
}

Batch SmallBatch(int64_t i) {
  const auto seed = static_cast<uint64_t>(i);
  return {RandomUniform({16, 6}, -1, 1, seed), RandomIntegers({16}, 0, 3, seed)};
}

std::map<std::string, std::vector<float>> ValuesOf(const Network& network) {
  std::map<std::string, std::vector<float>> values;
  for (const NamedParameter& parameter : network.named_parameters()) {
    values[parameter.name] = parameter.value.ToVector<float>();
  }
  return values;
}

UpdaterConfig Decaying() {
  UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kAdamW);
  config.weight_decay = 0.1;
  return config;
}

std::vector<std::string> TrainedOf(const Network& network) {
  std::vector<std::string> names;
  for (const NamedParameter& parameter : network.named_parameters()) {
    if (parameter.is_trained) names.push_back(parameter.name);
  }
  return names;
}

TEST(Freezing, FrozenParametersStayAndHaveNeitherGradientNorState) {
  Network network = SmallNetwork({"0.dense", "1.batch_norm"});
  const auto before = ValuesOf(network);
  EXPECT_EQ(before, ValuesOf(SmallNetwork()));  // drawn as ever
  EXPECT_THAT(TrainedOf(network), ElementsAre("3.dense.weight", "3.dense.bias"));
  EXPECT_EQ(network.NumParameters(), 8 * 3 + 3);
  EXPECT_EQ(network.gradients().NumElements(), 32 + 16);  // cache lines
  EXPECT_EQ(network.parameters().NumElements(), 32 + 16);
  Trainer trainer(network, Decaying());
  for (const NDArray* state : trainer.updater().state()) EXPECT_EQ(state->NumElements(), 32 + 16);
  for (int i = 0; i < 10; ++i) trainer.Step([&] { return SmallBatch(i); });
  const auto after = ValuesOf(network);
  for (const NamedParameter& parameter : network.named_parameters()) {
    EXPECT_EQ(parameter.is_frozen, !parameter.is_trained) << parameter.name;
    EXPECT_EQ(after.at(parameter.name) == before.at(parameter.name), parameter.is_frozen)
        << parameter.name;
  }
}

// The trunk's outputs, by another network in inference, as features of a head alone.
TEST(Freezing, AHeadLearnsAsOneByItselfOnTheTrunksOutputs) {
  NetworkOptions options;
  options.seed = 3;
  Network trunk(NetworkConfig::Sequential({6}, {Dense(8, Activation::kTanh), BatchNormalization()}),
                options);
  Network head(NetworkConfig::Sequential({8}, {Dense(3)}), options);
  options.frozen = {"0.dense", "1.*"};
  Network whole(
      NetworkConfig::Sequential({6}, {Dense(8, Activation::kTanh), BatchNormalization(), Dense(3)}),
      options);
  // Averages that are not those of a batch.
  for (const NamedParameter& parameter : whole.named_parameters()) {
    NDArray value = parameter.value;
    if (parameter.name == "1.batch_norm.running_mean") FillInto(0.25, value);
    if (parameter.name == "1.batch_norm.running_variance") FillInto(0.5, value);
    for (Network* to : {&trunk, &head}) {
      for (const NamedParameter& other : to->named_parameters()) {
        NDArray copy = other.value;
        const std::string name = to == &head ? "2" + other.name.substr(1) : other.name;
        if (name == parameter.name) CopyInto(value, copy);
      }
    }
  }
  Trainer of_whole(whole, Decaying()), of_head(head, Decaying());
  for (int i = 0; i < 20; ++i) {
    const double loss = of_whole.Step([&] { return SmallBatch(i); });
    EXPECT_NEAR(of_head.Step([&]() -> Batch {
      Batch batch = SmallBatch(i);
      return {trunk.Output(batch.features), batch.labels};
    }),
                loss, 1e-6 * loss);
  }
  const auto found = ValuesOf(whole), expected = ValuesOf(head);
  for (const char* name : {"dense.weight", "dense.bias"}) {
    const std::vector<float>&a = found.at(std::string("2.") + name),
          &b = expected.at(std::string("0.") + name);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << name;
  }
}

// Gradients flow through what is frozen in the middle: the first layer learns as it does with all
// others trained, but for these.
TEST(Freezing, ThroughALayerInTheMiddleGradientsFlow) {
  const auto gradients_of = [](Patterns frozen) {
    Network network(NetworkConfig::Sequential(
                        {6}, {Dense(8, Activation::kTanh), Dense(5, Activation::kRelu), Dense(3)}),
                    {.seed = 3, .frozen = std::move(frozen)});
    const Batch batch = SmallBatch(1);
    network.ComputeGradients(batch.features, batch.labels);
    std::map<std::string, std::vector<float>> gradients;
    for (const NamedParameter& parameter : network.named_parameters()) {
      if (!parameter.is_trained) continue;
      const int64_t end = parameter.begin + parameter.value.NumElements();
      gradients[parameter.name] =
          network.gradients().Slice(0, parameter.begin, end).ToVector<float>();
    }
    return gradients;
  };
  const auto all = gradients_of({}), some = gradients_of({"1.dense", "2.dense.bias"});
  ASSERT_EQ(some.size(), 3u);
  for (const auto& [name, gradient] : some) EXPECT_EQ(gradient, all.at(name)) << name;
}

TEST(Freezing, ThroughAFrozenBatchNormalizationGradientsFlow) {
  for (const WorkspaceMode mode : {WorkspaceMode::kNone, WorkspaceMode::kEnabled}) {
    Network network(
        NetworkConfig::Sequential({6},
                                  {Dense(5, Activation::kTanh), BatchNormalization(), Dense(3)}),
        {.seed = 3, .mode = mode, .dtype = DType::kFloat64, .frozen = {"1.batch_norm"}});
    Batch batch = SmallBatch(1);
    batch.features = Cast(batch.features, DType::kFloat64);
    for (const NamedParameter& parameter : network.named_parameters()) {
      NDArray value = parameter.value;
      if (parameter.name.starts_with("1."))
        CopyInto(RandomUniform(value.shape(), 0.5, 2, DType::kFloat64, 7), value);
    }
    network.ComputeGradients(batch.features, batch.labels);
    const std::vector<double> gradients = network.gradients().ToVector<double>();
    for (int64_t i = 0; i < 4; ++i) {
      double& at = NDArray(network.named_parameters()[0].value).mutable_data<double>()[i];
      at += 1e-6;
      const double more = network.ComputeGradients(batch.features, batch.labels);
      at -= 2e-6;
      const double less = network.ComputeGradients(batch.features, batch.labels);
      at += 1e-6;
      EXPECT_NEAR(gradients[static_cast<size_t>(i)], (more - less) / 2e-6, 1e-7) << i;
    }
  }
}

// A layer of which something is trained runs as in training.
TEST(Freezing, BatchNormalizationMovesItsAveragesUnlessAllOfItIsFrozen) {
  Network part = SmallNetwork({"0.dense", "1.batch_norm.scale"}),
          whole = SmallNetwork({"0.dense", "1.batch_norm.scale", "1.*.shift"});
  for (Network* network : {&part, &whole}) {
    const auto before = ValuesOf(*network);
    Trainer(*network, UpdaterConfig::Of(UpdaterKind::kSgd)).Step([] { return SmallBatch(1); });
    const auto after = ValuesOf(*network);
    for (const char* name : {"1.batch_norm.running_mean", "1.batch_norm.running_variance"}) {
      EXPECT_EQ(after.at(name) == before.at(name), network == &whole) << name;
    }
    EXPECT_EQ(after.at("1.batch_norm.scale"), before.at("1.batch_norm.scale"));
  }
}

TEST(Freezing, WhatIsFrozenAndTrainedAgainIsAsIfItHadNeverBeen) {
  Network network = SmallNetwork(), other = SmallNetwork();
  const auto before = ValuesOf(network);
  network.SetFrozen(Patterns{"*.weight", "*.shift"});
  EXPECT_EQ(ValuesOf(network), before);
  EXPECT_EQ(network.Output(SmallBatch(1).features).ToVector<float>(),
            other.Output(SmallBatch(1).features).ToVector<float>());
  network.SetFrozen({});
  EXPECT_EQ(ValuesOf(network), before);
  EXPECT_EQ(network.layout_version(), 2u);
  Trainer trainer(network, Decaying()), expected(other, Decaying());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(trainer.Step([&] { return SmallBatch(i); }),
              expected.Step([&] { return SmallBatch(i); }));
  }
  EXPECT_EQ(network.arrays().ToVector<float>(), other.arrays().ToVector<float>());
}

TEST(Freezing, MistakesAreNamedAndChangeNothing) {
  Network network = SmallNetwork();
  const std::vector<float> before = network.arrays().ToVector<float>();
  EXPECT_THAT(MessageOf([&] {
                network.SetFrozen(Patterns{"0.dense", "stem"});
              }),
              AllOf(HasSubstr("network [network"),
                    HasSubstr("frozen: pattern \"stem\" matches none of 8 parameters"),
                    HasSubstr("0.dense.weight")));
  EXPECT_THAT(MessageOf([&] { network.SetFrozen(Patterns{"*"}); }),
              HasSubstr("nothing is left to train"));
  EXPECT_THAT(MessageOf([&] { SmallNetwork({"stem"}); }), HasSubstr("pattern \"stem\""));
  {
    const WorkspaceScope scope(network.training_workspace());
    EXPECT_THAT(MessageOf([&] { network.SetFrozen(Patterns{"0.dense"}); }),
                HasSubstr("is open, expected closed"));
  }
  {
    FailingProvider memory{Host()};
    for (int n = 0; n < 2; ++n) {  // the copy and the gradients, asked for again or not
      memory.faults().FailRequest(n, 100);
      EXPECT_THROW(network.SetFrozen(Patterns{"0.dense"}), OutOfMemoryError) << n;
      memory.faults().Clear();
    }
  }
  EXPECT_EQ(network.arrays().ToVector<float>(), before);
  EXPECT_EQ(network.layout_version(), 0u);
  EXPECT_EQ(TrainedOf(network).size(), 6u);
  Trainer trainer(network, Decaying());
  trainer.Step([] { return SmallBatch(1); });
  network.SetFrozen(Patterns{"0.dense"});
  EXPECT_THAT(
      MessageOf([&] { trainer.Step([] { return SmallBatch(1); }); }),
      HasSubstr("were frozen or not since it was made, expected a trainer made afterwards"));
  EXPECT_EQ(network.step(), 1u);
}

TEST(Freezing, AModelsManagerHasTheNewGradientsAndItsFileTheOldNames) {
  const std::string path = testing::TempDir() + "/frozen.safetensors";
  Model model = MakeModel("mlp", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled);
  const auto before = ValuesOf(*model.network);
  {
    Trainer trainer(model, Decaying());
    trainer.Step([] { return SomeBatch(4, 1); });
  }
  const auto trained = ValuesOf(*model.network);
  const int64_t bytes = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  const auto first_layer = static_cast<int64_t>(before.begin()->second.size());
  model.SetFrozen(Patterns{model.network->named_parameters()[0].name,
                           model.network->named_parameters()[1].name});
  EXPECT_LT(MemoryTracker::Global().Snapshot()[Host()].total.current_bytes,
            bytes - 4 * first_layer);
  EXPECT_EQ(model.manager.arrays(), 2);
  EXPECT_TRUE(model.manager.Manages(model.network->gradients()));
  EXPECT_TRUE(model.manager.is_capped());
  EXPECT_EQ(ValuesOf(*model.network), trained);
  Trainer trainer(model, Decaying());
  for (int i = 0; i < 3; ++i) trainer.Step([] { return SomeBatch(4, 1); });
  const auto after = ValuesOf(*model.network);
  EXPECT_NE(after, trained);
  SaveModel(model, path);
  EXPECT_EQ(ValuesOf(*LoadModel(path, WorkspaceMode::kEnabled).network), after);
}

const Patterns& FrozenOf(const std::string& example) {
  static const std::map<std::string, Patterns>* const frozen =
      new std::map<std::string, Patterns>{{"mlp", {"0.*"}},
                                          {"lenet", {"0.*", "2.*"}},
                                          {"residual", {"stem*", "1_*", "2_first*", "2_around*"}},
                                          {"program", {"first", "scale", "middle"}},
                                          {"lstm", {"1.*", "2.*"}},
                                          {"transformer", {"1.*", "2.*", "3.*"}},
                                          {"autoencoder", {"0.*", "1.*", "2.*"}}};
  return frozen->at(example);
}

// Layers in front of everything that is trained take what they take in inference: no gradients, and
// nothing kept for any.
TEST(Freezing, NothingOfAFrozenTrunksBackwardIsKept) {
  for (const char* name : kExampleNetworks) {
    NetworkOptions options = Options(WorkspaceMode::kEnabled);
    Network network = ExampleNetwork(name, options);
    const MemoryReport all = ReportMemory(network, {.batch = 32});
    network.SetFrozen(FrozenOf(name));
    const MemoryReport frozen = ReportMemory(network, {.batch = 32});
    EXPECT_EQ(frozen.parameter_bytes, all.parameter_bytes);
    EXPECT_LT(frozen.gradient_bytes, all.gradient_bytes) << name;
    EXPECT_LE(frozen.training.lower_bound_bytes, all.training.lower_bound_bytes) << name;
    // What the rest needs is less than what the widest layer of a request does: no more is alive
    // than there, but for the labels and the running averages as they were before the step.
    int64_t averages = 0;
    for (const NamedParameter& parameter : network.named_parameters()) {
      if (parameter.name.find(".running_") == std::string::npos) continue;
      averages += (parameter.value.NumElements() + 15) / 16 * 64;  // in cache lines
    }
    // Of a request by the same kernels: an engine's, for weights that stay, may need no scratch.
    const auto &step = frozen.training.layers, &request = frozen.inference.layers;
    constexpr int kScratch = static_cast<int>(ArrayType::kForwardWorkingMemory);
    bool alike = true;
    for (size_t i = 0; i < request.size(); ++i)
      alike = alike && step[i].bytes[kScratch] <= request[i].bytes[kScratch];
    if (alike && name != std::string("autoencoder")) {  // whose end is the widest and is trained
      EXPECT_LE(frozen.training.lower_bound_bytes,
                frozen.inference.lower_bound_bytes + 32 * 8 + averages)
          << name;
    }
    int64_t gradients = 0;
    for (const LayerUse& use : frozen.training.layers) {
      int64_t of_layer = 0;
      for (const ArrayType type :
           {ArrayType::kActivationGradients, ArrayType::kBackwardWorkingMemory}) {
        of_layer += use.bytes[static_cast<int>(type)];
      }
      gradients += of_layer;
      bool is_frozen = false;
      for (const NamedParameter& parameter : network.named_parameters()) {
        is_frozen =
            is_frozen || (parameter.is_frozen && parameter.name.rfind(use.layer + ".", 0) == 0);
      }
      if (is_frozen) {
        EXPECT_EQ(of_layer, 0) << name << ", " << use.layer;
      }
    }
    EXPECT_TRUE(gradients > 0 || name == std::string("lstm")) << name;  // whose last layer is left
  }
}

TEST(Freezing, TheReportIsWhatTheLedgerMeasuresInEachMode) {
  for (const char* name : {"lenet", "residual"}) {
    for (WorkspaceMode mode : kModes) {
      constexpr int64_t kBatch = 32;
      NetworkOptions options = Options(mode);
      options.frozen = FrozenOf(name);
      Network reported = ExampleNetwork(name, options);
      const MemoryReport report = ReportMemory(reported, {.batch = kBatch, .updater_arrays = 2});
      const int64_t measured = MeasuredTrainingBytes(name, options, kBatch);
      EXPECT_NEAR(static_cast<double>(report.training_bytes()), static_cast<double>(measured),
                  0.02 * measured)
          << name << ", mode " << static_cast<int>(mode);
    }
  }
}

TEST(Freezing, AllModesComputeTheSameBits) {
  for (const char* name : kExampleNetworks) {
    std::vector<float> expected;
    for (WorkspaceMode mode : kModes) {
      NetworkOptions options = Options(mode);
      options.frozen = FrozenOf(name);
      Network network = ExampleNetwork(name, options);
      Trainer trainer(network, Decaying());
      for (int i = 0; i < 6; ++i)
        trainer.Step([&] { return SomeBatch(4, static_cast<uint64_t>(i)); });
      if (expected.empty()) expected = network.arrays().ToVector<float>();
      EXPECT_EQ(network.arrays().ToVector<float>(), expected)
          << name << ", mode " << static_cast<int>(mode);
    }
  }
}

TEST(Freezing, ACheckpointGoesOnWithTheSameFrozenAlone) {
  const std::string path = testing::TempDir() + "/frozen_checkpoint.safetensors";
  const Patterns frozen = {"0.dense"};
  Network whole = SmallNetwork(frozen), first = SmallNetwork(frozen),
          then = SmallNetwork(frozen, 3);
  Trainer of_whole(whole, Decaying()), of_first(first, Decaying()), of_then(then, Decaying());
  for (int i = 0; i < 12; ++i) of_whole.Step([&] { return SmallBatch(i); });
  for (int i = 0; i < 5; ++i) of_first.Step([&] { return SmallBatch(i); });
  SaveCheckpoint(of_first, path);
  LoadCheckpoint(path, of_then);
  for (int i = 5; i < 12; ++i) of_then.Step([&] { return SmallBatch(i); });
  EXPECT_EQ(then.arrays().ToVector<float>(), whole.arrays().ToVector<float>());
  for (const Patterns& others : {Patterns(), Patterns{"3.dense"}}) {
    Network other = SmallNetwork(others);
    Trainer trainer(other, Decaying());
    EXPECT_THAT(MessageOf([&] { LoadCheckpoint(path, trainer); }),
                AllOf(HasSubstr("metadata \"frozen\" is \"0.dense.weight 0.dense.bias\", expected"),
                      HasSubstr(others.empty() ? "\"none\"" : "\"3.dense.weight 3.dense.bias\"")));
    EXPECT_EQ(trainer.steps(), 0);
  }
}

}  // namespace
}  // namespace tidepool::nn
