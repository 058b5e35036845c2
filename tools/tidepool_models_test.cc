// What `tidepool predict` and `tidepool evaluate` say to models that answer no images, or no
// numbers.
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/data/testing/gzip_writer.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/network.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using nn::AnyLayer;
using nn::Dense;
using nn::Network;
using testing::HasSubstr;

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Twenty images of 4x6 pixels, and what they are.
std::string Images() {
  const std::string folder = NewFolder();
  std::string pixels, labels;
  for (int i = 0; i < 20; ++i) {
    labels += static_cast<char>(i % 3);
    for (int p = 0; p < 24; ++p) pixels += static_cast<char>((i * 37 + p * p * 11) % 251);
  }
  Write(folder + "/images", Idx({20, 4, 6}, pixels));
  Write(folder + "/labels", Idx({20}, labels));
  return folder;
}

std::vector<RunResult> PredictAndEvaluate(const std::string& folder) {
  std::vector<RunResult> results;
  for (const std::string command : {"predict", "evaluate"}) {
    std::vector<std::string> arguments = {command, "--images=images", "--model_file=m",
                                          "--batch=8"};
    if (command == "evaluate") arguments.push_back("--labels=labels");
    results.push_back(RunProgram(DataPath("tools/tidepool"), arguments, {.folder = folder}));
  }
  return results;
}

void Save(const std::string& folder, std::unique_ptr<Network> network, int64_t classes = 3) {
  nn::SaveModel(nn::Model("mine", classes, std::move(network)), folder + "/m");
}

std::unique_ptr<Network> Chain(const Shape& input, std::vector<AnyLayer> layers,
                               DType dtype = DType::kFloat32) {
  nn::NetworkOptions options;
  options.dtype = dtype;
  return std::make_unique<Network>(nn::NetworkConfig::Sequential(input, std::move(layers)),
                                   options);
}

TEST(Models, ThatComputeTooLongAreRefused) {
  const std::string folder = Images();
  Save(folder, Chain({4, 6, 1}, {Dense(3)}));
  const auto predict = [&](const std::string& operations) {
    return RunProgram(
        DataPath("tools/tidepool"),
        {"predict", "--images=images", "--model_file=m", "--max_operations=" + operations},
        {.folder = folder});
  };
  EXPECT_EQ(predict("102").status, 0);  // 24 read, 3 made, 75 parameters once
  const RunResult refused = predict("101");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("take 102 operations for one example, expected at most 101"));
  EXPECT_THAT(predict("0").err, HasSubstr("flag --max_operations is 0, expected at least 1"));
}

// A model of a few hundred bytes whose layers make 144 MB of an image: twenty at once are no more
// than what one may be made of.
TEST(Models, ThatMakeMuchOfAnImageGetFewAtOnce) {
  const std::string folder = Images();
  const std::vector<int64_t> wide(4, 3000);
  Save(folder, Chain({4, 6, 1}, {nn::ZeroPadding(wide), nn::Cropping(wide), Dense(3)}));
  for (const std::string command : {"predict", "evaluate"}) {
    std::vector<std::string> arguments = {command, "--images=images", "--model_file=m"};
    if (command == "evaluate") arguments.push_back("--labels=labels");
    const RunResult result = RunProgram(DataPath("tools/tidepool"), arguments, {.folder = folder});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_LT(result.peak_bytes, int64_t{1} << 30);
  }
}

TEST(Models, OfImagesAnswer) {
  const std::string folder = Images();
  Save(folder, Chain({4, 6, 1}, {Dense(3)}));
  for (const RunResult& result : PredictAndEvaluate(folder))
    EXPECT_EQ(result.status, 0) << result.err;
}

TEST(Models, ThatAnswerNoImagesAreNamed) {
  const std::string folder = Images();
  const auto expect = [&](std::unique_ptr<Network> network, const std::string& message) {
    SCOPED_TRACE(message);
    Save(folder, std::move(network));
    for (const RunResult& result : PredictAndEvaluate(folder)) {
      EXPECT_EQ(result.status, 2) << result.err;
      EXPECT_EQ(result.out, "");
      EXPECT_THAT(result.err, HasSubstr(": m: its network " + message + "\n"));
    }
  };
  nn::DenseOptions each;
  each.last_axis = true;
  const Dense scores(3, nn::Activation::kIdentity, each);
  expect(Chain({4, 6, 1}, {scores}),
         "answers an image with [4, 6, 3], expected [3], a score for each class");
  expect(Chain({4, 6, 1}, {nn::ReshapeLayer({4, 6}), scores}),
         "answers an image with [4, 3], expected [3], a score for each class");
  expect(Chain({4, 6, 1}, {Dense(3)}, DType::kFloat64), "computes in f64, expected f32");
  expect(Chain({24}, {Dense(3)}), "takes [24], expected an image, [height, width, 1]");
  expect(Chain({4, 2, 3}, {Dense(3)}), "takes [4, 2, 3], expected an image, [height, width, 1]");
  nn::NetworkConfig two;
  const std::string a = two.AddInput("a", {4, 6, 1}), b = two.AddInput("b", {3});
  const std::string dense = two.Add(Dense(3), {a}, "dense");
  two.Add(nn::Merge(nn::MergeKind::kAdd), {dense, b}, "sum");
  two.outputs = {"sum"};
  expect(std::make_unique<Network>(two, nn::NetworkOptions{}),
         "has 2 inputs, expected one, an image");
  nn::NetworkConfig both;
  const std::string x = both.AddInput("x", {4, 6, 1});
  both.outputs = {both.Add(Dense(3), {x}, "first"), both.Add(Dense(3), {x}, "second")};
  expect(std::make_unique<Network>(both, nn::NetworkOptions{}),
         "has 2 outputs, expected one, the scores of the classes");
}

// Parameters may be finite and too large to compute with: which image it shows at is said.
TEST(Models, WhoseScoresAreNotFinite) {
  const std::string folder = Images();
  // Of the first images nothing shines, which is 0 however large the parameters are.
  std::string pixels(11 * 24, '\0');
  pixels += std::string(9 * 24, '\x7f');
  Write(folder + "/images", Idx({20, 4, 6}, pixels));
  nn::DenseOptions no_bias;
  no_bias.bias = false;
  std::unique_ptr<Network> network = Chain(
      {4, 6, 1},
      {Dense(8, nn::Activation::kIdentity, no_bias), Dense(3, nn::Activation::kIdentity, no_bias)});
  NDArray weights = network->parameters();
  FillInto(3e38, weights);
  Save(folder, std::move(network));
  const std::vector<RunResult> results = PredictAndEvaluate(folder);
  EXPECT_EQ(results[0].err, "tidepool predict: image 11: its probabilities are not finite\n");
  EXPECT_EQ(results[1].err, "tidepool evaluate: image 11: its scores are not finite\n");
  for (const RunResult& result : results) EXPECT_EQ(result.status, 1);
  EXPECT_EQ(results[1].out, "") << "an accuracy of what is no answer";
}

}  // namespace
}  // namespace tidepool::tools
