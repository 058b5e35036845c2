#include "tidepool/nn/parameter_file.h"

#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/network_json.h"

namespace tidepool::nn {
namespace {

using absl::StatusCode;

struct Program : Block {
  Part part{*this, "part", Dense(3)};
  BlockParameter scale{*this, "scale", {3}, Initializer::Ones()};
  NDArray Forward(const NDArray& x) const override { return part(x) * scale(); }
};

std::unique_ptr<Network> ProgramNetwork(uint64_t seed) {
  return std::make_unique<Network>(std::vector<InputConfig>{{"x", {4}}},
                                   std::make_unique<Program>(), NetworkOptions{.seed = seed});
}

std::unique_ptr<Network> Normalized(uint64_t seed) {
  NetworkOptions options{.seed = seed};
  options.dtype = DType::kFloat64;
  return std::make_unique<Network>(NetworkConfig::Sequential({4}, {Dense(4), BatchNormalization()}),
                                   options);
}

TEST(ParameterFile, RunningAveragesAndDoublesAreKept) {
  const std::string path = testing::TempDir() + "/state.safetensors";
  Model model("mine", 4, Normalized(1));
  const NamedParameter& named = model.network->named_parameters()[4];
  ASSERT_EQ(named.name, "1.batch_norm.running_mean");
  NDArray mean = named.value;
  FillInto(3.25, mean);
  SaveModel(model, path);
  EXPECT_EQ(SafetensorsReader::Open(path).Find(named.name).dtype, "F64");
  const Model loaded = LoadModel(path);
  EXPECT_EQ(loaded.network->arrays().ToVector<double>(),
            model.network->arrays().ToVector<double>());
  const auto other = Normalized(2);
  LoadParameters(path, *other);
  EXPECT_EQ(other->arrays().ToVector<double>(), model.network->arrays().ToVector<double>());
}

// Where no tensor says which type the network computes in, the file says it.
TEST(ParameterFile, DoublesWithoutParametersStayDoubles) {
  const std::string path = testing::TempDir() + "/no_parameters.safetensors";
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    NetworkOptions options;
    options.dtype = dtype;
    SaveModel(
        Model("mine", 4,
              std::make_unique<Network>(
                  NetworkConfig::Sequential({4}, {ActivationLayer(Activation::kTanh)}), options)),
        path);
    const Model loaded = LoadModel(path);
    EXPECT_EQ(loaded.network->dtype(), dtype);
    EXPECT_EQ(loaded.network->Output(Full({1, 4}, 0.5, dtype)).dtype(), dtype);
  }
}

// Opening one waits for a writer, who may never come.
TEST(ParameterFile, PipesAreRefusedAtOnce) {
  const std::string pipe = testing::TempDir() + "/model_pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto is_refused =
      IsError(StatusCode::kInvalidArgument, {"open " + pipe, "found a pipe or device"});
  EXPECT_THAT(ErrorOf([&] { LoadModel(pipe); }), is_refused);
  const auto network = ProgramNetwork(1);
  EXPECT_THAT(ErrorOf([&] { LoadParameters(pipe, *network); }), is_refused);
}

TEST(ParameterFile, LongNamesAreKept) {
  const std::string path = testing::TempDir() + "/long.safetensors";
  const std::string a(300, 'a'), b = a + "b";
  const NetworkConfig config = NetworkFromJson(absl::StrCat(
      R"({"inputs":[{"name":"x","shape":[4]}],"layers":[{"kind":"dense","units":4,"name":")", a,
      R"("},{"kind":"dense","units":4,"name":")", b, R"("}]})"));
  const Model model("mine", 4, std::make_unique<Network>(config, NetworkOptions{.seed = 3}));
  SaveModel(model, path);
  const Model loaded = LoadModel(path);
  EXPECT_EQ(loaded.network->named_parameters()[0].name, a + ".weight");
  EXPECT_EQ(loaded.network->named_parameters()[2].name, b + ".weight");
  EXPECT_EQ(loaded.network->arrays().ToVector<float>(), model.network->arrays().ToVector<float>());
}

TEST(ParameterFile, OfAProgram) {
  const std::string path = testing::TempDir() + "/program.safetensors";
  const auto first = ProgramNetwork(1), second = ProgramNetwork(2);
  first->parameters() *= 2;
  SaveParameters(*first, path, {{"note", "mine"}});
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  EXPECT_EQ(reader.metadata().at("note"), "mine");
  EXPECT_TRUE(reader.Contains("part.weight") && reader.Contains("scale"));
  LoadParameters(path, *second);
  EXPECT_EQ(second->parameters().ToVector<float>(), first->parameters().ToVector<float>());
}

TEST(ParameterFile, ThoseOfAnotherNetworkAreRefusedAndNothingIsWritten) {
  const std::string path = testing::TempDir() + "/other.safetensors";
  SaveParameters(*ProgramNetwork(1), path);
  const auto other = Normalized(1);
  const std::vector<double> before = other->arrays().ToVector<double>();
  EXPECT_THAT(ErrorOf([&] { LoadParameters(path, *other); }),
              IsError(StatusCode::kDataLoss,
                      {path, "\"0.dense.weight\" is missing", "expected F64 [4, 4]"}));
  EXPECT_EQ(other->arrays().ToVector<double>(), before);
  EXPECT_THAT(ErrorOf([&] { SaveParameters(*other, "/none/parameters"); }),
              IsError(StatusCode::kNotFound, {"/none/parameters"}));
}

}  // namespace
}  // namespace tidepool::nn
