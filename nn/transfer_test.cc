#include "tidepool/nn/transfer.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/checkpoint.h"

namespace tidepool::nn {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Network NetworkOf(int64_t classes, uint64_t seed, bool has_more = false,
                  DType dtype = DType::kFloat32) {
  NetworkConfig config;
  std::string x = config.AddInput("x", {6});
  x = config.Add(Dense(8, Activation::kTanh), {x}, "body");
  x = config.Add(BatchNormalization(), {x}, "norm");
  if (has_more) x = config.Add(Dense(8), {x}, "more");
  config.outputs = {config.Add(Dense(classes), {x}, "classes")};
  NetworkOptions options;
  options.seed = seed;
  options.dtype = dtype;
  return Network(std::move(config), options);
}

NDArray ValueOf(const Network& network, const std::string& name) {
  for (const NamedParameter& parameter : network.named_parameters()) {
    if (parameter.name == name) return parameter.value;
  }
  return NDArray();
}

bool AreEqual(const Network& a, const Network& b, const std::string& name) {
  return ValueOf(a, name).ToVector<float>() == ValueOf(b, name).ToVector<float>();
}

// The averages are not those that networks begin with.
Network Saved(const std::string& path) {
  Network from = NetworkOf(5, 1);
  Trainer trainer(from, UpdaterConfig::Of(UpdaterKind::kAdam));
  trainer.Step([]() -> Batch {
    return {RandomUniform({4, 6}, -1, 1, 2), RandomIntegers({4}, 0, 5, 3)};
  });
  SaveCheckpoint(trainer, path);
  return from;
}

TEST(Transfer, LoadsWhatBothHaveAndSaysWhatItDid) {
  const std::string path = testing::TempDir() + "/transfer.safetensors";
  const Network from = Saved(path);
  for (const bool from_file : {true, false}) {
    Network to = NetworkOf(3, 2, /*has_more=*/true);
    to.SetFrozen(std::vector<std::string>{"body"});  // elsewhere in the flat array
    const std::vector<float> head = ValueOf(to, "classes.weight").ToVector<float>(),
                             more = ValueOf(to, "more.weight").ToVector<float>();
    const TransferOptions options{.except = {"classes"}};
    const Transferred t =
        from_file ? TransferParameters(path, to, options) : TransferParameters(from, to, options);
    EXPECT_THAT(t.loaded, testing::UnorderedElementsAre("body.weight", "body.bias", "norm.scale",
                                                        "norm.shift", "norm.running_mean",
                                                        "norm.running_variance"));
    EXPECT_THAT(t.left, ElementsAre("more.weight", "more.bias", "classes.weight", "classes.bias"));
    EXPECT_THAT(t.unused, testing::UnorderedElementsAre("classes.weight", "classes.bias"));
    for (const std::string& name : t.loaded) EXPECT_TRUE(AreEqual(from, to, name)) << name;
    EXPECT_EQ(ValueOf(to, "classes.weight").ToVector<float>(), head);
    EXPECT_EQ(ValueOf(to, "more.weight").ToVector<float>(), more);
    EXPECT_THAT(t.ToString(),
                testing::StartsWith("6 loaded, 4 left as they were (more.weight, more.bias, "
                                    "classes.weight, classes.bias), 2 not used (classes."));
  }
}

TEST(Transfer, TheWholeOfItFromAModelFile) {
  const std::string path = testing::TempDir() + "/whole.safetensors";
  SaveModel(MakeModel("mlp", {28, 28, 1}, 10, 5, WorkspaceMode::kEnabled), path);
  Model to = MakeModel("mlp", {28, 28, 1}, 10, 6, WorkspaceMode::kEnabled);
  const Transferred t = TransferParameters(path, *to.network);
  EXPECT_EQ(t.loaded.size(), to.network->named_parameters().size());
  EXPECT_THAT(t.left, IsEmpty());
  EXPECT_THAT(t.unused, IsEmpty());
  const Model again = MakeModel("mlp", {28, 28, 1}, 10, 5, WorkspaceMode::kEnabled);
  EXPECT_EQ(to.network->parameters().ToVector<float>(),
            again.network->parameters().ToVector<float>());
}

TEST(Transfer, MismatchesNameParameterFoundAndExpectedAndWriteNothing) {
  const std::string path = testing::TempDir() + "/mismatch.safetensors";
  const Network from = Saved(path);
  const auto refused = [&](Network& to, const TransferOptions& options,
                           std::vector<std::string> parts) {
    const std::vector<double> before = to.arrays().To(Host()).dtype() == DType::kFloat64
                                           ? to.arrays().ToVector<double>()
                                           : std::vector<double>();
    const std::vector<float> floats =
        before.empty() ? to.arrays().ToVector<float>() : std::vector<float>();
    EXPECT_THAT(ErrorOf([&] { TransferParameters(from, to, options); }),
                IsError(StatusCode::kInvalidArgument, parts));
    parts.push_back(path);
    EXPECT_THAT(ErrorOf([&] { TransferParameters(path, to, options); }),
                IsError(StatusCode::kDataLoss, parts));
    if (before.empty()) {
      EXPECT_EQ(to.arrays().ToVector<float>(), floats);
    } else {
      EXPECT_EQ(to.arrays().ToVector<double>(), before);
    }
  };
  Network three = NetworkOf(3, 2, true);
  refused(three, {},
          {"parameter \"classes.weight\" is F32 [5, 8], expected F32 [3, 8]", "`except`"});
  refused(three, {.only = {"body", "more.bias"}},
          {"parameter \"more.bias\" is missing, expected F32 [8]"});
  refused(three, {.except = {"*"}}, {"none of 8 parameters", "is to be loaded"});
  Network wide = NetworkOf(5, 2, false, DType::kFloat64);
  refused(wide, {}, {"parameter \"body.weight\" is F32 [8, 6], expected F64 [8, 6]"});
  EXPECT_THAT(
      ErrorOf([&] { TransferParameters(path, three, {.except = {"class"}}); }),
      IsError(StatusCode::kInvalidArgument, {"except: pattern \"class\" matches none of 10"}));
  EXPECT_THAT(ErrorOf([&] { TransferParameters(path, three, {.only = {"x"}}); }),
              IsError(StatusCode::kInvalidArgument, {"only: pattern \"x\" matches none"}));
  EXPECT_THAT(ErrorOf([&] { TransferParameters("/none/x.safetensors", three); }),
              IsError(StatusCode::kNotFound, {"/none/x"}));
}

}  // namespace
}  // namespace tidepool::nn
