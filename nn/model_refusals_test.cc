// Models that cannot be made or saved: what refuses them says why and touches no file.
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ModelFile, MakeModelRefuses) {
  auto make = [](const char* name, const Shape& input, int64_t classes) {
    return [=] { MakeModel(name, input, classes, 1, WorkspaceMode::kNone); };
  };
  EXPECT_THAT(ErrorOf(make("foo", {28, 28, 1}, 10)),
              IsError(StatusCode::kInvalidArgument, {"\"foo\"", "lenet or mlp"}));
  EXPECT_THAT(ErrorOf(make("mlp", {28, 28, 1}, 0)),
              IsError(StatusCode::kInvalidArgument, {"at least one unit"}));
  ErrorOf(make("lenet", {4, 4, 1}, 10));
}

TEST(ModelFile, PathsThatCannotBeWritten) {
  const Model model = MakeModel("mlp", {1, 1, 1}, 1, 1, WorkspaceMode::kNone);
  for (const std::string& path :
       {std::string("/none/model"), testing::TempDir(), std::string("/dev/null"), std::string()}) {
    for (const Error& error : {ErrorOf([&] { CheckModelPathIsWritable(path); }),
                               ErrorOf([&] { SaveModel(model, path); })}) {
      EXPECT_EQ(MessageFlaw(error), "");
      EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
    }
  }
}

TEST(ModelFile, CheckingAPathLeavesNothingAndKeepsWhatIsThere) {
  const std::string path = WriteTestFile("precious", "content");
  CheckModelPathIsWritable(path);
  EXPECT_EQ(ReadAll(path), "content");
  const std::string fresh = testing::TempDir() + "/fresh";
  CheckModelPathIsWritable(fresh);
  EXPECT_FALSE(std::ifstream(fresh).good());
}

TEST(ModelTest, ANetworkThatDoesNotFitItIsRefused) {
  const auto message = [](int64_t classes, std::unique_ptr<Network> network) {
    return std::string(
        CatchStatus([&] { Model("digits", classes, std::move(network)); }).message());
  };
  const auto network = [] { return std::make_unique<Network>(Shape{4}, MlpLayers(10)); };
  EXPECT_THAT(message(5, network()),
              HasSubstr("model \"digits\": 5 classes, but its network's outputs are [10]"));
  EXPECT_THAT(message(10, nullptr), HasSubstr("model \"digits\": no network"));
  EXPECT_EQ(message(10, network()), "");
}

TEST(ModelFile, AModelWithoutANetworkIsNotSaved) {
  const std::string path = WriteTestFile("no network", "what was there");
  Model nothing, model = MakeModel("mlp", {4, 4, 1}, 3, 0, WorkspaceMode::kEnabled);
  EXPECT_THAT(ErrorOf([&] { SaveModel(nothing, path); }),
              IsError(StatusCode::kInvalidArgument, {"SaveModel", path, "the model has no network"}));
  const Model moved = std::move(model);
  EXPECT_THAT(ErrorOf([&] { SaveModel(model, path); }),
              IsError(StatusCode::kInvalidArgument, {"SaveModel", path, "the model has no network"}));
  const Network taken = std::move(*moved.network);
  EXPECT_THAT(ErrorOf([&] { SaveModel(moved, path); }),
              IsError(StatusCode::kFailedPrecondition, {"the network was moved from"}));
  EXPECT_EQ(ReadAll(path), "what was there");
}

}  // namespace
}  // namespace tidepool::nn
