// Models that cannot be made or saved: what refuses them says why and touches no file.
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/multi_head_attention.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/shaping.h"
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
              IsError(StatusCode::kInvalidArgument, {"\"foo\"", "lenet, mlp or residual"}));
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

// The largest number of operations that refuses it, and one more.
void ExpectOperations(const Shape& input, std::vector<AnyLayer> layers, int64_t operations) {
  const std::string path = testing::TempDir() + "/operations";
  SaveModel(
      Model("m", 3, std::make_unique<Network>(NetworkConfig::Sequential(input, std::move(layers)))),
      path);
  const auto load = [&](int64_t most) {
    LoadModel(path, WorkspaceMode::kNone, Host(), kMaxExampleElements, most);
  };
  load(operations);
  EXPECT_THAT(
      ErrorOf([&] { load(operations - 1); }),
      IsError(StatusCode::kDataLoss, {path, "operations for one example",
                                      "expected at most " + std::to_string(operations - 1)}));
}

TEST(ModelFile, WhatOneExampleComputesIsLimited) {
  // What is read and made, and each parameter once.
  ExpectOperations({4}, {Dense(3)}, 4 + 3 + 15);
  // Windows by their sizes: 3 x 3 places of 2 x 2.
  Pool2dAttributes pool;
  pool.stride_height = pool.stride_width = 1;
  ExpectOperations({4, 4, 3}, {MaxPool2D(pool), GlobalPooling()}, 48 + 27 + 27 * 4 + 27 + 3);
  // Each parameter at each place of the output; pairs of steps.
  ExpectOperations({4, 4, 2}, {Conv2D(3, 2, 2), GlobalPooling()}, 32 + 27 + 9 * 27 + 27 + 3);
  ExpectOperations({5, 3}, {MultiHeadAttention(1), GlobalPooling()},
                   15 + 15 + 5 * 48 + 25 * (2 * 3 + 8) + 15 + 3);
}

TEST(ModelFile, AWindowThatWouldTakeHoursIsRefused) {
  const std::string path = testing::TempDir() + "/hours";
  Pool2dAttributes pool;
  pool.kernel_height = pool.kernel_width = 2048;
  pool.stride_height = pool.stride_width = 1;
  SaveModel(
      Model("m", 1,
            std::make_unique<Network>(NetworkConfig::Sequential(
                Shape{28, 28, 1}, {Upsampling({148, 148}), MaxPool2D(pool), GlobalPooling()}))),
      path);
  EXPECT_THAT(
      ErrorOf([&] { LoadModel(path); }),
      IsError(StatusCode::kDataLoss, {path, "1.84442e+13 operations", "at most 34359738368"}));
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
  EXPECT_THAT(
      ErrorOf([&] { SaveModel(nothing, path); }),
      IsError(StatusCode::kInvalidArgument, {"SaveModel", path, "the model has no network"}));
  const Model moved = std::move(model);
  EXPECT_THAT(
      ErrorOf([&] { SaveModel(model, path); }),
      IsError(StatusCode::kInvalidArgument, {"SaveModel", path, "the model has no network"}));
  const Network taken = std::move(*moved.network);
  EXPECT_THAT(ErrorOf([&] { SaveModel(moved, path); }),
              IsError(StatusCode::kFailedPrecondition, {"the network was moved from"}));
  EXPECT_EQ(ReadAll(path), "what was there");
}

}  // namespace
}  // namespace tidepool::nn
